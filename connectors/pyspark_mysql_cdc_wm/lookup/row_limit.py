"""Where a batch of at most so many rows ends in the binlog."""

from __future__ import annotations

import logging

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_split import BINLOG
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.options.tables import Selection
from watermark_source.errors import DataLossError
from watermark_source.planning.split import SplitRange

_log = logging.getLogger(__name__)


class BinlogRowIndex:
    """``RowIndex`` of planning/row_index.py; chunks of a snapshot are left as they were cut."""

    def __init__(
        self, connection: MySqlConnection, status: LogStatus, transactions: Transactions | None, tables: Selection
    ) -> None:
        """Take ``None`` for ``transactions`` of a server without GTIDs."""
        self._connection = connection
        self._status = status
        self._transactions = transactions
        self._tables = tables

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        """Return a place between two transactions, up to which there are at most so many rows of tables that are read.

        Raises:
            SourceError: the server, the way to it, or the bytes it sent.
        """
        # A row takes a byte at least.
        if wanted.split != BINLOG or wanted.size <= rows:
            return wanted.end
        # Brings the compiler with it, which a query without a limit does not need here.
        from pyspark_mysql_cdc_wm.lookup.binlog_row_counts import stretch_of  # noqa: PLC0415

        try:
            found = stretch_of(self._connection.settings, self._status.base(), wanted, rows, self._tables)
        except DataLossError as loss:
            _log.warning("the batch cannot be cut to %d rows: %s", rows, loss)
            return wanted.end
        if self._transactions is not None:
            self._transactions.remember(found.end, self._transactions.before(wanted.start) | found.transactions)
        return found.end
