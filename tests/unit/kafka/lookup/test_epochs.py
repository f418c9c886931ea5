"""Epochs of partitions' leaders, beside replicas whose logs are known: no record that was replaced is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp
from pyspark_aligned_kafka.lookup.epochs import KafkaLineage
from watermark_source.planning.lineage import epoch_at, parting
from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch, SplitState

T = Split("t", 0)


class Replicas(KafkaAdmin):
    """A partition of three replicas. A record is the epoch of its leader, and a number of its own."""

    def __init__(self) -> None:
        self.logs: list[list[tuple[int, int]]] = [[], [], []]
        self.leader, self.epoch, self.written = 0, 0, 0
        self.epochs = {T: 0}
        self.asked = 0

    @property
    def log(self) -> list[tuple[int, int]]:
        return self.logs[self.leader]

    def write(self, records: int) -> None:
        for _ in range(records):
            self.written += 1
            self.log.append((self.epoch, self.written))

    def follow(self, replica: int, records: int) -> None:
        """Let a replica copy from the leader; what it has besides is cut off first."""
        mine, same = self.logs[replica], 0
        while same < min(len(mine), len(self.log)) and mine[same] == self.log[same]:
            same += 1
        self.logs[replica] = self.log[: max(same, min(len(self.log), same + records))]

    def elect(self, replica: int) -> None:
        """Elect a replica as it is, in sync or not."""
        self.leader, self.epoch = replica, self.epoch + 1
        self.epochs[T] = self.epoch

    def epoch_ends(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        """Answer as ``LeaderEpochFileCache.endOffsetFor`` does."""
        self.asked += 1
        begins = {epoch: start for start, (epoch, _) in reversed([*enumerate(self.log)])}
        begins.setdefault(self.epoch, len(self.log))
        found: dict[Split, OffsetAndTimestamp] = {}
        for split, number in wanted.items():
            end = min(start for epoch, start in begins.items() if epoch > number)
            floor = max((epoch for epoch in begins if epoch <= number), default=number)
            found[split] = OffsetAndTimestamp(end, None, floor)
        return found


def shared(mine: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    return next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), min(len(mine), len(other)))


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("count", [2, 3])
def test_what_a_leader_did_not_have_is_found_exactly(seed: int, count: int) -> None:
    """Replicas and their turns as leaders: each plan continues where the logs part, not behind and not before.

    Where both logs have records of leaders that the other one lacks, that they part is found, but perhaps only a later
    place of it.
    """
    random, replicas = Random(seed), Replicas()
    lineage = KafkaLineage(replicas, replicas.epochs)
    state, read = SplitState(0, 0), list[tuple[int, int]]()
    for _ in range(40):
        step = random.randrange(4)
        if step == 0:
            replicas.write(random.randrange(1, 5))
        elif step == 1:
            others = [each for each in range(count) if each != replicas.leader]
            replicas.follow(random.choice(others), random.randrange(0, 8))
        elif step == 2 and random.random() < 0.5:
            replicas.elect(random.randrange(count))
        else:
            if random.random() < 0.2:
                # As in a new process.
                lineage = KafkaLineage(replicas, replicas.epochs)
            history = lineage.histories({T: state}).get(T)
            parted = None if history is None or state.epoch is None else parting(state.position, state.epoch, history)
            same = shared(read, replicas.log)
            found = len(read) if parted is None else parted.position
            if found != same:
                assert same < found < len(read), (read, replicas.log, history)
                lacking = {epoch for epoch, _ in read[same:]} - {epoch for epoch, _ in replicas.log}
                assert lacking, {epoch for epoch, _ in replicas.log[same:found]} - {epoch for epoch, _ in read}
            read = replicas.log[:found]
            end = random.randrange(len(read), len(replicas.log) + 1)
            read += replicas.log[len(read) : end]
            epoch = state.epoch if history is None else epoch_at(history, end)
            state = SplitState(end, end, epoch=epoch)
            assert (epoch.number if epoch else None) == (read[-1][0] if read else None)


def test_nothing_is_asked_while_the_leader_of_the_last_record_leads() -> None:
    replicas = Replicas()
    replicas.write(5)
    replicas.follow(1, 5)
    lineage = KafkaLineage(replicas, replicas.epochs)
    assert lineage.histories({T: SplitState(0, 0)}) == {T: [Epoch(0, 0)]}
    read = {T: SplitState(5, 5, epoch=Epoch(0, 0))}
    assert [lineage.histories(read) for _ in range(2)] == [{}, {}]
    assert replicas.asked == 0
    replicas.elect(1)
    # Of the same splits, too, as a source at rest asks again and again.
    for splits in (read, read, dict(read)):
        assert lineage.histories(splits) == {T: [Epoch(1, 5), Epoch(0, 0)]}
    assert replicas.asked == 1
    replicas.write(2)
    assert lineage.histories({T: SplitState(7, 7, epoch=Epoch(1, 5))}) == {}
    assert replicas.asked == 1


def test_epochs_of_deleted_records_end_a_look() -> None:
    replicas = Replicas()
    replicas.epoch = 700
    replicas.epochs[T] = 700
    replicas.write(3)
    lineage = KafkaLineage(replicas, replicas.epochs)
    assert lineage.histories({T: SplitState(0, 0)}) == {T: [Epoch(700, 0)]}
    assert replicas.asked == 1


def test_a_partition_that_is_gone_and_records_without_epochs_have_no_history() -> None:
    replicas = Replicas()
    replicas.epochs[T] = 3

    class Gone(Replicas):
        def epoch_ends(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
            return {}

    class Old(Replicas):
        def epoch_ends(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
            self.asked += 1
            return {split: OffsetAndTimestamp(None, None) for split in wanted}

    assert KafkaLineage(Gone(), replicas.epochs).histories({T: SplitState(5, 5)}) == {}
    old = Old()
    lineage = KafkaLineage(old, replicas.epochs)
    assert [lineage.histories({T: SplitState(5, 5)}) for _ in range(3)] == [{}, {}, {}]
    assert old.asked == 1
