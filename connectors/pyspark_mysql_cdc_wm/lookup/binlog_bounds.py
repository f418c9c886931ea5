"""The bounds of the binlog: its beginning and end, where a query begins, how a long range is cut into pieces, and
where a batch of limited rows ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, GtidSet, LogPosition, file_base, file_name, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.lookup.time_index import BinlogTimeIndex
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.start import Start, StartAfter, StartAt, StartAtTime, StartMode
from pyspark_mysql_cdc_wm.options.tables import Selection
from watermark_source.contract.stream import Ends, SplitDiscovery
from watermark_source.errors import DataLossError, OptionError
from watermark_source.planning.split import Piece, Split, SplitRange
from watermark_source.planning.watermark import Millis, watermark_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BinlogBounds(SplitDiscovery):
    """Implements ``SplitDiscovery``, ``StartPositions`` and ``LogBounds`` for the one split."""

    status: LogStatus
    transactions: Transactions | None
    """``None`` without GTIDs."""
    times: BinlogTimeIndex
    start: Start
    by_commit: bool
    """Whether event time is commit time."""
    fail_on_data_loss: bool

    @classmethod
    def of(cls, connection: MySqlConnection, options: MySqlOptions) -> BinlogBounds:
        """Return the bounds for a query; raises as ``Transactions.of``."""
        status = LogStatus(connection)
        transactions = Transactions.of(connection, status)
        times = BinlogTimeIndex(connection, status, transactions)
        by_commit = options.choice.event_time is None
        return cls(status, transactions, times, options.start, by_commit, options.fail_on_data_loss)

    def discover(self) -> Set[Split]:
        """Return the binlog as the only split."""
        return frozenset({BINLOG})

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the position at which a new query begins.

        Raises:
            OptionError: the server does not have the given position.
            DataLossError: the given time is before the oldest file, and earlier changes were purged.
        """
        return dict.fromkeys(splits & {BINLOG}, self._first())

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest position, although no split is ever added."""
        return self.earliest_positions(splits)

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the end of the binlog."""
        return dict.fromkeys(splits & {BINLOG}, self._end()[0].number)

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the end of the binlog, and the server's time just before if later commits cannot be earlier."""
        if BINLOG not in splits:
            return Ends({})
        now = self.status.now() if self.by_commit else None
        end, is_last = self._end()
        return Ends({BINLOG: end.number}, reached={BINLOG: Millis(now)} if now is not None and is_last else {})

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first position that the server still has."""
        return dict.fromkeys(splits & {BINLOG}, self.status.earliest().number)

    def _end(self) -> tuple[LogPosition, bool]:
        """Return an end, and whether the binlog had nothing after it when it was requested."""
        return (self.status.end(), True) if self.transactions is None else self.transactions.newest_end()

    def _first(self) -> int:
        if self.start is StartMode.EARLIEST:
            return self.status.earliest().number
        if isinstance(self.start, StartAfter):
            self._check(self.start.left_out)
            return 0
        if isinstance(self.start, StartAtTime):
            return self._first_from(self.start.millis)
        if not isinstance(self.start, StartAt):
            return self._end()[0].number
        end = self.status.end()
        given = LogPosition(file_number(self.start.file), self.start.offset)
        base, earliest = self.status.base(), self.status.earliest()
        shown = f"{self.start.file} position {self.start.offset}"
        if file_base(self.start.file) != base:
            raise OptionError("startingOffsets", shown, f"the server's files are named {base}.000001 and so on")
        if not earliest <= given <= end:
            raise OptionError(
                "startingOffsets", shown, f"the server's binlog begins in {file_name(base, earliest.file)} and ends at "
                f"{end.shown(base)}",
            )  # fmt: skip
        if given != end and not self.status.begins_transaction(file_name(base, given.file), given.offset):
            raise OptionError(
                "startingOffsets", shown, "no transaction begins there; SHOW BINLOG EVENTS lists those that do, each "
                "with an event Gtid or Anonymous_Gtid",
            )  # fmt: skip
        return given.number

    def _first_from(self, millis: int) -> int:
        earliest = self.status.earliest()
        # A server that was set up from a backup has executed transactions that its first file lacks.
        lacks = earliest.file > 1 or (self.transactions is not None and self.status.purged())
        if lacks and not self.times.begun_by(millis):
            lost = (
                f"startingTimestamp = {millis} ({watermark_text(millis)} UTC): the server's binlog begins later, in "
                f"{file_name(self.status.base(), earliest.file)}, and earlier changes were purged"
            )
            if self.fail_on_data_loss:
                raise DataLossError(
                    f"{lost}. Give a later time, or set failOnDataLoss to false to begin with the oldest file"
                )
            _log.warning("failOnDataLoss=false: beginning with the oldest file. %s", lost)
        return self.times.begin_at(millis)

    def _check(self, left_out: GtidSet) -> None:
        if self.transactions is None:
            raise OptionError(
                "startingOffsets",
                left_out,
                "the server has no GTIDs of MySQL's form (gtid_mode); give file and position",
            )
        if purged := self.status.purged() - left_out:
            raise OptionError(
                "startingOffsets", left_out, f"the server's binlog no longer has all other transactions: purged are "
                f"{purged}",
            )  # fmt: skip
        executed = self.status.executed_end()[1]
        if missing := left_out - executed:
            raise OptionError(
                "startingOffsets", left_out, f"the server has not executed {missing}; it has executed {executed}"
            )


LEAST_BYTES = 8 * 1024 * 1024
"""Least bytes of a piece; a task for fewer costs more than it saves."""
_PIECES = 2
"""Number of pieces without minPartitions; with each further one the server sends half of a file again."""


@dataclass(frozen=True, slots=True)
class BinlogPieces:
    """Implements ``RangeCutter``: cuts at the beginnings of files, and if necessary within a file.

    A dump can begin at a file's first event, or where a batch ended. For a piece within a file the task therefore also
    receives the events before the piece, and skips them. Skipping costs the task little, but the server sends these
    events more than once.
    """

    status: LogStatus

    def pieces(self, wanted: SplitRange, at_least: int | None) -> Sequence[Piece]:
        """Return the pieces of a range in order; raises as ``LogStatus.sizes``."""
        sizes: Mapping[int, int] = {}
        if LogPosition.of(wanted.start).file != LogPosition.of(wanted.end).file:
            sizes = {file_number(file): size for file, size in self.status.sizes().items()}
        return cut(wanted, sizes, at_least)


def cut(wanted: SplitRange, sizes: Mapping[int, int], at_least: int | None) -> list[Piece]:
    """Cut a range into pieces of about equal bytes, given the ``sizes`` of files in bytes; a purged file has none.

    With ``at_least`` a piece may have fewer than ``LEAST_BYTES``.
    """
    count, least = (_PIECES, LEAST_BYTES) if at_least is None else (at_least, 1)
    file_ranges = list(_file_ranges(wanted, sizes))
    total = sum(size for _, size in file_ranges)
    pieces: list[Piece] = []
    for file_range, size in file_ranges:
        parts = max(1, min(round(count * size / total), size // least)) if total else 1
        edges = [file_range.start + size * i // parts for i in range(parts)] + [file_range.end]
        whole = SplitRange(wanted.split, file_range.start, wanted.end)
        pieces += [Piece(SplitRange(wanted.split, a, b), whole) for a, b in pairwise(edges)]
    return pieces


def _file_ranges(wanted: SplitRange, sizes: Mapping[int, int]) -> Iterator[tuple[SplitRange, int]]:
    """Yield the files of a range with their bytes, small files together; the first part begins with the range."""
    first, last = LogPosition.of(wanted.start), LogPosition.of(wanted.end)
    start, size = wanted.start, 0
    for file in range(first.file, last.file + 1):
        begin = LogPosition(file).number
        end = last.offset if file == last.file else sizes.get(file, 0)
        more = max(0, end - (first.offset if file == first.file else 0))
        # Small files are yielded together; none of them is long enough to be cut.
        if file > first.file and begin < wanted.end and max(size, more) >= LEAST_BYTES:
            yield SplitRange(wanted.split, start, begin), size
            start, size = begin, 0
        size += more
    yield SplitRange(wanted.split, start, wanted.end), size


@dataclass(frozen=True, slots=True)
class BinlogRowIndex:
    """The connector's ``RowIndex`` for the binlog, for maxRowsPerTrigger. Chunks of a snapshot stay as they are."""

    connection: MySqlConnection
    status: LogStatus
    transactions: Transactions | None
    """``None`` for a server without GTIDs."""
    tables: Selection

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        """Return the last position between two transactions up to which a range has at most ``rows`` rows.

        It counts rows of tables that are read, and never returns a position within the first transaction.

        Raises:
            SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
        """
        # A row has at least one byte.
        if wanted.split != BINLOG or wanted.size <= rows:
            return wanted.end
        # This module imports the compiler, which a query without a limit does not need here.
        from pyspark_mysql_cdc_wm.lookup.binlog_search import batch_end  # noqa: PLC0415

        try:
            end = batch_end(self.connection.settings, self.status.base(), wanted, rows, self.tables)
        except DataLossError as loss:
            _log.warning("the batch cannot be limited to %d rows: %s", rows, loss)
            return wanted.end
        if self.transactions is not None:
            self.transactions.remember(end.end, self.transactions.before(wanted.start) | end.transactions)
        return end.end
