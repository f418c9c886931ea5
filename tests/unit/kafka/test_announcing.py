"""What writers announce, what they promised at a position, and the command's words."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic, TopicEnds, WatermarkAnnouncer, need_millis
from pyspark_aligned_kafka.announcing.audit import Promises
from pyspark_aligned_kafka.announcing.polls import Polls
from pyspark_aligned_kafka.announcing.query import TimeWithoutWatermark, hold_of, is_at_rest, to_announce
from pyspark_aligned_kafka.announcing.written_topic import WrittenTopic
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.lookup.announcements import statements_of, with_known_partitions
from tests.unit.monitor.example_status import progress_of, source_status, split_view
from watermark_source.command_line import main
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import SourceError, UnknownOptionError, UsageError
from watermark_source.planning.announced import LoggedStatement
from watermark_source.planning.announcement import Announcement, Removal
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import LAST, LAST_MOMENT, MAX, MIN, Millis
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
    assert to_announce(Millis(5_000), None, None) == 4_999
    assert to_announce(Millis(5_000), 1_000, Millis(3_000)) == 3_999
    assert to_announce(Millis(5_000), 1_000, Millis(4_500)) == 4_500
    assert to_announce(MAX, 1_000, Millis(4_500)) == MAX
    assert to_announce(Millis(0), MAX, None) == MIN + 1
    # A lower one is as true, and readers accept it.
    assert to_announce(Millis(LAST_MOMENT + 9), None, None) == LAST_MOMENT


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
    ("every", "most_polls", "latest"), [(0.1, 4, 0.04), (0.5, 13, 0.06), (2.0, 25, 0.25), (10.0, 60, 0.26)]
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


def writer_view(name: str, status: str) -> WriterView:
    return WriterView(name=name, status=status, why="", kind=HoldKind.READ)


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
        source_status(split_view(0), writers=(writer_view("a", "idle"), writer_view("b", "ended"))),
        True,
    ),
    "of a writer that is silent": (
        source_status(split_view(0), writers=(writer_view("a", "idle"), writer_view("b", "silent"))),
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


class Refusing(AnnouncementTopic):
    """A topic whose brokers acknowledge nothing at first."""

    def __init__(self) -> None:
        super().__init__(KAFKA, "t")
        self.sent: list[bool] = []

    def cut(self) -> TopicEnds:
        return TopicEnds("id", {"0": 7})

    def send(self, statement: Announcement | Removal) -> None:
        assert isinstance(statement, Announcement)
        self.sent.append(statement.idle)
        if len(self.sent) == 1:
            raise SourceError("not acknowledged")


def test_idleness_that_may_have_been_announced_is_taken_back_and_none_is_of_a_query_that_goes_on() -> None:
    """What the brokers do not acknowledge may be in the log nevertheless."""
    topic = Refusing()
    one = WrittenTopic(topic, announcement(3, 50, 5))
    one.begin_rest(lambda: True)
    one.end_rest()
    assert topic.sent == []
    with pytest.raises(SourceError):
        one.begin_rest(lambda: False)
    one.end_rest()
    one.end_rest()
    assert topic.sent == [True, False]
    assert one.last == announcement(3, 50, 7)


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
