"""The table of options of ``aligned-kafka``: Spark's names and defaults for what its own source has, and ours."""

from __future__ import annotations

from pyspark_aligned_kafka.client import settings
from pyspark_aligned_kafka.client.setting_table import may_be_secret, protocol_name
from pyspark_aligned_kafka.options import positions
from pyspark_aligned_kafka.options.event_time_options import (
    EVENT_TIME_OPTIONS,
    MARK_OPTIONS,
)
from pyspark_aligned_kafka.options.positions import NoMatch
from pyspark_aligned_kafka.options.subscription import (
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)
from watermark_source import durations
from watermark_source.option_table import (
    Option,
    OptionTable,
    at_least_one,
    duration,
    integer,
    non_empty,
    one_of,
    positive_integer,
    true_or_false,
)
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.option_rows import ENGINE_OPTIONS, NOT_NEEDED, ONLY_IN_STREAMS

FORMAT = "aligned-kafka"
HEADERS = "headers"
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", HEADERS)

_DECOMPRESSED_MAX_BYTES = 128 << 20


def _batch_bytes(text: str) -> int:
    return integer(text, minimum=1, maximum=2**31 - 1)


def _count(text: str) -> int:
    return integer(text, minimum=0, maximum=2**31 - 1)


def _columns(text: str) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in (*KAFKA_COLUMNS, EVENT_TIME)}
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name.lower() not in spelling:
            raise ValueError(f'"{name}" is none of them')
    chosen = [spelling[name.lower()] for name in names]
    if len(set(chosen)) != len(chosen):
        raise ValueError("one is there twice")
    return tuple(name for name in KAFKA_COLUMNS if name in chosen)


_OFFSETS = (
    "must be earliest, latest, or a JSON object of offsets by partition (-2 earliest, -1 latest) "
    "or of earliest and latest by topic"
)
KAFKA_OPTIONS: tuple[Option, ...] = (
    Option(
        name="subscribe",
        parse=parse_subscribe,
        default_text="none",
        accepted="must be a comma list of topics",
        example="orders,payments",
        doc="Topics to read. Exactly one of `subscribe`, `subscribePattern` and `assign` is needed.",
    ),
    Option(
        name="subscribePattern",
        parse=parse_subscribe_pattern,
        default_text="none",
        accepted="must be a regular expression in Python's syntax",
        example="orders-.*",
        doc="Read every topic in whose name this regular expression is found anywhere, new topics included; internal "
        "topics are left out.",
    ),
    Option(
        name="assign",
        parse=parse_assign,
        default_text="none",
        accepted="must be a JSON object of lists of partitions",
        example='{"orders":[0,1]}',
        doc="Partitions to read. Those that do not exist are skipped with a warning.",
    ),
    Option(
        name="startingOffsets",
        parse=positions.parse_offsets,
        default_text="latest; in a batch earliest",
        accepted=_OFFSETS,
        example='{"orders":{"0":23,"1":-2},"payments":"earliest"}',
        doc="Where a new query begins; the JSON form lists exactly the partitions that are read. A query with a "
        "checkpoint goes on from there, and partitions found later begin at earliest. A batch cannot begin at latest.",
    ),
    Option(
        name="startingTimestamp",
        parse=positions.parse_timestamp,
        default_text="none",
        accepted="must be milliseconds since the epoch",
        example="1735689600000",
        doc="Begin each partition at its first record with this timestamp or a later one. Wins over "
        "`startingOffsetsByTimestamp` and `startingOffsets`.",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        parse=positions.parse_timestamps,
        default_text="none",
        accepted="must be a JSON object of milliseconds since the epoch by partition",
        example='{"orders":{"0":1735689600000,"1":1735689600000}}',
        doc="`startingTimestamp` with a timestamp for each partition; lists exactly the partitions that are read. Wins "
        "over `startingOffsets`.",
    ),
    one_of(
        name="startingOffsetsByTimestampStrategy",
        choices=(each.value for each in NoMatch),
        kind=NoMatch,
        default=NoMatch.ERROR.value,
        example="latest",
        doc="What to do when a partition has no record as new as `startingTimestamp` or "
        "`startingOffsetsByTimestamp` says: fail, or begin at its end.",
    ),
    Option(
        name="endingOffsets",
        parse=positions.parse_offsets,
        default_text="latest",
        accepted=_OFFSETS,
        example='{"orders":{"0":50,"1":-1},"payments":"latest"}',
        doc="Batch only. Where to end: the first offset *not* read. Earliest is refused.",
    ),
    Option(
        name="endingTimestamp",
        parse=positions.parse_timestamp,
        default_text="none",
        accepted="must be milliseconds since the epoch",
        example="1735776000000",
        doc="Batch only. End each partition before its first record with this timestamp or a later one, or at latest "
        "if there is none. Wins over `endingOffsetsByTimestamp` and `endingOffsets`.",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        parse=positions.parse_timestamps,
        default_text="none",
        accepted="must be a JSON object of milliseconds since the epoch by partition",
        example='{"orders":{"0":1735776000000,"1":1735776000000}}',
        doc="Batch only. `endingTimestamp` with a timestamp for each partition; lists exactly the partitions that are "
        "read. Wins over `endingOffsets`.",
    ),
    at_least_one(
        name="maxOffsetsPerTrigger",
        default_text="no limit",
        example="1000000",
        doc="Most offsets of all partitions together in one batch; the oldest event time is read first; with "
        "event time in the payload, or `watermarkStrategy` `punctuated`, in proportion to backlog. The trigger Once "
        "reads everything in one batch all the same.",
    ),
    at_least_one(
        name="minOffsetsPerTrigger",
        default_text="none",
        example="100000",
        doc="Rows wait until so many offsets of all partitions together can be read, or `maxTriggerDelay` has passed "
        "since rows were last read. The first rows a query reads after its start never wait, nor do those of the "
        "triggers AvailableNow and Once. Watermarks and status go out meanwhile.",
    ),
    Option(
        name="maxTriggerDelay",
        parse=duration(minimum=1),
        default=900_000,
        default_text="15m",
        accepted=f"must be {durations.ACCEPTED}, greater than zero",
        example="5 minutes",
        doc="How long rows wait at most because of `minOffsetsPerTrigger`.",
    ),
    true_or_false(
        name="failOnDataLoss",
        default=True,
        example="false",
        doc="Whether the query fails when records it should read are gone. With `false` it logs what is "
        "skipped and goes on.",
    ),
    true_or_false(
        name="pushDownPredicate",
        default=False,
        example="true",
        doc="Whether a batch reads only what its filters on topic, partition, offset and timestamp leave, with "
        "`spark.sql.python.filterPushdown.enabled`. Only where no other query uses the same `load()`: see "
        "[filters](batch.md#filters).",
    ),
    true_or_false(
        name="includeHeaders",
        default=False,
        example="true",
        doc="Whether the records' headers are delivered in the column `headers`.",
    ),
    Option(
        name="columns",
        parse=_columns,
        default_text="all",
        accepted=f"must be a comma list of {', '.join(KAFKA_COLUMNS)} and {EVENT_TIME}",
        example="value,event_time",
        doc="Columns to deliver; fewer are faster, since Spark does not tell a Python source which ones a query uses. "
        "They keep Spark's order. `event_time` and `marker` are always there.",
    ),
    *EVENT_TIME_OPTIONS,
    *MARK_OPTIONS,
    Option(
        name="kafkaConsumer.pollTimeoutMs",
        parse=positive_integer,
        default=120_000,
        accepted="must be a whole number of milliseconds, at least 1",
        example="120000",
        doc="A task whose position does not move for so long fails. Time for which a quota of the broker lets it "
        "wait does not count.",
    ),
    Option(
        name="maxDecompressedBatchBytes",
        parse=_batch_bytes,
        default=_DECOMPRESSED_MAX_BYTES,
        accepted="must be a whole number of bytes, at least 1 and less than 2 GiB",
        example="536870912",
        doc="Most bytes that a compressed record batch may become. A larger one ends the query before it takes the "
        "memory; a producer with a large `batch.size` and values that compress well may write such batches.",
    ),
    Option(
        name="fetchOffset.numRetries",
        parse=_count,
        default=3,
        accepted="must be a whole number of at least 0",
        example="3",
        doc="How often the end of a partition is asked for again when it seems to lie before an end seen earlier: a "
        "broker that has just become leader may be behind for a moment. Look-ups that fail are tried again until "
        "`kafka.default.api.timeout.ms`.",
    ),
    Option(
        name="fetchOffset.retryIntervalMs",
        parse=_count,
        default=1_000,
        accepted="must be a whole number of milliseconds, at least 0",
        example="1000",
        doc="The pause before each retry of `fetchOffset.numRetries`.",
    ),
    Option(
        name="groupIdPrefix",
        parse=non_empty,
        default_text="none",
        accepted="must be a name that is not empty",
        example="checkout",
        doc="No effect: the source joins no consumer group. To show a query in Kafka's tools use `commitGroupId`.",
    ),
    Option(
        name="commitGroupId",
        parse=protocol_name,
        default_text="none",
        accepted="must be the name of a consumer group",
        example="checkout-query",
        doc="A consumer group that takes the offsets of finished batches, so that Kafka's usual tools show the query "
        "and its lag: see [monitoring](monitoring.md). They are never read back: the checkpoint alone says where the "
        "query goes on. The group must be this source's own and have no members.",
    ),
)


def _is_secret_setting(name: str) -> bool:
    return may_be_secret(name.removeprefix(settings.PREFIX))


OPTION_TABLE = OptionTable(
    (*KAFKA_OPTIONS, *ENGINE_OPTIONS),
    prefixes=(settings.PREFIX,),
    family_names=settings.setting_names(),
    not_needed=NOT_NEEDED,
    only_in_streams=(
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "commitGroupId",
        "watermarkColumn",
        "watermarkFormat",
        *ONLY_IN_STREAMS,
    ),
    is_secret_in_family=_is_secret_setting,
)
