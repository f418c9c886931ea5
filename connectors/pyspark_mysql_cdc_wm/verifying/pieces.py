"""A table in pieces that a server and Spark cut alike: ranges of the key or, where that sorts by rules of the server's
own (text, labels, times), by the first digits of the key's SHA-256."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation
from pyspark.sql.pandas.types import from_arrow_type

from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.snapshot.key_order import key_values, limits
from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint, RowText, too_long, totals
from watermark_source.planning.snapshot_ranges import Chunk

SIXTEENTHS = 16
_KEYS_A_STATEMENT = 100_000
"""Keys that a statement leaves out, about: it has to be shorter than ``max_allowed_packet``."""

Select = Callable[[str], Sequence[Sequence[Any]]]
"""Executes a statement in one consistent read."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table on the server without some keys."""

    table: TableName
    key: RowText
    row: RowText
    select: Select

    def fingerprints(self, where: str, group: str, without: Collection[str]) -> dict[Any, Fingerprint]:
        """Return the fingerprints of groups of the rows that match a condition.

        Raises:
            UnsupportedFormatError: a row is too long for the server to have its text (``max_allowed_packet``).
        """
        keys = sorted(without)
        found = self._groups(where, group, "NOT IN", keys[:_KEYS_A_STATEMENT])
        # A statement has no room for more, whose rows are taken out again.
        for at in range(_KEYS_A_STATEMENT, len(keys), _KEYS_A_STATEMENT):
            for name, (rows, sha) in self._groups(where, group, "IN", keys[at : at + _KEYS_A_STATEMENT]).items():
                found[name] = Fingerprint(found[name].rows - rows, found[name].sha ^ sha)
        return {name: each for name, each in found.items() if each.rows}

    def by_key(self, where: str, without: Collection[str]) -> dict[str, int | None]:
        """Return the fingerprint of each row that matches a condition by the text of its key.

        It is ``None`` for a row that is too long for the server to have its text (``max_allowed_packet``).
        """
        found = self.select(
            f"SELECT {self.key.server}, {self.row.server_digest} FROM {self.table.quoted}{_where(where)}"  # noqa: S608 - quoted
        )
        left_out = set(without)
        return {str(key): None if sha is None else int(sha) for key, sha in found if key not in left_out}

    def _groups(self, where: str, group: str, sign: str, keys: Sequence[str]) -> dict[Any, Fingerprint]:
        texts = ", ".join(f"x'{key.encode().hex()}'" for key in keys)
        found = self.select(
            f"SELECT {group}, {', '.join(totals(self.row.server_digest))}, COUNT({self.row.counted})"  # noqa: S608 - quoted
            f" FROM {self.table.quoted}"
            f"{_where(where, f'CAST({self.key.server} AS BINARY) {sign} ({texts})' if keys else '')} GROUP BY 1"
        )
        if any(int(texts) < int(rows) for _, rows, _, texts in found):
            raise too_long()
        return {name: Fingerprint(int(rows), int(sha)) for name, rows, sha, _ in found}


def _where(*conditions: str) -> str:
    given = " AND ".join(filter(None, conditions))
    return f" WHERE {given}" if given else ""


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Ranges of the key, or of its first column: of numbers and bytes, which sort everywhere alike."""

    key: tuple[KeyColumn, ...]
    bounds: tuple[tuple[int | str, ...], ...]
    """The lowest key of each range but the first."""

    @property
    def number(self) -> Column:
        """The number of the range."""
        names = [f"k{at}" for at in range(len(self.key))]
        types = [from_arrow_type(column.arrow) for column in self.key]
        named = zip(self.key, names, strict=True)
        values = F.struct(*(F.col(quoted(column.name)).alias(name) for column, name in named))

        def lowest(at: int) -> Column:
            parts = zip(self.key, key_values(self.key, self.bounds[at - 1]), types, names, strict=True)
            literals = (F.lit(of.scalar(part).as_py()).cast(kind).alias(name) for of, part, kind, name in parts)
            return F.struct(*literals)

        def among(first: int, last: int) -> Column:
            if first == last:
                return F.lit(first)
            middle = (first + last + 1) // 2
            return F.when(values < lowest(middle), among(first, middle - 1)).otherwise(among(middle, last))

        return among(0, len(self.bounds))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.bounds) + 1

    @property
    def cut(self) -> Mapping[str, Any]:
        """The lowest key of each range but the first."""
        return {"bounds": self.bounds}

    def on_server(self, rows: Rows, without: Callable[[int], Collection[str]]) -> dict[int, Fingerprint]:
        """Return the fingerprints; each range is a statement, which reads only that range of the index."""
        return {
            int(piece): found
            for at in range(self.count)
            for piece, found in rows.fingerprints(self.where(at), str(at), without(at)).items()
        }

    def where(self, piece: int) -> str:
        """Return the condition of a range."""
        return " AND ".join(limits(self.key, self._range(piece)))

    def name(self, piece: int) -> str:
        """Return a range by its first key, and the one behind its last."""
        names = ", ".join(column.name for column in self.key)
        lower, upper = (
            None if bound is None else ", ".join(map(str, key_values(self.key, bound))) for bound in self._range(piece)
        )
        since = "" if lower is None else f" from {lower}"
        return f"{names}{since}{'' if upper is None else f' to below {upper}'}" if lower or upper else f"all {names}"

    def _range(self, piece: int) -> Chunk:
        return Chunk(*(None, *self.bounds, None)[piece : piece + 2])


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """Keys by the first hexadecimal digits of their SHA-256."""

    key: RowText
    names: tuple[str, ...]
    digits: int

    @property
    def number(self) -> Column:
        """The number that the digits are."""
        digits = f"left(sha2(encode({self.key.spark}, 'UTF-8'), 256), {self.digits})"
        return F.expr(f"CAST(conv(concat('0', {digits}), 16, 10) AS INT)")

    @property
    def count(self) -> int:
        """How many there are."""
        return int(SIXTEENTHS**self.digits)

    @property
    def cut(self) -> Mapping[str, Any]:
        """The number of digits."""
        return {"digits": self.digits}

    def on_server(self, rows: Rows, without: Callable[[int], Collection[str]]) -> dict[int, Fingerprint]:
        """Return the fingerprints; a statement reads the whole table, for all pieces."""
        left_out = [key for piece in range(self.count) for key in without(piece)]
        return {int(name, 16): found for name, found in rows.fingerprints("", self._digits, left_out).items()}

    def where(self, piece: int) -> str:
        """Return the condition of a piece."""
        return f"{self._digits} = '0{piece:0{self.digits}x}'" if self.digits else ""

    def name(self, piece: int) -> str:
        """Return a piece by its digits."""
        names = ", ".join(self.names)
        return f"{names} whose SHA-256 begins with {piece:0{self.digits}x}" if self.digits else f"all {names}"

    @property
    def _digits(self) -> str:
        return f"CONCAT('0', LEFT(SHA2({self.key.server}, 256), {self.digits}))"


Pieces = KeyRanges | KeyHashes
"""How a table is cut. Both answer the same."""
