"""Snapshots: the rows of a table are read first, by ranges of keys, while its changes come from another split's log.

All of a batch is as of one point in time: the position to which the batch reads that log. The rows of the batch's
chunks are as of that position, and changes before it are delivered only for keys that earlier batches have read. So
after each batch the stream holds exactly the rows that the tables had at that position, up to the frontier. Only the
frontier has to be kept.

A table that is found later begins in the same way, with a frontier before its first key; changes of a table that is not
found yet are not delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from watermark_source.errors import InternalError
from watermark_source.planning.observation import Observation, ObservedSnapshots
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import Bound, SnapshotState, SourceState, SplitState


class Chunk(NamedTuple):
    """Keys from ``lower``, which is in it, to ``upper``, which is not; ``None`` is no limit."""

    lower: Bound
    upper: Bound


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """What tasks need to know while a snapshot is under way; it follows from the batch's two offsets."""

    copied: Mapping[str, Bound]
    """By log, the key up to which earlier batches have read it; ``None``: not begun."""
    complete: Set[str]
    """Logs that earlier batches have read to their end. Logs in neither are not delivered."""
    chunks: Mapping[SplitRange, Chunk]
    """What the batch reads of snapshots."""
    positions: Mapping[Split, int]
    """Where the batch ends in the other splits: the rows of its chunks are as of there."""


def snapshot_split(log: str) -> Split:
    """Return the split of a log's snapshot; its positions count chunks."""
    return Split(log, 0)


def unfinished(snapshots: SnapshotState) -> dict[str, Bound]:
    """Return the snapshots that are not read to their end, with the key at which each continues, ``None`` at first."""
    return {
        log: read[-1] if read else None for log, read in snapshots.frontiers.items() if not read or read[-1] is not None
    }


def finished(snapshots: SnapshotState) -> frozenset[Split]:
    """Return the snapshots whose last chunk was in the last planned batch."""
    return frozenset(snapshot_split(log) for log in snapshots.frontiers.keys() - unfinished(snapshots).keys())


def completed(snapshots: SnapshotState) -> frozenset[str]:
    """Return the logs that have been read to their end, with the last planned batch."""
    return (snapshots.complete or frozenset()) | {split.log for split in finished(snapshots)}


def snapshots_after(
    before: SnapshotState,
    begun: Mapping[str, Bound],
    planned: Mapping[Split, SplitState],
    upcoming: ObservedSnapshots,
) -> SnapshotState:
    """Return the snapshots after a plan that continues those in ``begun``, each from a key on."""
    return SnapshotState(
        frontiers={
            log: _frontier(planned[snapshot_split(log)], upcoming.chunks.get(log, ()), lower)
            for log, lower in sorted(begun.items())
        },
        complete=None if before.complete is None else completed(before) - upcoming.dropped,
        forgotten=_forgotten(before, upcoming.dropped),
    )


def _frontier(moved: SplitState, chunks: tuple[Bound, ...], lower: Bound) -> tuple[Bound, ...]:
    """Return where the last chunk before ends, unless there was none, and those that are planned now."""
    bounds = chunks[: moved.position - moved.observed]
    return bounds if lower is None else (lower, *bounds)


def _forgotten(before: SnapshotState, dropped: Set[str]) -> Mapping[str, int]:
    """Return how often each log was dropped; a log that was not known does not count as dropped."""
    known = dropped & (before.frontiers.keys() | completed(before))
    return {**before.forgotten, **{log: before.forgotten.get(log, 0) + 1 for log in sorted(known)}}


def snapshot_batch(before: SourceState, after: SourceState) -> SnapshotBatch | None:
    """Return what tasks need to know of the batch between two states, ``None`` if its source takes no snapshots."""
    earlier, later = before.snapshots, after.snapshots
    if later.complete is None:
        return None
    # A log that was dropped meanwhile is not continued; it may have been found again, and its snapshot restarted.
    restarted = {log for log, times in later.forgotten.items() if earlier.forgotten.get(log, 0) != times}
    lower = {log: key for log, key in unfinished(earlier).items() if log not in restarted}
    complete = completed(earlier) - restarted

    def start_of(log: str) -> int:
        at = before.splits.get(snapshot_split(log))
        return 0 if at is None or log in restarted else at.position

    chunks: dict[SplitRange, Chunk] = {}
    for log, read in later.frontiers.items():
        at = after.splits[snapshot_split(log)]
        whole = SplitRange(snapshot_split(log), start_of(log), at.position)
        chunks.update(_chunks(whole, lower.get(log), read, at.position - at.observed))
    # Batches that are repeated as one may include the end of a snapshot, or all of it.
    for log in later.complete - complete:
        start = start_of(log)
        chunks[SplitRange(snapshot_split(log), start, start + 1)] = Chunk(lower.get(log), None)
    return SnapshotBatch(lower, complete, chunks, _positions(after))


def without_found(observation: Observation) -> Observation:
    """Return the observation without the snapshots that are new: they begin with a later batch."""
    logs, snapshots = observation.logs, observation.snapshots
    found = set(map(snapshot_split, snapshots.found))
    return replace(
        observation,
        logs=replace(logs, ends={s: end for s, end in logs.ends.items() if s not in found}),
        snapshots=replace(
            snapshots,
            found=frozenset(),
            chunks={log: bounds for log, bounds in snapshots.chunks.items() if log not in snapshots.found},
        ),
    )


def last_batch(state: SourceState) -> SnapshotBatch | None:
    """Return what tasks had to know of the last planned batch, without its chunks: it follows from its end alone."""
    snapshots = state.snapshots
    if snapshots.complete is None:
        return None
    copied: dict[str, Bound] = {}
    for log, read in snapshots.frontiers.items():
        at = state.splits[snapshot_split(log)]
        before = read[: max(0, len(read) - (at.position - at.observed))]
        copied[log] = before[-1] if before else None
    return SnapshotBatch(copied, snapshots.complete, {}, _positions(state))


def _positions(state: SourceState) -> dict[Split, int]:
    return {s: t.position for s, t in state.splits.items() if s.log not in state.snapshots.frontiers}


def _chunks(whole: SplitRange, lower: Bound, read: tuple[Bound, ...], planned: int) -> dict[SplitRange, Chunk]:
    found: dict[SplitRange, Chunk] = {}
    if not whole.size:
        return found
    # In batches that are repeated as one, all chunks before the last batch are one chunk.
    bounds = read[-planned - (whole.size > planned) :]
    if whole.size < len(bounds):
        raise InternalError(f"{whole} with {len(bounds)} bounds")
    start, first = whole.start, whole.end - len(bounds) + 1
    for number, upper in enumerate(bounds):
        found[SplitRange(whole.split, start, first + number)] = Chunk(lower, upper)
        start, lower = first + number, upper
    return found
