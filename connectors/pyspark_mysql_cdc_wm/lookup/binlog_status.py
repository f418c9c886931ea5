"""Where the binlog begins and ends now."""

from __future__ import annotations

import re
from collections.abc import Set

from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_split import BINLOG
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
"""Kinds of events as the server lists them; those of GTIDs come with these."""


class LogStatus:
    """Asks one server. Positions are those after the last transaction that was written, committed or about to be."""

    def __init__(self, connection: MySqlConnection) -> None:
        self._connection = connection
        self._statement: str | None = None

    def end(self) -> LogPosition:
        """Return the first position that does not exist yet; it is between two transactions.

        Raises:
            SourceError: the server cannot tell.
        """
        return self.executed_end()[0]

    def executed_end(self) -> tuple[LogPosition, GtidSet]:
        """Return the end, and the transactions that were committed before it was asked for; raises as ``end``."""
        if self._statement is None:
            self._statement = end_statement(self._connection)
        status = self._connection.one(self._statement)
        if status is None:
            raise UnsupportedFormatError(
                f"{self._connection.settings.where} writes no binlog (log_bin is OFF). Set log_bin in its "
                "configuration and restart it"
            )
        # MariaDB has no such column.
        executed = str(status[4]) if len(status) > 4 else ""
        return LogPosition(file_number(status[0]), int(status[1])), GtidSet.parse(executed)

    def now(self) -> int | None:
        """Return the time by the server's clock, in milliseconds; ``None`` where the binlog has no commit times.

        What is written after an end that was asked for later was committed later, by the same clock.
        """
        if self._connection.is_mariadb:
            return None
        row = self._connection.one("SELECT FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000)")
        return None if row is None else int(row[0])

    def earliest(self) -> LogPosition:
        """Return the first position that the server still has."""
        return LogPosition(file_number(self.files()[0]))

    def base(self) -> str:
        """Return what the names of all files begin with.

        Raises:
            SourceError: the server cannot tell.
        """
        found = self._connection.one("SELECT @@GLOBAL.log_bin_basename")
        if found is None or not found[0]:
            raise SourceError(f"{self._connection.settings.where} does not tell how it names its binlog files")
        return re.split(r"[/\\]", str(found[0]))[-1]

    def files(self) -> list[str]:
        """Return the names of the files that the server still has, the oldest first; raises as ``sizes``."""
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file that the server still has, the oldest first.

        Raises:
            SourceError: the server cannot tell, or has none.
        """
        files = {str(row[0]): int(row[1]) for row in self._connection.rows("SHOW BINARY LOGS")}
        if not files:
            raise SourceError(f"{self._connection.settings.where} lists no binlog files")
        return files

    def begins_transaction(self, file: str, offset: int) -> bool:
        """Return whether a transaction begins at a position, or what stands between files: not what is within one."""
        try:
            found = self._connection.one(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset} LIMIT 1")
        except (RefusedError, ResponseTimeoutError, UnreachableError):
            raise
        except SourceError:
            # No event begins there, and the server cannot read from it.
            return False
        kind = "" if found is None else str(found[2]).lower()
        return found is not None and int(found[1]) == offset and ("gtid" in kind or kind in _BETWEEN_TRANSACTIONS)

    def purged(self) -> GtidSet:
        """Return the transactions that were executed and are in no file any more, or never were."""
        found = self._connection.one("SELECT @@GLOBAL.gtid_purged")
        return GtidSet.parse(str(found[0]) if found else "")

    def before_file(self, file: str) -> GtidSet:
        """Return the transactions that lie in files before one, those included that never were in any.

        A server that was set up from a backup has executed what is in none of its files, and does not list it there.

        Raises:
            SourceError: the server cannot tell, or the file does not begin with them.
        """
        for row in self._connection.rows(f"SHOW BINLOG EVENTS IN '{file}' LIMIT 2"):
            if row[2] == "Previous_gtids":
                return GtidSet.parse(str(row[5])) | self.purged()
        raise SourceError(f"{self._connection.settings.where}: {file} does not begin with the GTIDs before it")


def end_statement(connection: MySqlConnection) -> str:
    """Return how this server is asked for the end of its binlog: the words changed in MySQL 8.2."""
    if connection.is_mariadb:
        return "SHOW MASTER STATUS"
    return "SHOW BINARY LOG STATUS" if mysql_version(connection) >= (8, 2, 0) else "SHOW MASTER STATUS"


def replica_statement(connection: MySqlConnection) -> str:
    """Return the statement for the sources of a MySQL server: the words changed in 8.0.22."""
    return "SHOW REPLICA STATUS" if mysql_version(connection) >= (8, 0, 22) else "SHOW SLAVE STATUS"


def mysql_version(connection: MySqlConnection) -> tuple[int, ...]:
    """Return the three numbers of a MySQL server's version."""
    return tuple(int(part) for part in re.findall(r"\d+", connection.server_version)[:3])


# Whether the server answers while a batch is read: asked beside planning, on a connection of its own.


class BinlogWatch:
    """``CurrentEnds`` of ``spark.connector``. The first question connects."""

    def __init__(self, client: ClientSettings) -> None:
        """Take settings without patience: a server that is away for a moment has to be an error."""
        self._status = LogStatus(MySqlConnection(client))

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the end of the binlog.

        Raises:
            SourceError: the server does not answer, or refuses.
        """
        return Ends(dict.fromkeys(splits & {BINLOG}, self._status.end().number))
