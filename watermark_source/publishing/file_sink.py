"""SinkLog: whether the batches in a folder of Spark's file sink are those of the query that writes there now."""

from __future__ import annotations

import json
from collections.abc import Mapping

from watermark_source.errors import UnsupportedFormatError, UsageError, listed, shortened
from watermark_source.publishing.folder import Folder

_SINK = "FileSink["
_CLOCKS_DIFFER = 1.0
"""Seconds: file systems have times of whole seconds, and a new run of a query begins later than that."""


def folder_of_sink(sink: str) -> Folder | None:
    """Return the folder of Spark's file sink, by the sink's text; ``None`` for another sink."""
    return Folder.at(sink[len(_SINK) : -1]) if sink.startswith(_SINK) else None


class SinkLog:
    """The log of Spark's file sink in a table's folder, beside the log of what the query has planned.

    The sink writes no row of a batch whose number its log already has: right where a batch is repeated, and a loss of
    rows without an error where a checkpoint is new, or was restored, and the folder is the one from before.
    """

    def __init__(self, table: Folder, checkpoint: Folder) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._compared: frozenset[int] = frozenset()
        """Numbers of batches."""

    def need_own(self) -> None:
        """Compare the batches that were not compared yet.

        Raises:
            UsageError: the sink passes over batches of the query, or has done so.
            SourceError: the file system refuses, or does not answer.
        """
        # In this order: what the sink has written was planned before.
        written = _by_number(self._table.times("_spark_metadata"))
        last = max(_by_number(self._checkpoint.times("offsets")), default=None)
        skipped = [
            number
            for number, at in written.items()
            if number not in self._compared and (last is None or number > last or self._is_older(at, number))
        ]
        if skipped:
            raise UsageError(
                f"Spark's file sink passes over batches of this query: its log in {self._table.path} has batch "
                f"{listed(skipped)} of another checkpoint, or of a later state of this one, so that rows are missing "
                f"which the query has read. Start the query with the checkpoint that has written the folder, or let it "
                "write to a new folder"
            )
        self._compared = frozenset(written)

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
        return written_at + _CLOCKS_DIFFER < planned_at


def _by_number(times: Mapping[str, float]) -> Mapping[int, float]:
    """Return files by their numbers: those of a log, of which some have the suffix ``.compact``."""
    numbers = {name.removesuffix(".compact"): at for name, at in times.items()}
    return {int(name): at for name, at in numbers.items() if name.isdecimal()}
