"""The table of options of ``aligned-kafka``: Spark's names and defaults for what its own source has, and ours."""

from __future__ import annotations

from pyspark_aligned_kafka.client import settings
from pyspark_aligned_kafka.client.setting_table import SETTINGS, int32, may_be_secret, protocol_name
from pyspark_aligned_kafka.options import positions
from pyspark_aligned_kafka.options.event_time_options import EVENT_TIME_OPTIONS, WATERMARK_COLUMN
from pyspark_aligned_kafka.options.payload_options import PAYLOAD_OPTIONS
from pyspark_aligned_kafka.options.positions import NoMatch
from pyspark_aligned_kafka.options.subscription import parse_assign, parse_subscribe, parse_subscribe_pattern
from watermark_source.option_table import (
    Option,
    OptionTable,
    Renamed,
    a_duration,
    at_least_one,
    one_of,
    point_in_time,
    positive_integer,
    true_or_false,
)
from watermark_source.spark.column_names import EVENT_TIME
from watermark_source.spark.option_rows import ENGINE_OPTIONS, NOT_NEEDED, ONLY_IN_STREAMS, RENAMED
from watermark_source.spark.strategy_rows import without_look_ups

FORMAT = "aligned-kafka"
HEADERS = "headers"
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", HEADERS)

_DECOMPRESSED_MAX_BYTES = 128 << 20


def _columns(text: str) -> tuple[str, ...]:
    """Return the names in the table's spelling; one that is not of Kafka's may be that of the decoded values."""
    spelling = {name.lower(): name for name in (*KAFKA_COLUMNS, EVENT_TIME)}
    names = [part.strip() for part in text.split(",")]
    chosen = [spelling.get(name.lower(), name) for name in names]
    if len({name.lower() for name in chosen}) != len(chosen):
        raise ValueError("one is there twice")
    if "" in chosen:
        raise ValueError('"" is none of them')
    return tuple(chosen)


_OFFSETS = (
    "must be earliest, latest, or a JSON object of offsets by partition (-2 earliest, -1 latest) "
    "or of earliest and latest by topic"
)
COLUMNS_ACCEPTED = f"must be a comma list of {', '.join(KAFKA_COLUMNS)} and {EVENT_TIME}"
KAFKA_OPTIONS: tuple[Option, ...] = (
    Option(
        name="subscribe",
        parse=parse_subscribe,
        accepted="must be a comma list of topics",
        example="orders,payments",
        doc="Topics to read. Exactly one of `subscribe`, `subscribePattern` and `assign` is needed.",
    ),
    Option(
        name="subscribePattern",
        parse=parse_subscribe_pattern,
        accepted="must be a regular expression in Python's syntax",
        example="orders-.*",
        doc="Topics to read: every topic with a match of this regular expression anywhere in its name, new topics "
        "included. Internal topics are left out.",
    ),
    Option(
        name="assign",
        parse=parse_assign,
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
        "checkpoint resumes from it, and partitions found later begin at earliest. A batch cannot begin at latest.",
    ),
    point_in_time(
        name="startingTimestamp",
        kind=positions.from_time,
        doc="Begin each partition at its first record with this timestamp or a later one: milliseconds since the "
        "epoch, ISO 8601 (UTC without a zone), or how long before the start of the query by the driver's clock: "
        "`10 minutes ago`, for which a silent partition needs `startingOffsetsByTimestampStrategy` `latest`. Takes "
        "precedence over `startingOffsetsByTimestamp` and `startingOffsets`.",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        parse=positions.parse_timestamps,
        accepted="must be a JSON object of milliseconds since the epoch by partition",
        example='{"orders":{"0":1735689600000,"1":1735689600000}}',
        doc="`startingTimestamp` with a timestamp for each partition; lists exactly the partitions that are read. "
        "Takes precedence over `startingOffsets`.",
    ),
    one_of(
        name="startingOffsetsByTimestampStrategy",
        choices=(each.value for each in NoMatch),
        kind=NoMatch,
        default=NoMatch.ERROR.value,
        example="latest",
        doc="When a partition has no record at or after the timestamp of `startingTimestamp` or "
        "`startingOffsetsByTimestamp`: fail, or begin at its end.",
    ),
    Option(
        name="endingOffsets",
        parse=positions.parse_offsets,
        default_text="latest",
        accepted=_OFFSETS,
        example='{"orders":{"0":50,"1":-1},"payments":"latest"}',
        doc="Batch only. Where to end: the first offset *not* read. Earliest is refused.",
    ),
    point_in_time(
        name="endingTimestamp",
        kind=positions.from_time,
        doc="Batch only. End each partition before its first record with this timestamp or a later one, or where it "
        "ends when the batch is planned; in the forms of `startingTimestamp`. Takes precedence over "
        "`endingOffsetsByTimestamp` and `endingOffsets`.",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        parse=positions.parse_timestamps,
        accepted="must be a JSON object of milliseconds since the epoch by partition",
        example='{"orders":{"0":1735776000000,"1":1735776000000}}',
        doc="Batch only. `endingTimestamp` with a timestamp for each partition; lists exactly the partitions that are "
        "read. Takes precedence over `endingOffsets`.",
    ),
    at_least_one(
        name="maxOffsetsPerTrigger",
        default_text="no limit",
        example="1000000",
        doc="Maximum number of offsets of all partitions together in one batch. The oldest event times are read "
        f"first; with event time in the payload, or `watermarkStrategy` {without_look_ups()}, partitions share it in "
        "proportion to backlog. The trigger Once ignores it and reads everything in one batch.",
    ),
    at_least_one(
        name="minOffsetsPerTrigger",
        example="100000",
        doc="Rows wait until this number of offsets of all partitions together can be read, or until "
        "`maxTriggerDelay` has passed since rows were last read. The first rows after a query's start never wait, nor "
        "do those of the triggers AvailableNow and Once. Watermarks and status are sent meanwhile.",
    ),
    a_duration(
        name="maxTriggerDelay",
        minimum="1 ms",
        default="15m",
        example="5 minutes",
        doc="Longest time for which rows wait because of `minOffsetsPerTrigger`.",
    ),
    true_or_false(
        name="failOnDataLoss",
        default=True,
        example="false",
        doc="Whether the query fails when records that it should read have been deleted. With `false` it logs which "
        "records it skips and continues.",
    ),
    true_or_false(
        name="pushDownPredicate",
        default=False,
        example="true",
        doc="Whether a batch reads only what its filters on topic, partition, offset and timestamp select, with "
        "`spark.sql.python.filterPushdown.enabled`. Use it only where no other query uses the same `load()`: see "
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
        accepted=COLUMNS_ACCEPTED,
        example="value,event_time",
        doc="Columns to deliver; fewer are faster, because Spark does not push the columns that a query uses down to "
        "a Python source. They keep Spark's order. `event_time`, `marker` and `valueColumn` are always "
        "delivered.",
    ),
    *PAYLOAD_OPTIONS,
    *EVENT_TIME_OPTIONS,
    WATERMARK_COLUMN,
    Option(
        name="kafkaConsumer.pollTimeoutMs",
        parse=positive_integer,
        default=120_000,
        accepted="must be a whole number of milliseconds, at least 1",
        example="120000",
        doc="A task whose position does not advance for this long fails. Time in which a broker's quota throttles it "
        "does not count.",
    ),
    Option(
        name="maxDecompressedBatchBytes",
        parse=int32(1),
        default=_DECOMPRESSED_MAX_BYTES,
        accepted="must be a whole number of bytes, at least 1 and less than 2 GiB",
        example="536870912",
        doc="Maximum size of a decompressed record batch in bytes. A larger one ends the query before memory is "
        "allocated for it; a producer with a large `batch.size` and values that compress well may write such batches.",
    ),
    Option(
        name="fetchOffset.numRetries",
        parse=int32(0),
        default=3,
        accepted="must be a whole number of at least 0",
        example="3",
        doc="Retries for the end offset of a partition when it is before an end offset seen earlier: a broker that "
        "has just become leader may be behind for a moment. Requests that fail are retried until "
        "`kafka.default.api.timeout.ms`.",
    ),
    Option(
        name="fetchOffset.retryIntervalMs",
        parse=int32(0),
        default=1_000,
        accepted="must be a whole number of milliseconds, at least 0",
        example="1000",
        doc="Pause before each retry of `fetchOffset.numRetries`.",
    ),
    Option(
        name="commitGroupId",
        parse=protocol_name,
        accepted="must be the name of a consumer group",
        example="checkout-query",
        doc="Consumer group to which the offsets of finished batches are committed, so that Kafka's own tools show the "
        "query and its lag: see [monitoring](monitoring.md). They are never read back: a query resumes from its "
        "checkpoint alone. The group must belong to this source only and have no members. `groupIdPrefix`, of Spark's "
        "own source, has no effect.",
    ),
)


OPTION_TABLE = OptionTable(
    (*KAFKA_OPTIONS, *ENGINE_OPTIONS),
    prefixes=(settings.PREFIX,),
    family_names=settings.setting_names(),
    not_needed={
        **NOT_NEEDED,
        "announcedIn": "announcements are in the topic's name and .watermarks, where all that announces writes",
    },
    without_effect={
        "groupIdPrefix": "the source joins no consumer group; one that shows the query's lag is named in commitGroupId",
    },
    only_in_streams=(
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "commitGroupId",
        "watermarkColumn",
        *ONLY_IN_STREAMS,
    ),
    is_secret_in_family=lambda name: may_be_secret(name.removeprefix(settings.PREFIX)),
    renamed=(
        *RENAMED,
        Renamed("watermarkFormat", "eventTimeFormat"),
        Renamed("keyMode", "valueMode"),
        Renamed("valueTimeZone", "timeZone"),
        Renamed("keyTimeZone", "timeZone"),
        Renamed("schemaRegistryToken", "schemaRegistryUserInfo", prefix="Bearer "),
        Renamed("readToEndFirst", "whenCaughtUp", {"true": "watermark", "false": None}),
        Renamed("useProcessingTimeWhenCaughtUp", "whenCaughtUp", {"true": "clock", "false": None}),
    ),
)
COMMAND_OPTIONS = OptionTable((*OPTION_TABLE.options, *(row for row in SETTINGS.values() if row.secret)))
"""The options of commands: the source's, and the secret settings, which come from the environment."""
