"""What is compared of a table: its columns in the types of the stream, and the texts of its rows and keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation
from pyspark.sql.types import DataType, StringType, StructType

from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.table_definition import Column
from pyspark_mysql_cdc_wm.verifying.pieces import Pieces
from pyspark_mysql_cdc_wm.verifying.row_text import RowText
from watermark_source.errors import UsageError

_WHOLE = "whole "
"""The column that is false for a row of a copy with a value that the stream's type does not hold. No column of a server
ends with a space."""


@dataclass(frozen=True)
class ComparedTable:
    """The columns of a table that are compared, which include its primary key."""

    name: TableName
    key_names: tuple[str, ...]
    columns: tuple[Column, ...]
    """As the server describes them."""
    schema: StructType
    """As the stream has them."""

    @cached_property
    def key(self) -> RowText:
        """The text of a row's key."""
        return self._text(self.key_names)

    @cached_property
    def row(self) -> RowText:
        """The text of a row; raises ``UnsupportedFormatError`` for a column that has none."""
        return self._text(sorted(str(column.name) for column in self.columns))

    def described(self, names: Iterable[str]) -> Iterator[tuple[Column, DataType]]:
        """Yield columns as the server describes them, with the types that they have in the stream."""
        columns = {str(column.name): column for column in self.columns}
        types = {field.name.lower(): field.dataType for field in self.schema}
        return ((columns[name], types[name.lower()]) for name in names)

    def _text(self, names: Iterable[str]) -> RowText:
        return RowText.of(tuple(self.described(names)), f"table {self.name}")

    def fingerprints(self, copy: DataFrame, pieces: Pieces) -> DataFrame:
        """Return ``piece``, ``key`` and ``sha`` of the rows of a copy.

        Raises:
            UsageError: the copy lacks a column.
        """
        kinds = {field.name.lower(): field.dataType for field in copy.schema}
        if lacking := [name for name in self.schema.names if name.lower() not in kinds]:
            raise UsageError(
                f"the copy has no column {lacking[0]}; it has {', '.join(copy.columns)}. Rename its columns as the "
                "table's, or name those to compare by the option columns"
            )
        values: list[Expression] = []
        keys = set(map(str.lower, self.key_names))
        whole = F.expr("true")
        for each in self.schema:
            value, kind = F.col(quoted(each.name)), kinds[each.name.lower()]
            if kind.simpleString() != each.dataType.simpleString():
                given, value = value, value.try_cast(each.dataType)
                whole &= value.try_cast(kind).eqNullSafe(given)
            if each.name.lower() in keys and isinstance(each.dataType, StringType):
                # No key of text is null, and a null alone in a row has the text of the key 'N'.
                whole &= value.isNotNull()
            values.append(value.alias(each.name))
        rows = copy.select(*values, whole.alias(_WHOLE))
        # Not a null, which would equal that of a row that the server has no text of.
        return self.of_rows(rows, pieces, F.expr(f"IF(`{_WHOLE}`, {self.row.spark}, uuid())"))

    def of_rows(self, rows: DataFrame, pieces: Pieces, text: Expression, *others: str) -> DataFrame:
        """Return the same of rows in the stream's types with a text, and others of their columns."""
        piece, key = pieces.number.alias("piece"), F.expr(self.key.spark).alias("key")
        texts = rows.select(piece, key, text.alias("row"), *others)
        return texts.selectExpr("piece", "key", f"{self.row.spark_digest('row')} AS sha", *others)
