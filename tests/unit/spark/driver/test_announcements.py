"""The announcements of a process: what is read beside each plan, what is remembered, and what is logged."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from watermark_source.clock import Clock
from watermark_source.contract.announcements import AnnouncementLog, AnnouncementsRead
from watermark_source.contract.stream import SplitDiscovery
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedFrom,
    Cut,
    LoggedStatement,
    ObservedAnnouncements,
    WriterStatus,
    needed_from,
    writers_at,
)
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.lineage import Epoch
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.driver import announcements
from watermark_source.spark.driver.announcements import Announcements


@dataclass
class LogInMemory(AnnouncementLog):
    """A log of announcements whose answers a test chooses."""

    statements: list[LoggedStatement] = field(default_factory=list)
    answer: AnnouncementsRead = field(default_factory=lambda: AnnouncementsRead(is_current=True, log="L", topic="T"))
    asked: list[tuple[int | None, str | None]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    topics_now: list[bool] = field(default_factory=list)
    added_at: int | None = None
    """The read before which another announcement is made."""

    @property
    def name(self) -> str:
        return "t.watermarks"

    def read(self, position: int | None, log: str | None, *, wait: float, topic_now: bool = False) -> AnnouncementsRead:
        self.topics_now.append(topic_now)
        self.asked.append((position, log))
        if len(self.asked) == self.added_at:
            self.add(9, batch=9, ends={"0": 20})
        self.waits.append(wait)
        end = len(self.statements)
        if self.answer.trouble is not None:
            return self.answer
        start = 0 if position is None or self.answer.truncated else position
        return replace(self.answer, statements=self.statements[start:], next_position=end)

    def close(self) -> None:
        pass

    def add(
        self,
        watermark: int,
        *,
        writer: str = "a",
        batch: int = 0,
        ends: Mapping[str, int] | None = None,
        written_at: int | None = None,
        idle: bool = False,
        topic: str = "T",
        query: str | None = None,
    ) -> None:
        made = Announcement(
            writer=writer, query=query or f"q{writer}", batch=batch, watermark=Millis(watermark), idle=idle,
            topic=topic, ends=ends or {},
        )  # fmt: skip
        at = None if written_at is None else Millis(written_at)
        self.statements.append(LoggedStatement(len(self.statements), at, made))


class Discovery(SplitDiscovery):
    looks = 0

    def discover(self) -> set[Split]:
        return {SPLIT}

    def looked_since(self, moment: float, *, wait: float) -> bool:
        assert wait == 0
        self.looks += 1
        return True


class SteppedClock(Clock):
    now_ms = step_ms = 0
    """Milliseconds by the monotonic clock, and by how much the system's clock was set forward."""

    def elapsed(self) -> Millis:
        return Millis(self.now_ms + self.step_ms)

    def steady(self) -> Millis:
        return Millis(self.now_ms)


SPLIT = Split("t", 0)


@dataclass
class Process:
    """One process of a query that follows announcements."""

    log: LogInMemory = field(default_factory=LogInMemory)
    by: AnnouncedBy = field(default_factory=AnnouncedBy)
    discovery: Discovery = field(default_factory=Discovery)
    clock: SteppedClock = field(default_factory=SteppedClock)
    state: SourceState = field(default_factory=lambda: SourceState(splits={SPLIT: SplitState(0, 0)}))

    def __post_init__(self) -> None:
        self.announcements = Announcements(self.log, self.by, self.discovery, self.clock)

    def wait_for_next(self, end: int) -> bool:
        found = ObservedLogs(asked_at=Millis(self.clock.now_ms), ends={SPLIT: end})
        return self.announcements.wait_for_next(self.state, found, None)

    def now(self, *, passed: int = 0, end: int = 1_000, is_run: bool = False, **state: Any) -> ObservedAnnouncements:
        self.clock.now_ms += passed
        self.state = replace(self.state, **state)
        found = ObservedLogs(asked_at=Millis(self.clock.now_ms), ends={SPLIT: end}, ends_are_final=is_run)
        return self.announcements.poll(self.state, found, None)


def test_a_log_that_was_truncated_has_not_reached_what_is_announced_of_its_new_rows() -> None:
    """It is read again from its end, 5: the rows from there to the cut are not planned yet, however far it was read."""
    process = Process(state=SourceState(splits={SPLIT: SplitState(10, 10)}))
    process.log.add(1, ends={"0": 6})
    writer = process.now(end=5).table.writers["a"]
    assert writer.reached is None
    assert [cut.watermark for cut in writer.pending] == [1]
    assert process.now(end=8).table.writers["a"].reached is not None


@pytest.mark.parametrize(
    "found",
    [
        {"ids": {"t": "NEW"}},
        {"ids": {"t": "OLD"}, "histories": {SPLIT: [Epoch(6, 3), Epoch(5, 0)]}},
        # What is announced is of a topic that is not discovered yet.
        {"ids": {"t": "OLD"}, "topic": "NEW"},
    ],
    ids=["created again", "other rows", "created again and not found"],
)
def test_rows_that_take_the_place_of_others_have_not_reached_what_is_announced_of_them(found: dict[str, Any]) -> None:
    topic = found.pop("topic", found["ids"]["t"])
    state = SourceState(splits={SPLIT: SplitState(10, 10, epoch=Epoch(5, 0))}, ids={"t": "OLD"})
    process = Process(state=state, log=LogInMemory(answer=AnnouncementsRead(is_current=True, log="L", topic=topic)))
    process.log.add(1, ends={"0": 6}, topic=topic)
    logs = ObservedLogs(asked_at=Millis(0), ends={SPLIT: 50}, **found)
    for _ in range(2):
        observed = process.announcements.poll(state, logs, None)
        assert observed.table.writers["a"].reached is None
        assert observed.is_current is (topic == found["ids"]["t"])
        assert process.discovery.looks == (not observed.is_current)
    # Once it is read again from where the rows are others, they are.
    state = replace(state, splits={SPLIT: SplitState(6, 0)}, ids={"t": topic})
    logs = ObservedLogs(asked_at=Millis(0), ends={SPLIT: 50}, ids={"t": topic})
    assert process.announcements.poll(state, logs, None).table.writers["a"].reached is not None


def test_a_process_reads_on_from_its_checkpoint_and_waits_for_the_writers_in_it() -> None:
    process = Process()
    process.log.add(1)
    process.log.add(2, writer="b")
    found = process.now(announced=AnnouncedFrom(1, "L", ("a", "b")))
    assert process.log.asked == [(1, "L")]
    assert found.table.writers["a"].newest is None
    assert found.table.writers["b"].newest is not None
    process.log.add(3)
    assert process.now().table.writers["a"].newest is not None
    assert process.log.asked[1:] == [(2, "L")]


def test_a_writer_that_falls_silent_is_named_once_for_each_silence_and_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process()
    process.log.add(1)
    process.now()
    for passed, warnings in ((59_000, 0), (2_000, 1), (90_000, 1)):
        process.now(passed=passed)
        assert sum("announced nothing for" in record.message for record in caplog.records) == warnings
    assert "writer a has announced nothing for 1 min 01 s" in caplog.text
    assert "or drop a (see python -m watermark_source watermarks --" in caplog.text
    process.log.add(2, batch=1)
    for passed, warnings in ((1_000, 1), (119_000, 1), (2_000, 2)):
        process.now(passed=passed)
        assert sum("announced nothing for" in record.message for record in caplog.records) == warnings


def test_only_time_in_which_announcements_could_be_read_makes_a_writer_silent() -> None:
    process = Process()
    process.log.add(1)
    assert process.now(passed=9_000).silent == {"a": 0}
    assert process.now(passed=1_000).silent == {"a": 1_000}
    good, process.log.answer = process.log.answer, replace(process.log.answer, trouble="no broker", is_current=False)
    away = process.now(passed=1_000)
    assert (away.is_current, away.trouble) == (False, "no broker")
    process.log.answer = good
    assert process.now(passed=50_000).silent == {"a": 1_000}
    assert process.now(passed=500).silent == {"a": 1_500}
    process.log.add(2, batch=1)
    assert process.now(passed=500).silent == {"a": 0}


def test_before_an_earlier_announcement_applies_the_topic_s_id_is_requested_again() -> None:
    """A topic that was created again may have rows beyond the cuts of the earlier one by now."""
    process = Process(by=AnnouncedBy(time_to_live=60_000))
    process.log.add(5, ends={"0": 7})
    process.log.add(9, writer="b", ends={"0": 0})
    process.now()
    # Of the first read the id is new; the second could reach the cut; in the third all has been applied.
    process.now()
    process.now(splits={SPLIT: SplitState(8, 8)}, watermark=Millis(5))
    process.now()
    assert process.log.topics_now == [False, True, True, False]
    # Once one writer is silent for longer than its time to live, the other's watermark counts.
    for passed, announces in ((59_000, True), (500, False), (1_000, False)):
        if announces:
            process.log.add(9, writer="b", batch=1)
        process.now(passed=passed)
    assert process.log.topics_now[4:] == [False, False, True]


def test_a_system_clock_that_is_set_forward_makes_no_writer_silent() -> None:
    """As after a suspension: the writers have had no time to announce."""
    process = Process(by=AnnouncedBy(time_to_live=60_000))
    process.log.add(1)
    process.now()
    process.clock.step_ms = 3_600_000
    found = process.now(passed=200)
    assert found.silent == {"a": 200}
    assert [each.status for each in writers_at(found, {}, None)] == [WriterStatus.ACTIVE]


def test_a_log_that_is_away_slows_few_plans_and_is_warned_of_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    good, process.log.answer = process.log.answer, replace(process.log.answer, trouble="no broker", is_current=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            process.now(passed=1_000)
        assert 4 < process.log.waits[0] <= 5
        assert process.log.waits[-1] == 0
        assert caplog.messages == []
        for _ in range(3):
            process.now(passed=30_000)
        process.log.answer = good
        process.now(passed=1_000)
    assert caplog.messages == [
        "t.watermarks has not been read to its end for 1 min 01 s, and the watermark stands: no broker",
        "t.watermarks is read again, after 1 min 32 s",
    ]


@pytest.mark.parametrize(("changed", "text"), [
    ({"log": "L2"}, "t.watermarks was deleted and created again"),
    ({"truncated": True}, "t.watermarks was truncated"),
])  # fmt: skip
def test_a_log_that_is_another_one_leaves_only_the_names_of_writers(
    changed: dict[str, Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    process = Process()
    process.log.add(1)
    process.log.add(2, writer="b")
    process.now()
    process.log.answer = replace(process.log.answer, **changed)
    process.log.statements = process.log.statements[:1]
    with caplog.at_level(logging.WARNING):
        found = process.now()
    assert text in caplog.text
    assert "has announced again: a, b" in caplog.text
    assert found.table.writers["b"].newest is None


def test_a_checkpoint_of_announcements_in_another_topic_keeps_only_the_names_of_writers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process()
    process.log.add(1)
    with caplog.at_level(logging.WARNING):
        found = process.now(announced=AnnouncedFrom(7, "L9", ("a", "b"), {"a": ("q9",)}, name="old.watermarks"))
    assert process.log.asked == [(None, None)]
    assert (found.name, [*found.table.writers]) == ("t.watermarks", ["a", "b"])
    assert "announcements were read in old.watermarks so far, and now in t.watermarks, which is read" in caplog.text
    assert "created again" not in caplog.text


def test_deleted_announcements_and_remarks_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.log.add(5, batch=3)
    process.log.add(4, batch=2)
    process.log.add(4, batch=1)
    process.log.answer = replace(process.log.answer, deleted=(3, 8))
    with caplog.at_level(logging.WARNING):
        process.now()
        process.log.answer = replace(process.log.answer, deleted=None)
        process.log.add(4, batch=2)
        process.now(passed=60_000)
    assert "announcements 3 to 7 of t.watermarks were deleted before they were read" in caplog.messages[0]
    assert "a announced batch 2 after batch 3" in caplog.messages[1]
    assert "(1 more remarks since the last one)" in caplog.messages[2]


@pytest.mark.parametrize("writers", [("a", "b"), ("job-1", "job-2")])
def test_of_each_kind_of_remark_one_a_minute_is_logged(
    writers: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """One of one writer must not hide what is wrong with another."""
    process = Process()
    for writer in writers:
        process.log.add(5, writer=writer, batch=3)
        for batch in (2, 1):
            process.log.add(4, writer=writer, batch=batch)
    process.now()
    assert [text.partition(" after batch 3")[0] for text in caplog.messages] == [
        f"t.watermarks: {writer} announced batch 2" for writer in writers
    ]


def test_each_fault_of_a_writer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    for fault in ("its watermark is in microseconds", "it names partition 7", "it names partition 7"):
        at = len(process.log.statements)
        process.log.statements.append(LoggedStatement(at, None, None, writer="a", fault=fault))
        process.now()
    assert [text.partition(" next one: ")[2].partition(";")[0] for text in caplog.messages] == [
        "its watermark is in microseconds", "it names partition 7"
    ]  # fmt: skip


def test_an_earlier_run_that_announces_on_does_not_hide_that_the_newer_one_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As after a deployment that was taken back: the newer run has ended, and the earlier one is ignored."""
    process = Process()
    for query in ("qa", "newer", "qa", "qa"):
        process.log.add(1, query=query)
        process.now(passed=35_000)
    assert "writer a has announced nothing for 1 min 10 s, and the watermark waits for it" in caplog.text
    assert "a: the earlier run qa announced again, at 2, after newer began" in caplog.text


def test_a_run_reads_once_to_the_end_and_does_not_wait_for_a_topic_that_does_not_exist(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process()
    process.log.add(1)
    first = process.now(is_run=True)
    process.log.add(2, batch=1)
    assert process.now(is_run=True).next_position == first.next_position
    assert len(process.log.asked) == 1
    missing = Process()
    missing.log.answer = AnnouncementsRead(trouble="it does not exist", is_missing=True)
    with caplog.at_level(logging.WARNING):
        assert not missing.now(is_run=True).is_current
    assert "stays where it is until the next run: it does not exist" in caplog.text


def test_a_run_leaves_out_a_writer_whose_time_to_live_has_passed_by_the_records_and_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    day = 86_400_000
    process = Process(by=AnnouncedBy(time_to_live=day))
    process.log.add(1, writer="dead", written_at=day)
    process.log.add(2, written_at=3 * day)
    with caplog.at_level(logging.WARNING):
        found = process.now(is_run=True)
    assert {each.writer.name: each.status for each in writers_at(found, {}, None)} == {
        "a": WriterStatus.ACTIVE,
        "dead": WriterStatus.SILENT,
    }
    # The next run does not wait for it either, once the log has no record of it.
    kept = needed_from(found, {"0": 9}, None, None, Millis(2))
    assert kept is not None
    assert (kept.writers, kept.left_out) == (("a",), True)
    (text,) = caplog.messages
    assert "writer dead has announced nothing for 2 d, longer than writerTimeToLive (1 d)" in text
    assert text.endswith("To wait longer, write a longer writerTimeToLive")


def test_writers_that_announce_one_after_another_by_night_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.log.add(1, writer="first", written_at=0)
    process.log.add(2, written_at=600_000)
    process.now(is_run=True)
    assert caplog.messages == []


def test_a_writer_that_is_left_out_is_named_once_for_each_silence(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(by=AnnouncedBy(time_to_live=5_000))
    process.log.add(1)
    for passed, warnings in ((0, 0), (5_000, 0), (1_000, 1), (90_000, 1)):
        process.now(passed=passed)
        assert sum("longer than writerTimeToLive (5 s)" in text for text in caplog.messages) == warnings
    assert caplog.messages[0].endswith('To wait longer, write .option("writerTimeToLive", "11 seconds")')
    process.log.add(2, batch=1)
    for passed, warnings in ((1_000, 1), (6_000, 2)):
        process.now(passed=passed)
        assert sum("longer than writerTimeToLive (5 s)" in text for text in caplog.messages) == warnings


def test_a_writer_that_was_not_waited_for_is_not_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    process = Process(by=AnnouncedBy(time_to_live=5_000))
    process.log.add(1, idle=True)
    process.log.add(MAX, writer="b")
    for passed in (0, 5_000, 90_000):
        process.now(passed=passed)
    assert caplog.messages == []


def test_announcements_about_another_topic_are_named_once_for_each(caplog: pytest.LogCaptureFixture) -> None:
    """They may be about an earlier topic of the name. Of a producer that writes ids in another form all are ignored."""
    process = Process()
    for batch, topic in enumerate(("earlier", "earlier", "T")):
        process.log.add(batch, batch=batch, topic=topic)
        process.now()
    process.log.add(9, writer="b", topic="0b1c")
    process.now(passed=60_000)
    first, second = (text for text in caplog.messages if "the topic has the id T" in text)
    assert "a announced a watermark of a topic with the id earlier" in first
    assert "b announced a watermark of a topic with the id 0b1c" in second


def test_rows_wait_a_moment_for_their_announcement_and_more_rarely_where_none_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(state=SourceState(splits={SPLIT: SplitState(10, 10)}))
    process.log.add(1, ends={"0": 10})
    process.now(end=10)
    assert not process.wait_for_next(10)
    assert len(process.log.asked) == 1
    process.log.added_at = 3
    assert process.wait_for_next(12)
    assert process.now(end=20).table.writers["a"].newest == Cut(1, 9, Millis(9), False, array("q", [20]))
    process.now(end=20, splits={SPLIT: SplitState(20, 20)})
    monkeypatch.setattr(announcements, "_WAIT_FOR_NEXT", 0.01)
    waited = []
    for _ in range(8):
        before = len(process.log.asked)
        assert not process.wait_for_next(30)
        waited.append(len(process.log.asked) > before)
    assert waited == [True, False, True, False, False, True, False, False]


def test_a_partition_that_a_writer_names_and_discovery_has_not_found_is_looked_up() -> None:
    process = Process()
    process.log.add(1, ends={"0": 5, "1": 0})
    process.now()
    assert process.discovery.looks == 0
    process.log.add(2, batch=1, ends={"0": 5, "1": 7})
    process.now()
    process.now()
    assert process.discovery.looks == 1
