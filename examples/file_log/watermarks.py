"""Two watermark strategies of one's own that see rows, and silence: ``watermarkStrategy = watermarks:HourlyFiles``.

Tasks sum up the rows of a range where they read them. The driver gets the summary with the range, and the clock while
a file is silent. Both classes work with every source that has these columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watermark_source import RowsRead, Silence, WatermarkGenerator

MINUTE, HOUR = 60_000, 3_600_000


class HourlyFiles(WatermarkGenerator):
    """A shop appends its receipts of an hour in any order, and behind them a line with ``end_of_hour`` alone.

    That closes the hour, without a bound. A shop that is closed sends nothing: what an hour has sent is there ten
    minutes after its end.
    """

    def summarize(self, rows: pa.RecordBatch) -> int | None:
        """Return the latest end of an hour that a row states."""
        latest: int | None = pc.max(rows.column("end_of_hour")).as_py()
        return latest

    def merge(self, first: int, second: int) -> int:
        """Return the later one."""
        return max(first, second)

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        """Close the hour that the rows have ended, if they have."""
        return None if rows.summary is None else rows.summary - 1, None

    def on_silence(self, silence: Silence, state: Any) -> int:
        """Close the last hour that ended ten minutes ago."""
        return (silence.now - 10 * MINUTE) // HOUR * HOUR - 1


class Heartbeats(WatermarkGenerator):
    """Several writers append to one log; each states at times, in a row, up to when it has written all of its rows.

    Such a row has ``writer`` and ``written_to``. It is a watermark for the rows of that writer, so that of the log is
    the lowest of the writers' last ones.
    """

    def summarize(self, rows: pa.RecordBatch) -> dict[str, int] | None:
        """Return the latest heartbeat of each writer."""
        beats = rows.filter(pc.is_valid(rows.column("written_to"))).select(["writer", "written_to"])
        latest = pa.Table.from_batches([beats]).group_by("writer").aggregate([("written_to", "max")])
        return {row["writer"]: row["written_to_max"] for row in latest.to_pylist()} or None

    def merge(self, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
        """Return the later one of each writer."""
        return {writer: max(each.get(writer, 0) for each in (first, second)) for writer in first.keys() | second.keys()}

    def on_range(self, rows: RowsRead, state: Any) -> tuple[int | None, Any]:
        """Take in the heartbeats; a writer that has none yet is not known."""
        known = self.merge(state or {}, rows.summary or {})
        return min(known.values(), default=None), known or None
