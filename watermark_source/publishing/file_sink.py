"""SinkLog: whether the batches in a folder of Spark's file sink are those of the query that writes there now."""

from __future__ import annotations

import json
from collections.abc import Mapping

from watermark_source.errors import UnsupportedFormatError, UsageError, listed, shortened
from watermark_source.publishing.folder import Folder

_SINK = "FileSink["
_LOG = "_spark_metadata"
_COMPACT = ".compact"
_CLOCKS_DIFFER = 1.0
"""Seconds: file systems have times of whole seconds, and a new run of a query begins later than that."""


def place_of_sink(sink: str) -> str | None:
    """Return the folder of Spark's file sink as its query has it, by the sink's text; ``None`` for another sink."""
    return sink[len(_SINK) : -1] if sink.startswith(_SINK) else None


class SinkLog:
    """The log of Spark's file sink in a table's folder, beside the log of what the query has planned.

    The sink writes no row of a batch whose number its log already has: right where a batch is repeated, and a loss of
    rows without an error where a checkpoint is new, or was restored, and the folder is the one from before.
    """

    def __init__(self, table: Folder, checkpoint: Folder) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._next: int | None = None
        """The first batch that was not compared; ``None``: none was."""

    def need_own(self, batch: int | None) -> None:
        """Compare the batches that were not compared yet; ``batch``: the last committed one, if it is known.

        Raises:
            UsageError: the sink passes over batches of the query, or has done so.
            SourceError: the file system refuses, or does not answer.
        """
        # In this order: what the sink has written was planned before, and what is planned meanwhile is later than that.
        written = self._written_since(batch)
        # What is committed was planned.
        last = batch if batch is not None and batch >= max(written, default=0) else self._last_planned()
        skipped = [number for number, at in written.items() if number > last or self._is_older(at, number)]
        if skipped:
            raise UsageError(
                f"Spark's file sink passes over batches of this query: its log in {self._table.path} has batch "
                f"{listed(skipped)} of another checkpoint, or of a later state of this one, so that rows are missing "
                f"which the query has read. Start the query with the checkpoint that has written the folder, or let it "
                "write to a new folder"
            )
        self._next = max(written, default=(self._next or 0) - 1) + 1

    def _last_planned(self) -> int:
        return max(_by_number(self._checkpoint.times("offsets")), default=-1)

    def _written_since(self, batch: int | None) -> Mapping[int, float]:
        """Return the batches in the sink's log that were not compared, and when each was written.

        The whole log is listed where Spark, which deletes entries that it has compacted, may have deleted one of them.
        """
        found: dict[int, float] = {}
        begin = self._next
        if begin is not None and batch is not None:
            while (at := self._written_at(begin + len(found))) is not None:
                found[begin + len(found)] = at
            if begin + len(found) > batch:
                return found
        listed_all = _by_number(self._table.times(_LOG))
        return {number: at for number, at in listed_all.items() if begin is None or number >= begin}

    def _written_at(self, number: int) -> float | None:
        at = self._table.time(f"{_LOG}/{number}")
        return self._table.time(f"{_LOG}/{number}{_COMPACT}") if at is None else at

    def _is_older(self, written_at: float, number: int) -> bool:
        """Return whether the sink's entry was there before the batch was planned; no if Spark has deleted its plan."""
        content = self._checkpoint.read(f"offsets/{number}")
        if content is None:
            return False
        try:
            planned_at = float(json.loads(content.splitlines()[1])["batchTimestampMs"]) / 1_000
        except (IndexError, KeyError, TypeError, ValueError):
            raise UnsupportedFormatError(
                f"{self._checkpoint.path}/offsets/{number}: expected Spark's offset log of version 1 or 2, with the "
                f"time of the batch in its second line; seen {shortened(content)}"
            ) from None
        latest = written_at + _CLOCKS_DIFFER
        # The driver's clock may be ahead of that of the file system, which has dated both files.
        return latest < planned_at and latest < (self._checkpoint.time(f"offsets/{number}") or 0)


def _by_number(times: Mapping[str, float]) -> Mapping[int, float]:
    """Return files by their numbers: those of a log, of which some have the suffix ``.compact``."""
    numbers = {name.removesuffix(_COMPACT): at for name, at in times.items()}
    return {int(name): at for name, at in numbers.items() if name.isdecimal()}
