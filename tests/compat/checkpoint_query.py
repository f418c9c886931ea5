"""The query whose checkpoint is kept for every version, and the records it reads.

``python -m tests.compat.checkpoint_query VERSION`` writes ``tests/compat/VERSION/checkpoint`` again.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.kafka import kafka_service
from services.kafka_topics import create_topic
from tests.integration.kafka_streams import KafkaStreams
from watermark_source import follow_watermark

TOPIC = "compat-orders"
PARTITIONS = 3
NAME = "query"
FIRST = {0: range(0, 600, 10), 1: range(0, 300, 5), 2: range(400, 403)}
"""Records by partition, in seconds, that the checkpoint's run has read."""
LATER = {0: range(600, 1_200, 10), 1: range(300, 900, 5), 2: range(403, 1_100, 50)}


def windows(streams: KafkaStreams) -> DataFrame:
    """Count the records of each minute and partition."""
    source = streams.source(
        subscribe=TOPIC,
        sourceName="orders",
        maxOffsetsPerTrigger=50,
        maxOutOfOrderness="10 seconds",
        idleTimeout="1 day",
        alignmentGroup="checkout",
        alignmentMaxDrift="5 minutes",
    )
    counted = follow_watermark(source).groupBy(F.window("event_time", "1 minute").alias("w"), "partition").count()
    return counted.select("w.start", "partition", "count")


def expected(after: float, before: float) -> list[tuple[float, int, int]]:
    """Return start (seconds), partition and count of the windows that end after one moment and not after another."""
    counts = Counter(
        (second // 60 * 60, partition)
        for records in (FIRST, LATER)
        for partition, seconds in records.items()
        for second in seconds
    )
    return sorted((float(w), p, count) for (w, p), count in counts.items() if after < w + 60 <= before)


def _write(target: Path) -> None:
    folder = Path(tempfile.mkdtemp())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    with kafka_service() as kafka:
        streams = KafkaStreams(spark, folder, bootstrap=kafka.bootstrap)
        create_topic(kafka.bootstrap, TOPIC, PARTITIONS)
        streams.write(TOPIC, FIRST)
        streams.run(windows(streams), NAME)
        streams.die_in(NAME, streams.last_with_rows(NAME))
    spark.stop()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(streams.checkpoint(NAME), target)
    shutil.rmtree(folder)


if __name__ == "__main__":
    _write(Path(__file__).parent / sys.argv[1] / "checkpoint")
