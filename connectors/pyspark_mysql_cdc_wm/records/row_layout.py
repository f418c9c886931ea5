"""Which columns of a table a stream delivers, and as what: as columns of its own, or the whole row as one JSON text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.column import Column
from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.json_rows import json_rows
from watermark_source.errors import UnsupportedFormatError

ROW_COLUMN = "_row"


@dataclass(frozen=True, slots=True)
class Layout:
    """The stream's columns that come of tables' own."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    choice: ColumnChoice | None = None
    """Which columns are in the JSON text that is the only column; ``None`` where tables' columns are the stream's."""

    @classmethod
    def of_json(cls, choice: ColumnChoice) -> Layout:
        """Return the layout of whole rows."""
        return cls((ROW_COLUMN,), (pa.string(),), choice)

    def delivered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return which of a table's columns, by their names in its order, are delivered."""
        return self.names if self.choice is None else tuple(name for name in names if self.choice.has(name))

    def needed(self, names: Iterable[str], key: Sequence[str]) -> tuple[str, ...]:
        """Return which of a table's columns must be read, those of its primary key included."""
        return tuple(dict.fromkeys((*self.delivered(names), *key)))

    def columns(self, where: str, table: Mapping[str, Column], values: Mapping[str, pa.Array]) -> tuple[pa.Array, ...]:
        """Return the stream's columns of rows of a table, whose columns and values are given by name, in its order.

        Raises:
            UnsupportedFormatError: the table's columns are not the stream's.
        """
        if self.choice is None:
            return tuple(
                self._column(where, name, kind, values) for name, kind in zip(self.names, self.types, strict=True)
            )
        names = self.delivered(name for name in table if name in values)
        return (json_rows([(table[name], values[name]) for name in names], len(next(iter(values.values()), ()))),)

    @staticmethod
    def _column(where: str, name: str, kind: pa.DataType, values: Mapping[str, pa.Array]) -> pa.Array:
        was = values[name].type if name in values else None
        if was != kind:
            told = "is not in it" if was is None else f"is {was}"
            raise UnsupportedFormatError(
                f"{where} was altered: at this place of the binlog the column {name} {told}, and the stream has it as "
                f"{kind}. Name the columns that did not change in the option columns, set rowFormat to json, which "
                "follows such changes, or begin a new query after the change"
            )
        return values[name]
