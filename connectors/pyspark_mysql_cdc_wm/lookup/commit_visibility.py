"""What of the binlog can be seen in the tables: a transaction is written there before it is committed.

MySQL with GTIDs is asked for ends before which all is committed (committed_transactions.py), MariaDB is waited for.
MySQL without GTIDs tells nothing: the files before the last one are committed, and what the last one has is taken from
there.
"""

from __future__ import annotations

import time

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import has_gtids
from watermark_source.errors import ResponseTimeoutError

GTIDS_ON = (
    "On the server, one after another: SET GLOBAL enforce_gtid_consistency = ON; SET GLOBAL gtid_mode = "
    "OFF_PERMISSIVE; SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = ON."
)
"""What a server is told by where its ends are not such; MariaDB needs nothing."""
_VISIBLE_SECONDS = 30
_PAUSE_SECONDS = 0.01


def wait_until_visible(connection: MySqlConnection) -> None:
    """Return when all transactions that are in the binlog of MariaDB by now can be seen.

    It tells, with a new view of the tables, up to which place of the binlog that sees.

    Raises:
        ResponseTimeoutError: they cannot for so long that something else must be wrong.
        SourceError: the server cannot be reached, or refuses.
    """
    end, until = LogStatus(connection).end(), time.monotonic() + _VISIBLE_SECONDS
    while (seen := _seen(connection)) < end:
        if time.monotonic() > until:
            raise ResponseTimeoutError(
                f"{connection.settings.where}: transactions in the binlog from {seen} on "
                f"were not committed within {_VISIBLE_SECONDS} s; is the server waiting for a replica "
                "(semi-synchronous replication)?"
            )
        time.sleep(_PAUSE_SECONDS)


def shows_all_of_its_end(connection: MySqlConnection) -> bool:
    """Return whether ends of the binlog that batches are planned with are such that all before them can be seen.

    It holds of those that were planned earlier, too: GTIDs are switched on one file after another.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    return connection.is_mariadb or has_gtids(connection)


def _seen(connection: MySqlConnection) -> LogPosition:
    # A connection without a view would show the end of the binlog instead.
    _, shown, _ = connection.together(
        "START TRANSACTION WITH CONSISTENT SNAPSHOT", "SHOW STATUS LIKE 'binlog_snapshot_%'", "ROLLBACK"
    )
    seen = {str(name).lower(): value for name, value in shown}
    return LogPosition(file_number(str(seen["binlog_snapshot_file"])), int(seen["binlog_snapshot_position"]))
