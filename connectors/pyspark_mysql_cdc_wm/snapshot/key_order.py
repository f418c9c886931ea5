"""The order of rows by what chunks are ranges of: in statements, and of keys that are already here.

A key here is the primary key, or the column that the user chose to cut a table by.

Numbers, dates and bytes sort the same everywhere; ENUM and SET by the places of their labels in the list that their
table has of them. How text sorts only the server knows (its collations differ between versions), so it is asked, once
for each text that a decision hangs on. Comparing text by any other rule than the one that SELECT goes by loses changes
(Flink CDC: FLINK-39749).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, text_literal
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from watermark_source.errors import OffsetError
from watermark_source.planning.state import Bound

_TEXTS_A_QUESTION = 500
_BYTES_A_QUESTION = 1_000_000


class KeyRange(NamedTuple):
    """Keys from ``lower`` on and below ``upper``; ``None`` is no limit."""

    lower: Bound
    upper: Bound


class KeyOrder:
    """Compares keys with bounds. Asks the server on its own connection, if there is text to compare."""

    def __init__(self, key: Sequence[KeyColumn], connection: MySqlConnection) -> None:
        self._key = tuple(key)
        self._connection = connection

    def within(self, keys: Sequence[pa.Array], wanted: KeyRange) -> Mask:
        """Return which keys, a column a part, are in a range."""
        inside = np.ones(len(keys[0]) if keys else 0, np.bool_)
        if wanted.upper is not None:
            inside &= self._below(keys, wanted.upper, inside)
        if wanted.lower is not None:
            inside &= ~self._below(keys, wanted.lower, inside)
        return inside

    def _below(self, keys: Sequence[pa.Array], bound: tuple[int | str, ...], asked: Mask) -> Mask:
        """Return which keys are below a bound; of those that are not asked about it does not matter."""
        below = np.zeros(len(asked), np.bool_)
        undecided = asked.copy()
        for column, values, value in zip(self._key, keys, _parts(self._key, bound), strict=True):
            signs = self._signs(column, values, value, undecided)
            below |= undecided & (signs < 0)
            undecided &= signs == 0
        return below

    def _signs(self, column: KeyColumn, values: pa.Array, value: int | str, asked: Mask) -> Any:
        """Return -1, 0 or 1 for values below, at and above a bound's."""
        if column.labels is not None:
            numbers, bound = _numbers(values, column.labels), np.uint64(column.number(value))
            return (numbers > bound).astype(np.int8) - (numbers < bound)
        if column.collation is None:
            limit = column.scalar(value)
            # What is no date is null here, and sorts before all dates there.
            if not limit.is_valid:
                return np.where(_mask(values.is_null(), of_null=True), 0, 1)
            less = _mask(pc.less(values, limit), of_null=True)
            return np.where(less, -1, np.where(_mask(pc.equal(values, limit), of_null=False), 0, 1))
        signs = np.zeros(len(values), np.int64)
        at = np.flatnonzero(asked)
        encoded = values.take(pa.array(at)).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        # Each comparison has both texts in it, a byte as two digits.
        longest = max((len(text.encode()) for text in texts), default=0) + len(str(value).encode())
        step = max(1, min(_TEXTS_A_QUESTION, _BYTES_A_QUESTION // (2 * longest + 200)))
        found: list[int] = []
        for first in range(0, len(texts), step):
            found += self._compared(column, texts[first : first + step], str(value))
        signs[at] = np.array(found, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)] if found else 0
        return signs

    def _compared(self, column: KeyColumn, texts: Sequence[str], value: str) -> Sequence[int]:
        limit = _collated(column, value)
        answers = self._connection.one("SELECT " + ", ".join(f"STRCMP({_collated(column, t)}, {limit})" for t in texts))
        return [int(answer) for answer in answers or ()]


def condition(key: Sequence[KeyColumn], wanted: KeyRange) -> str:
    """Return what a statement says after its table to get the rows of a range in order; nothing without a key."""
    pairs = zip(wanted, (">", "<"), strict=True)
    limits = [_compared_in_sql(key, _parts(key, bound), sign) for bound, sign in pairs if bound is not None]
    if not key:
        return ""
    where = f" WHERE {' AND '.join(limits)}" if limits else ""
    return f"{where} ORDER BY {', '.join(quoted(column.name) for column in key)}"


def condition_beyond(column: KeyColumn, start: Bound, least: Bound) -> str:
    """Return what a statement says after its table to get the rows from ``least`` on, beyond ``start``, in order."""
    name = quoted(column.name)
    limits = [column.compared(name, ">=", part) for part in _parts((column,), least or ())]
    if start is not None:
        limits += [column.compared(name, ">", part) for part in _parts((column,), start)]
    return f" WHERE {' AND '.join(limits)} ORDER BY {name}"


def _compared_in_sql(key: Sequence[KeyColumn], parts: Sequence[int | str], sign: str) -> str:
    """Return that the key is ``>=`` (sign ``>``) or ``<`` (sign ``<``) the parts of a bound.

    In the form from which servers read no more of the index than the range, however many rows share the first parts.
    """
    (column, *others), (part, *rest) = key, parts
    if not others:
        return column.compared(quoted(column.name), ">=" if sign == ">" else "<", part)
    beyond, same = (column.compared(quoted(column.name), each, part) for each in (sign, "="))
    return f"({beyond} OR {same} AND {_compared_in_sql(others, rest, sign)})"


def _collated(column: KeyColumn, text: str) -> str:
    return f"CONVERT({text_literal(text)} USING {column.charset}) COLLATE {column.collation}"


def bound_of(key: Sequence[KeyColumn], answers: Sequence[Any]) -> Bound:
    """Return a bound for what the server answered: what rows are sorted by, and then the values."""
    values = [column.bound_value(answer) for column, answer in zip(key, answers, strict=True)]
    return (*map(sorted_by, key, values), *values)


def sorted_by(column: KeyColumn, value: int | str) -> str:
    """Return what a bound of that value says of a column: of all that sorts alike everywhere the name alone.

    Of ENUM and SET it says which labels come up to the value: others may be added behind them.
    """
    if column.labels is not None:
        number = column.number(value)
        up_to = number if column.type is ColumnType.ENUM else number.bit_length()
        return f"{column.name} OF {_digest(column.labels[:up_to])}"
    if column.type is ColumnType.TIMESTAMP2:
        # A DATETIME is written alike, and is another moment.
        return f"{column.name} IN UTC"
    return column.name if column.collation is None else f"{column.name} COLLATE {column.collation}"


def _digest(labels: Sequence[str]) -> str:
    # Servers describe a column in characters of up to three bytes, and show another by a question mark.
    shown = ["".join("?" if character > "\uffff" else character for character in label) for label in labels]
    return hashlib.blake2b("\0".join(shown).encode(), digest_size=6).hexdigest()


def _parts(key: Sequence[KeyColumn], bound: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the values of a bound, which says nothing about rows that are sorted in another way than it was made."""
    begun, values = bound[: len(bound) // 2], bound[len(key) :]
    fits = len(values) == len(key) == len(begun)
    by = tuple(map(sorted_by, key, values if fits else [0] * len(key)))
    if not fits or begun != by:
        raise OffsetError(
            f"by the checkpoint a snapshot was begun in the order of ({', '.join(map(str, begun))}), and the table is "
            f"read by ({', '.join(by)}) now. Was its key altered since, or snapshotChunkColumn changed? Set it back "
            "until the snapshot is complete, or begin a new query"
        )
    return values


def _numbers(values: pa.Array, labels: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the numbers that values of ENUM, or of SET, stand for."""
    listed = pa.array(labels, pa.string())
    if not pa.types.is_list(values.type):
        # A value that was none of them is shown as the empty text, and is 0.
        found = pc.add(pc.index_in(values, listed), 1).fill_null(0)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.uint64)
    members = pc.index_in(values.flatten(), listed).to_numpy(zero_copy_only=False).astype(np.uint64)
    owners = np.repeat(np.arange(len(values)), values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    numbers = np.zeros(len(values), np.uint64)
    np.bitwise_or.at(numbers, owners, np.uint64(1) << members)
    return numbers


def _mask(column: pa.Array, *, of_null: bool) -> Mask:
    return np.asarray(column.fill_null(of_null).to_numpy(zero_copy_only=False), np.bool_)
