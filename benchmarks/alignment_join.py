"""A join of two topics with a backlog, of which one is read slowly: speed, drift and state beside the same without.

The sources of one query plan as one: the drift does not set how many batches the backlog takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import OURS, Run, run_to_end
from benchmarks.topics import BATCH_RECORDS, START
from services.kafka_bulk import bulk_produce
from services.kafka_topics import create_topic
from watermark_source import follow_watermark

DRIFT = 30_000
STEPS: Mapping[str, int] = {"sparse": 1_000, "dense": 100}
"""Milliseconds between the records of each topic."""
DAY_TOPICS = {name: f"join-{name}" for name in STEPS}


@dataclass(frozen=True, slots=True)
class Backlog:
    """Two topics that span the same time."""

    hours: float = 24
    batches: int = 100
    """The sparse topic is read in so many, the dense one without a limit."""

    def records(self, name: str) -> int:
        """Return how many records a topic has."""
        return int(self.hours * 3_600_000) // STEPS[name]

    def fill(self, bootstrap: str, topics: Mapping[str, str]) -> None:
        """Fill topics of one partition; ``topics``: their names, by ``STEPS``."""
        for name, topic in topics.items():
            times = START + np.arange(self.records(name), dtype=np.int64) * STEPS[name]
            bulk_produce(bootstrap, topic, 0, times, value_size=100, batch_records=BATCH_RECORDS)


DAY = Backlog()


def join_backlog(bootstrap: str) -> None:
    """Produce a day of both topics."""
    for topic in DAY_TOPICS.values():
        create_topic(bootstrap, topic, partitions=1)
    DAY.fill(bootstrap, DAY_TOPICS)


def alignment_join(
    spark: SparkSession, bootstrap: str, topics: Mapping[str, str], pairs: int, backlog: Backlog = DAY
) -> Iterator[Figure]:
    """Join the topics with and without a group."""
    group = {"alignmentGroup": "join", "alignmentMaxDrift": f"{DRIFT} ms"}
    plain: list[Run] = []
    aligned: list[Run] = []
    for turn in range(pairs + 1):
        pair = [run_to_end(_joined(spark, bootstrap, topics, backlog, more)) for more in ({}, group)]
        if turn or not pairs:
            plain.append(pair[0])
            aligned.append(pair[1])
    label = f"join of two topics, {backlog.hours:g} hours, drift 30 s"
    yield Figure(
        f"{label}: speed with / without a group", ratio([r.wall for r in plain], [r.wall for r in aligned]), "x",
        at_least=0.9,
        detail=f"{len(aligned[-1].progress)} and {len(plain[-1].progress)} batches; wall s aligned "
        f"{spread([r.wall for r in aligned])}, free {spread([r.wall for r in plain])}",
    )  # fmt: skip
    yield Figure(
        f"{label}: most that one topic was ahead after a batch", max(map(highest_drift, aligned)) / 1_000, "s",
        at_most=(DRIFT + max(STEPS.values())) / 1_000,
        detail=f"without a group {max(map(highest_drift, plain)) / 1_000:,.0f} s",
    )  # fmt: skip
    most = [max(rows_in_state(run.progress) for run in runs) for runs in (aligned, plain)]
    yield Figure(
        f"{label}: most rows in state with / without a group", most[0] / most[1], "x", at_most=0.05,
        detail=f"{most[0]:,} and {most[1]:,} rows",
    )  # fmt: skip


def highest_drift(run: Run) -> int:
    """Return by how many milliseconds one topic was read further than the other after any batch, of those unread."""
    highest = 0
    for batch in run.progress:
        read = [position_of(source["endOffset"]) for source in batch["sources"]]
        at = [(position - 1) * step for position, step in zip(read, STEPS.values(), strict=True) if position]
        if len(at) == len(STEPS):
            highest = max(highest, max(at) - min(at))
    return highest


def position_of(offset: Any) -> int:
    """Return how far the only partition of a topic is read."""
    ((_, numbers),) = (json.loads(offset) if isinstance(offset, str) else offset)["splits"].items()
    return int(numbers["0"][0])


def rows_in_state(progress: Sequence[Mapping[str, Any]]) -> int:
    """Return the most rows that the join held after a batch."""
    return max(sum(int(o["numRowsTotal"]) for o in batch["stateOperators"]) for batch in progress)


def _joined(
    spark: SparkSession, bootstrap: str, topics: Mapping[str, str], backlog: Backlog, more: Mapping[str, str]
) -> DataFrame:
    limits = {"sparse": {"maxOffsetsPerTrigger": str(-(-backlog.records("sparse") // backlog.batches))}, "dense": {}}
    frames = {}
    for name in STEPS:
        frame = (
            spark.readStream.format(OURS)
            .option("kafka.bootstrap.servers", bootstrap)
            .options(subscribe=topics[name], startingOffsets="earliest", sourceName=name, **limits[name], **more)
            .load()
        )
        times = follow_watermark(frame).select(F.col("event_time").alias(name))
        frames[name] = times.withColumn(f"{name}_second", F.date_trunc("second", name))
    sparse, dense = frames["sparse"], frames["dense"]
    return sparse.join(
        dense,
        (F.col("sparse_second") == F.col("dense_second"))
        & F.col("dense").between(F.col("sparse"), F.col("sparse") + F.expr("INTERVAL 1 SECOND")),
    )
