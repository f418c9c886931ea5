"""Whether the server answers while a batch is read: asked beside planning, on a connection of its own."""

from __future__ import annotations

from collections.abc import Set

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_split import BINLOG
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from watermark_source.planning.split import Split
from watermark_source.spark.connector.stream import Ends


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
