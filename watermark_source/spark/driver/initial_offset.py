"""Where a new query starts: asked of the connector once, and why it cannot start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watermark_source.errors import StartMismatchError
from watermark_source.planning.snapshot_ranges import snapshot_split
from watermark_source.planning.state import SnapshotState, SourceState, SplitState
from watermark_source.spark.connector.stream import Connector
from watermark_source.spark.driver.available_now import AvailableNowEnds
from watermark_source.spark.driver.offsets import Offsets


class InitialOffset:
    """Spark asks more than once; the answer stays the same in a process."""

    def __init__(self, connector: Connector, ends: AvailableNowEnds, offsets: Offsets) -> None:
        self._connector = connector
        self._ends = ends
        self._offsets = offsets
        self._offset: dict[str, Any] | None = None
        self._mismatch: StartMismatchError | None = None

    def offset(self) -> dict[str, Any]:
        """Return the offset a new query starts from."""
        if self._offset is None:
            self._offset = self._offsets.encode(self._state())
        return self._offset

    def is_unknown(self, start: Mapping[str, Any]) -> bool:
        """Return whether this is where a new query starts, and the user's options do not fit what there is now."""
        return self._mismatch is not None and start == self._offset

    def check(self, start: Mapping[str, Any]) -> None:
        """Raise ``StartMismatchError`` if a batch would have to be planned from a start that is unknown."""
        if self._mismatch is not None and start == self._offset:
            raise self._mismatch

    def _state(self) -> SourceState:
        snapshots = self._connector.snapshots
        takes_snapshots = snapshots is not None and snapshots.come_first
        tables = self._ends.tables() if takes_snapshots else frozenset()
        splits = self._connector.discovery.discover()
        try:
            starts = self._connector.starts.initial_positions(splits)
        except StartMismatchError as error:
            # Not if the first batch is logged already: its end says what it reads, whatever has come since.
            starts, self._mismatch = {}, error
        else:
            self._ends.reach(starts)
        positions = {**starts, **{snapshot_split(log): 0 for log in tables}}
        return SourceState(
            splits={s: SplitState(p, p) for s, p in sorted(positions.items())},
            snapshots=SnapshotState(
                frontiers=dict.fromkeys(sorted(tables), ()), complete=frozenset() if takes_snapshots else None
            ),
            origin=self._offsets.replica.beginning(),
        )
