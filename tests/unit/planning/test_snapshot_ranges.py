"""Snapshots in the plan and in the offset: the frontier, what tasks are given, and what Kafka's offsets never hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.planning.example_states import A, B, at, log_of, observation, observed
from watermark_source.errors import InternalError, OffsetError
from watermark_source.planning.disorder import NOTHING_SEEN, RangeSummary
from watermark_source.planning.group import OtherMember, OtherMembers
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.policy import Alignment, GroupHold, Idleness, PlanPolicy
from watermark_source.planning.snapshot_ranges import Chunk, finished, last_batch, snapshot_batch, unfinished
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import Bound, Origin, SnapshotState, SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import ProcessingTime
from watermark_source.planning.watermark import MIN, Millis

LOG, TABLE, OTHER = Split("binlog", 0), Split("shop.orders", 0), Split("shop.users", 0)
CODEC = OffsetCodec(source="mysql-cdc-wm", name="shop")
CLOCK = ProcessingTime()
NEW = SourceState(
    splits={LOG: SplitState(100, 100), TABLE: SplitState(0, 0)},
    snapshots=SnapshotState(frontiers={"shop.orders": ()}, complete=frozenset()),
)  # fmt: skip


def planned(
    state: SourceState, end: int, bounds: tuple[Bound, ...] | None, highest: int | None = None, **policy: Any
) -> Plan:
    ends = {LOG: end}
    chunks: dict[str, tuple[Bound, ...]] = {}
    if bounds is not None:
        ends[TABLE] = state.splits[TABLE].position + len(bounds)
        chunks["shop.orders"] = bounds
    known = None if highest is None else Millis(highest)
    seen_rows = {r.split: NOTHING_SEEN if r.split == TABLE else RangeSummary(known) for r in ranges_of(state)}
    now = Millis(policy.pop("now", 1_700_000_000_000))
    seen = observed(now, ends, chunks=chunks, seen=seen_rows)
    return plan(state, seen, PlanPolicy(**policy), None)


def test_a_snapshot_is_read_by_chunks_and_holds_the_watermark_until_its_rows_are_read() -> None:
    first = planned(NEW, 200, ((10,), (20,)))
    assert first.state.snapshots.frontiers == {"shop.orders": ((10,), (20,))}
    assert ranges_of(first.state) == [SplitRange(LOG, 100, 200), SplitRange(TABLE, 0, 2)]
    second = planned(first.state, 300, ((30,), None), highest=5_000)
    assert second.state.snapshots.frontiers == {"shop.orders": ((20,), (30,), None)}
    assert second.state.watermark is None
    third = planned(second.state, 300, None, highest=6_000)
    assert TABLE not in third.state.splits
    assert third.state.snapshots.frontiers == {}
    assert third.is_batch
    assert not third.losses
    assert third.state.watermark == 5_999


def test_the_clock_is_the_watermark_from_the_last_chunk_on_and_stays_it() -> None:
    state = NEW
    for bounds in (((10,), (20,)), ((30,), None)):
        state = planned(state, 200, bounds, highest=5_000, strategy=CLOCK).state
        assert (state.watermark, state.use_processing_time) == (None, False)
    flips = planned(state, 200, None, highest=6_000, strategy=CLOCK)
    assert flips.is_batch
    assert (flips.state.watermark, flips.state.use_processing_time) == (1_700_000_000_000 - 1, True)
    begun = replace(flips.state.snapshots, frontiers={"shop.orders": ()})
    found_later = replace(flips.state, snapshots=begun, splits={**flips.state.splits, TABLE: at(0)})
    assert planned(found_later, 200, ((10,),), strategy=CLOCK).state.use_processing_time


def test_the_end_of_a_snapshot_is_reported_where_nothing_else_is() -> None:
    last = planned(NEW, 200, (None,)).state
    reported = planned(last, 200, None)
    assert reported.is_batch
    assert reported.state.watermark is None
    assert not planned(reported.state, 200, None).is_batch


def test_the_last_key_is_kept_while_a_snapshot_waits() -> None:
    first = planned(NEW, 200, ((10,), (20,)))
    waits = planned(first.state, 300, (), highest=5_000)
    assert waits.state.snapshots.frontiers == {"shop.orders": ((20,),)}
    assert unfinished(waits.state.snapshots) == {"shop.orders": (20,)}
    assert planned(NEW, 200, ()).state.snapshots.frontiers == {"shop.orders": ()}


def test_a_log_that_waits_for_snapshots_stays_where_it_is() -> None:
    state = NEW
    for now in range(1_000, 5_000, 1_000):
        seen = observed(
            Millis(now), {LOG: 100 if now == 1_000 else 900, TABLE: now // 1_000},
            chunks={"shop.orders": ((now,),)}, seen={TABLE: NOTHING_SEEN}, waiting=frozenset({LOG}),
            reached={LOG: Millis(now)},
        )  # fmt: skip
        state = plan(state, seen, PlanPolicy(idleness=Idleness(timeout=10)), None).state
        assert state.splits[LOG] == SplitState(100, 100)
        assert state.watermark is None
    assert ranges_of(state) == [SplitRange(TABLE, 3, 4)]


def test_a_snapshot_that_waits_for_its_turn_is_never_idle() -> None:
    state = planned(NEW, 200, (), idleness=Idleness(timeout=10), now=1_000_000).state
    for now in range(1_001_000, 1_005_000, 1_000):
        seen = planned(state, 200, (), highest=5_000, idleness=Idleness(timeout=10), now=now)
        assert seen.state.splits[TABLE].status is SplitStatus.ACTIVE
        assert seen.state.watermark is None
        state = seen.state
    assert state.splits[LOG].status is SplitStatus.IDLE


def test_tasks_are_given_chunks_place_and_frontier() -> None:
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
    for before in (planned(NEW, 200, (None,)).state, last):
        batch = snapshot_batch(before, last)
        assert batch is not None
        assert (batch.copied, batch.complete, batch.chunks) == ({}, {"shop.orders"}, {})


def test_a_source_without_snapshots_tells_its_tasks_nothing_of_them() -> None:
    state = SourceState(splits={LOG: SplitState(1, 1)})
    assert snapshot_batch(state, planned(state, 2, None).state) is None


def test_batches_done_again_as_one_read_every_key() -> None:
    first = planned(NEW, 200, ((10,), (20,))).state
    second = planned(first, 300, ((30,), None)).state
    batch = snapshot_batch(NEW, second)
    assert batch is not None
    assert batch.chunks == {
        SplitRange(TABLE, 0, 2): Chunk(None, (20,)),
        SplitRange(TABLE, 2, 3): Chunk((20,), (30,)),
        SplitRange(TABLE, 3, 4): Chunk((30,), None),
    }
    # Offsets once had no more than where the chunks end that were planned last.
    batch = snapshot_batch(
        NEW, replace(second, snapshots=replace(second.snapshots, frontiers={"shop.orders": ((30,), None)}))
    )
    assert batch is not None
    assert batch.chunks == {SplitRange(TABLE, 0, 3): Chunk(None, (30,)), SplitRange(TABLE, 3, 4): Chunk((30,), None)}
    third = planned(second, 400, None).state
    for before, start, lower in ((NEW, 0, None), (first, 2, (20,))):
        batch = snapshot_batch(before, third)
        assert batch is not None
        assert batch.chunks == {SplitRange(TABLE, start, start + 1): Chunk(lower, None)}
        assert batch.positions == {LOG: 400}
    with pytest.raises(InternalError):
        snapshot_batch(planned(first, 300, ((30,),)).state, second)


def running(watermark: int = 5_000) -> SourceState:
    """A source whose first snapshot is complete, and that has a watermark."""
    state = SourceState(
        splits={LOG: SplitState(300, 200, Millis(watermark))}, watermark=Millis(watermark),
        snapshots=SnapshotState(complete=frozenset({"shop.orders"})),
    )  # fmt: skip
    assert CODEC.decode(CODEC.encode(state)) == state
    return state


def found_later(state: SourceState, end: int, chunks: tuple[Bound, ...], highest: int, **seen: Any) -> Plan:
    position = state.splits[OTHER].position if OTHER in state.splits else 0
    ends = {LOG: end, OTHER: position + len(chunks)} if "dropped" not in seen else {LOG: end}
    rows = {r.split: NOTHING_SEEN if r.split == OTHER else RangeSummary(Millis(highest)) for r in ranges_of(state)}
    now = Millis(1_700_000_000_000)
    if OTHER not in state.splits:
        seen |= {"added": {OTHER: 0}, "found": frozenset({"shop.users"})}
    return plan(state, observed(now, ends, chunks={"shop.users": chunks}, seen=rows, **seen), PlanPolicy(), None)


def test_a_table_found_later_gets_its_snapshot_and_the_watermark_goes_on() -> None:
    before = running()
    first = found_later(before, 400, ((10,),), 6_000).state
    assert first.snapshots.frontiers == {"shop.users": ((10,),)}
    assert first.watermark == 5_999
    batch = snapshot_batch(before, first)
    assert batch is not None
    # Nothing of it is reported before its first chunk is read.
    assert (batch.copied, batch.complete) == ({}, {"shop.orders"})
    assert batch.chunks == {SplitRange(OTHER, 0, 1): Chunk(None, (10,))}
    assert CODEC.decode(json.loads(json.dumps(CODEC.encode(first)))) == first
    last = found_later(first, 500, (None,), 7_000).state
    assert last.watermark == 6_999
    batch = snapshot_batch(first, last)
    assert batch is not None
    assert batch.copied == {"shop.users": (10,)}
    done = planned(last, 600, None, highest=8_000).state
    assert done.snapshots.complete == {"shop.orders", "shop.users"}
    assert (done.snapshots.frontiers, done.watermark) == ({}, 7_999)


def test_a_table_found_later_begins_when_the_log_of_changes_is_read_to_its_end() -> None:
    """At a place before, it may have had another name: what it held there, and that it got its own, cannot be known."""
    log = log_of(range(5_000, 9_000, 100), [])
    log.splits = {LOG: log.splits[A], OTHER: log.splits[B]}
    state = replace(running(), splits={LOG: at(1, 4_999)})
    found = {"added": {OTHER: 0}, "found": frozenset({"shop.users"}), "chunks": {"shop.users": (None,)}}
    behind = OtherMembers(Millis(4_999), OtherMember("clicks"), 1)
    for limits, is_cut in (({"max_rows": 10}, True), ({"others": behind}, True), ({}, False)):
        seen = observation(log, ends={LOG: 40, OTHER: 1}, newest={LOG: Millis(8_900)}, **limits, **found)
        after = plan(
            state, seen, PlanPolicy(alignment=Alignment(max_drift=1_000 if "others" in limits else None)), log
        ).state
        assert (1 < after.splits[LOG].position < 40) == is_cut
        assert (OTHER in after.splits) == ("shop.users" in after.snapshots.frontiers) == (not is_cut)
    away = observation(log, ends={OTHER: 1}, unknown=frozenset({LOG}), newest={}, **found)
    assert OTHER not in plan(state, away, PlanPolicy(), log).state.splits


@pytest.mark.parametrize("is_later", [True, False])
def test_beside_a_snapshot_for_which_no_one_waits_the_log_stays_within_its_group(is_later: bool) -> None:
    log = log_of(range(5_000, 9_000, 100), [])
    log.splits = {LOG: log.splits[A], OTHER: log.splits[B]}
    state = SourceState(
        splits={LOG: at(1, 4_999), OTHER: at(0)}, watermark=Millis(4_999) if is_later else None,
        snapshots=SnapshotState(frontiers={"shop.users": ()}, complete=frozenset()),
    )  # fmt: skip
    chunk = {"ends": {LOG: 40, OTHER: 1}, "chunks": {"shop.users": (None,)}}

    def read(minimum: int, *, holds: bool = is_later) -> list[SplitRange]:
        others = OtherMembers(Millis(minimum), OtherMember("clicks"), 1)
        seen = observation(log, newest={LOG: Millis(8_900)}, others=others, **chunk)
        policy = PlanPolicy(
            alignment=Alignment(max_drift=1_000, hold=GroupHold.SNAPSHOT if holds else GroupHold.NOTHING)
        )
        return ranges_of(plan(state, seen, policy, log).state)

    table = SplitRange(OTHER, 0, 1)
    # The watermark of an event at 6 000 is 5 999.
    assert read(4_999) == [SplitRange(LOG, 1, 11), table]
    assert read(MIN) == []
    if not is_later:
        assert read(MIN, holds=True) == [SplitRange(LOG, 1, 40), table]


def test_a_table_found_before_the_first_watermark_is_waited_for() -> None:
    state = SourceState(
        splits={LOG: SplitState(100, 100), TABLE: SplitState(1, 0)},
        snapshots=SnapshotState(frontiers={"shop.orders": (None,)}, complete=frozenset()),
    )  # fmt: skip
    first = found_later(state, 200, ((10,),), 6_000).state
    second = found_later(first, 300, (None,), 6_000).state
    assert first.watermark is second.watermark is None
    assert planned(second, 400, None, highest=7_000).state.watermark == 6_999


def test_a_table_dropped_while_its_snapshot_is_read_is_forgotten_and_no_loss() -> None:
    first = found_later(running(), 400, ((10,),), 6_000).state
    gone = found_later(first, 500, (), 7_000, dropped=frozenset({"shop.users"}))
    assert not gone.losses
    assert gone.state.snapshots.frontiers == {}
    assert gone.state.splits.keys() == {LOG}
    assert gone.state.snapshots.complete == {"shop.orders"}
    assert gone.state.watermark == 6_999


def test_a_table_that_is_chosen_no_more_is_forgotten() -> None:
    state = running()
    seen = observed(Millis(1), {LOG: 300}, seen={LOG: NOTHING_SEEN}, dropped=frozenset({"shop.orders"}))
    assert plan(state, seen, PlanPolicy(), None).state.snapshots.complete == frozenset()


def test_a_source_that_takes_snapshots_does_so_when_all_its_tables_are_gone() -> None:
    seen = observed(Millis(1), {LOG: 200}, seen={LOG: NOTHING_SEEN}, dropped=frozenset({"shop.orders"}))
    first = planned(NEW, 200, ((10,),)).state
    gone = plan(first, seen, PlanPolicy(), None).state
    offset = json.loads(json.dumps(CODEC.encode(gone)))
    assert (gone.snapshots.frontiers, gone.snapshots.complete, offset["complete"]) == ({}, frozenset(), [])
    assert CODEC.decode(offset) == gone
    batch = snapshot_batch(first, gone)
    assert batch is not None
    assert (batch.copied, batch.complete) == ({}, frozenset())
    # Others are reported from the beginning of their snapshot on, and of a source without snapshots at once.
    assert snapshot_batch(gone, gone) is not None
    assert CODEC.decode(CODEC.encode(SourceState(splits={LOG: SplitState(1, 1)}))).snapshots.complete is None


def test_offsets_that_left_out_an_empty_list_of_complete_tables_are_read() -> None:
    offset = CODEC.encode(NEW)
    del offset["complete"]
    assert CODEC.decode(offset) == NEW


@pytest.mark.parametrize("chunks", [((5,),), ((5,), None)])
def test_a_table_made_anew_between_batches_that_are_done_again_as_one_is_read_from_its_beginning(
    chunks: tuple[Bound, ...],
) -> None:
    before = found_later(found_later(running(), 400, ((10,), (20,)), 6_000).state, 500, ((30,),), 6_000).state
    gone = found_later(before, 600, (), 7_000, dropped=frozenset({"shop.users"})).state
    after = found_later(gone, 700, chunks, 8_000).state
    batch = snapshot_batch(before, after)
    assert batch is not None
    # What was read of the one before does not show which changes belong to the one that is there now.
    assert batch.copied == {}
    ends = zip((None, *chunks), chunks, strict=False)
    assert batch.chunks == {SplitRange(OTHER, i, i + 1): Chunk(lower, upper) for i, (lower, upper) in enumerate(ends)}
    if chunks[-1] is None:
        after = planned(after, 800, None, highest=9_000).state
        batch = snapshot_batch(before, after)
        assert batch is not None
        assert (batch.copied, batch.chunks) == ({}, {SplitRange(OTHER, 0, 1): Chunk(None, None)})
    assert CODEC.decode(json.loads(json.dumps(CODEC.encode(after)))) == after


def test_what_a_batch_reported_of_the_log_follows_from_its_end_alone() -> None:
    states = [NEW]
    states.append(planned(NEW, 200, ((10,), (20,))).state)
    states.append(planned(states[-1], 300, ()).state)
    states.append(planned(states[-1], 400, ((30,), None)).state)
    states.append(planned(states[-1], 500, None).state)
    states.append(found_later(states[-1], 600, ((7,),), 1).state)
    states.append(found_later(states[-1], 700, ((8,), (9,)), 1).state)
    states.append(found_later(states[-1], 800, (), 1, dropped=frozenset({"shop.users"})).state)
    for before, after in pairwise(states):
        batch, again = snapshot_batch(before, after), last_batch(after)
        assert batch is not None
        assert again is not None
        # Nothing is reported of what is not begun, be it there or not.
        begun, begun_again = (
            {log: key for log, key in each.copied.items() if key is not None} for each in (batch, again)
        )
        assert (begun, batch.complete, batch.positions) == (begun_again, again.complete, again.positions)


def test_a_table_that_was_dropped_long_ago_and_came_back_is_read_on() -> None:
    def known(chunk: int, *read: Bound, dropped: int) -> SourceState:
        snapshots = SnapshotState(
            frontiers={"shop.orders": read}, complete=frozenset(), forgotten={"shop.orders": dropped}
        )
        return replace(NEW, splits={TABLE: SplitState(chunk, chunk - 1)}, snapshots=snapshots)

    before = known(1, (10,), dropped=1)
    after = known(2, (10,), (20,), dropped=1)
    batch = snapshot_batch(before, after)
    assert batch is not None
    assert batch.chunks == {SplitRange(TABLE, 1, 2): Chunk((10,), (20,))}
    # Dropped once more since, and found again.
    batch = snapshot_batch(before, known(1, (20,), dropped=2))
    assert batch is not None
    assert batch.chunks == {SplitRange(TABLE, 0, 1): Chunk(None, (20,))}


@pytest.mark.parametrize("forgotten", [["shop.orders"], {5: 1}, {"shop.orders": 0}, {"shop.orders": "1"}])
def test_broken_counts_of_forgotten_tables_are_refused(forgotten: Any) -> None:
    with pytest.raises(OffsetError, match='"forgotten"'):
        CODEC.decode({**CODEC.encode(NEW), "forgotten": forgotten})


@pytest.mark.parametrize("complete", [None, "shop.orders", [1], {"shop.orders": 1}, ["shop.orders"]])
def test_broken_names_of_complete_tables_are_refused(complete: Any) -> None:
    with pytest.raises(OffsetError, match='"complete" is'):
        CODEC.decode({**CODEC.encode(NEW), "complete": complete})


def test_finished_snapshots_are_those_whose_last_chunk_has_no_limit() -> None:
    state = SourceState(
        splits={LOG: SplitState(1, 1), TABLE: SplitState(2, 1), OTHER: SplitState(0, 0)},
        snapshots=SnapshotState(frontiers={"shop.orders": ((5,), None), "shop.users": ()}),
    )
    assert finished(state.snapshots) == {TABLE}
    assert unfinished(state.snapshots) == {"shop.users": None}


def test_the_frontier_is_in_the_offset_and_comes_back() -> None:
    state = planned(NEW, 200, ((10,), ("a", 2), None)).state
    offset = CODEC.encode(state)
    assert json.dumps(offset) == (
        '{"complete": [], "name": "shop", "run": 0, "snapshot": {"shop.orders": [[10], ["a", 2], null]}, '
        '"source": "mysql-cdc-wm", '
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


@pytest.mark.parametrize("wrong", [{"system": 1}, {"system": ""}, {"done": ["a"]}, {"shift": -1}, {"shift": "1"}])
def test_a_broken_origin_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match=f'"{next(iter(wrong))}" is '):
        CODEC.decode({**CODEC.encode(NEW), **wrong})


@pytest.mark.parametrize(
    ("snapshot", "message"),
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
def test_a_broken_frontier_is_refused(snapshot: Any, message: str) -> None:
    with pytest.raises(OffsetError, match=message):
        CODEC.decode({**CODEC.encode(NEW), "snapshot": snapshot})
