"""The columns of a stream: those that all chosen tables have, or one JSON text."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, WHOLE_ROWS, ColumnChoice, EventTimeColumn, Layout
from watermark_source.errors import OptionError, SchemaError, shortened


def stream_layout(
    tables: Mapping[TableName, TableColumns],
    choice: ColumnChoice,
    *,
    as_json: bool,
    engines: Collection[str],
    sees_all: bool = True,
) -> Layout:
    """Return the layout of a stream of tables.

    Args:
        tables: the tables' columns.
        choice: the columns that the user chose.
        as_json: whether rows are JSON text.
        engines: names of the columns that the engine adds.
        sees_all: whether the user may read all columns. If not, excludeColumns may name columns that are not described.

    Raises:
        OptionError: an option names a column that does not exist, or leaves no column.
        SchemaError: the tables have different columns, or a column has the name of one of the stream's own.
    """
    _check_names("columns", choice.only or (), tables, everywhere=not as_json)
    about = tuple(filter(choice.has_change_column, CHANGE_COLUMNS))
    left_out = [name for name in choice.without if name.lower() not in CHANGE_COLUMNS]
    if sees_all:
        _check_names("excludeColumns", left_out, tables, everywhere=False)
    first, columns = next(iter(tables.items()))
    names = tuple(filter(choice.has, columns.names))
    event_time = choice.event_time
    if event_time is not None:
        _check_event_time(tables, event_time)
    layout = Layout(names, tuple(columns.type_by_name[name] for name in names), event_time=event_time, about=about)
    if as_json:
        layout = Layout(*WHOLE_ROWS, choice, event_time, about)
    _check_free(layout, first, {*layout.about, *engines})
    for name, each in tables.items():
        check_fits(layout, choice, name, each, shown=str(first))
    return layout


def _check_free(layout: Layout, table: TableName, own: Collection[str]) -> None:
    """Check that no column of a table has the name of one of the stream's own columns."""
    clashing = [name for name in layout.names if name.lower() in own]
    if clashing:
        others = ",".join(name for name in layout.names if name not in clashing)
        raise SchemaError(
            f"{table} has columns with the names of the stream's own columns: {', '.join(clashing)}. Name the others "
            f"in the option columns, such as {shortened(others)} (eventTimeColumn may name one that is left out), or "
            "set rowFormat to json"
        )


def _check_event_time(tables: Mapping[TableName, TableColumns], column: EventTimeColumn) -> None:
    """Check that all tables have the event time column, whose case may differ."""
    _check_names("eventTimeColumn", (column.name,), tables, everywhere=True)
    for table, columns in tables.items():
        kind = _kind(column, columns)
        if kind is None or not pa.types.is_timestamp(kind):
            raise OptionError(
                "eventTimeColumn", column.name, f"is {kind} in {table}, and must be TIMESTAMP or DATETIME"
            )


def _kind(column: EventTimeColumn, table: TableColumns) -> pa.DataType | None:
    name = column.among(table.type_by_name)
    return None if name is None else table.type_by_name[name]


def check_fits(
    layout: Layout, choice: ColumnChoice, name: TableName, table: TableColumns, *, shown: str = "the stream"
) -> None:
    """Check that a table's columns are those of the stream, which errors call ``shown``.

    Raises:
        SchemaError: they differ.
        OptionError: the options leave no column of the table.
    """
    if not any(map(choice.has, table.names)) and not (layout.choice is not None and table.key):
        option, given = ("columns", choice.only) if choice.only is not None else ("excludeColumns", choice.without)
        raise OptionError(option, ",".join(given), f"leaves no column of {name}, which has {', '.join(table.names)}")
    if layout.event_time is not None:
        kind = _kind(layout.event_time, table)
        if kind is None or not pa.types.is_timestamp(kind):
            raise without_event_time(layout.event_time, name, kind)
    if layout.choice is not None:
        return
    of_table = {column: table.type_by_name[column] for column in table.names if choice.has(column)}
    of_stream = dict(zip(layout.names, layout.types, strict=True))
    if _without_case(of_table) != _without_case(of_stream):
        raise SchemaError(
            f"{shown} and {name} have different columns, and a stream has one schema: {_shown(of_stream)} and "
            f"{_shown(of_table)}. Set rowFormat to json, which accepts any, choose columns that they share by the "
            "option columns, or read them as two streams"
        )


def _without_case(columns: Mapping[str, pa.DataType]) -> Mapping[str, pa.DataType]:
    return {name.lower(): kind for name, kind in columns.items()}


def without_event_time(column: EventTimeColumn, name: TableName, kind: pa.DataType | None) -> SchemaError:
    """Return the error for a table without the event time column, or (``kind``) with one of another type."""
    has = "has no such column" if kind is None else f"has it as {kind}"
    return SchemaError(
        f"event time is the column {column.name}, a TIMESTAMP or DATETIME, and {name} {has}. Leave the table out "
        "of the option tables, or read it as a stream of its own. If the column was renamed or dropped, restore it, or "
        "begin a new query"
    )


def _check_names(
    option: str, wanted: Sequence[str], tables: Mapping[TableName, TableColumns], *, everywhere: bool
) -> None:
    """Check that each name is a column of some table, or of all of them."""
    for name in wanted:
        lacking = [table for table, columns in tables.items() if name.lower() not in map(str.lower, columns.names)]
        if len(lacking) == len(tables) or (everywhere and lacking):
            columns = tables[lacking[0]].names
            raise OptionError(option, ",".join(wanted), f"there is no column {name}; {_hint(name, columns, lacking)}")


def _hint(name: str, columns: Sequence[str], lacking: Iterable[TableName]) -> str:
    similar = difflib.get_close_matches(name, columns, n=1)
    hint = f"; the nearest is {similar[0]}" if similar else ""
    return f"the columns are {', '.join(columns)}{hint} (table {next(iter(lacking))})"


def _shown(columns: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
