"""The current beginning, end and files of the binlog, and its transactions."""

from __future__ import annotations

import re
from collections.abc import Set

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, GtidSet, LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from watermark_source.contract.stream import Ends
from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnsupportedFormatError,
)
from watermark_source.planning.split import Split

_BETWEEN_TRANSACTIONS = frozenset({"rotate", "stop", "format_desc", "binlog_checkpoint", "start_encryption"})
"""Types of events, as the server lists them, that lie between transactions; GTID events do as well."""


class LogStatus:
    """Queries one server. An end is after the last transaction in the binlog, which may not be committed yet."""

    def __init__(self, connection: MySqlConnection) -> None:
        self._connection = connection

    def end(self) -> LogPosition:
        """Return the position after the last event, which is between two transactions.

        Raises:
            SourceError: the server cannot be reached, or refuses, or writes no binlog.
        """
        return self.executed_end()[0]

    def shown(self) -> Row:
        """Return file and position of the end, ``binlog_do_db`` and ``binlog_ignore_db``, on MySQL the executed GTIDs.

        Raises as ``end``.
        """
        status = self._connection.one(end_statement(self._connection))
        if status is None:
            raise UnsupportedFormatError(
                f"{self._connection.settings.where} writes no binlog (log_bin is OFF). Set log_bin in its "
                "configuration and restart it"
            )
        return status

    def executed_end(self) -> tuple[LogPosition, GtidSet]:
        """Return the end, and the transactions that were committed before the request; raises as ``end``."""
        status = self.shown()
        # MariaDB has no such column.
        executed = str(status[4]) if len(status) > 4 else ""
        return LogPosition(file_number(status[0]), int(status[1])), GtidSet.parse(executed)

    def now(self) -> int | None:
        """Return the server's time in milliseconds since 1970; ``None`` on MariaDB, whose binlog has no commit times.

        An end that is requested afterwards is before every transaction that commits later by the same clock.
        """
        if self._connection.is_mariadb:
            return None
        row = self._connection.one("SELECT FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000)")
        return None if row is None else int(row[0])

    def earliest(self) -> LogPosition:
        """Return the first position that the server still has."""
        return LogPosition(file_number(self.files()[0]))

    def base(self) -> str:
        """Return the base name of the binlog files, for example ``binlog`` of ``binlog.000003``.

        Raises:
            SourceError: the server cannot be reached, or refuses, or has no base name.
        """
        row = self._connection.one("SELECT @@GLOBAL.log_bin_basename")
        if row is None or not row[0]:
            raise SourceError(
                f"{self._connection.settings.where}: log_bin_basename is empty. Set log_bin in the server's "
                "configuration and restart it"
            )
        return re.split(r"[/\\]", str(row[0]))[-1]

    def files(self) -> list[str]:
        """Return the names of the files that the server still has, the oldest first; raises as ``sizes``."""
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file that the server still has, the oldest first.

        Raises:
            SourceError: the server cannot be reached, or refuses, or has no files.
        """
        files = {str(row[0]): int(row[1]) for row in self._connection.rows("SHOW BINARY LOGS")}
        if not files:
            raise SourceError(f"{self._connection.settings.where} lists no binlog files")
        return files

    def begins_transaction(self, file: str, offset: int) -> bool:
        """Return whether an event between transactions, or the first event of a transaction, begins at a position."""
        try:
            event = self._connection.one(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset} LIMIT 1")
        except (RefusedError, ResponseTimeoutError, UnreachableError):
            raise
        except SourceError:
            # No event begins at the position, so the server cannot read from it.
            return False
        kind = "" if event is None else str(event[2]).lower()
        return event is not None and int(event[1]) == offset and ("gtid" in kind or kind in _BETWEEN_TRANSACTIONS)

    def purged(self) -> GtidSet:
        """Return the transactions that were executed and are no longer, or never were, in a file."""
        row = self._connection.one("SELECT @@GLOBAL.gtid_purged")
        return GtidSet.parse(str(row[0]) if row else "")

    def before_file(self, file: str) -> GtidSet:
        """Return the transactions that were executed before a file began, including those that no file has.

        A server that was set up from a backup has executed transactions that none of its files has or lists.

        Raises:
            SourceError: the server cannot be reached, or refuses, or the file does not begin with its previous GTIDs.
        """
        for row in self._connection.rows(f"SHOW BINLOG EVENTS IN '{file}' LIMIT 2"):
            if row[2] == "Previous_gtids":
                return GtidSet.parse(str(row[5])) | self.purged()
        raise SourceError(f"{self._connection.settings.where}: {file} does not begin with its previous GTIDs")


class BinlogWatch:
    """Implements ``CurrentEnds``: whether the server responds while a batch is read.

    It is used beside planning, on a connection of its own, which the first request opens.
    """

    def __init__(self, client: LoginSettings) -> None:
        """Keep settings without retries, so that a short outage of the server is an error."""
        self._status = LogStatus(MySqlConnection(client))

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the end of the binlog.

        Raises:
            SourceError: the server does not respond, or refuses.
        """
        return Ends(dict.fromkeys(splits & {BINLOG}, self._status.end().number))


def end_statement(connection: MySqlConnection) -> str:
    """Return the statement that shows the end of the binlog; MySQL renamed it in 8.2."""
    if connection.is_mariadb:
        return "SHOW MASTER STATUS"
    return "SHOW BINARY LOG STATUS" if version_numbers(connection) >= (8, 2, 0) else "SHOW MASTER STATUS"


def replica_statement(connection: MySqlConnection) -> str:
    """Return the statement that shows the sources of a MySQL server; MySQL renamed it in 8.0.22."""
    return "SHOW REPLICA STATUS" if version_numbers(connection) >= (8, 0, 22) else "SHOW SLAVE STATUS"


def version_numbers(connection: MySqlConnection) -> tuple[int, ...]:
    """Return the three numbers of a server's version."""
    return tuple(int(part) for part in re.findall(r"\d+", connection.server_version)[:3])
