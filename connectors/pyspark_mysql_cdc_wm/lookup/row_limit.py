"""The option maxRowsPerTrigger: where a batch of the binlog ends."""

from __future__ import annotations

import logging

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.options.tables import Selection
from watermark_source.errors import DataLossError
from watermark_source.planning.split import SplitRange

_log = logging.getLogger(__name__)


class BinlogRowIndex:
    """The connector's ``RowIndex`` for the binlog. It leaves chunks of a snapshot as they were cut."""

    def __init__(
        self, connection: MySqlConnection, status: LogStatus, transactions: Transactions | None, tables: Selection
    ) -> None:
        """Keep the look-ups; ``transactions`` is ``None`` for a server without GTIDs."""
        self._connection = connection
        self._status = status
        self._transactions = transactions
        self._tables = tables

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        """Return the last position between two transactions up to which a range has at most ``rows`` rows.

        It counts rows of tables that are read, and never returns a position within the first transaction.

        Raises:
            SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
        """
        # A row has at least one byte.
        if wanted.split != BINLOG or wanted.size <= rows:
            return wanted.end
        # This module imports the compiler, which a query without a limit does not need here.
        from pyspark_mysql_cdc_wm.lookup.binlog_search import batch_end  # noqa: PLC0415

        try:
            end = batch_end(self._connection.settings, self._status.base(), wanted, rows, self._tables)
        except DataLossError as loss:
            _log.warning("the batch cannot be limited to %d rows: %s", rows, loss)
            return wanted.end
        if self._transactions is not None:
            self._transactions.remember(end.end, self._transactions.before(wanted.start) | end.transactions)
        return end.end
