"""``temporal_join``: each row of one stream with the version of a row of another that was valid at its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import NumericType, StringType, StructField, StructType, TimestampType

from watermark_source.errors import UsageError
from watermark_source.operators.followed_time import WAITED, followed_time, need_rocksdb
from watermark_source.operators.join_columns import (
    CALLER,
    arrow_columns,
    as_list,
    columns_of_build,
    key_bytes,
    loosened,
    names_of_key,
    refuse_equal_names,
)
from watermark_source.operators.join_layout import JoinLayout
from watermark_source.operators.join_packs import BUCKET, PACKED, UNPACKED, Packer, unpacker
from watermark_source.operators.join_processor import TemporalJoinProcessor
from watermark_source.spark.columns.column_names import EVENT_TIME
from watermark_source.spark.columns.source_time import SourceTime
from watermark_source.spark.frames.named_column import quoted

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
