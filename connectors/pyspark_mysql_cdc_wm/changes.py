"""From blocks of a binlog to the changes of the tables that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.column import TableMap
from pyspark_mysql_cdc_wm.decoding import RowImages, TableDecoder
from pyspark_mysql_cdc_wm.events import POSITION
from pyspark_mysql_cdc_wm.payload import Unpacker
from pyspark_mysql_cdc_wm.routing import Router
from pyspark_mysql_cdc_wm.wire import Bytes, Longs


class Changes(NamedTuple):
    """Some row images of one table, in the order of the binlog, and where and when each was made."""

    table: TableMap
    names: tuple[str, ...]
    images: RowImages
    committed: Longs
    """When the transaction of each image was committed, microseconds since 1970 by the server's clock."""
    transactions: Longs
    """A running number of the transaction of each image."""
    positions: Longs
    """Where in the file the event of each image ends."""

    @property
    def columns(self) -> tuple[pa.Array, ...]:
        """One column a name."""
        return self.images.columns


class ChangeDecoder:
    """Decodes one block of events after another, in the order of the binlog."""

    __slots__ = ("_batch_rows", "_befores", "_charsets", "_decoders", "_router", "_tables", "_unpacker", "_wanted")

    def __init__(
        self,
        charsets: Mapping[int, str],
        wanted: Callable[[TableMap], Collection[str] | None],
        *,
        befores: bool = True,
        batch_rows: int = 10_000,
    ) -> None:
        """Decode the columns that ``wanted`` names for a table; ``None`` leaves the table out.

        ``charsets`` has the character set of each of the server's collations, by number; ``befores=False`` leaves out
        the rows as they were before an update.
        """
        self._charsets = charsets
        self._wanted = wanted
        self._befores = befores
        self._batch_rows = batch_rows
        self._tables: list[TableMap] = []
        self._decoders: list[TableDecoder] = []
        self._router = Router(self._index)
        self._unpacker = Unpacker()

    def decode(self, memory: Bytes, events: Longs, file: str) -> Iterator[Changes]:
        """Yield the changes of a block of events of ``file``, table by table.

        Nothing yielded refers to ``memory``, but it must stay as it is until the iterator ends.

        Raises:
            SourceError: bytes that cannot be, or that this version does not read.
        """
        memory, events = self._unpacker.plain(memory, events, file)
        routes = self._router.route(memory, events, file)
        for index in np.unique(routes.tables[routes.tables >= 0]).tolist():
            chosen = np.flatnonzero(routes.tables == index)
            rows = events[chosen]
            decoder = self._decoders[index]
            for images in decoder.decode(memory, rows, f"binlog {file}"):
                source = chosen[images.events]
                yield Changes(
                    self._tables[index],
                    tuple(decoder.names),
                    images,
                    routes.committed[source],
                    routes.transactions[source],
                    events[source, POSITION],
                )

    def _index(self, table: TableMap) -> int | None:
        names = self._wanted(table)
        if names is None:
            return None
        decoder = TableDecoder(table, self._charsets, wanted=names, befores=self._befores, batch_rows=self._batch_rows)
        self._tables.append(table)
        self._decoders.append(decoder)
        return len(self._tables) - 1
