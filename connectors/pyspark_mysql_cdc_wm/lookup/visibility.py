"""When what is in the binlog can be seen: a transaction is written there before it is committed in the tables."""

from __future__ import annotations

import re
import time

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.log_status import LogStatus
from watermark_source.errors import ResponseTimeoutError

_VISIBLE_SECONDS = 30
_PAUSE_SECONDS = 0.01
_OWNERS = re.compile(r"#\d+")


def wait_until_visible(connection: MySqlConnection) -> None:
    """Return when all transactions that are in the binlog by now can be seen.

    Raises:
        ResponseTimeoutError: they cannot for so long that something else must be wrong.
        SourceError: the server cannot be reached, or refuses.
    """
    if connection.is_mariadb:
        _wait_for_views(connection)
    else:
        _wait_for_owned(connection)


def _wait_for_owned(connection: MySqlConnection) -> None:
    """Between the binlog and the commit a transaction owns its GTID."""
    owned = connection.one("SELECT @@GLOBAL.gtid_owned")
    transactions = "" if owned is None else _OWNERS.sub("", str(owned[0] or "")).replace("\n", "")
    if not transactions:
        return
    done = connection.one("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", transactions, _VISIBLE_SECONDS)
    if done is None or done[0] != 0:
        raise _invisible(connection, transactions)


def _wait_for_views(connection: MySqlConnection) -> None:
    """MariaDB tells, with a new view of the tables, up to which place of the binlog it sees."""
    end, until = LogStatus(connection).end(), time.monotonic() + _VISIBLE_SECONDS
    while (seen := _seen(connection)) < end:
        if time.monotonic() > until:
            raise _invisible(connection, f"from file {seen.file} position {seen.offset} on")
        time.sleep(_PAUSE_SECONDS)


def _seen(connection: MySqlConnection) -> LogPosition:
    connection.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    told = {str(name).lower(): value for name, value in connection.rows("SHOW STATUS LIKE 'binlog_snapshot_%'")}
    connection.rows("ROLLBACK")
    return LogPosition(file_number(str(told["binlog_snapshot_file"])), int(told["binlog_snapshot_position"]))


def _invisible(connection: MySqlConnection, which: str) -> ResponseTimeoutError:
    return ResponseTimeoutError(
        f"{connection.settings.where}: transactions in the binlog were not committed within {_VISIBLE_SECONDS} s "
        f"({which}); is the server waiting for a replica (semi-synchronous replication)?"
    )
