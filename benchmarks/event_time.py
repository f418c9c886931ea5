"""Event time in the payload: what it costs beside the record's timestamp, and the whole job as users write it today."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import BUILT_IN, OURS, Run, read_all, run_to_end
from benchmarks.topics import START
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topic
from watermark_source import follow_watermark

RECORDS, PARTITIONS, SIZE = 4_000_000, 4, 200
DISORDER_MS, APART_MS = 30_000, 1_800_000
NARROW = {"columns": "value,event_time"}
SCHEMA = "id STRING, at LONG, amount DOUBLE"
_PLACES = {
    "record time": {},
    "path": {"eventTimeColumn": "value:$.at"},
    "header": {"eventTimeColumn": "header:at"},
    "function": {"eventTimeColumn": f"{__name__}:by_three_kernels"},
}
_AT_LEAST = {"path": 0.7, "header": 0.85, "function": 0.6}


def by_three_kernels(records: pa.RecordBatch) -> pa.Array:
    """Return the number that stands at one place of every document."""
    digits = pc.binary_slice(records["value"], _BEFORE, _BEFORE + _DIGITS)
    return digits.cast(pa.string()).cast(pa.int64())


def payload_topic(bootstrap: str, name: str) -> None:
    """Produce JSON of 200 bytes: times shuffled within 30 s; one partition an hour ahead, one half an hour behind."""
    create_topic(bootstrap, name, partitions=PARTITIONS)
    records = {}
    for partition, (written, times) in enumerate(orders()):
        texts = np.char.mod("%d", times).astype(f"S{_DIGITS}").view(np.uint8).reshape(len(times), _DIGITS)
        records[partition] = PartitionRecords(written, values=_documents(texts), header=("at", texts))
    bulk_produce_partitions(bootstrap, name, records)


def orders() -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the record times and the event times of each partition, in milliseconds."""
    chance = np.random.default_rng(1)
    count = RECORDS // PARTITIONS
    written = START + np.arange(count, dtype=np.int64) * 10
    for apart in (0, 2 * APART_MS, -APART_MS, 0):
        yield written, written + apart - chance.integers(0, DISORDER_MS, count)


def event_times(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Time each place of event time in turn; then the whole job, the built-in source beside ours."""
    walls: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for name, options in _PLACES.items():
            run = read_all(spark, bootstrap, OURS, topic, {**NARROW, **options})
            if turn:
                walls.setdefault(name, []).append(run.wall)
    for name, taken in walls.items():
        yield Figure(
            f"event time by {name}: rows/s, whole query", RECORDS / statistics.median(taken) / 1e6, "M/s",
            detail=f"{RECORDS / 1e6:g} M records, {SIZE} bytes of JSON; wall s min/med/max {spread(taken)}",
        )  # fmt: skip
    for name, least in _AT_LEAST.items():
        yield Figure(f"speed by {name} / by record time", ratio(walls["record time"], walls[name]), "x", at_least=least)
    jobs: dict[str, Callable[[], DataFrame]] = {
        BUILT_IN: lambda: as_today(spark, bootstrap, topic),
        OURS: lambda: with_event_time(spark, bootstrap, topic),
    }
    runs: dict[str, list[Run]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            run = run_to_end(job())
            if turn:
                runs[name].append(run)
    wall = {name: [run.wall for run in done] for name, done in runs.items()}
    yield Figure(
        "from_json and a window, built-in / ours", ratio(wall[BUILT_IN], wall[OURS]), "x", at_least=1.3,
        detail=f"wall s built-in {spread(wall[BUILT_IN])}, ours {spread(wall[OURS])}",
    )  # fmt: skip
    for name, done in runs.items():
        yield Figure(f"{name}: groups of windows dropped as late", statistics.median(map(_dropped, done)), "")


def as_today(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the job with the built-in source."""
    parsed = _parsed(stream(spark, bootstrap, topic, BUILT_IN))
    return windows(parsed.withWatermark("event_time", "30 seconds"))


def with_event_time(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the job with ours, and ``from_json``."""
    options = {**NARROW, "eventTimeColumn": "value:$.at", "maxOutOfOrderness": "30 seconds"}
    followed = follow_watermark(stream(spark, bootstrap, topic, OURS, **options))
    return windows(followed.select("event_time", F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")))


def stream(spark: SparkSession, bootstrap: str, topic: str, source: str, **options: str) -> DataFrame:
    """Return a stream of a topic from its beginning."""
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", RECORDS // 4)
    return reader.options(**options).load()


def _parsed(stream: DataFrame) -> DataFrame:
    order = stream.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order"))
    return order.select(F.timestamp_millis("order.at").alias("event_time"), "order")


def windows(rows: DataFrame) -> DataFrame:
    """Return the sums of each minute."""
    return rows.groupBy(F.window("event_time", "1 minute")).agg(F.sum("order.amount"))


def _dropped(run: Run) -> int:
    return sum(o.numRowsDroppedByWatermark for p in run.progress for o in p["stateOperators"])


ID, AMOUNT = "0123456789abcdef", 12.5
_HEAD, _TAIL = f'{{"id":"{ID}","amount":{AMOUNT},"at":'.encode(), b',"tags":["new","paid"],"note":"'
_BEFORE, _DIGITS = len(_HEAD), len(str(START))
NOTE = b"x" * (SIZE - _BEFORE - _DIGITS - len(_TAIL) - 2)


def _documents(times: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    parts = [np.tile(np.frombuffer(text, np.uint8), (len(times), 1)) for text in (_HEAD, _TAIL + NOTE + b'"}')]
    return np.hstack([parts[0], times, parts[1]])
