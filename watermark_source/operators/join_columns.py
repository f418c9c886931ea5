"""Which columns of two streams a temporal join takes, adds and compares; what cannot be joined is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from watermark_source.errors import UsageError
from watermark_source.spark.frames.named_column import is_case_sensitive, quoted, spelling

CALLER = "temporal_join"
CHANGE_TYPE = "_change_type"
SEQUENCE = ("_commit_version", "_change_number")
"""The columns of this project's MySQL source that say what a row is, and that order the changes of a row."""


@dataclass(frozen=True, slots=True)
class BuildColumns:
    """The build side's columns by what they are for, in their own spelling."""

    time: str
    change_type: str | None
    sequence: tuple[str, ...]
    added: tuple[str, ...]
    """What the join adds to the probe's columns."""


def as_list(names: str | Sequence[str]) -> list[str]:
    """Return one name or several as several: the letters of one are none."""
    return [names] if isinstance(names, str) else list(names)


def columns_of_build(
    df: DataFrame, on: Sequence[str], time: str, change_type: str | None, sequence: str | Sequence[str] | None
) -> BuildColumns:
    """Return what the columns of the build side are for.

    Raises:
        UsageError: a column is not there, or one of ``sequence`` has no order.
    """
    kind = CHANGE_TYPE if change_type is None and CHANGE_TYPE in df.columns else change_type
    ordered = [name for name in SEQUENCE if name in df.columns] if sequence is None else as_list(sequence)
    kind = None if kind is None else spelling(df, kind, CALLER)
    ordered = [spelling(df, name, CALLER) for name in ordered]
    for name in ordered:
        if not isinstance(df.schema[name].dataType, AtomicType):
            raise UsageError(
                f"{CALLER}: column {name!r} is {df.schema[name].dataType.simpleString()}, which has no order for "
                "changes; name columns of numbers, texts or times in sequence"
            )
    used = {*on, time, kind, *ordered}
    return BuildColumns(time, kind, tuple(ordered), tuple(name for name in df.columns if name not in used))


def refuse_equal_names(probe: DataFrame, added: Sequence[str]) -> None:
    """Raise ``UsageError`` if a name would be in the result twice."""
    fold = str if is_case_sensitive(probe) else str.lower
    names = [fold(name) for name in (*probe.columns, *added)]
    twice = sorted({name for name in (*probe.columns, *added) if names.count(fold(name)) > 1})
    if twice:
        raise UsageError(
            f"{CALLER}: the result would have two columns of these names: {', '.join(twice)}. Rename or drop one of "
            f'each first, as in users.withColumnRenamed("{twice[0]}", "user_{twice[0].lstrip("_")}")'
        )


def names_of_key(probe: DataFrame, build: DataFrame, on: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns that are compared as each side spells them.

    Raises:
        UsageError: a column is not on both sides, or of types that differ or have no exact equality; or pairs of names.
    """
    if isinstance(on, Mapping):
        raise UsageError(
            f"{CALLER}: on={on} pairs names, and a column has one name on both sides. Rename it on one of them first, "
            'as in build.withColumnRenamed("id", "user_id"), and give on="user_id"'
        )
    wanted = as_list(on)
    if not wanted:
        raise UsageError(f'{CALLER}: on names no column; name those that are equal on both sides, as in on="user_id"')
    ours = [spelling(probe, name, f"{CALLER}, probe") for name in wanted]
    theirs = [spelling(build, name, f"{CALLER}, build") for name in wanted]
    for one, other in zip(ours, theirs, strict=True):
        kind, its = probe.schema[one].dataType, build.schema[other].dataType
        if kind != its:
            raise UsageError(
                f"{CALLER}: column {one!r} is {kind.simpleString()} in probe and {its.simpleString()} in build. Cast "
                f'one of them first, as in probe.withColumn("{one}", col("{one}").cast("{its.simpleString()}"))'
            )
        exact = isinstance(kind, AtomicType) and not isinstance(kind, FloatType | DoubleType)
        if not exact or (isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"):
            raise UsageError(
                f"{CALLER}: column {one!r} is {kind.simpleString()}, and rows are found by whole numbers, decimals, "
                "texts of UTF8_BINARY, booleans, dates, timestamps or bytes alone; cast it on both sides first"
            )
    return ours, theirs


def key_bytes(df: DataFrame, names: Sequence[str]) -> Column:
    """Return the compared columns as bytes, equal where all of them are; null if one of them is null.

    Texts as bytes, for a column that was cast from bytes need not be UTF-8.
    """
    texts = [_text(df, name) for name in names]
    if len(texts) > 1:
        parts = [part for text in texts for part in (F.octet_length(text).cast("string"), F.lit(":"), text)]
        texts = [F.concat(*parts)]
    return texts[0].cast("binary")


def _text(df: DataFrame, name: str) -> Column:
    kind, column = df.schema[name].dataType, quoted(name)
    if isinstance(kind, BinaryType):
        return F.hex(column)
    # The text of a moment would depend on the session's time zone.
    return (F.unix_micros(column) if isinstance(kind, TimestampType) else column).cast("string")


def loosened(fields: Iterable[StructField]) -> list[StructField]:
    """Return columns in which all may be null, to the last member: those of a row that found nothing are."""
    return [StructField(field.name, _loosened(field.dataType), metadata=field.metadata) for field in fields]


def _loosened(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(loosened(kind.fields))
    if isinstance(kind, ArrayType):
        return ArrayType(_loosened(kind.elementType))
    return MapType(kind.keyType, _loosened(kind.valueType)) if isinstance(kind, MapType) else kind


def arrow_columns(fields: Iterable[StructField]) -> pa.Schema:
    """Return columns as Arrow, loosened; raises ``UsageError`` for types that Python cannot be given."""
    return pa.schema([_arrow(field) for field in loosened(fields)])


def _arrow(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0)
    except PySparkException as reason:
        raise UsageError(
            f"{CALLER}: column {field.name!r} is {field.dataType.simpleString()}, which Spark does not give to Python "
            f"({reason}); drop or cast it first"
        ) from None
