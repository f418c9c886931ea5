"""When a watermark that closes no window is warned of, and what the warnings say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.monitor.example_status import KAFKA, source_status
from watermark_source.planning.group_limit import TO_COME
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import NAMED, THE_ANNOUNCEMENTS, HeldBy, Hold
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import (
    Bounded,
    Ingestion,
    LookAhead,
    Monotonous,
    Percentile,
    Punctuated,
    WatermarkStrategy,
)
from watermark_source.status_model.watermark_warnings import (
    LateSplit,
    Lead,
    Reason,
    Stand,
    Standing,
    clock_text,
    clocks_behind,
    end_text,
    future_text,
    late_text,
    lead,
    lead_text,
    moving_text,
    noted,
    standing_text,
    zone_text,
)
from watermark_source.words import Words

MINUTE = 60_000
AT = 1_700_000_000_000
ORDERS = Split("orders", 2)
SILENT = Hold(name="orders-2", kind=HoldKind.NEVER, why="no record seen yet; holds the watermark")
LAST = replace(SILENT, is_last=True)


def begun(watermark: int | None = None) -> Standing:
    return Standing(watermark, since=0, rows=0, begun_with=watermark)


def test_no_first_watermark_is_warned_of_after_a_minute() -> None:
    standing = begun()
    assert not standing.is_due(rows=0, now=MINUTE - 1, patience=MINUTE)
    assert standing.is_due(rows=0, now=MINUTE, patience=MINUTE)


def test_a_watermark_that_stands_is_warned_of_only_where_rows_are_read() -> None:
    standing = begun().at(5, rows=10, now=MINUTE)
    assert standing.at(5, rows=20, now=9 * MINUTE) is standing
    assert not standing.is_due(rows=10, now=9 * MINUTE, patience=MINUTE)
    assert not standing.is_due(rows=11, now=2 * MINUTE - 1, patience=MINUTE)
    assert standing.is_due(rows=11, now=2 * MINUTE, patience=MINUTE)


OF_ORDERS = HoldKind.SILENT, "orders-2"
DAY = 24 * 60 * MINUTE


def lines(
    moves_at: Callable[[int], int], days: int, reason: Callable[[int], Reason] = lambda _: OF_ORDERS
) -> list[int]:
    """Return at which minutes a line comes; ``moves_at``: the watermark as of a minute. Rows come all the time."""
    standing, episode, found = begun(0), None, []
    for minute in range(days * 24 * 60):
        now = minute * MINUTE
        standing = standing.at(moves_at(minute), rows=minute, now=now)
        if standing.is_due(rows=minute + 1, now=now, patience=MINUTE):
            episode, warns = noted(episode, standing, reason(minute), now, MINUTE)
            found += [minute] * warns
        elif episode is not None and episode.is_over(standing, now, MINUTE):
            found.append(-minute)
            episode = None
    return found


def test_a_slow_partition_is_warned_of_once_and_then_ever_less_often() -> None:
    """It moves every third minute, and the watermark with it: 480 stands a day."""
    assert lines(lambda minute: minute // 3, 1)[:5] == [1, 11, 31, 71, 151]
    assert len(lines(lambda minute: minute // 3, 1)) <= 8
    # At last once a day.
    assert len(lines(lambda minute: minute // 3, 20)) < 8 + 20


def test_another_reason_is_warned_of_at_once() -> None:
    other = HoldKind.SILENT, "orders-3"
    assert lines(lambda _: 5, 1, lambda minute: other if 5 <= minute < 20 else OF_ORDERS)[:3] == [1, 5, 15]


def test_once_the_watermark_moves_again_one_line_ends_the_warnings() -> None:
    moves = lines(lambda minute: 5 if minute < 8 or 60 <= minute < 70 else minute, 1)
    assert moves == [1, -12, 61, -74]


def test_a_stand_that_was_seen_is_not_looked_at_for_a_while() -> None:
    standing = begun(5)
    episode, _ = noted(None, standing, OF_ORDERS, MINUTE, MINUTE)
    assert episode.is_seen(standing, 2 * MINUTE - 1, MINUTE)
    assert not episode.is_seen(standing, 2 * MINUTE, MINUTE)
    assert not episode.is_seen(standing.at(6, rows=1, now=MINUTE), MINUTE, MINUTE)


def test_the_line_at_the_end_states_how_often_it_stood_and_since_when() -> None:
    assert moving_text(AT + MINUTE, 3, AT) == (
        "the watermark moves again, and is at 2023-11-14 22:14:20.000 UTC: it had stood 3 times since 2023-11-14 "
        "22:13:20.000 UTC"
    )


def test_a_run_is_warned_of_at_its_end_if_it_read_rows_and_its_watermark_did_not_move() -> None:
    assert begun().is_due_at_end(rows=1)
    assert begun(5).is_due_at_end(rows=1)
    assert not begun().is_due_at_end(rows=0)
    assert not begun(5).at(6, rows=1, now=1).is_due_at_end(rows=1)


def standing_text_of(of: Stand) -> str:
    return standing_text(of, None)


def stand(*holds: Hold, watermark: int | None = None, rows: int = 1_200, bound: int = 0, **fields: Any) -> Stand:
    status = source_status(watermark=watermark, slowest=holds[:NAMED], more_holds=len(holds[NAMED:]), words=KAFKA)
    status = replace(status, out_of_orderness=bound)
    return Stand(source=status, watermark=watermark, since=AT, lasted=MINUTE, rows=rows, **fields)


def test_the_warning_names_the_split_since_when_and_the_line() -> None:
    assert standing_text_of(stand(SILENT)) == (
        "there is no watermark since 2023-11-14 22:13:20.000 UTC (1 min), with 1 200 rows read since: no window "
        "closes, and no row leaves a join. It is held back by orders-2: no record seen yet; holds the watermark. To "
        'continue without a silent partition, write .option("idleTimeout", "30 seconds")'
    )
    assert standing_text_of(stand(SILENT, watermark=AT, rows=0)).startswith(
        "the watermark stands at 2023-11-14 22:13:20.000 UTC since 2023-11-14 22:13:20.000 UTC (1 min): no window"
    )


def test_the_warning_of_a_run_says_that_silence_counts_from_run_to_run() -> None:
    assert end_text(stand(SILENT), None) == (
        "the run is over, and the source's watermark closed no window: 1 200 rows read, and there is no watermark "
        "yet. It is held back by orders-2: no record seen yet; holds the watermark. To continue without a silent "
        'partition, write .option("idleTimeout", "30 seconds"); its silence counts from one run to the next'
    )


@pytest.mark.parametrize(
    ("kind", "fields", "line"),
    [
        (HoldKind.NEVER, {"timeout": 600_000}, "silent for 10 min, orders-2 is left out"),
        (HoldKind.SILENT, {"timeout": 10_000, "quiet": 3_500}, "silent for 10 s, in 6.5 s, orders-2 is left out"),
        (
            HoldKind.BACKLOG,
            {"lag": 7},
            "It is being read; maxOffsetsPerTrigger, if set, limits the rows of a batch",
        ),
        (HoldKind.NO_ANSWER, {}, "See the log for why it does not answer"),
        (
            HoldKind.UNDATED,
            {},
            "profile --kafka --kafka.bootstrap.servers HOST:9092 --subscribe TOPIC; if such records are",
        ),
        (HoldKind.FUTURE, {}, "Check the producer's clock, and eventTimeColumn and eventTimeFormat"),
        (
            HoldKind.NO_MARKS,
            {},
            "Only a watermark in a record of orders-2 moves it (watermarkColumn): the producer has to write watermarks",
        ),
        (HoldKind.NO_MARKS, {}, 'into every partition. .option("idleTimeout", "30 seconds") leaves out one without an'),
        (
            HoldKind.NO_MARKS,
            {"timeout": 30_000},
            "idleTimeout (30 s) leaves out one without any records, and not one whose records carry no watermark",
        ),
        (HoldKind.OPEN_TRANSACTION, {}, "Let the producer commit or abort its transaction: no idleTimeout leaves such"),
        (
            HoldKind.PAUSED,
            {"by": HeldBy.SOURCE, "name": str(TO_COME)},
            "Start the other sources of the alignment group, or write how many there are",
        ),
        (HoldKind.LEFT_OUT, {"follows_group": True}, '.option("idleFollows", "group") lets it follow the other sour'),
    ],
)
def test_the_line_to_write_follows_from_what_holds(kind: HoldKind, fields: dict[str, Any], line: str) -> None:
    assert line in standing_text_of(stand(replace(SILENT, kind=kind, **fields)))


def test_no_idle_timeout_is_proposed_where_no_split_is_ahead_of_the_silent_one() -> None:
    last = standing_text_of(stand(LAST, watermark=AT, bound=MINUTE))
    assert "No other partition has a later event time, as is normal while rows are still coming and after the" in last
    assert "a record with a later event time (maxOutOfOrderness 1 min) moves it" in last
    assert '.option("finalWatermark", "true") closes all windows' in last
    idle = standing_text_of(stand(watermark=AT))
    assert "Nothing holds it: no other partition has a later event time, as is normal" in idle
    assert "idleTimeout" not in last + idle


def test_a_query_that_began_at_the_ends_of_its_logs_is_named_as_such() -> None:
    text = standing_text_of(stand(replace(LAST, began_behind=True), rows=0))
    assert '.option("startingOffsets", "earliest") with a new checkpoint location reads them' in text
    assert "idleTimeout" not in text


@pytest.mark.parametrize("millis", [MINUTE * 60, -2 * MINUTE * 60, MINUTE * 330 - 40_000, 14 * 60 * MINUTE])
def test_a_difference_of_whole_hours_may_be_a_time_zone(millis: int) -> None:
    assert "a time without a zone is read as UTC" in zone_text(millis, KAFKA)


def test_a_connector_says_how_its_times_without_a_zone_get_one() -> None:
    words = Words(zone='of a DATETIME, name it: .option("timeZone", "Europe/Berlin")')
    for text in (
        zone_text(60 * MINUTE, words),
        future_text(60 * MINUTE, None, words, is_announced=False),
        lead_text(60 * MINUTE, 0, words),
    ):
        assert 'T12:00:00+02:00; of a DATETIME, name it: .option("timeZone", "Europe/Berlin")' in text


@pytest.mark.parametrize("millis", [0, 30 * MINUTE, 62 * MINUTE, 15 * 60 * MINUTE, 75 * 365 * DAY])
def test_another_difference_is_none_of_a_zone(millis: int) -> None:
    assert zone_text(millis, KAFKA) == ""


def test_a_watermark_two_hours_ahead_names_the_zone() -> None:
    ahead = stand(SILENT, watermark=AT + 120 * MINUTE, late=1_200, ahead=120 * MINUTE)
    assert "2 h may be the difference of a time zone" in standing_text_of(ahead)


@pytest.mark.parametrize("minutes", [60, 110, 118, 121])
def test_rows_without_a_zone_that_are_read_with_a_delay_are_known_by_it(minutes: int) -> None:
    """Their log was being caught up with: the watermark was ahead by the zone less the delay."""
    text = future_text(minutes * MINUTE, None, KAFKA, is_announced=False)
    assert f"{'1 h' if minutes == 60 else '2 h'} may be the difference of a time zone" in text


@pytest.mark.parametrize("minutes", [45, 62, 75, 109, 122])
def test_a_watermark_that_is_ahead_by_no_zone_gets_no_hint_of_one(minutes: int) -> None:
    assert "zone" not in future_text(minutes * MINUTE, None, KAFKA, is_announced=False).lower()


def led(seconds: int, *, ahead: int, step: int = 5, speed: float = 1.0) -> Lead | None:
    """Return the lead after plans every ``step`` seconds, while event times advance at ``speed``."""
    found: Lead | None = None
    for at in range(0, seconds * 1_000 + 1, step * 1_000):
        gone = ahead + round(at * (speed - 1))
        found = lead(found, AT + ahead + round(at * speed), gone, at, MINUTE)
    return found


@pytest.mark.parametrize("minutes", [50, 52, 58, 60, 61, 118, 330])
def test_event_times_that_stay_ahead_by_a_zone_less_a_delay_are_warned_of_after_a_minute(minutes: int) -> None:
    """An hour less the writer's delay is less than what any watermark of the future is warned of."""
    assert not (found := led(55, ahead=minutes * MINUTE)) or not found.is_due(55_000, MINUTE)
    assert (found := led(65, ahead=minutes * MINUTE))
    assert found.is_due(65_000, MINUTE)


@pytest.mark.parametrize("minutes", [-60, -58, 0, 1, 5, 15, 30, 48, 63, 75])
def test_a_clock_that_differs_by_minutes_is_no_zone(minutes: int) -> None:
    assert led(600, ahead=minutes * MINUTE) is None


def test_one_wrong_row_is_no_zone_and_rows_that_come_rarely_are() -> None:
    found = led(300, ahead=59 * MINUTE, speed=0)
    assert found is not None
    assert not found.is_due(300_000, MINUTE)
    rare, now = None, 0
    for n in range(4):
        for now in range(n * 150_000, (n + 1) * 150_000, 5_000):
            rare = lead(rare, AT + n * 150_000, 59 * MINUTE - now + n * 150_000, now, MINUTE)
    assert rare is not None
    assert rare.is_due(now, MINUTE)


def test_the_warning_of_such_event_times_names_the_zone_and_the_line_to_write() -> None:
    text = lead_text(58 * MINUTE, 62_000, KAFKA)
    assert text.startswith(
        "event times are 58 min ahead of the clock, and have been for 1 min 02 s. 1 h may be the diff"
    )
    assert "write it with its own, as in 2026-11-27T12:00:00+02:00. Rows whose times are right" in text
    assert "begin with a new checkpoint location" in text
    assert lead_text(58 * MINUTE, 0, KAFKA).startswith("event times are 58 min ahead of the clock. 1 h may be")


def test_a_cap_on_the_future_is_no_way_out_where_all_rows_are_ahead() -> None:
    """With it none of them would move the watermark."""
    assert future_text(120 * MINUTE, None, KAFKA, is_announced=False).endswith(
        'write .option("maxFutureSkew", "1 hour"), with which no row further in the future moves the watermark; where '
        "all are, correct the event times first: with it alone the watermark would stand"
    )


CHECKPOINT = 'begin with a new checkpoint location; write .option("maxFutureSkew", "1 hour")'


@pytest.mark.parametrize("text", [standing_text, end_text])
def test_a_watermark_of_the_year_2099_gets_no_advice_about_silence(text: Callable[..., str]) -> None:
    ahead = stand(SILENT, watermark=AT + 75 * 365 * DAY, late=1_200, ahead=75 * 365 * DAY)
    logged = text(ahead, None)
    assert "1 200 of these rows are late. The watermark is 27375 d in the future: a row with a wrong event" in logged
    assert CHECKPOINT in logged
    assert "idleTimeout" not in logged
    assert "limits how far a row can move it" in text(ahead, MINUTE)


def test_a_watermark_that_is_ahead_of_all_rows_names_the_row_that_moved_it() -> None:
    logged = standing_text_of(stand(SILENT, watermark=AT, late=1_199))
    assert "1 199 of these rows are late: a row with a later event time moved the watermark ahead of them" in logged
    assert CHECKPOINT in logged
    # With some late rows a silent partition still is the cause.
    assert "To continue without" in standing_text_of(stand(SILENT, watermark=AT, late=600))


def test_a_snapshot_and_a_source_elsewhere_are_named() -> None:
    snapshot = Hold(
        by=HeldBy.READING, name="the snapshot of shop.orders", kind=HoldKind.SNAPSHOT, why="it is read first"
    )
    text = standing_text_of(stand(snapshot))
    assert "back by the snapshot of shop.orders: it is read first. The watermark begins with" in text
    first = replace(snapshot, name="the first reading", kind=HoldKind.BACKLOG)
    assert "A log that was truncated or created again after the query began has no such" in standing_text_of(
        stand(first)
    )
    elsewhere = replace(snapshot, by=HeldBy.SOURCE, name="clicks", kind=HoldKind.PAUSED, watermark=AT)
    assert "held back by clicks (limit of the group): it is read first. The limit advances once clicks does, and" in (
        standing_text_of(stand(elsewhere))
    )


def test_of_many_splits_three_are_named() -> None:
    many = [SILENT] * 6
    assert "orders-2: no record seen yet; holds the watermark; and 3 more. To" in standing_text_of(stand(*many))


LATE = LateRows((0, 0, 0, 3), longest=8_500)


def test_late_rows_within_a_split_ask_for_more_out_of_orderness() -> None:
    text = late_text([LateSplit(ORDERS, LATE)], Bounded(5_000), KAFKA)
    assert text.startswith("3 rows of orders-2 came up to 8.5 s late: windows, joins and deduplication drop such rows.")
    assert text.endswith('maxOutOfOrderness (5 s): write .option("maxOutOfOrderness", "14 seconds")')


def test_late_rows_of_a_split_that_was_idle_ask_for_a_longer_timeout() -> None:
    text = late_text([LateSplit(ORDERS, LATE, was_idle=True, idle_timeout=30_000)], Bounded(), KAFKA)
    assert "of orders-2 came up to" in text
    assert 'longer than idleTimeout (30 s). To wait for it, write a longer one: .option("idleTimeout", "39 sec' in text


def test_late_rows_of_a_new_split_are_named_as_such() -> None:
    assert "found while the query ran" in late_text([LateSplit(ORDERS, LATE, was_added=True)], Bounded(), KAFKA)


@pytest.mark.parametrize(
    ("strategy", "line"),
    [
        (Punctuated(), "behind a watermark that a record carries"),
        (Ingestion(10_000), "than maxWatermarkLag (10 s), or are out of order by more than maxOutOfOrderness (0 ms)"),
        (Monotonous(), "watermarkStrategy monotonous no row may be. Use bounded with maxOutOfOrderness"),
        (LookAhead(rows_ahead=10), "lookaheadRows"),
        (Percentile(950_000, 1_000, MINUTE), '(1 min): write .option("maxOutOfOrderness", "69 seconds")'),
        (
            Percentile(950_000, 1_000, MINUTE, 2_000),
            "keeps 95 % of the rows on time, and the others are late. For ",
        ),
    ],
)
def test_the_line_for_late_rows_follows_from_the_strategy(strategy: WatermarkStrategy, line: str) -> None:
    assert line in late_text([LateSplit(ORDERS, LATE)], strategy, KAFKA)


def test_several_splits_that_were_idle_are_named_as_several_with_the_longest_of_their_timeouts() -> None:
    late = [LateSplit(Split("orders", n), LATE, was_idle=True, idle_timeout=10_000 * n) for n in (1, 2)]
    text = late_text(late, Bounded(), KAFKA)
    assert "The splits were idle, and the watermark advanced without them: their pauses" in text
    assert 'longer than idleTimeout (20 s). To wait for them, write a longer one: .option("idleTimeout", "29 s' in text
    added = [each._replace(was_added=True) for each in late]
    assert "The splits were found while the query ran, and their rows lie" in late_text(added, Bounded(), KAFKA)


YEARS = LateRows((0, 0, 0, 3), longest=73 * 365 * DAY)


@pytest.mark.parametrize("strategy", [
    Bounded(), Ingestion(10_000), Punctuated(), LookAhead(rows_ahead=10),
])  # fmt: skip
@pytest.mark.parametrize("cause", [{}, {"was_idle": True}, {"was_added": True}])
def test_late_rows_behind_a_watermark_of_the_future_are_no_disorder(
    strategy: WatermarkStrategy, cause: dict[str, bool]
) -> None:
    late = LateSplit(ORDERS, YEARS, idle_timeout=10_000)._replace(**cause)  # type: ignore[arg-type]
    text = late_text([late], strategy, KAFKA, ahead=YEARS.longest - MINUTE)
    assert "The watermark is 26644 d 23 h in the future: a row with a wrong event time moved it. A watermark" in text
    assert text.split("d 23 h")[1].count("option") == 1
    assert CHECKPOINT in text


@pytest.mark.parametrize(
    ("late", "strategy"),
    [
        (LateSplit(ORDERS, YEARS), Bounded()),
        (LateSplit(ORDERS, YEARS), Ingestion(10_000)),
        (LateSplit(ORDERS, YEARS), Percentile(990_000, 1_000, MINUTE)),
        (LateSplit(ORDERS, YEARS, was_idle=True, idle_timeout=10_000), Bounded()),
    ],
)
def test_no_bound_of_more_than_a_day_is_proposed(late: LateSplit, strategy: WatermarkStrategy) -> None:
    text = late_text([late], strategy, KAFKA)
    assert "To wait that long would keep every window open" in text
    assert CHECKPOINT in text
    assert text.count(".option(") == 1


def test_a_clock_that_was_set_back_behind_the_watermark_is_named_with_the_moment_that_it_has_to_pass() -> None:
    behind = clocks_behind({ORDERS: AT - 5 * MINUTE}, AT)
    assert behind == {ORDERS: AT - 5 * MINUTE}
    text = clock_text(behind, AT)
    assert text.startswith("orders-2: the server's clock, which dates the rows, is 5 min behind the watermark")
    assert "Until it has passed 2023-11-14 22:13:20.000 UTC, the watermark stands, and rows have event times" in text


def test_a_clock_behind_a_watermark_that_follows_the_group_names_the_other_sources() -> None:
    assert not clocks_behind({ORDERS: AT - MINUTE}, AT, follows_group=True)
    behind = clocks_behind({ORDERS: AT - 5 * MINUTE}, AT, follows_group=True)
    text = clock_text(behind, AT, follows_group=True)
    assert "is 5 min behind the watermark: another source of the alignment group moved it (idleFollows=group)" in text
    assert "maxFutureSkew" in text


@pytest.mark.parametrize(("now", "watermark"), [(AT, AT), (AT - 900, AT), (AT, None), (AT, 2**63 - 1)])
def test_a_clock_at_the_watermark_or_slewed_and_a_watermark_that_is_no_time_are_nothing(
    now: int, watermark: int | None
) -> None:
    assert not clocks_behind({ORDERS: now}, watermark)


def test_a_standing_watermark_that_writers_announce_names_the_writer_that_holds_it() -> None:
    why = "has announced nothing for 2 min"
    writer = Hold(by=HeldBy.WRITER, name="sessions", kind=HoldKind.SILENT, quiet=2 * MINUTE, why=why)
    text = standing_text(stand(writer, watermark=AT, rows=10, late=9), None)
    assert (
        "It is held back by writer sessions: has announced nothing for 2 min. Start writer sessions; if it is gone"
        in text
    )
    assert "drop sessions, and remove its name from announcedBy, if it is there" in text
    nobody = replace(writer, name=THE_ANNOUNCEMENTS, kind=HoldKind.NEVER, why="no writer has announced a watermark yet")
    none = standing_text(stand(nobody, watermark=AT), None)
    assert "no writer has announced a watermark yet. Start the query that writes the topic, with announce_" in none
    assert "drop" not in none
