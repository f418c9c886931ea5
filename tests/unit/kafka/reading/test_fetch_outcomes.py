"""Fetch responses understood: next positions before decoding, troubles, refusals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pyspark_aligned_kafka.reading.fetch import Fetched, FetchResponse, Step, Trouble, examine
from pyspark_aligned_kafka.reading.range_progress import Pending
from tests.unit.kafka.batches import Rec, batch
from watermark_source.errors import CorruptDataError, RefusedError, SourceError
from watermark_source.planning.split import Split, SplitRange

GROUP = [Pending(SplitRange(Split("t", number), 10, 20), 10) for number in range(3)]


def step(*parts: tuple[int, bytes, int, int | None], group: Sequence[Pending] = GROUP) -> Step:
    """``parts``: partition, records, error, replica."""
    data = b"".join(records for _, records, _, _ in parts)
    fetched, at = [], 0
    for number, records, error, replica in parts:
        fetched.append(Fetched(Split("t", number), error, None, replica, at, at + len(records)))
        at += len(records)
    array = np.frombuffer(bytearray(data + b"\0"), np.uint8)
    return examine(group, array, FetchResponse(0, tuple(fetched)))


def batch_of(base: int, count: int) -> bytes:
    return batch(base, [Rec(i) for i in range(count)])


def test_positions_move_to_the_end_of_the_last_complete_batch() -> None:
    made = step((0, batch_of(8, 5) + batch_of(13, 2)[:-1], 0, None), (1, batch_of(10, 30), 0, None), (2, b"", 0, None))
    assert [(each.split.number, each.position) for each in made.left] == [(2, 10), (0, 13)]
    assert [(each.pending.position, each.batches, each.next_offset) for each in made.stretches] == [
        (10, 1, 13),
        (10, 1, 40),
    ]
    assert made.moved
    assert not made.troubles


def test_records_of_a_later_epoch_within_a_range_were_not_planned() -> None:
    planned = [pending._replace(newest=4) for pending in GROUP]
    early, late, behind = (batch(base, [Rec(i) for i in range(4)], epoch=e) for base, e in ((10, 4), (14, 6), (20, 6)))
    made = step((0, early + late, 0, None), (1, late, 0, None), (2, early + behind, 0, None), group=planned)
    assert made.named == {planned[0].split: 6, planned[1].split: 6}
    assert made.troubles == dict.fromkeys(made.named, Trouble.REPLACED)
    assert [(each.split.number, each.position) for each in made.left] == [(1, 10), (0, 14)]
    assert not step((0, early + late, 0, None)).troubles, "where no epoch is known, none is expected"


def test_a_response_without_records_moves_nothing() -> None:
    made = step((0, b"", 0, None), (1, b"", 0, None), (2, b"", 0, None))
    assert (made.left, made.stretches, made.moved) == (GROUP, [], False)


def test_a_batch_wholly_before_the_position_moves_nothing() -> None:
    assert not step((0, batch_of(2, 5), 0, None)).moved


@pytest.mark.parametrize(
    ("error", "trouble"),
    [(1, Trouble.OUT_OF_RANGE), *((code, Trouble.MOVED) for code in (3, 5, 6, 9, 56, 74, 75, 78))],
)
def test_an_error_that_can_be_cured_leaves_the_position(error: int, trouble: Trouble) -> None:
    made = step((0, b"", error, None), (1, batch_of(10, 10), 0, None))
    assert made.troubles == {Split("t", 0): trouble}
    assert made.left == [GROUP[0], GROUP[2]]


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        (2, CorruptDataError, "CorruptRecordError"),
        (29, RefusedError, "TopicAuthorizationFailedError"),
        (31, RefusedError, "ClusterAuthorizationFailedError"),
        (35, SourceError, "UnsupportedVersionError"),
    ],
)
def test_an_error_that_cannot_be_cured_is_raised_with_its_place(error: int, kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=f"topic t partition 1 offset 10: .*{name}"):
        step((1, b"", error, None))


def test_a_leader_can_name_a_replica_to_read_from() -> None:
    made = step((0, b"", 0, 7))
    assert (made.troubles, made.named) == ({Split("t", 0): Trouble.REDIRECTED}, {Split("t", 0): 7})
    assert not step((0, batch_of(10, 1), 0, 7)).troubles, "records come first"


def test_a_partition_no_one_asked_for_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="t-9, which was not requested"):
        step((9, b"", 0, None))


def test_a_partition_sent_twice_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="t-1, which was not requested, or a second time"):
        step((1, batch_of(10, 1), 0, None), (1, batch_of(10, 1), 0, None))


def test_an_error_of_the_whole_response_is_every_partitions_trouble() -> None:
    made = examine(GROUP, np.empty(0, np.uint8), FetchResponse(6, ()))
    assert (made.left, set(made.troubles.values())) == (GROUP, {Trouble.MOVED})
    with pytest.raises(SourceError, match="UnsupportedVersionError"):
        examine(GROUP, np.empty(0, np.uint8), FetchResponse(35, ()))
