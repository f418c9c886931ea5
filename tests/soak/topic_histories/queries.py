"""The same topics read by Spark's own Kafka source and by this one, and where what they delivered differs."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming import StreamingQuery

from tests.soak.topic_histories.generator import Choice, History, Start
from tests.soak.topic_histories.stage import Stage
from tests.soak.topic_histories.steps import Compare
from watermark_source import data_rows

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_RUN_SECONDS = 120
_LOSSES = ("Some data may have been lost", "DataLossError")
_SHARED_CONSUMER = "KafkaConsumer is not safe for multi-threaded access"
"""How Spark's source may fail when several tasks read a partition that lost records: the one that meets the loss gives
its consumer back to the pool and continues using it (``KafkaDataConsumer.get``). One task a partition gets through."""
_BUSY_MACHINE = "Python worker failed to connect back"
"""Spark waits ten seconds for the process that runs a source, and cannot be asked to wait longer."""
_MOST_RUNS = 5
_MESSAGE = re.compile(r"\[[A-Z_]+\]|Caused by|[\w.]+(Error|Exception)\b")

Rows = dict[tuple[str, int], list[tuple[Any, ...]]]
"""What came out of each partition of a topic, in the order in which it was delivered."""


@dataclass
class Query:
    """A streaming query over some topics, run again and again from its checkpoint."""

    spark: SparkSession
    kind: str
    """Format name."""
    checkpoint: Path
    batches: dict[int, pa.Table] = field(default_factory=dict)
    """By number: one that is repeated replaces what it delivered before."""
    _loaded: dict[str, DataFrame] = field(default_factory=dict)

    def start(self, options: Mapping[str, str]) -> StreamingQuery:
        """Begin to read what exists now."""
        key = json.dumps(options)
        if key not in self._loaded:
            self._loaded[key] = self._load(options)
        writer = self._loaded[key].writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def _load(self, options: Mapping[str, str]) -> DataFrame:
        rows = self.spark.readStream.format(self.kind).options(**options).load()
        if "marker" in rows.columns:
            rows = data_rows(rows)
        # The task is part of the row: each task of a batch has an order of its own.
        return rows.select(*COLUMNS, spark_partition_id().alias("task"))

    def _take(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = batch.toArrow()

    def rows(self) -> Rows:
        """Return everything delivered so far; fails if a task delivered a partition out of order."""
        found: Rows = {}
        for number in sorted(self.batches):
            for at, rows in self._rows_of(number).items():
                # One partition may be shared out over tasks, which end in any order.
                found.setdefault(at, []).extend(sorted(rows, key=lambda row: row[0]))
        return found

    def _rows_of(self, number: int) -> Rows:
        table = self.batches[number]
        # Python's own moments end with the year 9999.
        micros = table.column("timestamp").cast(pa.int64())
        table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", micros)
        found: Rows = {}
        before: dict[tuple[str, int, int], int] = {}
        for row in table.to_pylist():
            at = (row["topic"], row["partition"])
            task = (*at, row["task"])
            assert before.get(task, -1) < row["offset"], f"{self.kind}, batch {number}: {task} is not in order"
            before[task] = row["offset"]
            headers = None if row["headers"] is None else tuple((h["key"], h["value"]) for h in row["headers"])
            found.setdefault(at, []).append(
                (row["offset"], row["key"], row["value"], row["timestamp"], row["timestampType"], headers)
            )
        return found


class Twins:
    """Two queries over the topics of a history: one by Spark's own Kafka source, one by ours."""

    def __init__(self, spark: SparkSession, kinds: tuple[str, str], folder: Path, history: History, stage: Stage):
        self._theirs, self._ours = (Query(spark, kind, folder / kind) for kind in kinds)
        self._history = history
        self._stage = stage
        self._start: dict[str, str] = {}
        self._losses = 0
        self._shared_consumers = 0

    def run(self, step: Compare) -> list[str]:
        """Let both read what exists; return what differs. Where both fail for data loss, they are asked to continue."""
        self._start = self._start or self._beginning()
        options = {
            "kafka.bootstrap.servers": self._stage.broker.bootstrap,
            "kafka.isolation.level": "read_committed" if self._history.read_committed else "read_uncommitted",
            "includeHeaders": "true",
            "failOnDataLoss": str(self._history.fail_on_data_loss).lower(),
            **self._chosen(),
            **self._start,
        }
        if step.max_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(step.max_offsets)
        if self._history.fetch_bytes is not None:
            options["kafka.max.partition.fetch.bytes"] = str(self._history.fetch_bytes)
        if step.min_partitions is not None:
            options["minPartitions"] = str(step.min_partitions)
        failed = self._run_both(options)
        if self._history.fail_on_data_loss and all(loss in text for loss, text in zip(_LOSSES, failed, strict=True)):
            self._losses += 1
            failed = self._run_both({**options, "failOnDataLoss": "false"})
        if any(failed):
            return [f"{kind}: {_gist(text) or 'done'}" for kind, text in zip(("Spark's", "ours"), failed, strict=True)]
        return differences(self._ours.rows(), self._theirs.rows())

    def figures(self) -> str:
        """Return how much was compared."""
        rows = sum(map(len, self._ours.rows().values()))
        batches = len(self._ours.batches), len(self._theirs.batches)
        return (
            f"{rows} rows in {batches[0]} batches and in {batches[1]} of Spark's source, {self._losses} losses, "
            f"{self._shared_consumers} times Spark's source shared a consumer"
        )

    def _run_both(self, options: Mapping[str, str]) -> tuple[str, str]:
        """Run both side by side; return what made them fail, empty if nothing did."""
        theirs, ours = self._theirs.start(options), self._ours.start(options)
        failed = _outcome(theirs)
        if _SHARED_CONSUMER in failed:
            self._shared_consumers += 1
            failed = _outcome(self._theirs.start({k: v for k, v in options.items() if k != "minPartitions"}))
        failed_of_ours = _outcome(ours)
        for _ in range(_MOST_RUNS):
            if _BUSY_MACHINE not in failed_of_ours:
                break
            failed_of_ours = _outcome(self._ours.start(options))
        return failed, failed_of_ours

    def _chosen(self) -> dict[str, str]:
        match self._history.choice:
            case Choice.TOPICS:
                return {"subscribe": ",".join(topic.name for topic in self._stage.topics.values())}
            case Choice.PATTERN:
                return {"subscribePattern": f"^{self._stage.name('.')}$"}
            case Choice.PARTITIONS:
                assigned = self._history.assigned
                return {"assign": json.dumps({self._stage.name(label): p for label, p in assigned.items()})}

    def _beginning(self) -> dict[str, str]:
        rng = random.Random(self._history.seed)
        match self._history.start:
            case Start.OFFSETS:
                # A pattern may find no topic yet.
                return {"startingOffsets": json.dumps(self._starting_offsets(rng) or "earliest").strip('"')}
            case Start.TIMESTAMP:
                moment = rng.choice((0, rng.randrange(4_102_444_800_000), 1_700_000_000_000))
                return {"startingTimestamp": str(moment), "startingOffsetsByTimestampStrategy": "latest"}
            case start:
                return {"startingOffsets": start.value}

    def _starting_offsets(self, rng: random.Random) -> dict[str, dict[str, int]]:
        """Return an offset, or a word for one, of each partition that is read."""
        found: dict[str, dict[str, int]] = {}
        # Beyond where an open transaction begins there is nothing for a reader of committed rows, so both refuse.
        bounds = self._stage.bounds()
        for label, topic in self._stage.topics.items():
            for number, partition in enumerate(topic.partitions):
                _, stable, end = bounds[partition]
                if number in self._history.assigned.get(label, ()) or self._history.choice is not Choice.PARTITIONS:
                    found.setdefault(topic.name, {})[str(number)] = rng.choice(
                        (-2, -1, rng.randint(0, stable if self._history.read_committed else end))
                    )
        return found


def _outcome(query: StreamingQuery) -> str:
    try:
        ended = query.awaitTermination(_RUN_SECONDS)
    except StreamingQueryException as failure:
        return str(failure)
    assert ended, f"a run did not end within {_RUN_SECONDS} s"
    return ""


def _gist(failure: str) -> list[str]:
    """Return the lines that say what happened, without traces."""
    return [line[:400] for line in failure.splitlines() if _MESSAGE.match(line)]


def differences(ours: Rows, theirs: Rows) -> list[str]:
    """Return where two deliveries differ, the first place of each partition."""
    found = []
    for at in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(at, []), theirs.get(at, [])
        if one != other:
            first = next((n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
            first = min(len(one), len(other)) if first is None else first
            found.append(
                f"{at[0]}-{at[1]}: {len(one)} rows of ours and {len(other)} of Spark's; row {first} is "
                f"{one[first : first + 1]} and {other[first : first + 1]}"
            )
    return found
