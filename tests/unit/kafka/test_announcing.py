"""What writers announce, what they promised at a position, and the command's words."""

from __future__ import annotations

import atexit
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic, TopicEnds, WatermarkAnnouncer, need_millis
from pyspark_aligned_kafka.announcing.audit import Promises
from pyspark_aligned_kafka.announcing.written_topic import WrittenTopic
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.lookup.announcements import statements_of, with_known_partitions
from services.wait_until import wait_until
from tests.unit.monitor.example_status import progress_of, source_status, split_view
from watermark_source.command_line import main
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import SourceError, UnknownOptionError, UsageError
from watermark_source.planning.announced import LoggedStatement
from watermark_source.planning.announcement import Announcement, Removal
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import LAST, LAST_MOMENT, MAX, MIN, Millis
from watermark_source.publishing import announced_query
from watermark_source.publishing.announced_query import AnnouncedQuery, TimeWithoutWatermark, hold_of, to_announce
from watermark_source.publishing.polls import Polls
from watermark_source.publishing.rest import is_at_rest, rest_text
from watermark_source.spark.operator_watermarks import NoWatermark, Why
from watermark_source.status_model.source_status import SourceStatus, Status, WriterView


def announcement(
    batch: int, watermark: int | None, *ends: int, writer: str = "a", query: str = "q", topic: str = "id"
) -> Announcement:
    return Announcement(
        writer=writer, query=query, batch=batch, watermark=None if watermark is None else Millis(watermark),
        topic=topic, ends={str(part): end for part, end in enumerate(ends)},
    )  # fmt: skip


def promises(*statements: Announcement | Removal) -> tuple[Promises, list[str]]:
    faults: list[str] = []
    records = [LoggedStatement(at, Millis(at), each) for at, each in enumerate(statements)]
    return Promises(records, "id", faults), faults


def promised(of: Promises, writer: str, partition: int, *offsets: int) -> list[int]:
    return [int(at) for at in of.at(writer, partition, np.array(offsets, dtype=np.int64))]


def test_what_is_announced_is_a_millisecond_below_and_never_goes_back() -> None:
    assert to_announce(Millis(5_000), 1, None) == 4_999
    assert to_announce(Millis(5_000), 1_001, Millis(3_000)) == 3_999
    assert to_announce(Millis(5_000), 1_001, Millis(4_500)) == 4_500
    assert to_announce(MAX, 1_001, Millis(4_500)) == MAX
    assert to_announce(Millis(0), MAX, None) == MIN + 1
    # A lower one is as true, and readers accept it.
    assert to_announce(Millis(LAST_MOMENT + 9), 1, None) == LAST_MOMENT


def test_a_query_without_a_watermark_is_named_once_after_a_minute_of_batches() -> None:
    without, none = TimeWithoutWatermark(), NoWatermark(Why.NO_WATERMARK)
    assert [without.due(found, now) for found, now in ((none, 0), (none, 50), (Millis(5), 55), (none, 60))] == [
        None
    ] * 4
    assert [without.due(none, now) for now in (120, 121, 500)] == [None, 61, None]


def polled(batches: list[float], until: float) -> list[tuple[float, bool]]:
    """Poll a query whose batches end at these times; return when, and whether there was a new batch."""
    polls, now, seen, found = Polls(0.0), 0.0, 0, []
    while (now := now + polls.pause(now)) <= until:
        done = sum(end <= now for end in batches)
        polls, is_new, seen = polls.after(now, is_new=done > seen), done > seen, done
        found.append((now, is_new))
    return found


@pytest.mark.parametrize(
    ("every", "most_polls", "latest"), [(0.1, 2, 0.05), (0.5, 7, 0.06), (2.0, 21, 0.2), (10.0, 54, 0.26)]
)
def test_polls_are_few_and_follow_a_batch_by_little_of_its_time(every: float, most_polls: int, latest: float) -> None:
    ends = [every * n for n in range(1, 21)]
    found = polled(ends, ends[-1] + 0.3)
    assert len(found) <= most_polls * len(ends)
    new = [at for at, is_new in found if is_new]
    assert len(new) == len(ends)
    assert max(at - end for at, end in zip(new, ends, strict=True)) <= latest


def test_an_idle_query_is_polled_four_times_a_second() -> None:
    assert len([at for at, _ in polled([1.0], 70.0) if at >= 10.0]) <= 4 * 60 + 1


def test_a_batch_much_shorter_than_the_one_before_is_found_within_the_longest_pause() -> None:
    found = [at for at, is_new in polled([10.0, 10.05], 11.0) if is_new]
    assert found[-1] <= 10.05 + 0.5


def test_a_hold_is_a_duration_or_milliseconds() -> None:
    assert (hold_of(None), hold_of(0), hold_of(1_500), hold_of("10 minutes")) == (None, 0, 1_500, 600_000)
    for wrong in (-1, True, "soon", 1.5):
        with pytest.raises(UsageError, match="hold = "):
            hold_of(wrong)  # type: ignore[arg-type]


def writer_view(name: str, status: str, before_next: int | None = None) -> WriterView:
    return WriterView(name=name, status=status, why="", kind=HoldKind.READ, rows_before_next=before_next)


IDLE = source_status(split_view(0, Status.IDLE), split_view(1, Status.IDLE))
BUSY = source_status(split_view(0, Status.IDLE), split_view(1))
SOURCES: dict[str, tuple[SourceStatus, bool]] = {
    "all idle": (IDLE, True),
    "one active": (BUSY, False),
    "one that does not answer": (source_status(split_view(0, Status.IDLE), split_view(1, Status.UNKNOWN)), False),
    "at the end of a run": (source_status(split_view(0, Status.FINISHED), split_view(1, Status.IDLE)), False),
    "without a split": (source_status(), False),
    "on the clock": (source_status(split_view(0, Status.IDLE), processing_time=True), False),
    "ended": (source_status(split_view(0), watermark=LAST), True),
    "of writers that are idle or have ended": (
        source_status(split_view(0, end=100), writers=(writer_view("a", "idle"), writer_view("b", "ended"))),
        True,
    ),
    "of such a writer with rows to read": (source_status(split_view(0), writers=(writer_view("a", "idle"),)), False),
    "of such a writer that has announced again": (
        source_status(split_view(0, end=100), writers=(writer_view("a", "idle", before_next=0),)),
        False,
    ),
    "of a writer that is silent": (
        source_status(split_view(0, end=100), writers=(writer_view("a", "idle"), writer_view("b", "silent"))),
        False,
    ),
    "of writers that cannot be read": (source_status(split_view(0, Status.IDLE), unannounced="away"), False),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_query_is_at_rest_once_all_its_sources_are_and_spark_has_started_no_batch(source: str) -> None:
    status, is_idle = SOURCES[source]
    progress = progress_of(status, IDLE, durationMs={"latestOffset": 5})
    # The first source is another project's, of which nothing is known.
    assert not is_at_rest(progress, 6)
    del progress["sources"][0]
    # The event of a trigger without a batch has the number of the next one.
    assert is_at_rest(progress, 6) is is_idle
    assert not is_at_rest(progress, 5)
    assert not is_at_rest({**progress, "durationMs": {"latestOffset": 5, "addBatch": 7}}, 7)
    assert not is_at_rest(progress | {"sources": []}, 6)


def test_only_where_spark_shows_operators_with_state_its_rows_are_named() -> None:
    assert "state" not in rest_text({"stateOperators": []})
    operators = [{"numRowsTotal": 2}, {"numRowsTotal": 3}]
    assert "late where they have passed it, also from its 5 rows of state" in rest_text({"stateOperators": operators})


class SimulatedTopic(AnnouncementTopic):
    """A topic whose writer has announced batch 3, and whose brokers may acknowledge nothing."""

    def __init__(self) -> None:
        super().__init__(KAFKA, "t")
        self.tried: list[Announcement] = []
        self.acknowledged: list[tuple[int, bool, int]] = []
        """Batch, idleness and cut."""
        self.end = 7
        self.acknowledges = True
        self.has_cut = True

    def prepare(self) -> None:
        pass

    def last_of(self, writer: str) -> Announcement:
        return announcement(3, 50, 5, writer=writer)

    def cut(self) -> TopicEnds:
        if not self.has_cut:
            raise SourceError("not all brokers answer")
        return TopicEnds("id", {"0": self.end})

    def send(self, statement: Announcement | Removal) -> None:
        assert isinstance(statement, Announcement)
        self.tried.append(statement)
        if not self.acknowledges:
            raise SourceError("not acknowledged")
        self.acknowledged.append((statement.batch, statement.idle, statement.ends["0"]))


class SimulatedQuery:
    """What Spark's driver process answers of a query whose sources are idle after batch 3."""

    id, name, isActive = "q", None, True  # noqa: N815 - Spark's names

    def __init__(self, trigger: str = "ProcessingTimeTrigger", interval: int = 0) -> None:
        self.committed = self.begun = 3
        self.asked = 0
        kind = SimpleNamespace(getSimpleName=lambda: trigger)
        found = SimpleNamespace(intervalMs=lambda: interval, getClass=lambda: kind)
        execution = SimpleNamespace(currentBatchId=lambda: self.begun)
        stream = SimpleNamespace(trigger=lambda: found, lastExecution=lambda: execution)
        status = SimpleNamespace(isDataAvailable=lambda: False)
        self._jsq = SimpleNamespace(lastProgress=self._event, status=lambda: status, streamingQuery=lambda: stream)

    @property
    def lastProgress(self) -> dict[str, Any]:  # noqa: N802
        # Spark has a new event of an idle query every ten seconds: this one more often.
        of = progress_of(IDLE, batchId=self.committed + 1, timestamp=str(time.monotonic() // 0.02), durationMs={})
        del of["sources"][0]
        return of

    def _event(self) -> SimpleNamespace:
        self.asked += 1
        of = self.lastProgress
        durations = SimpleNamespace(containsKey=lambda _: False)
        return SimpleNamespace(
            batchId=lambda: of["batchId"], timestamp=lambda: of["timestamp"], durationMs=lambda: durations,
            json=lambda: json.dumps(of),
        )  # fmt: skip


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Starts the announcements of a query."""
    monkeypatch.setattr(announced_query, "read_watermarks", lambda *_, **__: NoWatermark(Why.NO_WATERMARK))
    with ExitStack() as stack:

        def start(query: SimulatedQuery, *topics: SimulatedTopic) -> None:
            one = AnnouncedQuery(cast(Any, query), [WrittenTopic(each) for each in topics], "a", None)
            stack.callback(one.stop, 0.2)
            one.start()

        yield start


def test_a_query_that_ends_while_it_plans_leaves_no_thread_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(announced_query, "read_watermarks", lambda *_, **__: NoWatermark(Why.PLANNING))
    query, topic = SimulatedQuery(), SimulatedTopic()
    monkeypatch.setattr(SimulatedQuery, "isActive", False)
    query.committed = 4
    one = AnnouncedQuery(cast(Any, query), [WrittenTopic(topic)], "a", None)
    one.start()
    one.flush(20)
    until(lambda: not one._thread.is_alive())
    assert topic.acknowledged == []
    assert "writer a did not announce batch 4 for t before its last end" in caplog.text


def test_a_query_that_is_mostly_found_planning_is_asked_again_at_each_poll(
    announced: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with checkpoints of Spark before 3.4, where only between two batches the plan is that of the last one."""
    asked: list[float] = []

    def read(*_: Any, **__: Any) -> NoWatermark:
        asked.append(time.monotonic())
        return NoWatermark(Why.PLANNING if len(asked) < 12 else Why.NO_WATERMARK)

    monkeypatch.setattr(announced_query, "read_watermarks", read)
    query, topic = SimulatedQuery(), SimulatedTopic()
    query.committed = query.begun = 4
    announced(query, topic)
    until(lambda: (4, False, 7) in topic.acknowledged)
    assert max(after - before for before, after in pairwise(asked)) < 1


@pytest.mark.usefixtures("announced")
def test_after_a_stop_nothing_is_waited_for_and_the_error_says_why() -> None:
    query = SimulatedQuery()
    one = AnnouncedQuery(cast(Any, query), [WrittenTopic(SimulatedTopic())], "a", None)
    one.start()
    one.stop()
    query.committed = 4
    with pytest.raises(UsageError, match=r"batch 4 is not announced, because stop\(\) was called before"):
        one.flush()


def test_a_session_that_keeps_no_progress_event_is_refused() -> None:
    query = SimulatedQuery()
    conf = SimpleNamespace(get=lambda *_: "1")
    query._jsq.streamingQuery().sparkSession = lambda: SimpleNamespace(conf=lambda: conf)
    with pytest.raises(UsageError, match=r"numRecentProgressUpdates is 1, .* write \.config"):
        announced_query.announced_query(cast(Any, query), [], "a", None)


RESTS, GOES_ON = (3, True, 7), (3, False, 7)


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, 20, "an announcement", poll_seconds=0.01)


def test_idleness_is_announced_again_where_it_was_not_acknowledged(announced: Callable[..., None]) -> None:
    query, one, other = SimulatedQuery(), SimulatedTopic(), SimulatedTopic()
    one.acknowledges = other.has_cut = False
    announced(query, one, other)
    until(lambda: len(one.tried) > 2)
    other.has_cut = True
    until(lambda: other.acknowledged == [RESTS])
    one.acknowledges = True
    until(lambda: one.acknowledged == [RESTS])
    query.begun = 4
    until(lambda: one.acknowledged == other.acknowledged == [RESTS, GOES_ON])


def test_one_topic_that_is_away_keeps_the_others_from_nothing_and_is_tried_ten_times_a_second(
    announced: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    query, away, there = SimulatedQuery(), SimulatedTopic(), SimulatedTopic()
    announced(query, away, there)
    until(lambda: away.acknowledged == there.acknowledged == [RESTS])
    away.acknowledges, began = False, time.monotonic()
    query.begun = 4
    until(lambda: len(away.tried) == 20)
    assert time.monotonic() - began < 10
    assert there.acknowledged == [RESTS, GOES_ON]
    # It is reported as it is, and once.
    (logged,) = (each for each in caplog.messages if "the query continues" in each)
    assert logged == (
        "writer a announces no watermark for now, and its readers may not wait for it: rows that it writes meanwhile "
        "may be late; the query continues: not acknowledged"
    )
    away.acknowledges = True
    until(lambda: away.acknowledged == [RESTS, GOES_ON])


def test_idleness_is_taken_back_where_no_cut_can_be_made_and_before_the_batch_is_announced(
    announced: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    query, topic = SimulatedQuery(), SimulatedTopic()
    announced(query, topic)
    until(lambda: topic.acknowledged == [RESTS])
    topic.has_cut, topic.end = False, 9
    query.begun = query.committed = 4
    until(lambda: topic.acknowledged == [RESTS, GOES_ON])
    until(lambda: "its readers wait; the query continues: not all brokers answer" in caplog.text)
    topic.has_cut = True
    until(lambda: topic.acknowledged[:3] == [RESTS, GOES_ON, (4, False, 9)])


def test_idleness_that_may_have_been_announced_is_taken_back_and_none_is_of_a_query_that_goes_on(
    announced: Callable[..., None],
) -> None:
    """What the brokers do not acknowledge may be in the log nevertheless."""
    query, topic = SimulatedQuery(), SimulatedTopic()
    topic.acknowledges = False
    announced(query, topic)
    until(lambda: [each.idle for each in topic.tried] == [True])
    query.begun, topic.acknowledges = 4, True
    until(lambda: topic.acknowledged == [GOES_ON])
    one = WrittenTopic(SimulatedTopic(), announcement(3, 50, 5))
    one.begin_rest(lambda: True)
    assert (one.last, one.maybe_idle) == (announcement(3, 50, 5), None)


def test_a_program_that_ends_while_its_query_is_idle_takes_that_back(
    announced: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the query has failed, so that ``awaitTermination`` raises: nothing has called ``stop``."""
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    query, topic = SimulatedQuery(), SimulatedTopic()
    announced(query, topic)
    until(lambda: bool(at_exit))
    at_exit.pop()()
    assert topic.acknowledged == [RESTS, GOES_ON]


@pytest.mark.parametrize(
    ("trigger", "interval", "is_idle"),
    [
        ("ProcessingTimeTrigger", 1_000, True),
        ("ProcessingTimeTrigger", 600_000, False),
        ("AvailableNowTrigger", 0, False),
    ],
)
def test_idleness_is_announced_of_queries_that_look_for_rows_each_second(
    announced: Callable[..., None], caplog: pytest.LogCaptureFixture, trigger: str, interval: int, is_idle: bool
) -> None:
    """What the sources get until the next look would be late."""
    query, topic = SimulatedQuery(trigger, interval), SimulatedTopic()
    announced(query, topic)
    until(lambda: topic.acknowledged == [RESTS] if is_idle else query.asked > 8)
    assert len(topic.tried) == is_idle
    if interval > 1_000:
        (logged,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
        assert "wait for it nevertheless, because its trigger looks for rows only every 10 min" in logged.getMessage()


KAFKA = {"kafka.bootstrap.servers": "localhost:1"}


@pytest.mark.parametrize("name", ["", "x" * 256, "a,b", " a", "a\n", "\ud800", "\x1b[2J", None])
def test_a_name_that_announcedby_cannot_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="writer = ") as refused:
        WatermarkAnnouncer("t", KAFKA, name)
    str(refused.value).encode()


@pytest.mark.parametrize("topic", ["", "a/b", "x" * 239, "x" * 250])
def test_a_topic_whose_announcements_have_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(UsageError, match="at most 238 characters"):
        AnnouncementTopic(KAFKA, topic)
    assert AnnouncementTopic(KAFKA, "x" * 238).name == "x" * 238 + ".watermarks"


def test_a_setting_without_its_prefix_is_refused_and_named_with_it() -> None:
    """It would have no effect: connections would be made without encryption."""
    with pytest.raises(UnknownOptionError, match=r"the nearest is kafka\.security\.protocol"):
        WatermarkAnnouncer("t", {**KAFKA, "security.protocol": "SSL"}, "a")


@pytest.mark.parametrize("wrong", [1_700_000_000_000_000, 1.7e12, True, "1700000000000", MIN, None])
def test_a_watermark_in_microseconds_is_refused(wrong: int) -> None:
    need_millis(1_700_000_000_000)
    need_millis(-1)
    with pytest.raises(UsageError, match=r"expected milliseconds since 1970-01-01 UTC as an int, up to the year 9999"):
        need_millis(wrong)


def records(*given: tuple[bytes | None, bytes | None]) -> list[LoggedStatement]:
    keys, values = zip(*given, strict=True)
    offsets = pa.array(range(len(given)), pa.int64())
    times = pa.array([0] * len(given), pa.timestamp("us", "UTC"))
    columns = (pa.array(keys, pa.binary()), pa.array(values, pa.binary()), offsets, times)
    return list(statements_of([ReadBatch(Split("t", 0), len(given), columns, times)]))


@pytest.mark.parametrize("part", ["sessions-0", "00", "-1", "+1", " 1", "\u0661", "", "2", "2147483648"])
def test_ends_of_a_partition_that_the_topic_does_not_have_are_refused(part: str) -> None:
    """No position reaches them, so their writer would hold the watermark for ever, and without a reason."""
    value = {"v": 1, "writer": "a", "query": "q", "batch": 1, "wm": 5, "idle": False, "topic": "t", "ends": {"0": 1}}
    wrong = {**value, "ends": {"0": 1, part: 3}}
    given = records(*((b"a", json.dumps(each).encode()) for each in (value, wrong, {**wrong, "topic": "another"})))
    right, found, other = with_known_partitions(given, Topic({0: None, 1: None}, internal=False, id="t"))
    assert (right, other) == (given[0], given[2])
    assert (found.statement, found.writer) == (None, "a")
    assert found.fault == f'"ends" names partition {part!a}, and the topic has 2: "0" is the first'


def test_the_key_of_an_unreadable_record_names_a_writer_only_if_it_can_be_one() -> None:
    """A removal can name no other, so such a writer would be waited for until the record expires."""
    keys = (b"a", None, b"", b"\xff", b"x" * 256, b"\x1b[2J")
    assert [each.writer for each in records(*((key, b"?") for key in keys))] == ["a", None, None, "\\xff", None, None]


def test_rows_at_or_behind_a_cut_must_be_after_its_watermark() -> None:
    found, faults = promises(
        announcement(0, None, 2, 0), announcement(1, 100, 5, 3), announcement(2, 200, 5, 9), announcement(3, MAX, 7, 9),
        announcement(4, 300, 0, 0, topic="of a topic deleted since"),
    )  # fmt: skip
    assert promised(found, "a", 0, 0, 4, 5, 6, 7) == [MIN, MIN, 200, 200, MAX]
    assert promised(found, "a", 1, 2, 3, 8, 9) == [MIN, 100, 100, MAX]
    # A partition that no cut names was created later.
    assert promised(found, "a", 2, 0) == [MAX]
    assert faults == []


def test_another_query_under_a_name_begins_again() -> None:
    found, faults = promises(announcement(5, 500, 10), announcement(0, None, 12, query="new"))
    assert promised(found, "a", 0, 9, 10, 11, 12) == [MIN, 500, 500, MIN]
    assert faults == []


def test_announcements_that_contradict_earlier_ones_are_faults() -> None:
    _, faults = promises(
        announcement(1, 100, 5), announcement(0, 100, 5), announcement(1, 99, 5), announcement(2, 100, 4),
        announcement(0, 100, 5, query="other"), announcement(3, 100, 5),
    )  # fmt: skip
    assert [fault.partition(": ")[0] for fault in faults] == [f"record {n}, of a" for n in (1, 2, 3)] + ["record 5"]


def test_a_removal_forgets_a_query_and_its_batches_as_readers_do() -> None:
    found, faults = promises(
        announcement(5, 500, 10), announcement(0, None, 11, query="other"), Removal("a"), announcement(0, None, 12),
        announcement(1, 300, 15),
    )  # fmt: skip
    assert faults == []
    assert promised(found, "a", 0, 10, 11, 12, 15) == [500, MIN, MIN, 300]


def test_the_words_of_the_command_come_first_or_last(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["list"], ["drop", "x"], ["audit"]):
        for order in ([*words, "--kafka"], ["--kafka", *words]):
            assert main(["watermarks", *order]) == 2
            assert "--topic is missing" in capsys.readouterr().err
    assert main(["watermarks", "--kafka", "--topic", "x"]) == 2
    assert "end the command with list, audit, or drop WRITER" in capsys.readouterr().err
    # The value of an option is not what is to be done.
    assert main(["watermarks", "--kafka", "--topic", "list"]) == 2
    assert "end the command with list, audit, or drop WRITER" in capsys.readouterr().err
    for words in (["audit", "--topic", "list"], ["--topic=x", "list"], ["--topic=x", "drop", "w"]):
        assert main(["watermarks", "--kafka", *words]) == 2
        assert "kafka.bootstrap.servers" in capsys.readouterr().err
