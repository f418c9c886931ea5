"""Which transactions of the binlog a SELECT sees: a transaction is written to the binlog before it is committed.

MySQL with GTIDs reports ends before which all transactions are committed (``committed_transactions.py``). With MariaDB
the source waits until it reports them as visible. MySQL without GTIDs does not report visibility: the transactions of
all files but the last are committed, and those of the last file are read from the binlog itself.
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
"""The statements that switch GTIDs on, for errors and cautions about MySQL without them."""
_VISIBLE_SECONDS = 30
_PAUSE_SECONDS = 0.01


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
        time.sleep(_PAUSE_SECONDS)


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
