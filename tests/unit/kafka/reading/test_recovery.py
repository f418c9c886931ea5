"""Whose word a read trusts that what it is to read is not there (any more)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence, Set

import pytest

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster import metadata
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import EARLIEST, OffsetAndTimestamp
from pyspark_aligned_kafka.cluster.metadata import Leader, Metadata, Topic
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds
from pyspark_aligned_kafka.reading.fetch import Step, Trouble
from pyspark_aligned_kafka.reading.kept_sessions import Session
from pyspark_aligned_kafka.reading.range_progress import Patience, Pending
from pyspark_aligned_kafka.reading.recovery import Recovery
from watermark_source.errors import DataLossError, ResponseTimeoutError, UnknownSplitError
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("t", 0)
WANTED = Pending(SplitRange(SPLIT, 0, 100), 40)
ABSENT = Metadata({}, frozenset({"t"}), unready=False)


def led_by(node: int, epoch: int | None) -> Metadata:
    return Metadata({"t": Topic({0: Leader(node, epoch)}, internal=False)}, frozenset(), unready=False)


class Brokers:
    """What they say of the topic, one answer after the other, of which the last is given again and again."""

    def __init__(self, answers: Sequence[Metadata]) -> None:
        self._answers = answers
        self.asked: list[tuple[bool, int | None]] = []

    def metadata(self, topics: Collection[str], limit_ms: int, *, anyone: bool, doubted: int | None) -> Metadata:
        self.asked.append((anyone, doubted))
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


class ToldSession(Session):
    """A session that hears these answers."""

    def __init__(
        self,
        *answers: Metadata,
        logs: Mapping[int, tuple[int, int]] | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> None:
        super().__init__(
            parse_settings({"kafka.bootstrap.servers": "localhost:1", "kafka.isolation.level": isolation_level})
        )
        self.told = Brokers(answers)
        self._brokers = self.told  # type: ignore[assignment]
        if logs is not None:
            self.written = AsLeadersShow(self, logs)


class AsLeadersShow(KafkaLogBounds):
    """First offset and end as each broker shows them."""

    def __init__(self, session: Session, logs: Mapping[int, tuple[int, int]]) -> None:
        self._session, self._logs = session, logs

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        leaders = {split: leader for split in splits if (leader := self._session.leaders.of(split)) is not None}
        return {split: SplitRange(split, *self._logs[leader.node]) for split, leader in leaders.items()}


def waited_for(seconds: float) -> Patience:
    patience = Patience(120_000)
    patience.spend(time.monotonic() - seconds)
    return patience


def test_one_answer_after_a_long_wait_does_not_report_that_a_topic_is_gone() -> None:
    session = ToldSession(ABSENT, led_by(1, 0))
    recovery = Recovery(session, waited_for(30), fail_on_data_loss=False)
    assert recovery.find_leaders([WANTED]) == [WANTED]
    assert recovery.find_leaders([WANTED]) == [WANTED]
    assert session.node_of(SPLIT) == 1
    assert session.told.asked == [(False, None), (True, None)]


def test_a_topic_that_no_one_knows_for_long_enough_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "GONE_AFTER_S", 0.3)
    session = ToldSession(ABSENT, led_by(1, None), ABSENT)
    recovery = Recovery(session, Patience(120_000), fail_on_data_loss=True)
    recovery.find_leaders([WANTED])
    time.sleep(0.3)
    recovery.find_leaders([WANTED])
    session.forget(SPLIT, 1)
    # It was seen meanwhile, so that counting begins again.
    assert recovery.find_leaders([WANTED]) == [WANTED]
    time.sleep(0.3)
    with pytest.raises(UnknownSplitError, match="t-0 does not exist"):
        recovery.find_leaders([WANTED])


CUT_OFF, LEADER = 1, 2
LOGS = {CUT_OFF: (0, 40), LEADER: (0, 100)}
"""The broker that is cut off has what was delivered before, and nothing after it."""


@pytest.fixture
def cut_off() -> ToldSession:
    """A session that reads from a broker which still believes that it leads; others know better."""
    session = ToldSession(led_by(CUT_OFF, 4), led_by(LEADER, 5), led_by(CUT_OFF, 4), logs=LOGS)
    session.refresh({"t"}, 1_000)
    return session


def test_a_read_that_stalls_asks_others_who_leads(cut_off: ToldSession) -> None:
    group = [WANTED]
    left = Recovery(cut_off, waited_for(2), fail_on_data_loss=False).pause_stalled(group)
    assert left == group
    # A new list: the group is to be fetched from anyone who leads it now.
    assert left is not group
    assert cut_off.node_of(SPLIT) == LEADER
    assert cut_off.told.asked[-1] == (True, CUT_OFF)
    # From the one that is cut off, once more.
    cut_off.refresh({"t"}, 1_000)
    assert cut_off.node_of(SPLIT) == LEADER


@pytest.mark.parametrize("fail", [True, False])
def test_a_log_is_not_truncated_because_a_broker_that_is_cut_off_says_so(cut_off: ToldSession, fail: bool) -> None:
    recovery = Recovery(cut_off, Patience(120_000), fail_on_data_loss=fail)
    step = Step([], [WANTED], {SPLIT: Trouble.OUT_OF_RANGE}, {}, moved=False)
    assert recovery.resolve(CUT_OFF, step) == [WANTED]
    assert cut_off.node_of(SPLIT) == LEADER


def test_a_log_is_truncated_if_who_leads_by_the_word_of_others_says_so() -> None:
    session = ToldSession(led_by(CUT_OFF, 4), led_by(LEADER, 5), logs={CUT_OFF: (0, 30), LEADER: (0, 40)})
    session.refresh({"t"}, 1_000)
    step = Step([], [WANTED], {SPLIT: Trouble.OUT_OF_RANGE}, {}, moved=False)
    with pytest.raises(DataLossError, match=r"offsets 40 to 100 .* ends at 40: the log was truncated"):
        Recovery(session, Patience(120_000), fail_on_data_loss=True).resolve(CUT_OFF, step)
    left = Recovery(session, waited_for(2), fail_on_data_loss=False).pause_stalled([WANTED])
    assert left == [WANTED.at(100)]


def test_records_that_were_replaced_since_they_were_planned_are_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    session = ToldSession(led_by(LEADER, 7))
    step = Step([], [WANTED], {SPLIT: Trouble.REPLACED}, {SPLIT: 7}, moved=False)
    logged = r"offsets 40 to 100 \(exclusive\) that a batch was planned to read are gone: the leader of epoch 7"
    with pytest.raises(DataLossError, match=logged):
        Recovery(session, Patience(120_000), fail_on_data_loss=True).resolve(LEADER, step)
    assert Recovery(session, Patience(120_000), fail_on_data_loss=False).resolve(LEADER, step) == [WANTED.at(100)]
    assert "the next batch reads those" in caplog.text


def test_a_read_that_stalls_at_its_leader_goes_on_waiting() -> None:
    session = ToldSession(led_by(LEADER, 5), logs=LOGS)
    session.refresh({"t"}, 1_000)
    group = [WANTED]
    assert Recovery(session, waited_for(2), fail_on_data_loss=True).pause_stalled(group) is group


def first_or_end(self: KafkaAdmin, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
    """Of a log with records up to 100, from 40 on in a transaction that is open."""
    end = 40 if self._read_committed else 100
    return {split: OffsetAndTimestamp(0 if at == EARLIEST else end, None) for split, at in wanted.items()}


@pytest.mark.parametrize("fail", [True, False])
def test_records_of_an_open_transaction_are_waited_for_and_not_lost(
    fail: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaAdmin, "list_offsets", first_or_end)
    session = ToldSession(led_by(LEADER, 5), isolation_level="read_committed")
    session.refresh({"t"}, 1_000)
    # What is read up to the log's end does not wait for it.
    assert session.visible.log_ranges({SPLIT}) == {SPLIT: SplitRange(SPLIT, 0, 40)}
    group, patience = [WANTED], waited_for(2)
    recovery = Recovery(session, patience, fail_on_data_loss=fail)
    assert recovery.pause_stalled(group) is group
    patience.spend(time.monotonic() - 120)
    with pytest.raises(ResponseTimeoutError, match=r"no record of t-0 arrived, as none of an open transaction does"):
        recovery.pause_stalled(group)
