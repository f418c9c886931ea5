"""``temporal_join``: joins each row of a stream with the version of a changing table that was valid at its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DatetimeType,
    DayTimeIntervalType,
    DecimalType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from watermark_source.errors import UsageError
from watermark_source.operators.changes import (
    CALLER,
    CHANGE_TYPE,
    DELETES,
    IGNORED,
    UPSERTS,
    KindsOfChange,
    as_list,
    need_all_changes,
    need_names,
    row_paths,
)
from watermark_source.operators.followed_time import WAITED, declarations, followed_time, need_rocksdb
from watermark_source.operators.join_processor import Deletions, JoinLayout, TemporalJoinProcessor
from watermark_source.operators.packs import BUCKET, PACKED, UNPACKED, arrow_field, need_buckets, packer, unpacker
from watermark_source.planning.policy import GroupHold
from watermark_source.spark.accepted_operators import has_times_of_its_own
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.follow import name_fold, present, quoted, spelling
from watermark_source.spark.plan_steps import Step
from watermark_source.spark.query_plan import steps_of
from watermark_source.spark.source_time import SourceTime

SEQUENCE = ("_commit_version", "_change_number")
"""The columns that order the changes of a row, as this project's sources name them."""
TOPIC_SEQUENCE = "offset"
"""The column that orders the rows of a key in a topic."""
_COMPARED = (
    IntegralType, DecimalType, StringType, BooleanType, DatetimeType, DayTimeIntervalType, BinaryType,
)  # fmt: skip
"""Types of columns in ``on``: equal values have equal texts, and others have other ones."""
_ORDERED = (*_COMPARED, NumericType)
"""Types of columns in ``sequence``, which Arrow sorts."""
_OWN = "__temporal_join_"


def temporal_join(
    probe: DataFrame,
    build: DataFrame,
    *,
    on: str | Sequence[str],
    probe_time: str = EVENT_TIME,
    build_time: str = EVENT_TIME,
    how: str = "left",
    buffer: bool = False,
    wait: bool = True,
    change_type: str | None = None,
    upserts: str | Sequence[str] = UPSERTS,
    deletes: str | Sequence[str] = DELETES,
    ignored: str | Sequence[str] = IGNORED,
    sequence: str | Sequence[str] | None = None,
    buckets: int = 64,
) -> DataFrame:
    """Join each row of ``probe`` with the row of ``build`` that was valid at its time (``FOR SYSTEM_TIME AS OF``).

    On event time a probe row waits until the watermark has passed it, and matches the version that was valid at its
    time. On processing time (``watermarkStrategy`` ``none`` of both sources) it matches the latest version, and waits
    only until the build side's initial snapshot is complete, or its topic has been read to its end (``whenCaughtUp``
    ``watermark``); any other build side is refused. With ``wait=False`` it does not wait. The sources decide the kind
    of time, and the plan's node names it.

    Args:
        probe: a stream whose column ``probe_time`` follows its source's watermark (``follow_watermark``) or the clock
            of its batches (``follow_clock``).
        build: such a stream of a changing table. A row of it is valid from its time until the next row of its key.
        on: the columns to compare. They have the same names and types on both sides. Null equals nothing.
        probe_time: the column that ``follow_watermark`` was given.
        build_time: the same for the build side.
        how: ``left`` keeps probe rows without a match, ``inner`` drops them.
        buffer: on processing time, keep probe rows in state until the snapshot is complete. Without it both sources
            must be in one alignment group, in which the probe waits unread.
        wait: on processing time, whether probe rows wait for the snapshot. With ``False`` each is joined in the batch
            that reads it, with the latest version that was read up to then, which may be none yet (FLIP-326's
            ``TemporalFunctionJoin``). Any build side will do, also one without a snapshot.
        change_type: the build column with the kind of change; by default ``_change_type`` if it exists, else every row
            is a new version.
        upserts: values of ``change_type`` that begin a version. A row with a value that is in none of the three ends
            the query.
        deletes: values of ``change_type`` that end a version without a new one.
        ignored: values of ``change_type`` whose rows are dropped, such as an updated row's previous values.
        sequence: columns that order changes of a key at one time, on processing time all changes of a key; by default
            ``_commit_version`` and ``_change_number`` if they exist, and ``offset`` of a topic that is read to its end
            first (``whenCaughtUp``). With ``wait=False`` they are needed; ``()`` states that no batch has two rows of
            a key.
        buckets: the number of hash partitions of the keys, which bounds the number of tasks. It cannot change for a
            checkpoint.

    Returns:
        All columns of ``probe``, then the columns of ``build`` except ``on``, its time, ``change_type`` and
        ``sequence``.

    Raises:
        UsageError: the two streams cannot be joined, with the reason.
    """
    if how not in ("left", "inner"):
        raise UsageError(f'{CALLER}: how = {how!r}; a temporal join is "left" or "inner"')
    need_buckets(buckets, CALLER)
    _need_booleans(buffer=buffer, wait=wait)
    need_names(probe_time=probe_time, build_time=build_time, change_type=change_type)
    need_rocksdb(probe, CALLER)
    plan = steps_of(build)
    probe_time, probe_source = followed_time(probe, steps_of(probe), probe_time, f"{CALLER}, probe")
    build_time, build_source = followed_time(build, plan, build_time, f"{CALLER}, build")
    _need_one_kind_of_time(probe_source, build_source)
    if probe_source.processing_time or not wait:
        _need_waiting_or_none(probe, probe_source, [build_source, *declarations(plan)], buffer=buffer, wait=wait)
    probe_key, build_key = names_of_key(probe, build, on)
    kind = next(iter(present(build, CHANGE_TYPE)), None) if change_type is None else change_type
    kind = None if kind is None else spelling(build, kind, CALLER)
    paths = row_paths(plan, [*build_key, kind or CHANGE_TYPE])
    # Of rows that are changes of keys none may be lost.
    changes = dict.fromkeys(of for of, _ in paths if of.change_columns or of.reads_to_end_first)
    is_ordered = sequence is not None
    sequence = _sequence_of_changes(build, list(changes), sequence)
    columns = columns_of_build(build, build_key, build_time, kind, sequence)
    if not wait and sequence is None:
        _need_order(build_source, columns)
    kinds = KindsOfChange.of(upserts, deletes, ignored)
    kinds.check(build, columns.change_type)
    for source in changes:
        _need_known_changes(source, columns, kinds, is_ordered=is_ordered)
    need_all_changes([path for path in paths if path.source in changes], build_key, kind or CHANGE_TYPE)
    refuse_equal_names(probe, columns.added)

    added = [StructField(name, build.schema[name].dataType) for name in columns.added]
    # On processing time a row's own time does not matter; all rows wait for the first watermark.
    time = F.lit(0).cast("long") if probe_source.processing_time else F.unix_micros(quoted(probe_time))
    first = {"key": key_bytes(probe, probe_key), "time": time}
    probe_rows = _in_buckets(probe, _spread(probe, first["key"]), buckets, first, probe.columns)
    key = key_bytes(build, build_key)
    is_version, is_delete = key.isNotNull(), F.lit(False)
    if columns.change_type is not None:
        is_version = is_version & kinds.is_version(columns.change_type)
        is_delete = quoted(columns.change_type).cast("string").isin(*kinds.deletes)
    # On processing time the last row counts, in the order of sequence alone: rows read first may have other times.
    since = F.lit(0).cast("long") if probe_source.processing_time else F.unix_micros(quoted(build_time))
    first = {"key": key, "time": since, "gone": is_delete}
    names = (*columns.sequence, *columns.added)
    versions = _in_buckets(build.where(is_version), F.xxhash64(key), buckets, first, names)
    layout = JoinLayout(
        processing_time=probe_source.processing_time,
        waits=wait,
        inner=how == "inner",
        sequence=len(columns.sequence),
        probe=arrow_columns(probe_rows.schema.fields[1:]),
        changes=arrow_columns(versions.schema.fields[1:]),
        build=arrow_columns(added),
        described=_described(probe, added, probe_key, buckets, _kind_of_join(probe_source, wait=wait)),
        deletions=_deletions(plan, build_time, columns, kinds, [path.source for path in paths]),
    )
    packs = _packed(probe_rows, layout, is_probe=True).union(_packed(versions, layout, is_probe=False))
    # Packs have no event-time column, so Spark drops no build row as late.
    joined = packs.groupBy(BUCKET).transformWithStateInPandas(
        TemporalJoinProcessor(layout), UNPACKED, outputMode="append", timeMode="eventTime"
    )
    result = StructType([*probe.schema.fields, *added]).toNullable()  # a probe row without a match has nulls
    rows = joined.mapInArrow(unpacker(arrow_columns(result.fields), layout.name), result)
    metadata = dict(probe.schema[probe_time].metadata)
    if not layout.processing_time:
        metadata[WAITED] = CALLER
    return rows.select([quoted(c).alias(c, metadata=metadata) if c == probe_time else quoted(c) for c in rows.columns])


def _deletions(
    plan: Step, time: str, columns: BuildColumns, kinds: KindsOfChange, sources: Sequence[SourceTime]
) -> Deletions:
    """Return what the sources declare, and the plan shows, of the times of rows that delete their key."""
    listed = ", ".join(repr(kind) for kind in kinds.deletes)
    return Deletions(
        of_changes=all(
            source.default_times and not has_times_of_its_own(plan, time, source.default_times) for source in sources
        ),
        dated_by=next((source.deletion_time for source in sources if source.deletion_time is not None), None),
        condition=f"{columns.change_type} IN ({listed})",
        undated=sources[0].words.undated_delete,
    )


def _spread(probe: DataFrame, key: Column) -> Column:
    """Return a hash of the key; for rows without a key, which match nothing, a hash of their other columns.

    In one bucket, rows without a key could outnumber all others.
    """
    hashed = [f.name for f in probe.schema if isinstance(f.dataType, NumericType | StringType | TimestampType)]
    return F.when(key.isNotNull(), F.xxhash64(key)).otherwise(F.xxhash64(*map(quoted, hashed)))


def _in_buckets(
    df: DataFrame, spread: Column, buckets: int, first: Mapping[str, Column], names: Sequence[str]
) -> DataFrame:
    """Return the rows of one side: the bucket, the join's own columns, then the columns ``names``."""
    leading = {BUCKET: F.pmod(spread, F.lit(buckets)).cast("int"), **first}
    return df.select(*(column.alias(f"{_OWN}{name}") for name, column in leading.items()), *map(quoted, names))


def _packed(rows: DataFrame, layout: JoinLayout, *, is_probe: bool) -> DataFrame:
    columns = arrow_columns(rows.schema.fields)
    return rows.mapInArrow(packer(columns, PACKED, lambda _: (is_probe,), layout.name), PACKED)


def _kind_of_join(probe: SourceTime, *, wait: bool) -> str:
    if not probe.processing_time:
        return "event time"
    return "processing time" if wait else "processing time without waiting"


def _described(probe: DataFrame, added: Sequence[StructField], key: Sequence[str], buckets: int, kind: str) -> str:
    sides = (probe.schema.simpleString(), StructType(list(added)).simpleString())
    return f"on {', '.join(key)} by {kind} in {buckets} buckets, probe {sides[0]}, build {sides[1]}"


def _need_one_kind_of_time(probe: SourceTime, build: SourceTime) -> None:
    if build.becomes_clock and not (probe.becomes_clock or probe.processing_time):
        raise UsageError(
            f"{CALLER}: build ({build.source}) has whenCaughtUp clock, and probe ({probe.source}) has not: "
            "from then on versions would begin when they are read, later than they did, and probe rows by event time "
            "would be joined with the previous ones. Give both sources the option, or leave it out of build's"
        )
    if probe.processing_time == build.processing_time:
        return
    kinds = {False: "event time", True: "processing time (watermarkStrategy none)"}
    raise UsageError(
        f"{CALLER}: probe ({probe.source}) is on {kinds[probe.processing_time]} and build ({build.source}) on "
        f"{kinds[build.processing_time]}; both must be on the same. {_on_clock(probe, build)}. A stream of another "
        "source is on processing time by follow_clock"
    )


def _on_clock(probe: SourceTime, build: SourceTime) -> str:
    return f"To join on processing time, give probe {probe.words.clock}, and build {build.words.clock}"


def _need_waiting_or_none(
    probe: DataFrame, probe_source: SourceTime, build: Sequence[SourceTime], *, buffer: bool, wait: bool
) -> None:
    """Refuse, on processing time, sides with which rows would wait although they shall not, or would not wait.

    Each source of a union as build side counts: the first one alone does not show when the others have been read.
    """
    sources = dict.fromkeys(build)
    if not wait:
        for source in sources:
            _need_no_wait(probe_source, source, buffer=buffer)
        return
    _need_lowest_watermark(probe)
    _need_declared_clock(probe_source, *sources)
    for source in sources:
        _need_snapshot(source)
        if not buffer:
            _need_one_group(probe_source, source)


def _need_order(build: SourceTime, columns: BuildColumns) -> None:
    """Refuse rows of a key without an order: tasks read the ranges of a batch side by side."""
    if not columns.sequence:
        raise UsageError(
            f"{CALLER}: wait=False, and no column orders the rows of a key in build ({build.source}): of two that one "
            "batch reads, in several tasks, the older one might count as the latest. Name the column, which the "
            'result does not have: sequence="offset" of a topic. If no batch has two rows of a key, give sequence=()'
        )


def _need_no_wait(probe: SourceTime, build: SourceTime, *, buffer: bool) -> None:
    """Refuse ``wait=False`` where rows would wait all the same."""
    if not probe.processing_time:
        raise UsageError(
            f"{CALLER}: wait=False, and both sides are on event time, where a probe row waits for the watermark: only "
            f"then is the version of its time known. Leave wait=False out. {_on_clock(probe, build)}"
        )
    if buffer:
        raise UsageError(
            f"{CALLER}: wait=False and buffer=True. With buffer=True probe rows wait in state for the build side's "
            "snapshot, with wait=False they do not wait; leave one of them out"
        )
    if probe.group is not None and probe.group == build.group and build.holds_group:
        raise UsageError(
            f"{CALLER}: wait=False, and probe ({probe.source}) would wait in its source: it is in the alignment group "
            f"{build.group!r}, which build ({build.source}) holds until {_first_of(build)}. {_without_first(build)}, "
            "or leave wait=False out"
        )


def _first_of(build: SourceTime) -> str:
    return "its topic has been read to its end" if build.reads_to_end_first else "its snapshot is complete"


def _without_first(build: SourceTime) -> str:
    if build.reads_to_end_first:
        return "Leave whenCaughtUp out of build's options"
    return f'Give build .option("alignmentHold", "{GroupHold.NOTHING.value}")'


_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def _need_lowest_watermark(probe: DataFrame) -> None:
    """Refuse Spark's policy that takes the highest watermark: the probe's would end the waiting for the build side."""
    policy = probe.sparkSession.conf.get(_POLICY, "min") or "min"
    if policy.lower() != "min":
        raise UsageError(
            f"{CALLER}: {_POLICY} is {policy}, and probe rows that wait for the build side's snapshot would be joined "
            f'as soon as the probe side has a watermark. Use spark.conf.set("{_POLICY}", "min")'
        )


def _need_declared_clock(*sources: SourceTime) -> None:
    """Refuse, on processing time, sources that do not declare to send a watermark of the clock (FLIP-326)."""
    # With follow_clock the watermark is that of Spark's batches, and is there although no source announces it.
    undeclared = [
        source.source for source in sources if not source.announces_processing_time and not source.batch_clock
    ]
    if undeclared:
        raise UsageError(
            f"{CALLER}: on processing time rows wait for a watermark that marks the clock's time, and "
            f"{' and '.join(undeclared)} does not declare to send one: its connector leaves its watermark "
            "characteristic undefined. Join by event time, or use a connector that declares any_watermark, or do not "
            "wait: wait=False"
        )


def _need_snapshot(build: SourceTime) -> None:
    """Refuse, on processing time, a build side whose watermark does not show when its initial rows have been read."""
    if build.begins_with_snapshot:
        return
    raise UsageError(
        f"{CALLER}: on processing time a probe row waits until the build side's snapshot is complete, or its topic "
        f"has been read to its end, and build ({build.source}) begins with neither: its watermark is the clock from "
        "its first batch on, and probe rows would be joined before its rows were read, whatever the values of buffer "
        f"and alignmentHold. Give build {build.words.reads_first}. Or join each row with what has been read up to its "
        "batch: wait=False"
    )


def _sequence_of_changes(
    build: DataFrame, changes: Sequence[SourceTime], sequence: str | Sequence[str] | None
) -> Sequence[str] | str | None:
    """Return the columns that order the rows of a key in a topic: two of one batch may have one time."""
    topics = [source for source in changes if source.reads_to_end_first]
    if not topics or as_list(sequence or (), "sequence"):
        return sequence
    if offset := present(build, TOPIC_SEQUENCE):
        # A union of topics and tables has the columns of both.
        return (*offset, *(present(build, *SEQUENCE) if len(topics) < len(changes) else ()))
    raise UsageError(
        f"{CALLER}: build ({topics[0].source}) is a topic, and no column orders the rows of a key: of two in one batch "
        f"the older one might count. Keep the topic's column {TOPIC_SEQUENCE!r} in build: the result does not have it. "
        "Under another name, give it as sequence"
    )


def _need_known_changes(source: SourceTime, columns: BuildColumns, kinds: KindsOfChange, *, is_ordered: bool) -> None:
    """Refuse changes of keys that have lost what states their kind, or their order."""
    if source.reads_to_end_first and columns.change_type is None and kinds.deletes:
        raise UsageError(
            f"{CALLER}: build ({source.source}) is a topic, and no column states which of its rows delete their key. "
            "For tombstones, add to its selection \"IF(value IS NULL, 'delete', 'upsert') AS _change_type\"; if no "
            "row deletes, give deletes=()"
        )
    kind, order = source.change_columns[:1], source.change_columns[1:]
    missing = [] if columns.change_type is not None or not (kinds.deletes or kinds.ignored) else [*kind]
    # Found in other letters, too, where Spark ignores case.
    found = {name.lower() for name in columns.sequence}
    missing += [] if is_ordered else [name for name in order if name not in found]
    if missing:
        raise UsageError(
            f"{CALLER}: the rows of build ({source.source}) are changes of a table, and its columns are without "
            f"{' and '.join(missing)}: deleted rows, or values older than an update, could count as the latest. "
            "Have the source deliver what is missing, and select it too; the result does not have it. Under another "
            "name, give it as change_type or sequence. Of a table whose rows are never updated nor deleted, "
            "deletes=(), ignored=() need no kind of change"
        )


def _need_booleans(**given: object) -> None:
    """Refuse ``wait="false"``, which Python treats as true."""
    if wrong := [name for name, value in given.items() if not isinstance(value, bool)]:
        raise UsageError(f"{CALLER}: {wrong[0]} = {given[wrong[0]]!r}; it must be True or False")


def _need_one_group(probe: SourceTime, build: SourceTime) -> None:
    """Refuse a probe side that its source would read before the build side's snapshot is complete."""
    if probe.group is not None and probe.group == build.group and build.holds_group:
        return
    if probe.batch_clock:
        raise UsageError(
            f"{CALLER}: on processing time the probe waits in its source until build has been read "
            f"({_first_of(build)}), and probe has its time from follow_clock: its source is in no alignment group, "
            "and no watermark of it announces the clock (its watermark characteristic is undefined). Let probe "
            "rows wait in state: buffer=True; or join each with what has been read up to its batch: wait=False"
        )
    groups = [
        f"{side} ({source.source}) {'has none' if source.group is None else f'is in {source.group!r}'}"
        for side, source in (("probe", probe), ("build", build))
    ]
    both = 'Give both sources .option("alignmentGroup", "enrichment")'
    held = "" if build.holds_group or build.group is None else ", and build has alignmentHold nothing"
    if held and probe.group == build.group:
        both = "Leave alignmentHold out of the options of build"
    raise UsageError(
        f"{CALLER}: on processing time the probe waits in its source until build has been read ({_first_of(build)}), "
        f"and for that both must be in one alignment group: {' and '.join(groups)}{held}. {both}, "
        "or let probe rows wait in state: buffer=True"
    )


# Columns: which ones the join compares and adds, and which ones it refuses.


@dataclass(frozen=True, slots=True)
class BuildColumns:
    """The build side's columns by purpose, spelled as in its schema."""

    change_type: str | None
    sequence: tuple[str, ...]
    added: tuple[str, ...]
    """The columns that the join adds to the probe's."""


def columns_of_build(
    df: DataFrame, on: Sequence[str], time: str, kind: str | None, sequence: str | Sequence[str] | None
) -> BuildColumns:
    """Return the purposes of the build side's columns.

    Raises:
        UsageError: a column does not exist, or a column of ``sequence`` has no order.
    """
    ordered = present(df, *SEQUENCE) if sequence is None else as_list(sequence, "sequence")
    ordered = [spelling(df, name, CALLER) for name in ordered]
    for name in ordered:
        if not _is_compared(df.schema[name].dataType, *_ORDERED):
            raise UsageError(
                f"{CALLER}: column {name!r} is {df.schema[name].dataType.simpleString()}, which has no order for "
                "changes; name columns of numbers, texts of UTF8_BINARY or times in sequence"
            )
    used = {*on, time, kind, *ordered}
    return BuildColumns(kind, tuple(ordered), tuple(name for name in df.columns if name not in used))


def refuse_equal_names(probe: DataFrame, added: Sequence[str]) -> None:
    """Raise ``UsageError`` if two columns of the result would have the same name."""
    fold = name_fold(probe)
    names = [fold(name) for name in (*probe.columns, *added)]
    twice = sorted({name for name in (*probe.columns, *added) if names.count(fold(name)) > 1})
    if twice:
        raise UsageError(
            f"{CALLER}: the result would have two columns of these names: {', '.join(twice)}. Rename or drop one of "
            f'each first, as in users.withColumnRenamed("{twice[0]}", "user_{twice[0].lstrip("_")}")'
        )


def names_of_key(probe: DataFrame, build: DataFrame, on: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the compared columns, spelled as in the schema of each side.

    Raises:
        UsageError: a column does not exist on both sides, its types differ or have no exact equality, or ``on`` is a
            mapping of names.
    """
    if isinstance(on, Mapping):
        raise UsageError(
            f"{CALLER}: on={on} pairs names, and a column has one name on both sides. Rename it on one of them first, "
            'as in build.withColumnRenamed("id", "user_id"), and give on="user_id"'
        )
    wanted = as_list(on, "on")
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
        if not _is_compared(kind, *_COMPARED):
            raise UsageError(
                f"{CALLER}: column {one!r} is {kind.simpleString()}, and the join compares whole numbers, decimals, "
                "strings of UTF8_BINARY, booleans, dates, times, timestamps, intervals of days and binary only; cast "
                "it on both sides first"
            )
    return ours, theirs


def _is_compared(kind: DataType, *kinds: type[DataType]) -> bool:
    return isinstance(kind, kinds) and not (isinstance(kind, StringType) and kind.collation != "UTF8_BINARY")


def key_bytes(df: DataFrame, names: Sequence[str]) -> Column:
    """Return the compared columns as bytes, which are equal if all columns are; null if a column is null.

    Binary, not a string: a string that was cast from binary need not be UTF-8.
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
    # A timestamp cast to a string would depend on the session's time zone.
    return (F.unix_micros(column) if isinstance(kind, TimestampType) else column).cast("string")


def arrow_columns(fields: list[StructField]) -> pa.Schema:
    """Return the columns' Arrow schema, nullable; raises ``UsageError`` for types that Spark cannot pass to Python."""
    return pa.schema([arrow_field(field, CALLER) for field in StructType(fields).toNullable()])
