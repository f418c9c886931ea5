"""The order of rows by the columns whose ranges are chunks, in statements and for decoded keys.

A key in this module is the primary key, or the column that the user chose to cut a table by.

Numbers, dates and bytes sort the same everywhere. ENUM and SET sort by the positions of their labels. The order of text
depends on the server's collations, which differ between versions, so the server compares each text that matters once.
Comparing text by another rule than that of the SELECT loses changes (Flink CDC: FLINK-39749).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.options.tables import quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, text_literal
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from watermark_source.errors import OffsetError, UnsupportedFormatError
from watermark_source.planning.snapshot_ranges import Chunk
from watermark_source.planning.state import Bound

if TYPE_CHECKING:
    from pyspark_mysql_cdc_wm.client.connection import MySqlConnection

_TEXTS_A_QUERY = 500
_BYTES_A_QUERY = 1_000_000


class KeyOrder:
    """Compares keys with bounds; the server compares text, on its own connection."""

    def __init__(self, key: Sequence[KeyColumn], connection: MySqlConnection) -> None:
        self._key = tuple(key)
        self._connection = connection

    def within(self, keys: Sequence[pa.Array], wanted: Chunk) -> Mask:
        """Return which keys, given as one array for each key column, are in a range."""
        inside = np.ones(len(keys[0]) if keys else 0, np.bool_)
        if wanted.upper is not None:
            inside &= self._below(keys, wanted.upper, inside)
        if wanted.lower is not None:
            inside &= ~self._below(keys, wanted.lower, inside)
        return inside

    def _below(self, keys: Sequence[pa.Array], bound: tuple[int | str, ...], needed: Mask) -> Mask:
        """Return which keys are below a bound; values for keys that are not ``needed`` are undefined."""
        below = np.zeros(len(needed), np.bool_)
        undecided = needed.copy()
        for column, values, value in zip(self._key, keys, key_values(self._key, bound), strict=True):
            signs = self._signs(column, values, value, undecided)
            below |= undecided & (signs < 0)
            undecided &= signs == 0
        return below

    def _signs(self, column: KeyColumn, values: pa.Array, value: int | str, needed: Mask) -> Any:
        """Return -1, 0 or 1 for each needed value that is below, equal to or above the bound's."""
        if column.labels is not None:
            numbers, bound = _numbers(values, column.labels), np.uint64(column.number(value))
            return (numbers > bound).astype(np.int8) - (numbers < bound)
        if column.collation is None:
            limit = column.scalar(value)
            # An invalid date is null in Arrow, and the server sorts it before all dates.
            if not limit.is_valid:
                return np.where(_mask(values.is_null(), of_null=True), 0, 1)
            less = _mask(pc.less(values, limit), of_null=True)
            return np.where(less, -1, np.where(_mask(pc.equal(values, limit), of_null=False), 0, 1))
        signs = np.zeros(len(values), np.int64)
        indices = np.flatnonzero(needed)
        encoded = values.take(pa.array(indices)).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        # Each comparison contains both texts, with two hexadecimal digits for each byte.
        longest = max((len(text.encode()) for text in texts), default=0) + len(str(value).encode())
        step = max(1, min(_TEXTS_A_QUERY, _BYTES_A_QUERY // (2 * longest + 200)))
        compared: list[int] = []
        for first in range(0, len(texts), step):
            compared += self._compared(column, texts[first : first + step], str(value))
        signs[indices] = np.array(compared, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)] if compared else 0
        return signs

    def _compared(self, column: KeyColumn, texts: Sequence[str], value: str) -> Sequence[int]:
        limit = _collated(column, value)
        row = self._connection.one("SELECT " + ", ".join(f"STRCMP({_collated(column, t)}, {limit})" for t in texts))
        return [int(sign) for sign in row or ()]


def condition(key: Sequence[KeyColumn], wanted: Chunk) -> str:
    """Return the WHERE and ORDER BY clauses for the rows of a range; an empty text without a key."""
    # Also of a table that has lost its key, whose bounds are of another order.
    conditions = limits(key, wanted)
    if not key:
        return ""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"{where} ORDER BY {', '.join(quoted(column.name) for column in key)}"


def limits(key: Sequence[KeyColumn], wanted: Chunk) -> list[str]:
    """Return the conditions for the rows of a range, of which all must hold."""
    pairs = zip(wanted, (">", "<"), strict=True)
    return [_compared_in_sql(key, key_values(key, bound), sign) for bound, sign in pairs if bound is not None]


def condition_beyond(column: KeyColumn, start: Bound, least: Bound) -> str:
    """Return the WHERE and ORDER BY clauses for the rows from ``least`` on and beyond ``start``."""
    name = quoted(column.name)
    limits = [column.compared(name, ">=", part) for part in key_values((column,), least or ())]
    if start is not None:
        limits += [column.compared(name, ">", part) for part in key_values((column,), start)]
    return f" WHERE {' AND '.join(limits)} ORDER BY {name}"


def _compared_in_sql(key: Sequence[KeyColumn], parts: Sequence[int | str], sign: str) -> str:
    """Return the condition that the key is ``>=`` (sign ``>``) or ``<`` (sign ``<``) the parts of a bound.

    In this form servers read only the range from the index, however many rows share the first parts.
    """
    (column, *others), (part, *rest) = key, parts
    if not others:
        return column.compared(quoted(column.name), ">=" if sign == ">" else "<", part)
    beyond, same = (column.compared(quoted(column.name), each, part) for each in (sign, "="))
    return f"({beyond} OR {same} AND {_compared_in_sql(others, rest, sign)})"


def _collated(column: KeyColumn, text: str) -> str:
    return f"CONVERT({text_literal(text)} USING {column.charset}) COLLATE {column.collation}"


def bound_of(key: Sequence[KeyColumn], row: Sequence[Any], where: str) -> Bound:
    """Return the bound for a row of key values: a description of each column's order, then the values.

    Raises:
        UnsupportedFormatError: a key has no value of its own in a stream; ``where`` names the table.
    """
    values = []
    for column, value in zip(key, row, strict=True):
        try:
            values.append(column.bound_value(value))
        except UnsupportedFormatError as problem:
            raise UnsupportedFormatError(f"{where} column {column.name}: {problem}") from problem
    return (*map(sorted_by, key, values), *values)


def sorted_by(column: KeyColumn, value: int | str) -> str:
    """Return the description of a column's order in a bound with that value.

    It is the name alone for types that sort the same everywhere. For ENUM and SET it has a digest of the labels up to
    the value, since labels may be added behind them.
    """
    if column.labels is not None:
        number = column.number(value)
        up_to = number if column.type is ColumnType.ENUM else number.bit_length()
        return f"{column.name} OF {_digest(column.labels[:up_to])}"
    if column.type is ColumnType.TIMESTAMP2:
        # A DATETIME has the same text but is another time.
        return f"{column.name} IN UTC"
    return column.name if column.collation is None else f"{column.name} COLLATE {column.collation}"


def _digest(labels: Sequence[str]) -> str:
    # Servers show a character of more than three bytes in a label as a question mark.
    shown = ["".join("?" if character > "\uffff" else character for character in label) for label in labels]
    return hashlib.blake2b("\0".join(shown).encode(), digest_size=6).hexdigest()


def key_values(key: Sequence[KeyColumn], bound: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the values of a bound after checking that it was made in the key's current order.

    Raises:
        OffsetError: the key is sorted in another order by now.
    """
    previous, values = bound[: len(bound) // 2], bound[len(key) :]
    fits = len(values) == len(key) == len(previous)
    current = tuple(map(sorted_by, key, values if fits else [0] * len(key)))
    if not fits or [str(each).lower() for each in previous] != list(map(str.lower, current)):
        raise OffsetError(
            f"by the checkpoint a snapshot was begun in the order of ({', '.join(map(str, previous))}), and the table "
            f"is read by ({', '.join(current)}) now. Was its key altered since, or snapshotChunkColumn changed? Set it "
            "back until the snapshot is complete, or begin a new query"
        )
    return values


def _numbers(values: pa.Array, labels: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the numbers of ENUM or SET values."""
    listed = pa.array(labels, pa.string())
    if not pa.types.is_list(values.type):
        # An invalid value is shown as the empty text, and has the number 0.
        numbers_of_enum = pc.add(pc.index_in(values, listed), 1).fill_null(0)
        return np.asarray(numbers_of_enum.to_numpy(zero_copy_only=False), np.uint64)
    members = pc.index_in(values.flatten(), listed).to_numpy(zero_copy_only=False).astype(np.uint64)
    owners = np.repeat(np.arange(len(values)), values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    numbers = np.zeros(len(values), np.uint64)
    np.bitwise_or.at(numbers, owners, np.uint64(1) << members)
    return numbers


def _mask(column: pa.Array, *, of_null: bool) -> Mask:
    return np.asarray(column.fill_null(of_null).to_numpy(zero_copy_only=False), np.bool_)
