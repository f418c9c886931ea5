"""Snapshots in the plan and in the offset: the frontier, what tasks are told, and what Kafka's offsets never hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from watermark_source.errors import InternalError, OffsetError
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.observation import Observation, PlanPolicy
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.snapshot import Chunk, finished, snapshot_batch, unfinished
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import Bound, Origin, SourceState, SplitState, SplitStatus

LOG, TABLE, OTHER = Split("binlog", 0), Split("shop.orders", 0), Split("shop.users", 0)
CODEC = OffsetCodec(source="mysql-cdc-wm", name="shop")
NEW = SourceState(
    splits={LOG: SplitState(100, 100), TABLE: SplitState(0, 0)}, frontiers={"shop.orders": ()}
)  # fmt: skip


def planned(
    state: SourceState, end: int, bounds: tuple[Bound, ...] | None, highest: int | None = None, **policy: Any
) -> Plan:
    ends = {LOG: end}
    chunks: dict[str, tuple[Bound, ...]] = {}
    if bounds is not None:
        ends[TABLE] = state.splits[TABLE].position + len(bounds)
        chunks["shop.orders"] = bounds
    times = {r.split: None if r.split == TABLE or highest is None else Millis(highest) for r in ranges_of(state)}
    now = Millis(policy.pop("now", 1_700_000_000_000))
    seen = Observation(now=now, asked_at=now, ends=ends, chunks=chunks, highest=times)
    return plan(state, seen, PlanPolicy(**policy), None)


def test_a_snapshot_is_read_by_chunks_and_holds_the_watermark_until_its_rows_are_read() -> None:
    first = planned(NEW, 200, ((10,), (20,)))
    assert first.state.frontiers == {"shop.orders": ((10,), (20,))}
    assert ranges_of(first.state) == [SplitRange(LOG, 100, 200), SplitRange(TABLE, 0, 2)]
    second = planned(first.state, 300, ((30,), None), highest=5_000)
    assert second.state.frontiers == {"shop.orders": ((30,), None)}
    assert second.state.watermark is None
    third = planned(second.state, 300, None, highest=6_000)
    assert TABLE not in third.state.splits
    assert third.state.frontiers == {}
    assert third.is_batch
    assert not third.losses
    assert third.state.watermark == 5_999


def test_the_last_key_is_kept_while_a_snapshot_waits() -> None:
    first = planned(NEW, 200, ((10,), (20,)))
    waits = planned(first.state, 300, (), highest=5_000)
    assert waits.state.frontiers == {"shop.orders": ((20,),)}
    assert unfinished(waits.state) == {"shop.orders": (20,)}
    assert planned(NEW, 200, ()).state.frontiers == {"shop.orders": ()}


def test_a_snapshot_that_waits_for_its_turn_is_never_idle() -> None:
    state = planned(NEW, 200, (), idle_timeout=10, now=1_000_000).state
    for now in range(1_001_000, 1_005_000, 1_000):
        seen = planned(state, 200, (), highest=5_000, idle_timeout=10, now=now)
        assert seen.state.splits[TABLE].status is SplitStatus.ACTIVE
        assert seen.state.watermark is None
        state = seen.state
    assert state.splits[LOG].status is SplitStatus.IDLE


def test_tasks_are_told_chunks_place_and_frontier() -> None:
    first = planned(NEW, 200, ((10,), (20,))).state
    batch = snapshot_batch(NEW, first)
    assert batch is not None
    assert batch.copied == {"shop.orders": None}
    assert batch.positions == {LOG: 200}
    assert batch.chunks == {SplitRange(TABLE, 0, 1): Chunk(None, (10,)), SplitRange(TABLE, 1, 2): Chunk((10,), (20,))}
    second = planned(first, 300, ((30,), None)).state
    batch = snapshot_batch(first, second)
    assert batch is not None
    assert batch.copied == {"shop.orders": (20,)}
    assert batch.chunks == {SplitRange(TABLE, 2, 3): Chunk((20,), (30,)), SplitRange(TABLE, 3, 4): Chunk((30,), None)}


def test_after_the_last_chunk_every_key_counts_as_read() -> None:
    last = planned(planned(NEW, 200, (None,)).state, 300, None).state
    assert snapshot_batch(last, last) is None
    batch = snapshot_batch(planned(NEW, 200, (None,)).state, last)
    assert batch is not None
    assert (batch.copied, batch.chunks) == ({}, {})


def test_batches_done_again_as_one_read_every_key() -> None:
    first = planned(NEW, 200, ((10,), (20,))).state
    second = planned(first, 300, ((30,), None)).state
    batch = snapshot_batch(NEW, second)
    assert batch is not None
    assert batch.chunks == {SplitRange(TABLE, 0, 3): Chunk(None, (30,)), SplitRange(TABLE, 3, 4): Chunk((30,), None)}
    with pytest.raises(InternalError):
        snapshot_batch(planned(first, 300, ((30,),)).state, second)


def test_finished_snapshots_are_those_whose_last_chunk_has_no_limit() -> None:
    state = SourceState(
        splits={LOG: SplitState(1, 1), TABLE: SplitState(2, 1), OTHER: SplitState(0, 0)},
        frontiers={"shop.orders": ((5,), None), "shop.users": ()},
    )
    assert finished(state) == {TABLE}
    assert unfinished(state) == {"shop.users": None}


def test_the_frontier_is_in_the_offset_and_comes_back() -> None:
    state = planned(NEW, 200, ((10,), ("a", 2), None)).state
    offset = CODEC.encode(state)
    assert json.dumps(offset) == (
        '{"name": "shop", "run": 0, "snapshot": {"shop.orders": [[10], ["a", 2], null]}, "source": "mysql-cdc-wm", '
        '"splits": {"binlog": {"0": [200, 100]}, "shop.orders": {"0": [3, 3]}}, "v": 1}'
    )
    assert CODEC.decode(json.loads(json.dumps(offset))) == state
    assert CODEC.decode(CODEC.encode(NEW)) == NEW
    assert "snapshot" not in CODEC.encode(SourceState(splits={LOG: SplitState(1, 1)}))


@pytest.mark.parametrize("origin", [Origin("here"), Origin("here", 7, "a:1-3"), Origin(None, 0, "a:1-3")])
def test_an_offset_tells_which_copy_it_is_of_and_what_lies_before_it(origin: Origin) -> None:
    state = replace(NEW, origin=origin)
    assert CODEC.decode(json.loads(json.dumps(CODEC.encode(state)))) == state
    assert not CODEC.encode(NEW).keys() & {"done", "shift", "system"}


@pytest.mark.parametrize("wrong", [{"system": 1}, {"done": ["a"]}, {"shift": -1}, {"shift": "1"}])
def test_a_broken_origin_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match=f'"{next(iter(wrong))}" is '):
        CODEC.decode({**CODEC.encode(NEW), **wrong})


@pytest.mark.parametrize(
    ("snapshot", "says"),
    [
        ([], '"snapshot" is'),
        ({"shop.users": []}, "there is a snapshot of 'shop.users'"),
        ({"shop.orders": 1}, "the snapshot of 'shop.orders' is 1"),
        ({"shop.orders": [None, [1]]}, "the snapshot of"),
        ({"shop.orders": [[1.5]]}, "has a key"),
        ({"shop.orders": [[True]]}, "has a key"),
        ({"shop.orders": [[]]}, "has a key"),
        ({"shop.orders": [3]}, "has a key"),
    ],
)
def test_a_broken_frontier_is_refused(snapshot: Any, says: str) -> None:
    with pytest.raises(OffsetError, match=says):
        CODEC.decode({**CODEC.encode(NEW), "snapshot": snapshot})
