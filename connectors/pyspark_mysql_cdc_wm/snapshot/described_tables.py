"""The tables of a snapshot as the server describes them: looked at, and checked, when they are first met."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.stream_layout import check_fits
from pyspark_mysql_cdc_wm.lookup.table_checks import check_key, check_logged, check_seen, check_tables, without_key
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, described
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.layout import Layout

_log = logging.getLogger(__name__)


class DescribedTables:
    """Of one process."""

    def __init__(
        self,
        connection: MySqlConnection,
        selection: Selection,
        layout: Layout,
        choice: ColumnChoice,
        checked: Mapping[TableName, TableColumns],
    ) -> None:
        """Begin with tables that are ``checked`` already."""
        self._connection = connection
        self._selection = selection
        self._layout = layout
        self._choice = choice
        self._known = dict(checked)
        self._warned_of: set[TableName] = set()

    def get(self, name: TableName) -> TableColumns | None:
        """Return a table that was looked at, ``None`` of one that was not there."""
        return self._known.get(name)

    def look_at(self, names: Set[TableName]) -> None:
        """Describe and check those that are new here, and warn of tables without a key.

        Raises:
            UserError, UnsupportedFormatError: one cannot be a part of the stream.
            SourceError: the server cannot be reached, or refuses.
        """
        self._check(names - self._known.keys())
        new = names & self._known.keys() - self._warned_of
        if unkeyed := sorted(name for name in new if not self._known[name].key):
            _log.warning("%s", without_key(unkeyed))
        self._warned_of |= new

    def forget(self, name: TableName) -> None:
        """Look at a table again when it is met again."""
        self._known.pop(name, None)

    def as_it_is_now(self, name: TableName) -> TableColumns | None:
        """Ask again: it may have more labels since it was looked at, or be another one of its name."""
        return described(self._connection, {name}, self._choice).get(name)

    def _check(self, new: Set[TableName]) -> None:
        found = described(self._connection, new, self._choice) if new else {}
        for name, table in found.items():
            check_fits(self._layout, self._choice, name, table)
            check_key(name, table)
        if found:
            check_logged(self._connection, self._selection, found)
        check_tables(self._connection, found)
        check_seen(self._connection, found)
        self._known.update(found)
