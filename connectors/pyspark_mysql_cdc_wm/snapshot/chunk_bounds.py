"""Where the next chunks of tables end: the server is asked for one key in so many, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.visibility import wait_until_visible
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange, condition
from watermark_source.planning.state import Bound


class ChunkBounds:
    """``Snapshots`` of connector.py."""

    def __init__(
        self,
        connection: MySqlConnection,
        tables: Sequence[TableName],
        key: Sequence[KeyColumn],
        *,
        rows: int,
        chunks: int,
        nothing_follows: bool,
    ) -> None:
        """Cut ``tables`` by ``key`` into chunks of about so many rows, so many chunks at a time.

        Tables without a key are one chunk each.
        """
        self._connection = connection
        self._tables = {str(table): table for table in tables}
        self._key = tuple(key)
        self._rows = rows
        self._chunks = chunks
        self._nothing_follows = nothing_follows

    @property
    def nothing_follows(self) -> bool:
        """Whether the stream is the snapshot alone."""
        return self._nothing_follows

    def logs(self) -> Sequence[str]:
        """Return the tables' names."""
        return sorted(self._tables)

    def next_chunks(self, lower: Mapping[str, Bound], *, to_end: bool) -> Mapping[str, tuple[Bound, ...]]:
        """Return where the next chunks end, one table after another.

        Raises:
            ResponseTimeoutError: a transaction that is in the binlog does not become visible.
            SourceError: the server cannot be reached, or refuses.
        """
        if self._connection.is_mariadb:
            wait_until_visible(self._connection)
        found: dict[str, tuple[Bound, ...]] = {}
        left = self._chunks
        for log, start in sorted(lower.items()):
            if not left:
                break
            found[log] = (None,) if to_end or not self._key else self._ends(self._tables[log], start, left)
            left -= 0 if to_end else len(found[log])
        return found

    def _ends(self, table: TableName, start: Bound, most: int) -> tuple[Bound, ...]:
        ends: list[Bound] = []
        while len(ends) < most and (not ends or ends[-1] is not None):
            start = self._key_after(table, start)
            ends.append(start)
        return tuple(ends)

    def _key_after(self, table: TableName, start: Bound) -> Bound:
        """Return the key that so many rows of a table are below, from a key on; ``None`` if it has no more."""
        asked = ", ".join(column.asked(quoted(column.name)) for column in self._key)
        found = self._connection.one(
            f"SELECT {asked} FROM {table.quoted}{condition(self._key, KeyRange(start, None))} "  # noqa: S608 - quoted
            f"LIMIT 1 OFFSET {self._rows}"
        )
        if found is None:
            return None
        return tuple(column.bound_value(answer) for column, answer in zip(self._key, found, strict=True))
