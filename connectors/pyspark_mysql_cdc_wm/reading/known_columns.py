"""Columns of tables where the binlog is read, compared with those of the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import lru_cache

from pyspark_mysql_cdc_wm.binlog.ddl_statements import ColumnChange
from pyspark_mysql_cdc_wm.lookup.stream_layout import without_event_time
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.layout import Layout
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, shown_names
from watermark_source.errors import SchemaError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """The tables whose columns were found to fit the stream when the query began."""

    tables: frozenset[TableName]
    choice: ColumnChoice
    layout: Layout
    ignores_new_columns: bool

    def check(self, table: TableMap) -> None:
        """Check that a table which came later, and has no snapshot, has the stream's columns.

        Raises:
            SchemaError: it has others.
        """
        name = TableName(table.database, table.table)
        all_names = shown_names(table)
        event_time = self.layout.event_time
        if event_time is not None and event_time.among(all_names) is None:
            raise without_event_time(event_time, name, None)
        names = set(filter(self.choice.has, all_names))
        if self.layout.choice is None and name not in self.tables and names != set(self.layout.names):
            raise SchemaError(
                f"the table {name}, which came after the query began, has the columns {', '.join(sorted(names))}, and "
                f"the stream {', '.join(self.layout.names)}. Set rowFormat to json, which takes any, choose columns "
                "they share by the option columns, or leave the table out of the option tables"
            )

    def compare_logged(self, table: TableMap, has_now: Callable[[], Set[str]], altered_by: str | None) -> None:
        """Compare the columns that a table had in the binlog with the stream's; see ``compare``.

        Raises:
            SchemaError: as ``compare``.
        """
        by = "" if altered_by is None else f" by {altered_by}"
        name = TableName(table.database, table.table)
        self.compare(name, shown_names(table), has_now, "where the binlog is read", by)

    def compare_altered(self, name: TableName, change: ColumnChange) -> None:
        """Compare the columns that an ALTER added, dropped or renamed with the stream's: no row of that is logged.

        Raises:
            SchemaError: after it another column has the name of one of the stream's, and such changes are not ignored.
        """
        by_name = self.layout.choice is not None
        stream = {each.lower() for each in self.layout.names}
        columns = change.columns
        renamed = {
            before.lower(): after.lower() for before, after in columns.renamed if before.lower() != after.lower()
        }
        added = {each.lower() for each in columns.added}
        gone = {each.lower() for each in columns.dropped} | renamed.keys()
        arrived = {after for after in added.union(renamed.values()) if by_name or after in stream}
        other = arrived & gone
        if not by_name:
            other |= {after for before, after in renamed.items() if before in stream and after in arrived}
        if not other:
            if not by_name and arrived:
                _warn_once(
                    f"{change.where}: it gave {name} columns with names of the stream's, of which no row was logged: "
                    f"{', '.join(sorted(arrived))}. Rows that were delivered before it keep what they had under these "
                    "names, and the server may have a default there"
                )
            return
        what = (
            f"{change.where}: it gave the name of one column of {name} to another, of which no row was logged: "
            f"{', '.join(sorted(other))}. What was delivered has the values that were under that name before"
        )
        if by_name or self.ignores_new_columns:
            _warn_once(what)
            return
        raise SchemaError(
            f"{what}. Begin a new query, or set schemaChangeBehavior to ignore: rows from here on then come by the "
            "names that columns have in them"
        )

    def compare(
        self, name: TableName, columns: Iterable[str], has_now: Callable[[], Set[str]], where: str, by: str = ""
    ) -> None:
        """Compare the columns that a table has somewhere with the stream's: it was altered if they differ.

        ``has_now`` asks the server which columns the table has. What is in one that it has no more nobody can have; a
        warning tells of it, once a process.

        Raises:
            SchemaError: the table has got columns that the stream has not, and they are not to be ignored.
        """
        if self.layout.choice is not None:
            return
        here, stream = set(filter(self.choice.has, columns)), self.layout.names
        if more := here.difference(stream):
            shown = f"{name} was altered{by}: {where} it "
            if not self.ignores_new_columns and (new := more & has_now()):
                raise SchemaError(
                    f"{shown}has columns that the stream has not: {', '.join(sorted(new))}. Load the stream again "
                    "and start the query with its checkpoint: it goes on here, with the columns that the table has "
                    "now. Or set schemaChangeBehavior to ignore, to go on without them, or rowFormat to json in a new "
                    "query, which takes any"
                )
            _warn_once(
                f"{shown}has columns that the stream has not: {', '.join(sorted(more))}. What is in them does not come"
            )
        if less := [each for each in stream if each not in here]:
            _warn_once(f"{name} was altered: {where} it lacks columns of the stream, which are null: {', '.join(less)}")


@lru_cache(maxsize=1_000)
def _warn_once(text: str) -> None:
    _log.warning("%s", text)
