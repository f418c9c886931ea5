"""A server as a replica of others: its binlog has the same transactions at positions of its own."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from pyspark_mysql_cdc_wm.binlog.log_position import FIRST_OFFSET, GtidSet, LogPosition, file_number, position_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions, check_executed
from watermark_source.contract.stream import Passage
from watermark_source.errors import (
    OffsetError,
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnskippableLossError,
    shortened,
)

_CATCH_UP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class MySqlReplica:
    """Implements ``Replicas`` by GTIDs."""

    connection: MySqlConnection
    status: LogStatus
    transactions: Transactions | None
    """``None`` without GTIDs."""
    system: str
    """The server's UUID."""
    left_out_at_first: str | None
    """The GTID set of the option startingOffsets, if it has one."""

    def done_before(self, position: int) -> str | None:
        """Return the transactions before a position, ``None`` if the server has no GTIDs."""
        return None if self.transactions is None else str(self.transactions.before(position))

    def confirm(self, position: int, done: str | None) -> None:
        """Check that this server's binlog has exactly these transactions before a position.

        Raises:
            OffsetError: the server lacks some of them, or has others instead.
        """
        if self.transactions is None or done is None:
            return
        read = _set(done)
        end, executed = self.status.executed_end()
        check_executed(self._where, executed, read)
        if position > end.number or (position < end.number and self.status.earliest().number <= position):
            self._confirm_next(position, end.number, read)

    def remember(self, position: int, done: str | None) -> None:
        """Store the transactions that lie before a position."""
        if self.transactions is not None and done is not None:
            self.transactions.remember(position, _set(done))

    def resumed(self, position: int, done: str | None, end: int | None = None) -> int:
        """Return the position, or the beginning of the binlog if that is later and all purged transactions were read.

        Without GTIDs it returns the position.
        """
        if self.transactions is None or done is None:
            return position
        if end is not None and LogPosition.of(end).file == LogPosition.of(position).file:
            return position
        # In this order gtid_purged includes all transactions before the earliest position.
        earliest = self.status.earliest().number
        return position if earliest <= position or self.status.purged() - _set(done) else earliest

    def begin(self, done: str | None) -> int:
        """Return the beginning of the file that has the first transaction that was not read.

        Raises:
            OffsetError: the checkpoint or the server has no GTIDs, or the server lacks transactions that were read.
            UnskippableLossError: the server purged transactions that were not read.
        """
        read = self._checked(done)
        files = self.status.files()
        # Each file begins with the GTIDs of all previous files.
        later = bisect_left(files, True, lo=1, key=lambda file: bool(self.status.before_file(file) - read))
        return position_number(file_number(files[later - 1]), FIRST_OFFSET)

    def shift_after(self, position: int) -> int:
        """Return the number to add to this server's positions so that all are above a position."""
        return position_number(LogPosition.of(position).file, 0)

    def between(self, start: str | None, end: str | None) -> Passage:
        """Return how to read the transactions of ``end`` that are not in ``start``; raises as ``begin``."""
        begin, wanted = self._checked(start), self._checked(end)
        assert self.transactions is not None
        place = self.transactions.end().number
        before = self.transactions.before(place)
        if missing := wanted - before:
            raise ResponseTimeoutError(
                f"{self._where}: transactions that the query reads again are not committed yet: {_shown(missing)}; is "
                "the server waiting for a replica (semi-synchronous replication)?"
            )
        return Passage(place, str(before - (wanted - begin)))

    def _confirm_next(self, position: int, end: int, read: GtidSet) -> None:
        assert self.transactions is not None
        found = "it ends before" if position > end else "no transaction begins there"
        try:
            first = self.transactions.first_after(position, end)
            # An empty set is fine, since files begin and end without a transaction.
            if position < end and not first & read and self._is_next(position, first, read):
                return
            found = str(first) or found
        except (RefusedError, ResponseTimeoutError, UnreachableError):
            raise
        except SourceError as error:
            found = str(error)
        raise OffsetError(
            f"{self._where}: the binlog does not continue at the position up to which the query has read it ({found}). "
            "Was the binlog reset (RESET BINARY LOGS AND GTIDS) and written again? Begin a new query"
        )

    def _is_next(self, position: int, first: GtidSet, read: GtidSet) -> bool:
        """Return whether the transactions before ``first``, which begins at the position, were all read.

        The transaction with the previous number was read, unless there is a gap in the numbers, which is common on
        replicas alone. At a gap, the file up to the position is read.
        """
        assert self.transactions is not None
        previous = GtidSet.of({source: [(n - 1, n - 1)] for source, ((n, _),) in first.ranges.items() if n > 1})
        if not previous - read:
            return True
        # gtid_purged may have transactions that never were in the binlog.
        return not self.transactions.before(position) - read - self.status.purged()

    @property
    def _where(self) -> str:
        return self.connection.settings.where

    def _checked(self, done: str | None) -> GtidSet:
        """Parse a set of read transactions, and check that the server has executed all and purged no others."""
        if done is None or self.transactions is None:
            raise OffsetError(
                f"the checkpoint's positions are of another server, and mean nothing to {self._where}: "
                + ("the checkpoint was made without GTIDs" if done is None else "the server has no GTIDs (gtid_mode)")
                + ". Connect to the server it was, or start with a new checkpoint location"
            )
        read = _set(done)
        # A server that was just promoted may still be applying transactions that it has received.
        if not self.transactions.committed(read, _CATCH_UP_SECONDS):
            missing = read - self.status.executed_end()[1]
            raise OffsetError(
                f"{self._where} lacks transactions that the query has read: {_shown(missing)}. Either it is a replica "
                "that is behind: wait until it has them. Or it never got them before the server they were committed on "
                "was lost: then begin a new query"
            )
        if purged := self.status.purged() - read:
            raise UnskippableLossError(
                f"{self._where}: transactions that come next were purged from its binlog, or never were in it: "
                f"{_shown(purged)}. On the server: binlog_expire_logs_seconds keeps it longer, and log_replica_updates "
                "= ON writes what a replica applies. Begin a new query"
            )
        return read


def _set(done: str) -> GtidSet:
    try:
        return GtidSet.parse(done)
    except ValueError as error:
        raise OffsetError(
            f"the checkpoint's offset cannot be read: {shortened(done)!r}: {error}. Restore the checkpoint, or "
            "start with a new checkpoint location"
        ) from None


def _shown(transactions: GtidSet) -> str:
    return shortened(str(transactions))
