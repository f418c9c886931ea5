"""Where the binlog begins and ends, and where a query begins in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_base, file_name, file_number
from pyspark_mysql_cdc_wm.lookup.binlog_split import BINLOG
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.lookup.time_index import BinlogTimeIndex
from pyspark_mysql_cdc_wm.options.start import Start, StartAfter, StartAt, StartAtTime, StartMode
from watermark_source.errors import DataLossError, OptionError
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split
from watermark_source.spark.connector.stream import Ends
from watermark_source.watermark_text import watermark_text

_log = logging.getLogger(__name__)


class BinlogBounds:
    """``SplitDiscovery``, ``StartPositions`` and ``LogBounds`` of ``spark.connector``, for the one split."""

    def __init__(
        self,
        status: LogStatus,
        transactions: Transactions | None,
        times: BinlogTimeIndex,
        start: Start,
        *,
        by_commit: bool,
        fail_on_data_loss: bool,
    ) -> None:
        """Take ``None`` for ``transactions`` of a server without GTIDs; ``by_commit`` if event time is commit time."""
        self._status = status
        self._transactions = transactions
        self._times = times
        self._start = start
        self._by_commit = by_commit
        self._fail_on_data_loss = fail_on_data_loss

    def discover(self) -> Set[Split]:
        """Return the binlog."""
        return frozenset({BINLOG})

    def looked_since(self, moment: float, *, wait: float) -> bool:
        """Return true: the binlog is the only split of its kind."""
        return True

    def expect(self, splits: Set[Split]) -> None:
        """Do nothing: the binlog is always there."""

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return where a new query begins.

        Raises:
            OptionError: a place that the server does not have.
            DataLossError: a moment before its oldest file, and files before that were purged.
        """
        return dict.fromkeys(splits & {BINLOG}, self._first())

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first position there is; no split is ever added."""
        return self.earliest_positions(splits)

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the end of the binlog."""
        return dict.fromkeys(splits & {BINLOG}, self._end()[0].number)

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the end of the binlog, and the server's time just before, where that dates what is written."""
        if BINLOG not in splits:
            return Ends({})
        now = self._status.now() if self._by_commit else None
        end, is_last = self._end()
        return Ends({BINLOG: end.number}, reached={BINLOG: Millis(now)} if now is not None and is_last else {})

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first position that the server still has."""
        return dict.fromkeys(splits & {BINLOG}, self._status.earliest().number)

    def _end(self) -> tuple[LogPosition, bool]:
        """Return an end, and whether nothing lay after it when it was asked for."""
        return (self._status.end(), True) if self._transactions is None else self._transactions.newest_end()

    def _first(self) -> int:
        if self._start is StartMode.EARLIEST:
            return self._status.earliest().number
        if isinstance(self._start, StartAfter):
            self._check(self._start.left_out)
            return 0
        if isinstance(self._start, StartAtTime):
            return self._first_from(self._start.millis)
        if not isinstance(self._start, StartAt):
            return self._end()[0].number
        end = self._status.end()
        given = LogPosition(file_number(self._start.file), self._start.offset)
        base, earliest = self._status.base(), self._status.earliest()
        shown = f"{self._start.file} position {self._start.offset}"
        if file_base(self._start.file) != base:
            raise OptionError("startingOffsets", shown, f"the server's files are named {base}.000001 and so on")
        if not earliest <= given <= end:
            raise OptionError(
                "startingOffsets", shown, f"the server's binlog begins in {file_name(base, earliest.file)} and ends at "
                f"{end.shown(base)}",
            )  # fmt: skip
        if given != end and not self._status.begins_transaction(file_name(base, given.file), given.offset):
            raise OptionError(
                "startingOffsets", shown, "no transaction begins there; SHOW BINLOG EVENTS lists those that do, each "
                "with an event Gtid or Anonymous_Gtid",
            )  # fmt: skip
        return given.number

    def _first_from(self, millis: int) -> int:
        earliest = self._status.earliest()
        if earliest.file > 1 and not self._times.begun_by(millis):
            lost = (
                f"startingTimestamp = {millis} ({watermark_text(millis)} UTC): the server's binlog begins later, in "
                f"{file_name(self._status.base(), earliest.file)}, and what was before it was purged"
            )
            if self._fail_on_data_loss:
                raise DataLossError(
                    f"{lost}. Give a later moment, or set failOnDataLoss to false to begin with what is left"
                )
            _log.warning("failOnDataLoss is false: %s", lost)
        return self._times.begin_at(millis)

    def _check(self, left_out: GtidSet) -> None:
        if self._transactions is None:
            raise OptionError(
                "startingOffsets",
                left_out,
                "the server has no GTIDs of MySQL's form (gtid_mode); give file and position",
            )
        if gone := self._status.purged() - left_out:
            raise OptionError(
                "startingOffsets", left_out, f"the server no longer has all others in its binlog: purged are {gone}"
            )
        executed = self._status.executed_end()[1]
        if missing := left_out - executed:
            raise OptionError(
                "startingOffsets", left_out, f"the server has not executed {missing}; it has executed {executed}"
            )
