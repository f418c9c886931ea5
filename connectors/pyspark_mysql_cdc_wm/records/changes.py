"""From blocks of a binlog to the changes of the tables that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.compressed_transactions import Unpacker
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, TYPE, EventType, begins_transaction
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Fault, Ints, Longs, fault_error
from pyspark_mysql_cdc_wm.binlog.xa import rollbacks
from pyspark_mysql_cdc_wm.records.decoding import RowImages, TableDecoder
from pyspark_mysql_cdc_wm.records.events_by_table import NO_TABLE, Router, Routes, every_table
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, key_names
from watermark_source.errors import UnsupportedFormatError


class Changes(NamedTuple):
    """Some row images of one table, in the order of the binlog, and where and when each was made."""

    table: TableMap
    names: tuple[str, ...]
    images: RowImages
    committed: Longs
    """When the transaction of each image was committed, microseconds since 1970 by the server's clock."""
    transactions: Longs
    """A running number of the transaction of each image."""
    versions: Longs
    """The place after the event that begins the transaction of each image, as the number of a ``LogPosition``."""
    numbers: Longs
    """A running number of each image among those of its table in its transaction, from 0."""

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns of the table's primary key, empty without one."""
        return key_names(self.table)

    @property
    def columns(self) -> tuple[pa.Array, ...]:
        """One column a name."""
        return self.images.columns

    def column(self, name: str) -> pa.Array:
        """Return the column of a name."""
        return self.columns[self.names.index(name)]


def as_logged(table: TableMap) -> TableMap:
    """Return a table as the binlog describes it."""
    return table


class _WantedTables:
    """The tables that are read, in each of their shapes, with what decodes them."""

    __slots__ = ("_completed", "_decoder_of", "_wanted", "found")

    def __init__(
        self,
        wanted: Callable[[TableMap], Collection[str] | None],
        decoder_of: Callable[[TableMap, Collection[str]], TableDecoder],
        completed: Callable[[TableMap], TableMap],
    ) -> None:
        self._completed = completed
        self._wanted = wanted
        self._decoder_of = decoder_of
        self.found: list[tuple[TableMap, TableDecoder]] = []

    def index(self, table: TableMap) -> int | None:
        """Return the index of a new table, ``None`` if it is not read."""
        table = self._completed(table)
        names = self._wanted(table)
        if names is None:
            return None
        self.found.append((table, self._decoder_of(table, names)))
        return len(self.found) - 1

    def stretches(self, tables: Ints) -> Iterator[Longs]:
        """Yield events of one table in one shape, by the tables of all; each table's are in the order of the binlog.

        One that was altered and altered back has come to a shape twice.
        """
        shapes: dict[tuple[str, str], list[int]] = {}
        for index in np.unique(tables[tables >= 0]).tolist():
            table, _ = self.found[index]
            shapes.setdefault((table.database, table.table), []).append(index)
        for indexes in shapes.values():
            at = np.flatnonzero(np.isin(tables, indexes))
            yield from np.split(at, np.flatnonzero(np.diff(tables[at])) + 1)


class ChangeDecoder:
    """Decodes one block of events after another, in the order of the binlog."""

    __slots__ = ("_counted", "_inspect", "_last_with_rows", "_router", "_tables", "_unpacker", "_version", "reached")

    def __init__(
        self,
        charsets: Mapping[int, str],
        wanted: Callable[[TableMap], Collection[str] | None],
        *,
        reads: Callable[[str, str], bool] = every_table,
        completed: Callable[[TableMap], TableMap] = as_logged,
        keys: Callable[[TableMap], Collection[str]] = key_names,
        inspect: Callable[[Bytes, Longs, str], None] | None = None,
        batch_rows: int = 10_000,
    ) -> None:
        """Decode the columns that ``wanted`` names for a table; ``None`` leaves the table out.

        ``charsets`` has the character set of each of the server's collations, by number; ``completed`` puts on a table
        what is not logged of it; ``keys`` names the columns by which its rows are distinguished. Of a table that
        ``reads`` leaves out, given its database and name, nothing else is looked at: its columns may be of types that
        are not known. ``inspect`` gets the events of blocks with compressed transactions, unpacked, and their file.
        """

        def decoder_of(table: TableMap, names: Collection[str]) -> TableDecoder:
            return TableDecoder(table, charsets, wanted=names, keys=keys(table), batch_rows=batch_rows)

        # Apart from this object: in a circle with the router its memory would stay until a collection.
        self._tables = _WantedTables(wanted, decoder_of, completed)
        self._router = Router(self._tables.index, reads)
        self._inspect = inspect
        self._unpacker = Unpacker()
        self._version = 0
        self._last_with_rows = -1
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}
        self.reached = 0
        """The latest commit time of all transactions so far, of any table; microseconds, 0 before the first."""

    def decode(
        self, memory: Bytes, events: Longs, file: str, places: Longs | None = None, *, prepared: bool = False
    ) -> Iterator[Changes]:
        """Yield the changes of a block of events of ``file``, table by table.

        ``places`` has the place after each event, as a number; by default it is the position in the file. Rows that
        were ``prepared`` (XA) are those of the transaction that was before, which commits them.

        Nothing yielded refers to ``memory``, but it must stay as it is until the iterator ends.

        Raises:
            SourceError: bytes that cannot be, or that this version does not read.
        """
        first = self._router.transactions
        versions = self._versions(events, events[:, POSITION] if places is None else places)
        for each, unpacked in self._unpacker.plain(memory, events, file):
            if self._inspect is not None and unpacked is not events:
                self._inspect(each, unpacked, file)
            routes = self._routes(each, unpacked, file, prepared=prepared)
            yield from self._changes(each, unpacked, file, first, versions, routes)

    def _changes(  # noqa: PLR0917 - arrays in, columns out
        self, memory: Bytes, events: Longs, file: str, first: int, versions: Longs, routes: Routes
    ) -> Iterator[Changes]:
        """Yield the changes of events of which none is packed; ``versions`` are those of transaction ``first`` on."""
        if self._router.transactions - first >= len(versions):
            raise fault_error(Fault.GTID, f"binlog {file}, in a compressed transaction")
        for chosen in self._tables.stretches(routes.tables):
            rows = events[chosen]
            table, decoder = self._tables.found[routes.tables[chosen[0]]]
            for images in decoder.decode(memory, rows, f"binlog {file}"):
                source = chosen[images.events]
                transactions = routes.transactions[source]
                yield Changes(
                    table,
                    tuple(decoder.names),
                    images,
                    routes.committed[source],
                    transactions,
                    versions[transactions - first],
                    self._numbers((table.database, table.table), transactions),
                )

    def pass_over(self, memory: Bytes, events: Longs, file: str, places: Longs, *, prepared: bool = False) -> None:
        """Skip a block whose rows another task reads; later rows are numbered as if they had been read here.

        Raises as ``decode`` does.
        """
        self._versions(events, places)
        # A compressed transaction ends here; only one that does not has numbers to continue from.
        events = events[events[:, TYPE] != EventType.TRANSACTION_PAYLOAD]
        routes = self._routes(memory, events, file, prepared=prepared)
        of_last = routes.transactions == routes.transactions[-1:]
        for index in np.unique(routes.tables[of_last & (routes.tables >= 0)]).tolist():
            table, decoder = self._tables.found[index]
            images = decoder.count(memory, events[of_last & (routes.tables == index)], f"binlog {file}")
            transaction, name = int(routes.transactions[-1]), (table.database, table.table)
            last, counted = self._counted.get(name, (-1, 0))
            self._counted[name] = (transaction, images + (counted if last == transaction else 0))

    def _routes(self, memory: Bytes, events: Longs, file: str, *, prepared: bool) -> Routes:
        routes = self._router.route(memory, events, file)
        self._leave_out_undone(memory, events, routes, file)
        self.reached = max(self.reached, int(routes.committed.max(initial=0)))
        if not prepared:
            self._leave_out_prepared(memory, events, routes, file)
        with_rows = routes.transactions[routes.tables >= 0]
        if with_rows.size:
            self._last_with_rows = int(with_rows[-1])
        return routes

    def _leave_out_undone(self, memory: Bytes, events: Longs, routes: Routes, file: str) -> None:
        """Leave out rows that their own transaction rolled back; refuse if some may have been delivered already."""
        numbers = np.arange(len(events))
        for number, since in rollbacks(memory, events, routes.transactions):
            transaction = routes.transactions[number]
            if since is None and transaction == self._last_with_rows:
                raise UnsupportedFormatError(
                    f"binlog {file} position {events[number, POSITION]}: a transaction was logged and rolled back, and "
                    "is too long to be left out. Start the query again, or begin a new one"
                )
            undone = (numbers >= (since or 0)) & (numbers < number) & (routes.transactions == transaction)
            routes.tables[undone] = NO_TABLE

    def _leave_out_prepared(self, memory: Bytes, events: Longs, routes: Routes, file: str) -> None:
        """Leave out rows that are only prepared; refuse if some may have been delivered already."""
        at = np.flatnonzero(events[:, TYPE] == EventType.XA_PREPARE)
        # The first byte is 1 if the transaction commits at once (ONE PHASE).
        at = at[memory[events[at, START] + HEADER_SIZE] == 0]
        transactions = routes.transactions[at]
        if at.size and self._last_with_rows in transactions:
            raise UnsupportedFormatError(
                f"binlog {file} position {events[at[0], POSITION]}: an XA transaction was prepared, and is too long "
                "to be left out until it is committed (more than 8 MB; 4 MB unpacked, if it is compressed). Begin a "
                "new query behind it, and have such a transaction committed in one phase, or in parts"
            )
        routes.tables[np.isin(routes.transactions, transactions)] = NO_TABLE

    def _versions(self, events: Longs, places: Longs) -> Longs:
        """Return the version of the transaction before a block and of each that begins in it."""
        begins = begins_transaction(events)
        versions = np.concatenate((np.array([self._version], np.int64), places[begins]))
        self._version = int(versions[-1])
        return versions

    def _numbers(self, name: tuple[str, str], transactions: Longs) -> Longs:
        """Number the images of a table within each transaction; one may have begun in an earlier batch."""
        begins = np.flatnonzero(np.diff(transactions, prepend=-1))
        numbers = np.arange(len(transactions)) - np.repeat(begins, np.diff(begins, append=len(transactions)))
        last, counted = self._counted.get(name, (-1, 0))
        if last == transactions[0]:
            numbers[: begins[1] if len(begins) > 1 else None] += counted
        self._counted[name] = (int(transactions[-1]), int(numbers[-1]) + 1)
        return numbers
