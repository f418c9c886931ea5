"""How many rows this run has read of each snapshot, and how fast: shown to users, and decides nothing."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from watermark_source.eventtime.watermark import Millis
from watermark_source.monitor.snapshot_progress import SnapshotProgress
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.connector.snapshots import Snapshots, SnapshotSize


@dataclass(slots=True)
class _Count:
    size: SnapshotSize
    before: int
    """Chunks of earlier runs."""
    rows: int = 0
    since: Millis | None = None
    """When the first batch was done: processes that start, and code that is compiled, make that one slow."""
    first_rows: int = 0


class SnapshotCount:
    """Of one run of a query."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}

    def meet(self, logs: Set[str], state: SourceState, snapshots: Snapshots) -> None:
        """Take in the snapshots that go on; how large they are is asked once."""
        new = logs - self._counts.keys()
        if new:
            sizes = snapshots.sizes(new)
            for log in new:
                begun = state.splits.get(snapshot_split(log))
                size = sizes.get(log, SnapshotSize(None, None))
                self._counts[log] = _Count(size, 0 if begun is None else begun.position)

    def forget(self, logs: Set[str]) -> None:
        """Take in that nothing more comes of some snapshots, which were not read to their end."""
        for log in logs:
            self._counts.pop(log, None)

    def add(self, log: str, rows: int) -> None:
        """Take in what a batch read of a snapshot."""
        if log in self._counts:
            self._counts[log].rows += rows

    def progress(self, state: SourceState, now: Millis) -> tuple[SnapshotProgress, ...]:
        """Return how far each is when the batch that ends in ``state`` is done; nothing once all were before it."""
        frontiers, complete = state.snapshots.frontiers, state.snapshots.complete or frozenset()
        if not frontiers:
            return ()
        going_on, begun = unfinished(state.snapshots).keys(), frontiers.keys() | complete
        found = []
        for log, count in sorted((log, self._counts[log]) for log in self._counts.keys() & begun):
            at = state.splits.get(snapshot_split(log), SplitState(0, 0))
            if count.since is None and count.rows:
                count.since, count.first_rows = now, count.rows
            found.append(_progress(log, count, at, now, done=log not in going_on))
        return tuple(found)


def _progress(log: str, count: _Count, at: SplitState, now: Millis, *, done: bool) -> SnapshotProgress:
    chunk_rows = count.size.chunk_rows or 0
    read = count.rows + count.before * chunk_rows
    rows = read + (at.position - at.observed) * chunk_rows
    if done and count.size.rows is not None:
        # The last chunk has fewer.
        rows = max(read, min(rows, count.size.rows))
    passed = 0 if count.since is None else now - count.since
    later = count.rows - count.first_rows
    return SnapshotProgress(
        log=log,
        rows=rows,
        chunks=at.position,
        expected=None if count.size.rows is None else max(rows, count.size.rows),
        rate=1_000 * later // passed if later and passed > 0 else None,
        done=done,
    )
