"""Whether a server is set up so that its binlog tells everything, and lets us read it: found before a query starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.log_status import end_statement
from pyspark_mysql_cdc_wm.lookup.schema import TableColumns
from pyspark_mysql_cdc_wm.options.tables import TableName
from watermark_source.errors import UnsupportedFormatError


class _Needed(NamedTuple):
    setting: str
    value: str
    why: str
    mends: str


_SETTINGS = (
    _Needed(
        "log_bin", "ON", "there is no binlog to read",
        "set log_bin in the server's configuration and restart it",
    ),
    _Needed(
        "binlog_format", "ROW", "other formats log statements, not rows",
        "SET GLOBAL binlog_format = 'ROW'; sessions that are open keep their own format until they end",
    ),
    _Needed(
        "binlog_row_image", "FULL", "rows would lack columns",
        "SET GLOBAL binlog_row_image = 'FULL'; sessions that are open keep their own image until they end",
    ),
    _Needed(
        "binlog_row_value_options", "", "updates of JSON columns would be logged in part",
        "SET GLOBAL binlog_row_value_options = ''",
    ),
    _Needed(
        "binlog_row_metadata", "FULL", "tables would be logged without the names of their columns",
        "SET GLOBAL binlog_row_metadata = 'FULL'",
    ),
)  # fmt: skip
_ON = {"1": "ON", "0": "OFF"}


def check_server(connection: MySqlConnection) -> None:
    """Check the server's settings and the rights that all tables share.

    Raises:
        UnsupportedFormatError: a setting that leaves something out of the binlog.
        RefusedError: the user may not read the binlog, or not ask where it ends.
    """
    names = ", ".join(f"'{each.setting}'" for each in _SETTINGS)
    found = {
        str(name): _ON.get(str(value), str(value))
        for name, value in connection.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    }
    for each in _SETTINGS:
        # A server without a setting does as all did before there was one.
        value = found.get(each.setting, each.value)
        if value.upper() != each.value:
            raise UnsupportedFormatError(
                f"{connection.settings.where}: {each.setting} is {value or 'empty'}, and must be "
                f"{each.value or 'empty'}: {each.why}. On the server: {each.mends}"
            )
    connection.rows(end_statement(connection))
    connection.rows("SHOW BINLOG EVENTS LIMIT 1")


def check_snapshot(connection: MySqlConnection, table: TableColumns) -> None:
    """Check that chunks can be cut, and that it can be told what of the binlog is visible.

    Raises:
        UnsupportedFormatError: they cannot.
    """
    for column in table.key_columns:
        if not column.can_be_ordered:
            raise UnsupportedFormatError(
                f"a snapshot goes by the primary key, here ({', '.join(table.key)}), and the column {column.name} is "
                f"of the type {column.type.name}: read are whole numbers, decimals of up to 38 digits, dates, times "
                "of a day (DATETIME, TIMESTAMP), text and bytes. Set startingOffsets to latest or earliest to read "
                "the binlog alone"
            )
    if connection.is_mariadb:
        return
    if not has_gtids(connection):
        raise UnsupportedFormatError(
            f"{connection.settings.where}: gtid_mode is {_gtid_mode(connection) or 'not there'}, and must be ON for "
            "a snapshot, to tell which transactions of the binlog are visible. On the server, one after another: SET "
            "GLOBAL enforce_gtid_consistency = ON; SET GLOBAL gtid_mode = OFF_PERMISSIVE; SET GLOBAL gtid_mode = "
            "ON_PERMISSIVE; SET GLOBAL gtid_mode = ON. Or set startingOffsets to latest or earliest"
        )


def check_tables(connection: MySqlConnection, tables: Sequence[TableName]) -> None:
    """Check that the tables may be read.

    Raises:
        RefusedError: they may not.
        UnknownSplitError: one is not there.
    """
    for table in tables:
        connection.rows(f"SELECT 1 FROM {table.quoted} LIMIT 0")  # noqa: S608 - quoted


def has_gtids(connection: MySqlConnection) -> bool:
    """Whether the server gives every transaction a GTID, of MySQL's form."""
    return _gtid_mode(connection) == "ON"


def _gtid_mode(connection: MySqlConnection) -> str | None:
    mode = connection.one("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
    return None if mode is None else str(mode[1]).upper()
