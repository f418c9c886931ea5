"""``temporal_join`` against a join that is written by hand and waits for nothing: rows of the probe side a second."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.figures import Figure, ratio, spread
from benchmarks.handwritten_join import by_row
from benchmarks.queries import run_to_end
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topic
from watermark_source import data_rows, follow_watermark, temporal_join
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE
from watermark_source.spark.source_time import SourceTime

CLICKS, USERS = "join-clicks", "join-users"
PROBE_ROWS, KEYS = 1_000_000, 50_000
BATCH_ROWS = 250_000
BY_HAND = "by hand"
_DIGITS = 8
_PARTITIONS = 2
_START = 1_700_000_000_000


def join_topics(bootstrap: str) -> None:
    """Fill a topic of clicks, and one that tells each user twice; ids have eight digits."""
    chance = np.random.default_rng(1)
    _fill(bootstrap, CLICKS, chance.integers(0, KEYS, PROBE_ROWS))
    _fill(bootstrap, USERS, np.concatenate([chance.permutation(KEYS), chance.permutation(KEYS)]))


def _fill(bootstrap: str, topic: str, ids: np.ndarray) -> None:
    create_topic(bootstrap, topic, _PARTITIONS)
    pairs = np.stack([ids, np.arange(len(ids))], axis=1)
    digits = pairs[:, :, None] // 10 ** np.arange(_DIGITS - 1, -1, -1) % 10
    values = (digits + ord("0")).astype(np.uint8).reshape(len(ids), 2 * _DIGITS)
    # An hour of event time, whatever the number of rows.
    times = _START + np.arange(len(ids)) * 3_600_000 // len(ids)
    parts = {n: PartitionRecords(times[n::_PARTITIONS], values=values[n::_PARTITIONS]) for n in range(_PARTITIONS)}
    bulk_produce_partitions(bootstrap, topic, parts)


def joins(rounds: int, spark: SparkSession, bootstrap: str) -> Iterator[Figure]:
    """Measure all variants in turn."""
    spark.conf.set(STATE_STORE, ROCKSDB)

    def source(topic: str, rows: int, **options: str) -> DataFrame:
        return (
            spark.readStream.format("aligned-kafka")
            .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
            .options(columns="value,offset", maxOffsetsPerTrigger=str(rows), **options)
            .load()
        )

    def sides(prepare: Callable[[DataFrame], DataFrame], **options: str) -> tuple[DataFrame, DataFrame]:
        share = 2 * KEYS * BATCH_ROWS // PROBE_ROWS
        first = F.expr(f"CAST(substr(CAST(value AS STRING), 1, {_DIGITS}) AS INT)").alias("user_id")
        clicks, users = prepare(source(CLICKS, BATCH_ROWS, **options)), prepare(source(USERS, share, **options))
        probe = clicks.select(
            first,
            F.expr(f"CAST(substr(CAST(value AS STRING), {_DIGITS + 1}) AS INT)").alias("item_id"),
            F.col("event_time").alias("at"),
        )
        build = users.select(
            first,
            F.expr("concat('user ', CAST(value AS STRING))").alias("name"),
            F.col("event_time").alias("since"),
            "offset",
        )
        return probe, build

    def ours(**options: str) -> DataFrame:
        probe, build = sides(follow_watermark, **options)
        declared = SourceTime.of_metadata(build.schema["since"].metadata)
        assert declared is not None
        # The topic stands for a table: what is measured is the operator, not what its rows wait for.
        metadata = {**build.schema["since"].metadata, **replace(declared, begins_with_snapshot=True).metadata}
        build = build.withMetadata("since", metadata)
        return temporal_join(
            probe, build, on="user_id", probe_time="at", build_time="since", sequence=["offset"], buffer=True
        )  # fmt: skip

    variants: dict[str, Callable[[], DataFrame]] = {
        "processing time": lambda: ours(watermarkStrategy="none"),
        "event time": lambda: ours(maxOutOfOrderness="5 seconds"),
        BY_HAND: lambda: by_row(*sides(data_rows)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, made in variants.items():
            took = run_to_end(made()).add_batch
            if turn:  # the first of each is warming up
                seconds[name].append(took)
    for name, taken in seconds.items():
        rates = [PROBE_ROWS / each for each in taken]
        yield Figure(f"temporal join, {name}", statistics.median(rates), "rows/s", detail=spread(rates, 0))
    for name in ("processing time", "event time"):
        yield Figure(
            f"temporal join, {name}, against {BY_HAND}", ratio(seconds[BY_HAND], seconds[name]), "x", at_least=0.9,
            detail=f"{PROBE_ROWS:,} probe rows, {KEYS:,} keys told twice, batches of {BATCH_ROWS:,}",
        )  # fmt: skip
