"""Generated columns whose values in the binlog are not those that a SELECT shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from pyspark_mysql_cdc_wm.options.tables import TableName
from watermark_source.errors import UnsupportedFormatError

_VIRTUAL = "VIRTUAL GENERATED"
_NAME = re.compile(r"`((?:[^`]|``)+)`")
_FROM_MOMENT = re.compile(r"\bfrom_unixtime\(")


class ShownColumn(NamedTuple):
    """A column as ``information_schema`` has it."""

    name: str
    kind: str
    extra: str
    expression: str

    @property
    def is_generated(self) -> bool:
        """Whether its values are computed."""
        return " GENERATED" in self.extra.upper()

    @property
    def is_virtual(self) -> bool:
        """Whether each SELECT computes its values."""
        return _VIRTUAL in self.extra.upper()


def refuse_generated(
    table: TableName, columns: Collection[ShownColumn], read: Collection[str], *, mariadb: bool
) -> None:
    """Refuse columns to ``read``, of all ``columns`` in order, whose values in the binlog are others or missing.

    MariaDB logs values of generated columns only in inserts, with any row image. MySQL logs a virtual column as the
    writer's session computed it, and a SELECT computes it in its own.

    Raises:
        UnsupportedFormatError: there is one.
    """
    wanted = [column.name for column in columns if column.name in read and column.is_generated]
    if mariadb and wanted:
        raise UnsupportedFormatError(
            f"table {table}: MariaDB logs no values of the generated columns {', '.join(wanted)} in updates and "
            f"deletions. Leave them out, excludeColumns={','.join(wanted)}, and compute them in the query"
        )
    depending = in_time_zone_of_session(columns) if wanted else ()
    if differing := [name for name in wanted if name in depending]:
        raise UnsupportedFormatError(
            f"table {table}: the values of the virtual columns {', '.join(differing)} depend on the time zone of the "
            "session: the binlog has the writer's, and a SELECT another. Leave them out, "
            f"excludeColumns={','.join(differing)}, and compute them in the query; or have them STORED on the server"
        )


def in_time_zone_of_session(columns: Iterable[ShownColumn]) -> set[str]:
    """Return the virtual columns of a table, of all its columns in order, that depend on a session's time zone."""
    moments, depending = set[str](), set[str]()
    for column in columns:
        if column.is_virtual and _depends(column, moments, {name.lower() for name in depending}):
            depending.add(column.name)
        if column.kind == "timestamp":
            moments.add(column.name.lower())
    return depending


def _depends(column: ShownColumn, moments: set[str], depending: set[str]) -> bool:
    used = _names(column.expression)
    if column.kind == "timestamp" and used <= moments and _NAME.fullmatch(column.expression.strip("()")):
        # A TIMESTAMP as it is.
        return False
    return column.kind == "timestamp" or bool(used & (moments | depending) or _FROM_MOMENT.search(column.expression))


def _names(expression: str) -> set[str]:
    return {name.replace("``", "`").lower() for name in _NAME.findall(expression)}
