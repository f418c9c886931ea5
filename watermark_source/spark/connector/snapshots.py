"""What a connector offers that reads tables before, and beside, the log of their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import SplitRange
from watermark_source.planning.state import Bound
from watermark_source.spark.connector.read_batch import ReadBatch


class SnapshotSize(NamedTuple):
    """About how large a snapshot is, for users to see; ``None`` where that cannot be told cheaply."""

    rows: int | None
    chunk_rows: int | None
    """Rows of a chunk that is not the last."""


class Snapshots(Protocol):
    """What is read of tables before, and beside, the log of their changes; see planning/snapshot_ranges.py."""

    @property
    def come_first(self) -> bool:
        """Whether a new query begins with them; one that did not, takes none later."""
        ...

    @property
    def nothing_follows(self) -> bool:
        """Whether the stream ends with them: the log is read only for as long as they are."""
        ...

    @property
    def one_moment(self) -> bool:
        """Whether all that a query begins with is as of one moment: the log is read on when it is complete.

        A batch's chunks are then read together.
        """
        ...

    def logs(self) -> Set[str]:
        """Return what there is to take a snapshot of. Cheap to call often: the system is asked now and again.

        All of it was there before any position that is asked for after this returns.
        """
        ...

    def gone(self, logs: Set[str]) -> Set[str]:
        """Return which logs that were not listed are gone; one may be missing for the moment in which it is renamed."""
        ...

    def is_wanted(self, log: str) -> bool:
        """Return whether the user's selection has a log, be it there or not."""
        ...

    def next_chunks(self, lower: Mapping[str, Bound], *, to_end: bool) -> Mapping[str, tuple[Bound, ...]]:
        """Return where the chunks end that come next in each log, from a key on; the last chunk of a log has no limit.

        Without logs that are gone or wait their turn. All before the ends that were asked for last can be read by then.

        Args:
            lower: the logs to go on with, and where, in the order of their turns.
            to_end: plan all that is left.
        """
        ...

    def sizes(self, logs: Set[str]) -> Mapping[str, SnapshotSize]:
        """Return about how large the snapshots of logs are, as far as that is known."""
        ...


class SnapshotRangeReader(Protocol):
    """A ``RangeReader`` of a source with snapshots."""

    def read_during_snapshot(self, ranges: Sequence[SplitRange], batch: SnapshotBatch) -> Iterator[ReadBatch]:
        """Yield as ``RangeReader.read`` does: of chunks the rows as of the batch's end, of other ranges what concerns
        keys that were read before."""
        ...
