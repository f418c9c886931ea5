"""Where the binlog begins and ends, and where a query begins in it."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_base, file_number
from pyspark_mysql_cdc_wm.lookup.log_status import LogStatus
from pyspark_mysql_cdc_wm.options.start import Start, StartAt, StartMode
from watermark_source.errors import OptionError
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split
from watermark_source.spark.connector import Ends

BINLOG = Split("binlog", 0)


class BinlogBounds:
    """``SplitDiscovery``, ``StartPositions`` and ``LogBounds`` of connector.py, for the one split."""

    def __init__(self, status: LogStatus, start: Start) -> None:
        self._status = status
        self._start = start

    def discover(self) -> Set[Split]:
        """Return the binlog."""
        return frozenset({BINLOG})

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return where a new query begins.

        Raises:
            OptionError: a place that the server does not have.
        """
        return dict.fromkeys(splits & {BINLOG}, self._first())

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first position there is; no split is ever added."""
        return self.earliest_positions(splits)

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the end of the binlog."""
        return dict.fromkeys(splits & {BINLOG}, self._status.end().number)

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the end of the binlog, and the server's time just before, where that dates what is written."""
        if BINLOG not in splits:
            return Ends({})
        end, now = self._status.dated_end()
        return Ends({BINLOG: end.number}, reached={} if now is None else {BINLOG: Millis(now)})

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first position that the server still has."""
        return dict.fromkeys(splits & {BINLOG}, self._status.earliest().number)

    def _first(self) -> int:
        if self._start is StartMode.EARLIEST:
            return self._status.earliest().number
        if not isinstance(self._start, StartAt):
            return self._status.end().number
        end = self._status.end()
        given = LogPosition(file_number(self._start.file), self._start.offset)
        base, earliest = self._status.base(), self._status.earliest()
        shown = f"{self._start.file} position {self._start.offset}"
        if file_base(self._start.file) != base:
            raise OptionError("startingOffsets", shown, f"the server's files are named {base}.000001 and so on")
        if not earliest <= given <= end:
            raise OptionError(
                "startingOffsets", shown, f"the server's binlog begins in file {earliest.file} and ends in file "
                f"{end.file} at position {end.offset}",
            )  # fmt: skip
        return given.number
