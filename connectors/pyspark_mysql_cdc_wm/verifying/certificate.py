"""Certificate: what a table was on the server at one position of the binlog, as fingerprints of its pieces.

It is JSON of this form::

    {"certificate": 1,             version of this form
     "table": "shop.orders",
     "batch": 41,                  the batch of the query that the rows are as of
     "position": "file 7 position 4711",   the position that it ends at
     "key": ["id"],                columns of the primary key
     "columns": […],               what is compared, as the server describes it: by it Spark writes a row as a text
     "schema": {…},                the same as the stream has it, in Spark's form
     "cut": {"bounds": […]},       where the key is cut: the lowest key of each piece but the first; or {"digits": 2}
     "pieces": [[rows, sha], …]}      the fingerprint of each piece
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.snapshot.key_order import key_values
from pyspark_mysql_cdc_wm.verifying.compared_table import ComparedTable
from pyspark_mysql_cdc_wm.verifying.pieces import KeyHashes, KeyRanges, Pieces
from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint
from watermark_source.errors import CorruptDataError, OffsetError, UnsupportedFormatError, UsageError, shortened

_VERSION: Final = 1
_KEY: Final = "certificate"
_NUMBERS: Final = ("size", "length", "precision", "scale", "collation")
"""What a column's text depends on beside its name and type."""
_DAMAGED: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, OffsetError,
)  # fmt: skip
"""What is raised at JSON of another form."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a table was. ``str`` returns its JSON."""

    table: ComparedTable
    batch: int
    position: str
    """For people."""
    pieces: Pieces
    fingerprints: tuple[Fingerprint, ...]
    """Of each piece."""

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return sum(each.rows for each in self.fingerprints)

    @property
    def as_of(self) -> str:
        """When the table was so."""
        return f"batch {self.batch}, {self.position}"

    def __str__(self) -> str:
        table, pieces = self.table, self.pieces
        return json.dumps(
            {
                _KEY: _VERSION,
                "table": str(table.name),
                "batch": self.batch,
                "position": self.position,
                "key": table.key_names,
                "columns": list(map(_column_json, table.columns)),
                "schema": table.schema.jsonValue(),
                "cut": pieces.cut,
                "pieces": self.fingerprints,
            },
            ensure_ascii=False,
        )

    def write(self, file: Path) -> None:
        """Write it to a new file, whole or not at all.

        Raises:
            UsageError: the file is there, or cannot be written.
        """
        part = file.with_name(f"{file.name}.{uuid4().hex}.part")
        try:
            part.write_text(str(self), encoding="utf-8")
            try:
                file.hardlink_to(part)
            except OSError:
                # Not every file system has links. A file that is there is refused again.
                with file.open("x", encoding="utf-8") as opened:
                    opened.write(str(self))
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def of(cls, text: str, where: str) -> Certificate:
        """Parse a certificate; ``where`` names its place.

        Raises:
            CorruptDataError: it is damaged, or none.
            UnsupportedFormatError: it is of another version.
        """
        try:
            found = json.loads(text)
            if not isinstance(found, Mapping) or _KEY not in found:
                raise ValueError("an object without a version")
            if found[_KEY] != _VERSION:
                raise UnsupportedFormatError(
                    f"{where}: version {shortened(found[_KEY])} of a certificate; this release reads {_VERSION}"
                )
            return _certificate(found)
        except _DAMAGED as error:
            raise CorruptDataError(f"{where} is not a certificate: {error}; seen: {shortened(text)}") from None


def _certificate(found: Mapping[str, Any]) -> Certificate:
    table = ComparedTable(
        TableName.of(found["table"]),
        tuple(found["key"]),
        tuple(map(_column_of, found["columns"])),
        StructType.fromJson(found["schema"]),
    )
    pieces = _pieces_of(found["cut"], table)
    fingerprints = tuple(Fingerprint(*map(int, each)) for each in found["pieces"])
    if len(fingerprints) != pieces.count:
        raise ValueError(f"{len(fingerprints)} fingerprints of {pieces.count} pieces")
    return Certificate(table, int(found["batch"]), str(found["position"]), pieces, fingerprints)


def _column_json(column: Column) -> Mapping[str, Any]:
    return {"name": column.name, "type": column.type.name, **{each: getattr(column, each) for each in _NUMBERS}}


def _column_of(found: Mapping[str, Any]) -> Column:
    return Column(ColumnType[found["type"]], name=found["name"], **{each: found[each] for each in _NUMBERS})


def _pieces_of(cut: Mapping[str, Any], table: ComparedTable) -> Pieces:
    if "digits" in cut:
        return KeyHashes(table.key, table.key_names, int(cut["digits"]))
    bounds = tuple(map(tuple, cut["bounds"]))
    # By the first columns of the key, or by all; a bound has two parts of each.
    cut_by = table.key_names[: len(bounds[0]) // 2] if bounds else table.key_names
    described = table.described(cut_by)
    key = tuple(KeyColumn(str(column.name), column.type, to_arrow_type(kind)) for column, kind in described)
    for bound in bounds:
        for column, value in zip(key, key_values(key, bound), strict=True):
            column.scalar(value)
    return KeyRanges(key, bounds)
