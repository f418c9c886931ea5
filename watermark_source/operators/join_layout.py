"""What the state of a temporal join depends on: the columns of its packs, and what a checkpoint is held to."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watermark_source.errors import UsageError

PROBE_FIRST = ("key", "time")
"""The columns of a probe pack before the rows' own."""
BUILD_FIRST = ("key", "time", "gone")
"""The columns of a build pack before those that order changes of equal time, and the rows' own."""


@dataclass(frozen=True, slots=True)
class JoinLayout:
    """One join; picklable."""

    processing_time: bool
    inner: bool
    sequence: int
    """How many columns order changes of equal time."""
    probe: pa.Schema
    """Of probe packs: ``PROBE_FIRST``, then the probe's own columns."""
    build: pa.Schema
    """The columns that the join adds to the probe's."""
    described: str
    """What state is held to; two joins of which this differs cannot go on with each other's state."""

    @property
    def name(self) -> str:
        """The join as Spark's plan shows it."""
        return f"temporal_join[{'processing time' if self.processing_time else 'event time'}]"

    def confirm(self, found: str) -> None:
        """Raise ``UsageError`` if state was written by another join than this."""
        if found != self.described:
            raise UsageError(
                f"{self.name}: the state in the checkpoint is of another join. Seen: {found}. Now: {self.described}. "
                "Columns, their types, on, the kind of time and buckets of a query stay as they are; start with a new "
                "checkpointLocation"
            )
