"""A server among those that hold the same transactions: what its binlog has of theirs, at places of its own."""

from __future__ import annotations

from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import FIRST_OFFSET, LogPosition, file_number, position_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions, check_has
from watermark_source.contract.stream import Passage
from watermark_source.errors import (
    DataLossError,
    OffsetError,
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    shortened,
)

_CATCH_UP_SECONDS = 30


class MySqlReplica:
    """``Replicas`` of ``spark.connector``, by GTIDs."""

    def __init__(
        self,
        connection: MySqlConnection,
        status: LogStatus,
        transactions: Transactions | None,
        system: str,
        first: GtidSet | None,
    ) -> None:
        """Take ``None`` for ``transactions`` where the server gives none a GTID; ``first`` as ``left_out_at_first``."""
        self._connection = connection
        self._status = status
        self._transactions = transactions
        self._system = system
        self._first = first

    @property
    def system(self) -> str:
        """The server's UUID."""
        return self._system

    @property
    def left_out_at_first(self) -> str | None:
        """The set that ``startingOffsets`` gives."""
        return None if self._first is None else str(self._first)

    def done_before(self, position: int) -> str | None:
        """Return the transactions before a place, ``None`` where the server cannot tell."""
        return None if self._transactions is None else str(self._transactions.before(position))

    def confirm(self, position: int, done: str | None) -> None:
        """Check that the binlog is the one in which those transactions lie before a place.

        Raises:
            OffsetError: the server has lost some, or has others in their place.
        """
        if self._transactions is None or done is None:
            return
        read = _set(done)
        end, executed = self._status.executed_end()
        check_has(self._where, executed, read)
        if position > end.number or (position < end.number and self._status.earliest().number <= position):
            self._confirm_next(position, end.number, read)

    def remember(self, position: int, done: str | None) -> None:
        """Take in what lies before a place."""
        if self._transactions is not None and done is not None:
            self._transactions.remember(position, _set(done))

    def resumed(self, position: int, done: str | None, end: int | None = None) -> int:
        """Return the place itself, or the beginning of the binlog behind it if all that was purged was read.

        Without GTIDs nobody can tell.
        """
        if self._transactions is None or done is None:
            return position
        if end is not None and LogPosition.of(end).file == LogPosition.of(position).file:
            return position
        # Asked first: what is purged by then is in the other answer.
        earliest = self._status.earliest().number
        return position if earliest <= position or self._status.purged() - _set(done) else earliest

    def begin(self, done: str | None) -> int:
        """Return the beginning of the file in which the first transaction lies that is not among those.

        Raises:
            OffsetError: the checkpoint or the server has no GTIDs, or the server lacks some of the transactions.
            DataLossError: it no longer has others in its binlog.
        """
        read = self._checked(done)
        files = self._status.files()
        # Each file begins with all that is in those before it.
        low, high = 0, len(files)
        while high - low > 1:
            middle = (low + high) // 2
            if self._status.before_file(files[middle]) - read:
                high = middle
            else:
                low = middle
        return position_number(file_number(files[low]), FIRST_OFFSET)

    def shift_after(self, position: int) -> int:
        """Return what lifts every place of this server above one."""
        return position_number(LogPosition.of(position).file, 0)

    def between(self, start: str | None, end: str | None) -> Passage:
        """Return how to read the transactions of ``end`` that ``start`` has not; raises as ``begin``."""
        begin, wanted = self._checked(start), self._checked(end)
        assert self._transactions is not None
        place = self._transactions.end().number
        before = self._transactions.before(place)
        if missing := wanted - before:
            raise ResponseTimeoutError(
                f"{self._where}: transactions that are to be read again are not committed yet: {_shown(missing)}; is "
                "the server waiting for a replica (semi-synchronous replication)?"
            )
        return Passage(place, str(before - (wanted - begin)))

    def _confirm_next(self, position: int, end: int, read: GtidSet) -> None:
        assert self._transactions is not None
        found = "it ends before" if position > end else "what begins no transaction"
        try:
            first = self._transactions.first_after(position, end)
            # None at all is in order: files end and begin without one.
            if position < end and not first & read and self._is_next(position, first, read):
                return
            found = str(first) or found
        except (RefusedError, ResponseTimeoutError, UnreachableError):
            raise
        except SourceError as error:
            found = str(error)
        raise OffsetError(
            f"{self._where}: the binlog does not go on where the query has read it up to ({found}). Was the binlog "
            "reset (RESET BINARY LOGS AND GTIDS) and written anew? Begin a new query"
        )

    def _is_next(self, position: int, first: GtidSet, read: GtidSet) -> bool:
        """Return whether what was read ends where a transaction that was not read begins.

        Numbers have gaps on a replica, and elsewhere few: where one is before this, all of the file up to it is read.
        """
        assert self._transactions is not None
        previous = GtidSet.of({source: [(n - 1, n - 1)] for source, ((n, _),) in first.ranges.items() if n > 1})
        if not previous - read:
            return True
        # Purged may be what never was in the binlog.
        return not self._transactions.before(position) - read - self._status.purged()

    @property
    def _where(self) -> str:
        return self._connection.settings.where

    def _checked(self, done: str | None) -> GtidSet:
        """Return a set, all of which the server has executed, and beyond which it has purged nothing."""
        if done is None or self._transactions is None:
            raise OffsetError(
                f"the checkpoint's positions are of another server, and mean nothing to {self._where}: "
                + ("the checkpoint was made without GTIDs" if done is None else "the server has no GTIDs (gtid_mode)")
                + ". Connect to the server it was, or start with a new checkpoint location"
            )
        read = _set(done)
        # One that has just been promoted may still be applying what it has.
        if not self._transactions.committed(read, _CATCH_UP_SECONDS):
            missing = read - self._status.executed_end()[1]
            raise OffsetError(
                f"{self._where} lacks transactions that the query has read: {_shown(missing)}. Either it is a replica "
                "that is behind: wait until it has them. Or it never got them before the server they were committed on "
                "was lost: then begin a new query"
            )
        if gone := self._status.purged() - read:
            raise DataLossError(
                f"{self._where}: transactions that come next were purged from its binlog, or never were in it: "
                f"{_shown(gone)}. On the server: binlog_expire_logs_seconds keeps it longer, and log_replica_updates "
                "= ON writes what a replica applies. Begin a new query"
            )
        return read


def _set(done: str) -> GtidSet:
    try:
        return GtidSet.parse(done)
    except ValueError as error:
        raise OffsetError(
            f"the checkpoint's offset cannot be read: of {shortened(done)!r}, {error}. Restore the checkpoint, or "
            "start with a new checkpoint location"
        ) from None


def _shown(transactions: GtidSet) -> str:
    return shortened(str(transactions))
