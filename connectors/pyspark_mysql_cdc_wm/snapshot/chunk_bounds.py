"""Where the next chunks of tables end: the server is asked for one key in so many, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from watermark_source.errors import ResponseTimeoutError
from watermark_source.planning.state import Bound

_VISIBLE_SECONDS = 30
_OWNERS = re.compile(r"#\d+")


class ChunkBounds:
    """``Snapshots`` of connector.py."""

    def __init__(
        self,
        connection: MySqlConnection,
        tables: Sequence[TableName],
        key: str,
        *,
        rows: int,
        chunks: int,
        nothing_follows: bool,
    ) -> None:
        """Cut ``tables`` by the column ``key`` into chunks of about so many rows, so many chunks at a time."""
        self._connection = connection
        self._tables = {str(table): table for table in tables}
        self._key = quoted(key)
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
        self._wait_until_visible()
        found: dict[str, tuple[Bound, ...]] = {}
        left = self._chunks
        for log, start in sorted(lower.items()):
            if not left:
                break
            found[log] = (None,) if to_end else self._ends(self._tables[log], start, left)
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
        since, values = ("", ()) if start is None else (f" WHERE {self._key} >= %s", start)
        found = self._connection.one(
            f"SELECT {self._key} FROM {table.quoted}{since} ORDER BY {self._key} LIMIT 1 OFFSET {self._rows}",  # noqa: S608
            *values,
        )
        return None if found is None else (int(found[0]),)

    def _wait_until_visible(self) -> None:
        """Return when all transactions that are in the binlog by now can be seen.

        A transaction is written to the binlog before it is committed in the tables; in between it owns its GTID.
        """
        owned = self._connection.one("SELECT @@GLOBAL.gtid_owned")
        transactions = "" if owned is None else _OWNERS.sub("", str(owned[0] or "")).replace("\n", "")
        if not transactions:
            return
        done = self._connection.one("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", transactions, _VISIBLE_SECONDS)
        if done is None or done[0] != 0:
            raise ResponseTimeoutError(
                f"{self._connection.settings.where}: transactions in the binlog were not committed within "
                f"{_VISIBLE_SECONDS} s ({transactions}); is the server waiting for a replica (semi-synchronous "
                "replication)?"
            )
