"""Which tables' changes a range of the binlog delivers: tables that match, that its part has, and that may be read.

The binlog has the rows of every table. What the user may SELECT is asked of the server when a table is met first in a
range, so a range delivers nothing of a table whose privilege was revoked before it is read. A table that the stream has
delivered rows of ends the query then: its rows can be neither delivered nor left out without an error, and the offset
stays before them. A table that the stream has nothing of is left out, and named. So is, without snapshots, one that was
created after ``load()``: no task knows whether the stream has rows of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from functools import lru_cache, partial

from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from watermark_source.errors import RefusedError

_log = logging.getLogger(__name__)
warn_once = lru_cache(maxsize=1_000)(partial(_log.warning, "%s"))
"""Log a warning, once in a process."""


class Part:
    """The part of the changes to tables that are read which is delivered: all, where a subclass does not say less."""

    def has(self, table: TableName) -> bool:
        """Return whether any change to a table is delivered."""
        return True

    def has_any(self, database: str) -> bool:
        """Return whether any change to a database's tables may be delivered."""
        return True

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return the names of the columns that ``keeps`` reads."""
        return ()

    def keeps(self, changes: Changes) -> Mask | None:
        """Return which row images are delivered; ``None`` for all."""
        return None


EVERYTHING = Part()


class DeliveredTables:
    """Returns whether changes of a table are delivered, given its database and name."""

    def __init__(self, tables: Selection, part: Part, rights: Rights, readable: Collection[TableName]) -> None:
        """Begin; ``readable`` are the tables that the user could SELECT when the query began."""
        self._tables = tables
        self._part = part
        self._rights = rights
        self._readable = readable
        self._known: dict[TableName, bool] = {}

    def __call__(self, database: str, table: str) -> bool:
        """Return whether changes of a table are delivered.

        Raises:
            RefusedError: the stream has rows of the table, and the user may not SELECT it any more.
            SourceError: the server cannot be reached, or refuses.
        """
        name = TableName(database, table)
        if name not in self._known:
            self._known[name] = self._tables.matches(name) and self._is_delivered(name)
        return self._known[name]

    def may_be_in(self, database: str) -> bool:
        """Return whether changes of a database's tables may be delivered."""
        return self._tables.may_be_in(database) and self._part.has_any(database)

    def _is_delivered(self, name: TableName) -> bool:
        is_in_part = self._part.has(name)
        if (not is_in_part and name in self._readable) or not self._rights.are_refused(name):
            return is_in_part
        # Without snapshots every table is in the part, also one that could never be read.
        if is_in_part and (self._part is not EVERYTHING or name in self._readable):
            others = rf"{re.escape(name.database)}\.(?!{re.escape(name.table)}$).+"
            raise RefusedError(
                f"{self._rights.refusal(name)}; the query then resumes where it ended. The stream has rows of the "
                f"table. Or leave it out of the option tables, for example by the regular expression {others}"
            )
        warn_once(self._rights.left_out(name))
        return False
