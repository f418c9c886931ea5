"""Row events of one table to Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, binary
from pyspark_mysql_cdc_wm.records.arrow_types import (
    FLOATS,
    INTEGERS,
    STRINGS,
    TEMPORAL,
    charset_of,
    column_type,
    column_width,
)
from pyspark_mysql_cdc_wm.records.json_diffs import patched_texts
from pyspark_mysql_cdc_wm.records.json_texts import json_texts
from pyspark_mysql_cdc_wm.records.numbers import bits, decimals, floats, geometries, integers, vectors, years
from pyspark_mysql_cdc_wm.records.row_events import Located, RowLocator
from pyspark_mysql_cdc_wm.records.table_definition import ALL_METADATA, BINARY_COLLATION, Column, ColumnType, TableMap
from pyspark_mysql_cdc_wm.records.temporal import temporals
from pyspark_mysql_cdc_wm.records.text_columns import enums, label_charset, label_column, sets, texts
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

# From a column of a table map to its width in a row and its column in Arrow.


_ALIKE: Mapping[ColumnType, Callable[[Values], pa.Array]] = {
    ColumnType.YEAR: years,
    ColumnType.GEOMETRY: geometries,
    ColumnType.VECTOR: vectors,
    ColumnType.JSON: json_texts,
}
"""Types whose columns are all read alike."""


def column_decoder(  # noqa: PLR0911 - a table of types
    column: Column, charsets: Mapping[int, str], where: str, *, of_key: bool = False
) -> Callable[[Values], pa.Array]:
    """Return what makes a column of its values; raises as ``column_width`` and ``column_type``.

    A value ``of_key`` that is another's in a stream is an ``UnsupportedFormatError``.
    """
    kind, width = column.type, column_width(column)
    column_type(column, charsets, where)
    if kind in _ALIKE:
        return _ALIKE[kind]
    if kind in INTEGERS:
        return lambda values: integers(values, width, unsigned=column.unsigned)
    if kind in FLOATS:
        return lambda values: floats(values, width)
    if kind is ColumnType.NEWDECIMAL:
        return lambda values: decimals(values, column.precision, column.scale)
    if kind in TEMPORAL:
        return lambda values: temporals(values, column, of_key=of_key)
    if kind is ColumnType.BIT:
        return lambda values: bits(values, column.length)
    if kind not in STRINGS:
        return _labelled(column, width, charsets)
    if column.collation == BINARY_COLLATION:
        # The server cuts the zeros off that fill up a BINARY.
        least = column.length if kind is ColumnType.STRING else 0
        return lambda values: binary(pa.binary(), values, least=least)
    charset = charset_of(column, charsets, where)
    return lambda values: texts(values, charset, of_key=of_key)


def _labelled(column: Column, width: int, charsets: Mapping[int, str]) -> Callable[[Values], pa.Array]:
    charset, labels = label_charset(column, charsets), column.labels or ()
    if column.type is ColumnType.ENUM:
        names = label_column((b"", *labels), charset)
        return lambda values: enums(values, width, names)
    names = label_column(labels, charset)
    return lambda values: sets(values, width, names)


class RowImages(NamedTuple):
    """Some row images of a table, in the order of the binlog; all of it is their own memory."""

    kinds: npt.NDArray[np.int32]
    """``INSERT``, ``UPDATE_BEFORE``, ``UPDATE_AFTER`` or ``DELETE``."""
    events: npt.NDArray[np.int32]
    """Of which of the events that were given each image is."""
    columns: tuple[pa.Array, ...]


class TableDecoder:
    """Decodes the row events of one table in one of its shapes, one read at a time: scratch memory is kept."""

    __slots__ = ("_columns", "_counter", "_locator", "_where", "names")

    def __init__(
        self,
        table: TableMap,
        charsets: Mapping[int, str],
        *,
        wanted: Collection[str] | None = None,
        keys: Collection[str] = (),
        batch_rows: int = 10_000,
    ) -> None:
        """Prepare for ``wanted`` columns, all by default, in the table's order; ``keys`` are those of a key.

        Rows alone, no columns, need no names.

        Raises:
            UnsupportedFormatError: a wanted column that cannot be read.
        """
        self._where = f"table {table.database}.{table.table}"
        widths = []
        slots = []
        self._columns: list[Callable[[Values], pa.Array]] = []
        self.names: list[str] = []
        for column in table.columns:
            widths.append(column_width(column))
            if column.name is None and (wanted is None or wanted):
                raise UnsupportedFormatError(
                    f"{self._where}: the server does not log the names of columns; {ALL_METADATA}"
                )
            is_wanted = column.type is not ColumnType.TYPED_ARRAY and (wanted is None or column.name in wanted)
            if column.name is None or not is_wanted:
                slots.append(-1)
                continue
            slots.append(len(self._columns))
            where = f"{self._where} column {column.name}"
            self._columns.append(column_decoder(column, charsets, where, of_key=column.name in keys))
            self.names.append(column.name)
        all_widths, no_slots = np.array(widths, np.int64), np.full(len(widths), -1)
        documents = np.array([column.type is ColumnType.JSON for column in table.columns], np.bool_)
        self._locator = RowLocator(
            all_widths, documents, np.array(slots, np.int64), names=self.names, capacity=batch_rows
        )
        self._counter = RowLocator(all_widths, documents, no_slots, names=(), capacity=batch_rows)

    def decode(self, data: Bytes, events: Longs, where: str = "binlog") -> Iterator[RowImages]:
        """Yield the images of ``events``, all row events of this table, in batches.

        Nothing yielded refers to ``data``, but it must stay as it is until the iterator ends.

        Raises:
            CorruptDataError: bytes that cannot be of this table.
            UnsupportedFormatError: rows that lack columns, have options that are not known, or values that are refused.
        """
        for located in self._locator.located(data, events, f"{where}, {self._where}"):
            kinds, sources = located.images.copy()
            yield RowImages(kinds, sources, tuple(self._built(data, located)))

    def count(self, data: Bytes, events: Longs, where: str = "binlog") -> int:
        """Return how many images ``decode`` would yield; raises as it does for rows that cannot be."""
        return sum(located.rows for located in self._counter.located(data, events, f"{where}, {self._where}"))

    def _built(self, data: Bytes, located: Located) -> Iterator[pa.Array]:
        for slot, build in enumerate(self._columns):
            values, diffs = Values(data, located.starts[slot], located.sizes[slot]), located.diffs[slot]
            try:
                yield patched_texts(values, diffs) if diffs.any() else build(values)
            except (CorruptDataError, UnsupportedFormatError) as problem:
                raise type(problem)(f"{self._where} column {self.names[slot]}: {problem}") from problem
