"""``temporal_join``: each row of one stream with the version of a row of another that was valid at its time."""

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
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from watermark_source.errors import UsageError
from watermark_source.operators.followed_time import WAITED, followed_time, need_rocksdb
from watermark_source.operators.join_processor import JoinLayout, TemporalJoinProcessor
from watermark_source.operators.packs import BUCKET, PACKED, UNPACKED, Packer, unpacker
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.columns import SourceTime
from watermark_source.spark.follow import is_case_sensitive, quoted, spelling

# Which columns of two streams a temporal join takes, adds and compares; what cannot be joined is refused.


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


DELETES, IGNORED = ("delete",), ("update_preimage",)
_OWN = "__temporal_join_"
_MOST_BUCKETS = 65_536


def temporal_join(
    probe: DataFrame,
    build: DataFrame,
    *,
    on: str | Sequence[str],
    probe_time: str = EVENT_TIME,
    build_time: str = EVENT_TIME,
    how: str = "left",
    buffer: bool = False,
    change_type: str | None = None,
    deletes: str | Sequence[str] = DELETES,
    ignored: str | Sequence[str] = IGNORED,
    sequence: str | Sequence[str] | None = None,
    buckets: int = 64,
) -> DataFrame:
    """Join each row of ``probe`` with the row of ``build`` that was valid at its time (``FOR SYSTEM_TIME AS OF``).

    On event time a probe row waits until the watermark has passed it, and finds the version of that time. On processing
    time (``watermarkStrategy`` ``none`` of both sources) it finds the latest version, and waits only until the snapshot
    that the build side begins with is complete; a build side without a snapshot is refused. Which of the two, the
    sources say; the plan shows it.

    Args:
        probe: a stream of which ``probe_time`` follows its source's watermark (``follow_watermark``).
        build: the same of a changing table. Its rows are the current row of their key from their time on; of its keys
            each has one row at a time.
        on: the columns that are equal, under the same names and of the same types. Null equals nothing.
        probe_time: the column that ``follow_watermark`` was given.
        build_time: the same of the build side.
        how: ``left`` keeps probe rows that find nothing, ``inner`` leaves them out.
        buffer: processing time alone: keep probe rows in state until the snapshot is complete, where the sources have
            no alignment group in which the probe would wait unread.
        change_type: the column that says what a build row is; ``_change_type`` if there is such a column, otherwise
            all rows are new versions.
        deletes: its values that end a version without another one.
        ignored: its values of rows that say nothing new, as what an updated row was before.
        sequence: columns that order changes of a key at the same time; ``_commit_version`` and ``_change_number``
            where they exist.
        buckets: into how many parts keys are hash-partitioned. No more tasks than this work at once; a checkpoint
            keeps it.

    Returns:
        All columns of ``probe``, then those of ``build`` but ``on``, its time, and what tells changes and their order.

    Raises:
        UsageError: what cannot be joined, and why.
    """
    if how not in ("left", "inner"):
        raise UsageError(f'{CALLER}: how = {how!r}; a temporal join is "left" or "inner"')
    if not 1 <= buckets <= _MOST_BUCKETS:
        raise UsageError(f"{CALLER}: buckets = {buckets!r}; it must be from 1 to {_MOST_BUCKETS}, for example 64")
    need_rocksdb(probe, CALLER)
    probe_time, probe_source = followed_time(probe, probe_time, f"{CALLER}, probe")
    build_time, build_source = followed_time(build, build_time, f"{CALLER}, build")
    _need_one_kind_of_time(probe_source, build_source)
    if probe_source.processing_time:
        _need_to_tell_when_time_is_the_clocks(probe_source, build_source)
        _need_a_snapshot(build_source)
    if probe_source.processing_time and not buffer:
        _need_to_be_held(probe_source, build_source)
    probe_key, build_key = names_of_key(probe, build, on)
    columns = columns_of_build(build, build_key, build_time, change_type, sequence)
    refuse_equal_names(probe, columns.added)

    added = [StructField(name, build.schema[name].dataType) for name in columns.added]
    # On the clock no row's own time matters; all wait for the first watermark.
    asked_at = F.lit(0).cast("long") if probe_source.processing_time else F.unix_micros(quoted(probe_time))
    asked = {"key": key_bytes(probe, probe_key), "time": asked_at}
    questions = _in_buckets(probe, _spread(probe, asked["key"]), buckets, asked, probe.columns)
    layout = JoinLayout(
        processing_time=probe_source.processing_time,
        inner=how == "inner",
        sequence=len(columns.sequence),
        probe=arrow_columns(questions.schema.fields[1:]),
        build=arrow_columns(added),
        described=_described(probe, added, probe_key, buckets, on_clock=probe_source.processing_time),
    )
    told_key = key_bytes(build, build_key)
    counts, gone = told_key.isNotNull(), F.lit(False)
    if columns.change_type is not None:
        kind = F.coalesce(quoted(columns.change_type), F.lit(""))
        counts, gone = counts & ~kind.isin(*as_list(ignored)), kind.isin(*as_list(deletes))
    told = {"key": told_key, "time": F.unix_micros(quoted(build_time)), "gone": gone}
    names = (*columns.sequence, *columns.added)
    versions = _in_buckets(build.where(counts), F.xxhash64(told_key), buckets, told, names)
    packs = _packed(questions, layout, is_probe=True).union(_packed(versions, layout, is_probe=False))
    # Packs have no event time: nothing of the build side is ever late.
    joined = packs.groupBy(BUCKET).transformWithStateInPandas(
        TemporalJoinProcessor(layout), UNPACKED, outputMode="append", timeMode="eventTime"
    )
    result = StructType(loosened([*probe.schema.fields, *added]))
    rows = joined.mapInArrow(unpacker(arrow_columns(result.fields), layout.name), result)
    followed = dict(probe.schema[probe_time].metadata)
    if not layout.processing_time:
        followed[WAITED] = CALLER
    return rows.select([quoted(c).alias(c, metadata=followed) if c == probe_time else quoted(c) for c in rows.columns])


def _spread(probe: DataFrame, key: Column) -> Column:
    """Return a hash of the key, and of rows without one, who find nothing anywhere, of all that can be hashed.

    All of them in one bucket could be more than all others.
    """
    hashed = [f.name for f in probe.schema if isinstance(f.dataType, NumericType | StringType | TimestampType)]
    return F.when(key.isNotNull(), F.xxhash64(key)).otherwise(F.xxhash64(*map(quoted, hashed)))


def _in_buckets(
    df: DataFrame, spread: Column, buckets: int, own: Mapping[str, Column], names: Sequence[str]
) -> DataFrame:
    """Return the rows of one side: bucket, what the join goes by, then columns of the side's own."""
    first = {BUCKET: F.pmod(spread, F.lit(buckets)).cast("int"), **own}
    return df.select(*(column.alias(f"{_OWN}{name}") for name, column in first.items()), *map(quoted, names))


def _packed(rows: DataFrame, layout: JoinLayout, *, is_probe: bool) -> DataFrame:
    return rows.mapInArrow(Packer(arrow_columns(rows.schema.fields), is_probe, layout.name).function(), PACKED)


def _described(
    probe: DataFrame, added: Sequence[StructField], key: Sequence[str], buckets: int, *, on_clock: bool
) -> str:
    sides = (probe.schema.simpleString(), StructType(list(added)).simpleString())
    kind = "processing time" if on_clock else "event time"
    return f"on {', '.join(key)} by {kind} in {buckets} buckets, probe {sides[0]}, build {sides[1]}"


def _need_one_kind_of_time(probe: SourceTime, build: SourceTime) -> None:
    if probe.processing_time == build.processing_time:
        return
    kinds = {False: "event time", True: "processing time (watermarkStrategy none)"}
    raise UsageError(
        f"{CALLER}: probe ({probe.source}) goes by {kinds[probe.processing_time]} and build ({build.source}) by "
        f"{kinds[build.processing_time]}; both must go by the same. For processing time give both sources "
        "watermarkStrategy none, and mysql-cdc-wm useProcessingTimeDuringBinlog true"
    )


def _need_to_tell_when_time_is_the_clocks(probe: SourceTime, build: SourceTime) -> None:
    """Refuse, on processing time, sources that need not say when that begins (FLIP-326)."""
    silent = [each.source for each in (probe, build) if not each.tells_when_time_is_the_clocks]
    if silent:
        raise UsageError(
            f"{CALLER}: on processing time rows wait for a watermark that says that time is the clock's, and "
            f"{' and '.join(silent)} does not declare to send one: its connector leaves its watermark characteristic "
            "undefined. Join by event time, or use a connector that declares any_watermark"
        )


def _need_a_snapshot(build: SourceTime) -> None:
    """Refuse, on processing time, a build side of which nothing shows when it has been read."""
    if build.begins_with_snapshot:
        return
    raise UsageError(
        f"{CALLER}: on processing time a probe row waits until the build side has read what it begins with, and build "
        f"({build.source}) begins with no snapshot: its watermark is the clock from its first batch on, and probe rows "
        "would be answered before its rows were read, whatever buffer or alignmentWaitForFirst say. Join by event "
        'time: leave watermarkStrategy none out of both sources, and give both .option("alignmentGroup", "enrichment") '
        'and .option("alignmentMaxDrift", "2 minutes"). Or take the table itself as build side: format("mysql-cdc-wm") '
        "with a snapshot"
    )


def _need_to_be_held(probe: SourceTime, build: SourceTime) -> None:
    """Refuse a probe side that would be read before the build side's snapshot is complete."""
    if probe.group is not None and probe.group == build.group and build.holds_group:
        return
    groups = [
        f"{side} ({source.source}) {'has none' if source.group is None else f'is in {source.group!r}'}"
        for side, source in (("probe", probe), ("build", build))
    ]
    held = "" if build.holds_group or build.group is None else ", and build has snapshotHoldsGroup false"
    raise UsageError(
        f"{CALLER}: on processing time the probe waits in its source until the build's snapshot is complete, and for "
        f"that both must be in one alignment group: {' and '.join(groups)}{held}. Give both sources "
        '.option("alignmentGroup", "enrichment"), or let probe rows wait in state: buffer=True'
    )
