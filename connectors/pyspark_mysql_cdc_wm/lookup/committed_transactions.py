"""Which transactions lie before a place of the binlog, exactly: what else can find that place in another server's.

A server tells both at once, the end of its binlog and what it has executed, but not of one moment: a transaction is in
the binlog first, and executed when it is committed. In between it owns its GTID.
"""

from __future__ import annotations

import logging
import time

from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_name
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.login_settings import ANSWER_SECONDS
from pyspark_mysql_cdc_wm.client.server_errors import CANNOT_BE_LISTED, code_of
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from watermark_source.errors import OffsetError, ResponseTimeoutError, SourceError, shortened

_log = logging.getLogger(__name__)

_LOOKS = 3
"""So often to look for a moment in which nothing is being committed, before the binlog itself is read."""
_COMMIT_SECONDS = 30
_PAUSE_SECONDS = 0.005
_LISTED_BYTES = 64 * 1024
_LEAST_EVENT_BYTES = 19
_KEPT = 4
"""A state's place, the frozen end of a run, the last end and the one before."""


def has_gtids(connection: MySqlConnection) -> bool:
    """Return whether a server gives every transaction a GTID, of MySQL's form.

    Raises:
        SourceError: it cannot be reached, or refuses.
    """
    mode = connection.one("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
    return mode is not None and str(mode[1]).upper() == "ON"


def check_has(where: str, executed: GtidSet, read: GtidSet) -> None:
    """Check that a server has executed what was read of it: it has until its binlog is reset.

    Raises:
        OffsetError: it has not.
    """
    if missing := read - executed:
        raise OffsetError(
            f"{where}: the query has read transactions that the server does not have (any more): "
            f"{shortened(str(missing))}. Was its binlog reset (RESET BINARY LOGS AND GTIDS), or the server set up "
            "anew? Begin a new query"
        )


class Transactions:
    """Asks one server with GTIDs. Remembers what it was told or found out last."""

    @classmethod
    def of(cls, connection: MySqlConnection, status: LogStatus) -> Transactions | None:
        """Return ``None`` for a server that does not give every transaction a GTID, of MySQL's form."""
        return cls(connection, status) if has_gtids(connection) else None

    def __init__(self, connection: MySqlConnection, status: LogStatus) -> None:
        self._connection = connection
        self._status = status
        self._known: dict[int, GtidSet] = {}

    def remember(self, place: int, transactions: GtidSet) -> None:
        """Take in which transactions lie before a place."""
        self._known.pop(place, None)
        self._known[place] = transactions
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def end(self) -> LogPosition:
        """Return an end of the binlog before which all is committed; what lies there is known then.

        Raises as ``newest_end``.
        """
        return self.newest_end()[0]

    def newest_end(self) -> tuple[LogPosition, bool]:
        """Return what ``end`` does, and whether nothing lay after it when it was asked for.

        Raises:
            OffsetError: of what lay before an earlier end the server has some no more.
            ResponseTimeoutError: a transaction is in the binlog and is not committed for so long that something else
                must be wrong, and no earlier end is known.
            SourceError: the server cannot be reached, or refuses.
        """
        end, executed = self._status.executed_end()
        if self._known:
            check_has(self._connection.settings.where, executed, next(reversed(self._known.values())))
        for _ in range(_LOOKS):
            if end.number in self._known:
                return end, True
            owned = self._owned()
            again, executed = self._status.executed_end()
            if again == end and not owned:
                self.remember(end.number, executed)
            end = again
        if end.number in self._known:
            return end, True
        transactions = self._found(end)
        if not self.committed(transactions, _COMMIT_SECONDS):
            return self._earlier(end), False
        self.remember(end.number, transactions)
        return end, True

    def before(self, place: int) -> GtidSet:
        """Return the transactions that lie before a place between two of them."""
        if place not in self._known:
            self.remember(place, self._found(LogPosition.of(place)))
        return self._known[place]

    def first_after(self, place: int, end: int) -> GtidSet:
        """Return the first transaction after a place, none if there is none before ``end``."""
        # Brings the compiler with it, which few plans need.
        from pyspark_mysql_cdc_wm.lookup.binlog_gtids import first_transaction  # noqa: PLC0415

        return first_transaction(self._connection.settings, self._status.base(), place, end)

    def committed(self, transactions: GtidSet, seconds: int) -> bool:
        """Wait until transactions are committed; return whether they are."""
        done = self._connection.one("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", str(transactions), seconds)
        return done is not None and done[0] == 0

    def _owned(self) -> bool:
        owned = self._connection.one("SELECT @@GLOBAL.gtid_owned")
        return owned is not None and bool(owned[0])

    def _found(self, end: LogPosition) -> GtidSet:
        """Read the binlog from the nearest place before that is known, the beginning of the file at the latest."""
        base = self._status.base()
        begin = LogPosition(end.file)
        near = max((p for p in self._known if begin.number <= p <= end.number), default=None)
        if near is None:
            at, before = begin, self._status.before_file(file_name(base, end.file))
        else:
            at, before = LogPosition.of(near), self._known[near]
        if end.offset - at.offset <= _LISTED_BYTES:
            try:
                return before | self._listed(file_name(base, end.file), at.offset, end.offset)
            except SourceError as failure:
                # A list goes on behind the end, where an event may be larger than the server puts into lists.
                if code_of(failure.__cause__) != CANNOT_BE_LISTED:
                    raise
        from pyspark_mysql_cdc_wm.lookup.binlog_gtids import transactions_between  # noqa: PLC0415 - as above

        return before | transactions_between(self._connection.settings, base, at.number, end.number)

    def _listed(self, file: str, start: int, end: int) -> GtidSet:
        """Have the server list events: a connection for a dump takes longer than a few of them."""
        until = time.monotonic() + ANSWER_SECONDS
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
                    f"{self._connection.settings.where}: {file} should go on to position {end}, and did not within "
                    f"{ANSWER_SECONDS} s"
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
        _log.warning("%s Reading up to where they begin", why)
        return LogPosition.of(max(earlier))
