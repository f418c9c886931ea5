"""The definitions of the three clocks, and which of them a sentence names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.monitor.example_status import KAFKA, NOON, source_status, split_view
from watermark_source.monitor import followed_queries
from watermark_source.monitor.page_content import clock_rows
from watermark_source.monitor.three_clocks import (
    Delays,
    DelayVerdict,
    Diagnosis,
    QueryClocks,
    delays,
    diagnose,
    moment_of,
    query_clocks,
)
from watermark_source.monitor.window_facts import Unfollowed
from watermark_source.planning.announcement import NO_WRITER, writers_line
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    OperatorWatermark,
    Why,
    executed_batch,
)
from watermark_source.status_model.source_status import SourceStatus, Status, Unprocessed, WriterView

MINUTE = 60_000
JOIN = {"operatorName": "symmetricHashJoin", "numRowsTotal": 12}
DURATIONS = {"triggerExecution": 1_200, "addBatch": 1_000, "queryPlanning": 100, "walCommit": 50}


def source(*, arrived: int = NOON, split: str | None = None, older: bool = False, **fields: Any) -> SourceStatus:
    """A source at noon that has caught up, its newest row of just now."""
    oldest = Unprocessed(arrived, split, older)
    given = {"watermark": NOON - 1_000, "newest": NOON - 1_000, "rows_at": NOON} | fields
    views = given.pop("views", (split_view(0, watermark=given["watermark"]),))
    return source_status(*views, **{"unprocessed": oldest, "unread": oldest, **given})


def clocks(*sources: SourceStatus, state: tuple[dict[str, Any], ...] = (), **given: Any) -> QueryClocks:
    progress = {"batchId": 3, "durationMs": DURATIONS, "stateOperators": state, "sources": [], "numInputRows": 5}
    mark = given.pop("applied", None)
    return query_clocks(progress | ({} if mark is None else {"eventTime": {"watermark": mark}}), sources, NOON, **given)


def operators(*outputs: int | None, last: int = 0) -> BatchWatermarks:
    made = [
        OperatorWatermark(
            name=f"Operator{n}", operator=n, late=Millis(NOON - MINUTE), eviction=Millis(NOON - MINUTE),
            output_before=None, output=None if output is None else Millis(output), promises=True, is_last=n == last,
        )
        for n, output in enumerate(outputs)
    ]  # fmt: skip
    return BatchWatermarks(3, tuple(made), is_complete=False, has_stateless_rows=False)


def test_the_input_watermark_is_the_lowest_of_the_sources_and_none_before_all_have_one() -> None:
    assert clocks(source(), source(watermark=NOON - 7)).input_watermark == NOON - 1_000
    assert clocks(source(), source(watermark=None, views=())).input_watermark is None


def test_without_stateful_operators_the_output_watermark_is_the_input_watermark() -> None:
    found = clocks(source())
    assert (found.output_watermark, found.event_time_lag, found.input_event_time_lag) == (NOON - 1_000, 1_000, 1_000)


def test_with_stateful_operators_the_output_watermark_is_what_they_state() -> None:
    found = clocks(source(), state=(JOIN,), operators=operators(NOON - 3 * MINUTE))
    assert (found.output_watermark, found.event_time_lag) == (NOON - 3 * MINUTE, 3 * MINUTE)


def test_event_time_latency_is_the_input_watermark_less_the_output_watermark() -> None:
    held = clocks(source(), state=(JOIN,), operators=operators(NOON - 3 * MINUTE))
    assert held.event_time_latency == 3 * MINUTE - 1_000
    assert clocks(source()).event_time_latency == 0
    assert clocks(source(watermark=None, views=())).event_time_latency is None
    assert clocks(source(watermark=MAX), state=(JOIN,), operators=operators(NOON)).event_time_latency is None


def test_where_operators_state_nothing_the_reason_is_given() -> None:
    found = clocks(source(), state=(JOIN,), operators=NoWatermark(Why.COMPLETE_MODE))
    assert found.output_watermark is None
    assert found.no_output == str(NoWatermark(Why.COMPLETE_MODE))


def test_where_operators_cannot_be_asked_the_applied_watermark_says_how_long_rows_wait() -> None:
    found = clocks(source(), state=(JOIN,), applied="2026-11-21T11:55:00.000Z")
    assert (found.output_watermark, found.applied_watermark) == (None, NOON - 5 * MINUTE)
    assert diagnose(found).verdict is DelayVerdict.ROWS_WAIT


def test_the_processing_time_watermark_is_of_the_oldest_row_of_all_sources() -> None:
    found = clocks(source(), source(arrived=NOON - MINUTE, split="payments-0"))
    assert found.processing_time_watermark == NOON - MINUTE
    assert found.processing_time_latency == MINUTE


def test_the_rows_of_a_batch_are_unprocessed_until_it_is_committed() -> None:
    status = source(unprocessed=Unprocessed(NOON - MINUTE, "orders-0"), unread=Unprocessed(NOON - 9))
    assert clocks(status, in_batch=True).processing_time_watermark == NOON - MINUTE
    assert clocks(status).processing_time_watermark == NOON - 9


def test_while_a_query_is_idle_nothing_is_unprocessed() -> None:
    assert clocks(source(arrived=NOON - MINUTE), idle_at=NOON - 5).processing_time_watermark == NOON - 5
    unread = source(arrived=NOON - MINUTE, split="orders-0")
    assert clocks(unread, idle_at=NOON - 5).processing_time_watermark == NOON - MINUTE


def test_deduplication_holds_no_rows() -> None:
    dedupe = {"operatorName": "dedupeWithinWatermark", "numRowsTotal": 1_000}
    assert clocks(source(), state=(JOIN, dedupe)).state_rows == 12


def test_an_event_of_an_idle_query_has_the_number_of_the_next_batch() -> None:
    idle = query_clocks({"batchId": 3, "durationMs": {"latestOffset": 1}, "sources": []}, [source()], NOON)
    assert idle.batch is not None
    assert idle.batch.number == 2
    assert query_clocks({"batchId": 0, "durationMs": {}, "sources": []}, [source()], NOON).batch is None


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2026-11-21T12:00:00.000Z", NOON),
        (None, None),
        ("1970-01-01T00:00:00.000Z", None),
        ("+292278994-08-17T07:12:55.807Z", None),
    ],
)
def test_a_time_of_spark_is_read_and_1970_is_none_yet(text: str | None, millis: int | None) -> None:
    assert moment_of(text) == millis


# The parts of the delay.


def test_the_parts_of_a_delay_add_up_to_the_event_time_lag() -> None:
    status = source(arrived=NOON - MINUTE, split="orders-0", newest=NOON - 3 * MINUTE)
    found = clocks(status, state=(JOIN,), operators=operators(NOON - 10 * MINUTE))
    assert delays(found) == Delays(processing=MINUTE, quiet=0, age=2 * MINUTE, held=7 * MINUTE)
    assert found.event_time_lag == 10 * MINUTE


def test_the_time_without_rows_is_not_the_age_of_the_data() -> None:
    found = clocks(source(newest=NOON - 5 * MINUTE, rows_at=NOON - 4 * MINUTE))
    assert delays(found) == Delays(processing=0, quiet=4 * MINUTE, age=MINUTE, held=0)


@pytest.mark.parametrize(
    ("newest", "rows_at"), [(NOON - 9_000, NOON - 7_000), (NOON - 5_000, NOON - 5_000), (NOON + 1, NOON - 2_000)]
)
def test_rows_last_arrived_between_two_requests_and_not_before_their_event_time(newest: int, rows_at: int) -> None:
    assert clocks(source(newest=newest, rows_after=NOON - 7_000, rows_at=NOON - 2_000)).rows_at == rows_at


def test_rows_of_a_query_whose_operators_hold_none_do_not_wait_for_time() -> None:
    assert delays(clocks(source(watermark=NOON - MINUTE))).held == 0


def test_an_ended_stream_holds_nothing() -> None:
    found = clocks(source(watermark=MAX), state=(JOIN,), operators=operators(MAX))
    assert (delays(found).held, found.event_time_lag) == (0, None)


# The sentence.

HOUR = 60 * MINUTE
SILENT_WHY = "nothing to read for 1 h; never idle without idleTimeout"
SILENT = split_view(1, watermark=NOON - HOUR, end=100, quiet=HOUR, why=SILENT_WHY)
FRESH = source()
OLD = source(newest=NOON - HOUR, watermark=NOON - HOUR)
HELD = source(watermark=NOON - HOUR, views=(split_view(0), SILENT))
BLOCKED = source(arrived=NOON - HOUR, split="orders-0", newest=NOON - HOUR, watermark=NOON - HOUR)
QUIET = source(rows_at=NOON - HOUR, newest=NOON - HOUR, watermark=NOON - HOUR)
PAUSED = source(
    arrived=NOON - HOUR,
    split="orders-0",
    views=(split_view(0, Status.PAUSED, why="37 s ahead of orders-3 (alignmentMaxDrift 30 s)"),),
)
BEGUN = source(arrived=NOON - MINUTE, split="orders-0", older=True, newest=NOON - HOUR, watermark=NOON - HOUR)


@pytest.mark.parametrize(
    ("found", "verdict", "sentence"),
    [
        (
            clocks(FRESH),
            DelayVerdict.FRESH,
            (
                "the data are fresh: rows are processed at once after they arrive, and the output watermark is 1 s "
                "behind the clock"
            ),
        ),
        (
            clocks(OLD),
            DelayVerdict.DATA_OLD,
            (
                "the data are old: the newest event time read, 2026-11-21 11:00:00.000 UTC, is 1 h older than its "
                "row's arrival; rows are processed at once after they arrive. 1 h may be the difference of a time "
                "zone: a time without a zone is read as UTC, so write it with its own, as in 2026-11-27T12:00:00+02:00"
            ),
        ),
        (
            clocks(BEGUN),
            DelayVerdict.DATA_OLD,
            (
                "the data are old: the newest event time read, 2026-11-21 11:00:00.000 UTC, is 59 min older than "
                "its row's arrival; rows are processed within 1 min after they arrive. The rows were there before "
                "the query was started, for how long is unknown"
            ),
        ),
        (
            clocks(HELD, state=(JOIN,), operators=operators(NOON - HOUR)),
            DelayVerdict.ROWS_WAIT,
            (
                "rows wait for time: operators hold 12 rows, and the output watermark, 2026-11-21 11:00:00.000 "
                "UTC, is 59 min 59 s behind the newest event time read; it is held by orders-1: nothing to read "
                "for 1 h; never idle without idleTimeout; to continue without a silent partition, write "
                '.option("idleTimeout", "30 seconds")'
            ),
        ),
        (
            clocks(FRESH, state=(JOIN,), operators=operators(NOON - HOUR)),
            DelayVerdict.ROWS_WAIT,
            (
                "rows wait for time: operators hold 12 rows, and the output watermark, 2026-11-21 11:00:00.000 "
                "UTC, is 59 min 59 s behind the newest event time read; operators hold it 59 min 59 s behind the "
                "input watermark"
            ),
        ),
        (
            clocks(source(watermark=None), state=(JOIN,), operators=NoWatermark(Why.NO_WATERMARK)),
            DelayVerdict.ROWS_WAIT,
            (
                "rows wait for time: operators hold 12 rows, and there is no watermark yet; it is held by orders-0: "
                "behind by 50 records; it is being read; maxOffsetsPerTrigger, if set, limits the "
                "rows of a batch"
            ),
        ),
        (
            clocks(QUIET, state=(JOIN,), operators=operators(NOON - HOUR)),
            DelayVerdict.ROWS_WAIT,
            (
                "rows wait for time: operators hold 12 rows, and the output watermark, 2026-11-21 11:00:00.000 "
                "UTC, is at the newest event time read, and no row has arrived for 1 h"
            ),
        ),
        (
            clocks(PAUSED),
            DelayVerdict.ROWS_WAIT,
            (
                "rows wait for time: orders-0 is paused, with rows that arrived 1 h ago: 37 s ahead of orders-3 "
                "(alignmentMaxDrift 30 s)"
            ),
        ),
        (
            clocks(BLOCKED, in_batch=True, running=HOUR - 50),
            DelayVerdict.BATCH_SLOW,
            (
                "the batch is slow: the oldest row of orders-0 that is not processed arrived 1 h ago; batch 4 has "
                "been running for 59 min 59 s; batch 3 took 1.2 s (addBatch 1 s, queryPlanning 100 ms); 50 rows "
                "behind it are unread"
            ),
        ),
        (
            clocks(HELD),
            DelayVerdict.FRESH,
            (
                "rows are processed at once after they arrive, and the output watermark is 1 h behind the clock; it is "
                "held by orders-1: nothing to read for 1 h; never idle without idleTimeout; to continue without a "
                'silent partition, write .option("idleTimeout", "30 seconds")'
            ),
        ),
        (clocks(QUIET), DelayVerdict.QUIET, "no rows arrive: all are processed, and the last came 1 h ago"),
        (
            clocks(BLOCKED, waits_for_trigger=True),
            DelayVerdict.TRIGGER,
            (
                "rows wait for the trigger: no batch is running, and the logs were last read 1 h ago; the next "
                "batch begins at its interval"
            ),
        ),
        (
            clocks(source(arrived=NOON - HOUR), in_batch=True, running=HOUR),
            DelayVerdict.BATCH_SLOW,
            (
                "the batch is slow: no row was unread when the logs were last read, 1 h ago; batch 4 has been running "
                "for 1 h; batch 3 took 1.2 s (addBatch 1 s, queryPlanning 100 ms); 50 rows behind it are unread"
            ),
        ),
        (clocks(), DelayVerdict.UNKNOWN, "no source of this project has reported a batch of this query"),
        (query_clocks({}, (), NOON), DelayVerdict.UNKNOWN, "the query is starting: its first batch is not planned yet"),
    ],
    ids=lambda given: given.name if isinstance(given, DelayVerdict) else None,
)
def test_the_sentence_names_the_largest_part_of_the_delay(
    found: QueryClocks, verdict: DelayVerdict, sentence: str
) -> None:
    diagnosis = diagnose(found)
    assert (diagnosis.verdict, str(diagnosis)) == (verdict, sentence)
    beginnings = re.findall(r'"([^"]+)"', " ".join((followed_queries.why.__doc__ or "").split()))
    assert sentence.startswith(tuple(beginnings))


NEVER = split_view(1, watermark=None, position=0, end=0, why="no record seen yet; holds the watermark")
LINE = 'to continue without a silent partition, write .option("idleTimeout", "30 seconds")'
UNDATED = "no record seen since the query was started; holds the watermark"
NO_MARK: dict[str, Any] = {"watermark": None, "views": (split_view(0), NEVER)}


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        (NO_MARK, f"orders-1: no record seen yet; holds the watermark; {LINE}"),
        (
            NO_MARK | {"idle_timeout": 30_000},
            f"orders-1: {NEVER.why}; once it has been silent for 30 s, orders-1 is left out",
        ),
        (
            NO_MARK | {"views": (split_view(0), split_view(1, watermark=None, position=9, end=9, why=UNDATED))},
            f"orders-1: {UNDATED}; {LINE}",
        ),
        (
            {"watermark": None, "unannounced": NO_WRITER},
            f"the announcements: {NO_WRITER}; {writers_line([])}",
        ),
        (
            {
                "watermark": None,
                "writers": [
                    WriterView(name="a", status="awaited", kind=HoldKind.NEVER, why="has announced nothing yet")
                ],
            },
            f"writer a: has announced nothing yet; {writers_line(['a'], KAFKA.watermarks or '')}",
        ),
    ],
)
@pytest.mark.parametrize("newest", [NOON, NOON - HOUR])
def test_without_a_watermark_the_sentence_begins_with_who_holds_it(
    fields: dict[str, Any], held: str, newest: int
) -> None:
    status = source(newest=newest, **fields)
    found = diagnose(clocks(status, state=(JOIN,), operators=NoWatermark(Why.NO_WATERMARK)))
    sentence = str(found)
    assert (found.verdict, sentence.partition("; besides, ")[0]) == (
        DelayVerdict.ROWS_WAIT,
        f"no window can close: {held}",
    )
    assert sentence.partition("; besides, ")[2].startswith("the data are old" if newest < NOON else "")
    assert str(diagnose(query_clocks({}, [status], NOON))).startswith(f"no window can close: {held}")
    # Without operators that hold rows nothing waits for a watermark.
    unheld = diagnose(clocks(status))
    assert unheld.verdict is (DelayVerdict.DATA_OLD if newest < NOON else DelayVerdict.FRESH)
    assert str(unheld).endswith(f"; there is no watermark: {held}")


def test_the_source_without_a_watermark_is_named_where_there_are_several() -> None:
    found = clocks(FRESH, source(source_name="payments", **NO_MARK), state=(JOIN,))
    assert str(diagnose(found)).startswith("no window can close: source payments: orders-1: no record seen yet")
    both = clocks(*(source(source_name=name, **NO_MARK) for name in "ab"), state=(JOIN,))
    first, _, second = str(diagnose(both)).removeprefix("no window can close: ").partition("; source b: ")
    # What to write follows the source on which it is to be written.
    assert first == f"source a: {second}"


def test_a_watermark_that_stands_comes_before_data_that_are_older_still() -> None:
    day = 24 * HOUR
    marks = {"watermark": NOON - day - HOUR, "newest": NOON - day, "without_holder": NOON - day}
    quiet = split_view(
        1, watermark=NOON - day - HOUR, position=9, end=9, holds_back=True, why="nothing to read for 1 h"
    )
    views = (split_view(0, watermark=NOON - day), quiet)

    def of(**fields: Any) -> str:
        status = source(**(marks | {"views": views} | fields))
        return str(diagnose(clocks(status, state=(JOIN,), operators=operators(NOON - day - HOUR))))

    assert of().startswith(
        f"no later window can close: orders-1: nothing to read for 1 h; {LINE}; "
        "besides, the data are old: the newest event time read, 2026-11-20 12:00:00.000 UTC, is 1 d older"
    )
    assert of(idle_timeout=30_000).startswith("the data are old")
    assert of(without_holder=NOON - day - HOUR + 5_000).startswith("the data are old")
    assert of(views=(views[0], split_view(1, watermark=NOON - day - HOUR))).startswith("the data are old")


def test_one_record_of_the_future_makes_no_rows_wait_and_is_named_with_its_partition() -> None:
    """The others advance with the clock; the highest event time is no measure of how long rows wait."""
    views = (split_view(0, watermark=NOON - 1_000), split_view(1, watermark=NOON + HOUR - 1))
    status = source(views=views, newest=NOON + HOUR, out_of_orderness=0)
    found = diagnose(clocks(status, state=(JOIN,), operators=operators(NOON - 1_000)))
    assert found.verdict is DelayVerdict.FRESH
    assert "; orders-1 has a record 1 h ahead of the clock: check its producer's clock; maxFutureSkew" in str(found)


@pytest.mark.parametrize("silent", [0, HOUR])
def test_rows_that_were_there_before_the_start_are_not_called_old_while_none_arrives(silent: int) -> None:
    status = source(newest=NOON - HOUR - silent, rows_at=None, watermark=NOON - HOUR)
    found = diagnose(clocks(status))
    assert (found.verdict, str(found)) == (
        DelayVerdict.QUIET,
        "no rows arrive: all are processed, and they were there before the query was started",
    )


def test_on_the_clock_no_data_are_old() -> None:
    status = source(processing_time=True, newest=NOON - 24 * HOUR, watermark=NOON - 1)
    assert diagnose(clocks(status)).verdict is DelayVerdict.FRESH


def test_a_query_that_does_not_follow_its_sources_learns_the_reason_whatever_else_is_slow() -> None:
    found = diagnose(clocks(HELD, BLOCKED, state=(JOIN,), unfollowed=Unfollowed(NOON, NOON - HOUR)))
    assert found.verdict is DelayVerdict.UNFOLLOWED
    assert str(found).startswith(
        "the query does not follow its sources: Spark's own watermark, 2026-11-21 12:00:00 UTC"
    )
    assert "rows of orders-1" in str(found)
    assert "use follow_watermark(stream) instead of withWatermark; for SQL " in str(found)


def forms(diagnoses: Iterable[Diagnosis]) -> set[tuple[DelayVerdict, str]]:
    """Return what is stated, without the numbers."""
    return {(found.verdict, re.sub(r"[0-9][0-9:.-]*( (min|s|h))?( [0-9]+ s)?", "N", str(found))) for found in diagnoses}


def rare_over_old_rows(silent: int) -> Diagnosis:
    """Return the answer where rows of an hour ago come all the time, and those of one partition ever so often."""
    at = NOON - HOUR - silent
    rare = split_view(1, watermark=at, position=9, end=9, holds_back=True, quiet=silent, why="nothing to read for …")
    dense = split_view(0, watermark=NOON - HOUR)
    status = source(newest=NOON - HOUR, watermark=at, without_holder=NOON - HOUR, views=(dense, rare))
    return diagnose(clocks(status, state=(JOIN,), operators=operators(at)))


def test_a_partition_whose_rows_come_rarely_changes_no_verdict_from_row_to_row() -> None:
    ((verdict, text),) = forms(rare_over_old_rows(silent) for silent in range(0, 29_000, 1_000))
    assert verdict is DelayVerdict.DATA_OLD
    assert "idleTimeout" not in text
    silent = rare_over_old_rows(31_000)
    assert str(silent).startswith(
        "no later window can close: orders-1: nothing to read for …; to continue without a silent partition"
    )


def test_what_waits_for_rows_that_come_rarely_is_stated_in_one_form() -> None:
    def of(quiet: int) -> Diagnosis:
        newest = NOON - quiet
        status = source(newest=newest, rows_at=newest, rows_after=newest, watermark=newest - 15_000)
        return diagnose(clocks(status, state=(JOIN,), operators=operators(newest - 15_000)))

    ((verdict, text),) = forms(map(of, range(1_000, 60_000, 1_000)))
    assert verdict is DelayVerdict.ROWS_WAIT
    assert text.endswith("is N behind the newest event time read, and no row has arrived for N")


def test_a_delay_within_the_tolerance_needs_no_cause() -> None:
    found = diagnose(clocks(BLOCKED), 2 * HOUR)
    assert found.verdict is DelayVerdict.FRESH
    assert str(found).startswith("the data are fresh: ")


def test_the_split_that_holds_is_named_with_its_source_where_there_are_several() -> None:
    other = source(source_name="payments", views=(SILENT,), watermark=NOON - HOUR)
    found = clocks(FRESH, other, state=(JOIN,), operators=operators(NOON - HOUR))
    assert "it is held by orders-1 of source payments: nothing to read for 1 h" in str(diagnose(found))


def test_the_line_of_the_clocks_has_each_operator_from_the_source_to_the_sink() -> None:
    found = clocks(source(), state=(JOIN,), operators=operators(NOON - 2 * MINUTE, NOON - MINUTE))
    assert [str(row) for row in clock_rows(found)] == [
        "Watermark of the sources: 11:59:59 (1 s behind the clock)",
        "Results are complete up to: 11:58:00 (2 min behind the clock)",
        "Operator1 has emitted up to: 11:59:00 (1 min behind the clock)",
        "Operator0 has emitted up to: 11:59:00 (1 min behind the clock, output watermark 11:58:00)",
        "The query itself adds: 1 min 59 s (from input to output watermark)",
    ]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(source(arrived=NOON - 277, split="orders-0"), DelayVerdict.UNKNOWN), (BLOCKED, DelayVerdict.BATCH_SLOW)],
)
def test_while_the_first_batch_runs_the_sentence_is_that_it_runs(status: SourceStatus, verdict: DelayVerdict) -> None:
    running = query_clocks({}, [status], NOON, in_batch=True, running=MINUTE)
    diagnosis = diagnose(running)
    assert (diagnosis.verdict, str(diagnosis)) == (
        verdict,
        "the first batch is running: it began 1 min ago, and its first task may compile the decoder once",
    )
    assert diagnose(clocks(status, in_batch=True)).verdict is not DelayVerdict.UNKNOWN


def test_a_watermark_ahead_of_the_clock_is_shown_as_ahead_and_by_how_much() -> None:
    found = clocks(source(watermark=NOON + 9 * MINUTE, newest=NOON))
    assert str(next(clock_rows(found))) == "Watermark of the sources: 12:09:00 (9 min ahead of the clock)"
    assert str(diagnose(found)).endswith("and the output watermark is 9 min ahead of the clock")


class Execution:
    """What Spark's driver process answers about a query whose batch 8 runs after it was idle."""

    def lastExecution(self) -> Execution:  # noqa: N802 - Spark's names
        return self

    def offsetSeqMetadata(self) -> Execution:  # noqa: N802
        return self

    def currentBatchId(self) -> int:  # noqa: N802
        return 8

    def batchTimestampMs(self) -> int:  # noqa: N802
        return NOON - 3_000


def test_a_batch_runs_though_the_event_of_an_idle_query_has_its_number() -> None:
    idle = {"batchId": 8, "durationMs": {"latestOffset": 1}}
    assert followed_queries._running(Execution(), executed_batch(idle), NOON) == 3_000
    committed = {"batchId": 8, "durationMs": DURATIONS}
    assert followed_queries._running(Execution(), executed_batch(committed), NOON) is None


def test_operators_are_asked_again_once_the_batch_that_an_idle_query_named_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = iter((7, 8))
    monkeypatch.setattr(
        followed_queries, "read_watermarks",
        lambda *_: BatchWatermarks(next(batches), (), is_complete=False, has_stateless_rows=False),
    )  # fmt: skip
    query = SimpleNamespace(
        _jsq=SimpleNamespace(streamingQuery=IdleExecution), lastProgress=None, status={"message": ""}
    )
    reader = followed_queries.QueryReader(query, 0, lambda: NOON)
    for progress in ({"batchId": 8, "durationMs": {"latestOffset": 1}}, {"batchId": 8, "durationMs": DURATIONS}):
        query.lastProgress = {**progress, "sources": []}
        reader.status()
    assert next(batches, None) is None


def test_the_output_watermark_stays_known_while_spark_plans_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = OperatorWatermark(
        name="StateStoreSave", operator=0, late=Millis(100), eviction=Millis(200), output_before=Millis(100),
        output=Millis(200), promises=True, is_last=True,
    )  # fmt: skip
    stated = BatchWatermarks(7, (windows,), is_complete=False, has_stateless_rows=False)
    later = replace(stated, batch=8, operators=(replace(windows, output=Millis(300)),))
    read = iter((stated, NoWatermark(Why.PLANNING), NoWatermark(Why.PLANNING), later))
    monkeypatch.setattr(followed_queries, "read_watermarks", lambda *_: next(read))
    query = SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=IdleExecution), status={"message": ""})
    reader = followed_queries.QueryReader(query, 0, lambda: NOON)
    found = []
    for number in (7, 8, 8, 8):
        query.lastProgress = {"batchId": number, "durationMs": DURATIONS, "sources": []}
        found.append(reader.status().clocks.output_watermark)
    assert found == [200, 200, 200, 300]


class IdleExecution(Execution):
    """The same without a batch under way."""

    def committedOffsets(self) -> object:  # noqa: N802
        return SimpleNamespace(equals=lambda _: True)

    def availableOffsets(self) -> None:  # noqa: N802
        pass

    def latestOffsets(self) -> object:  # noqa: N802
        return SimpleNamespace(iterator=lambda: SimpleNamespace(hasNext=lambda: False))
