"""The exact set of transactions before a position of the binlog, by which a replica's binlog has the same position.

A server reports the end of its binlog together with the transactions that it has executed, but not as of one moment:
a transaction is written to the binlog first, and counts as executed when it is committed. In between it owns its GTID.
"""

from __future__ import annotations

import logging
import time

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition, file_name, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.server_errors import CANNOT_BE_LISTED, code_of
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from watermark_source.errors import OffsetError, ResponseTimeoutError, SourceError, shortened

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
"""How often to try for a moment without a commit in progress before reading the binlog itself."""
_COMMIT_SECONDS = 30
_PAUSE_SECONDS = 0.005
_LISTED_BYTES = 64 * 1024
_LEAST_EVENT_BYTES = 19
_KEPT = 4
"""Positions to remember: that of the state, the fixed end of a run, the last end, and the previous one."""


def has_gtids(connection: MySqlConnection) -> bool:
    """Return whether a server gives every transaction a GTID of MySQL's form.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    mode = connection.one("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
    return mode is not None and str(mode[1]).upper() == "ON"


def check_executed(where: str, executed: GtidSet, read: GtidSet) -> None:
    """Check that a server has executed all transactions that the query has read.

    Raises:
        OffsetError: some are missing, for example after a reset of the binlog.
    """
    if missing := read - executed:
        raise OffsetError(
            f"{where}: the query has read transactions that the server does not have (any more): "
            f"{shortened(str(missing))}. Was its binlog reset (RESET BINARY LOGS AND GTIDS), or the server set up "
            "again? Begin a new query"
        )


class Transactions:
    """The transactions before positions of one server with GTIDs. It remembers the last few results."""

    @classmethod
    def of(cls, connection: MySqlConnection, status: LogStatus) -> Transactions | None:
        """Return ``None`` for a server that does not give every transaction a GTID of MySQL's form."""
        return cls(connection, status) if has_gtids(connection) else None

    def __init__(self, connection: MySqlConnection, status: LogStatus) -> None:
        self._connection = connection
        self._status = status
        self._known: dict[int, GtidSet] = {}

    def remember(self, place: int, transactions: GtidSet) -> None:
        """Store the transactions that lie before a position."""
        self._known.pop(place, None)
        self._known[place] = transactions
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def end(self) -> LogPosition:
        """Return an end of the binlog before which all transactions are committed, and remember these.

        Raises as ``newest_end``.
        """
        return self.newest_end()[0]

    def newest_end(self) -> tuple[LogPosition, bool]:
        """Return what ``end`` does, and whether the binlog had nothing after it when it was requested.

        Raises:
            OffsetError: the server no longer has some of the transactions before an earlier end.
            ResponseTimeoutError: a transaction in the binlog was not committed within 30 seconds, and no earlier end
                is known.
            SourceError: the server cannot be reached, or refuses.
        """
        end, executed = self._status.executed_end()
        if self._known:
            check_executed(self._connection.settings.where, executed, next(reversed(self._known.values())))
        for _ in range(_ATTEMPTS):
            if end.number in self._known:
                return end, True
            owned = self._owned()
            again, executed = self._status.executed_end()
            if again == end and not owned:
                self.remember(end.number, executed)
            end = again
        if end.number in self._known:
            return end, True
        transactions = self._read_before(end)
        if not self.committed(transactions, _COMMIT_SECONDS):
            return self._earlier(end), False
        self.remember(end.number, transactions)
        return end, True

    def before(self, place: int) -> GtidSet:
        """Return the transactions that lie before a position between two transactions."""
        if place not in self._known:
            self.remember(place, self._read_before(LogPosition.of(place)))
        return self._known[place]

    def first_after(self, place: int, end: int) -> GtidSet:
        """Return the first transaction after a position, an empty set if there is none before ``end``."""
        # This module imports the compiler, which few plans need.
        from pyspark_mysql_cdc_wm.lookup.binlog_search import first_transaction  # noqa: PLC0415

        return first_transaction(self._connection.settings, self._status.base(), place, end)

    def committed(self, transactions: GtidSet, seconds: int) -> bool:
        """Wait up to ``seconds`` until transactions are committed; return whether they are."""
        timed_out = self._connection.one("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", str(transactions), seconds)
        return timed_out is not None and timed_out[0] == 0

    def _owned(self) -> bool:
        owned = self._connection.one("SELECT @@GLOBAL.gtid_owned")
        return owned is not None and bool(owned[0])

    def _read_before(self, end: LogPosition) -> GtidSet:
        """Read the binlog from the nearest known position before ``end``, or from the beginning of its file."""
        base = self._status.base()
        begin = LogPosition(end.file)
        known = max((p for p in self._known if begin.number <= p <= end.number), default=None)
        if known is None:
            start, before = begin, self._status.before_file(file_name(base, end.file))
        else:
            start, before = LogPosition.of(known), self._known[known]
        if end.offset - start.offset <= _LISTED_BYTES:
            try:
                return before | self._listed(file_name(base, end.file), start.offset, end.offset)
            except SourceError as failure:
                # The list may continue behind the end, with an event that is too large for the server to list.
                if code_of(failure.__cause__) != CANNOT_BE_LISTED:
                    raise
        from pyspark_mysql_cdc_wm.lookup.binlog_search import transactions_between  # noqa: PLC0415 - as above

        return before | transactions_between(self._connection.settings, base, start.number, end.number)

    def _listed(self, file: str, start: int, end: int) -> GtidSet:
        """Read few events with SHOW BINLOG EVENTS, which is faster than connecting for a dump."""
        settings = self._connection.settings
        until = time.monotonic() + settings.answer_seconds
        while start < end:
            listed = self._connection.rows(
                f"SHOW BINLOG EVENTS IN '{file}' FROM {start} LIMIT {(end - start) // _LEAST_EVENT_BYTES}"
            )
            within = [row for row in listed if row[4] <= end]
            if within and within[-1][4] == end:
                # SET @@SESSION.GTID_NEXT= 'set of one'
                return GtidSet.parse(",".join(row[5].split("'")[1] for row in within if row[2].startswith("Gtid")))
            if time.monotonic() > until:
                raise ResponseTimeoutError(
                    f"{settings.where}: {file} did not reach position {end} within "
                    f"{settings.answer_seconds:g} s. Was the binlog reset (RESET BINARY LOGS AND GTIDS)?"
                )
            time.sleep(_PAUSE_SECONDS)
        return GtidSet()

    def _earlier(self, end: LogPosition) -> LogPosition:
        earlier = [place for place in self._known if place < end.number]
        why = (
            f"{self._connection.settings.where}: transactions in the binlog before {end} were "
            f"not committed within {_COMMIT_SECONDS} s; is the server waiting for a replica "
            "(semi-synchronous replication)?"
        )
        if not earlier:
            raise ResponseTimeoutError(why)
        _log.warning("%s Reading up to the last end before them", why)
        return LogPosition.of(max(earlier))


# Which transactions of the binlog a SELECT sees: a transaction is written to the binlog before it is committed.
#
# MySQL with GTIDs reports ends before which all transactions are committed (above). With MariaDB the source waits until
# it reports them as visible. MySQL without GTIDs does not report visibility: the transactions of all files but the last
# are committed, and those of the last file are read from the binlog itself.


GTIDS_ON = (
    "On the server, one after another: SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = "
    "OFF_PERMISSIVE; SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON."
)
"""The statements that switch GTIDs on, for errors and cautions about MySQL without them."""
_VISIBLE_SECONDS = 30
_VISIBLE_PAUSE_SECONDS = 0.01


def wait_until_visible(connection: MySqlConnection) -> None:
    """Wait until a SELECT on MariaDB sees all transactions that are in its binlog now.

    MariaDB reports, with each new consistent snapshot, the position of the binlog up to which the snapshot sees.

    Raises:
        ResponseTimeoutError: some are still not visible after 30 seconds.
        SourceError: the server cannot be reached, or refuses.
    """
    end, until = LogStatus(connection).end(), time.monotonic() + _VISIBLE_SECONDS
    while (visible := _visible_end(connection)) < end:
        if time.monotonic() > until:
            raise ResponseTimeoutError(
                f"{connection.settings.where}: transactions in the binlog from {visible} on "
                f"were not committed within {_VISIBLE_SECONDS} s; is the server waiting for a replica "
                "(semi-synchronous replication)?"
            )
        time.sleep(_VISIBLE_PAUSE_SECONDS)


def shows_all_of_its_end(connection: MySqlConnection) -> bool:
    """Return whether a SELECT sees all transactions before the ends that batches are planned with.

    This also holds for ends that were planned earlier, since switching GTIDs on begins a new file.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    return connection.is_mariadb or has_gtids(connection)


def _visible_end(connection: MySqlConnection) -> LogPosition:
    # Outside a consistent snapshot these variables are the end of the binlog.
    _, rows, _ = connection.together(
        "START TRANSACTION WITH CONSISTENT SNAPSHOT", "SHOW STATUS LIKE 'binlog_snapshot_%'", "ROLLBACK"
    )
    status = {str(name).lower(): value for name, value in rows}
    return LogPosition(file_number(str(status["binlog_snapshot_file"])), int(status["binlog_snapshot_position"]))
