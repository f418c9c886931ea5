"""The queries of docs/sinks.md, run as they stand: each sink has the windows that closed, once."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from services.kafka import Kafka

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
PAGE = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text(encoding="utf-8")
START_MS = 1_767_225_600_000  # 2026-01-01
MINUTE_MS = 60_000
MINUTES_READ = (10, 6)
"""By partition: the second one is four minutes behind."""


def produce(bootstrap: str, topic: str) -> Counter[int]:
    """Write an order every ten seconds to each partition, and return the sum of their amounts by minute."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    totals: Counter[int] = Counter()
    for partition, minutes in enumerate(MINUTES_READ):
        for n in range(6 * minutes + 2):
            at = START_MS + 10_000 * n
            totals[at // MINUTE_MS * MINUTE_MS] += n
            created_at = datetime.fromtimestamp(at / 1_000, UTC).isoformat()
            order = {"created_at": created_at, "customer": f"customer {n // 12}", "amount": n}
            producer.send(topic, json.dumps(order).encode(), partition=partition)
    producer.flush()
    producer.close()
    return totals


def written_to_kafka(bootstrap: str, topic: str) -> list[tuple[int, float]]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    here = TopicPartition(topic, 0)
    consumer.assign([here])
    consumer.seek_to_beginning(here)
    end = consumer.end_offsets([here])[here]
    found: list[tuple[int, float]] = []
    while consumer.position(here) < end:
        for record in consumer.poll(1_000).get(here, []):
            value = json.loads(record.value)
            found.append((millis(datetime.fromisoformat(value["start"].replace("Z", "+00:00"))), value["total"]))
    consumer.close()
    return sorted(found)


def millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


def in_database(path: Path) -> list[tuple[int, float]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT start, total FROM totals ORDER BY start").fetchall()
    return [(millis(datetime.fromisoformat(start).replace(tzinfo=UTC)), total) for start, total in rows]


def not_completed(checkpoint: Path) -> None:
    """Leave what a driver leaves that ends after a batch's function, and before Spark has recorded the batch."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)


@pytest.mark.usefixtures("built_in_kafka")
@pytest.mark.long("test_lines_that_read_a_topic_give_its_records")
def test_the_lines_of_the_page_write_what_was_read(
    spark: SparkSession,
    kafka: Kafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, sink = new_topic(2), new_topic(1)
    totals = produce(kafka.bootstrap, source)
    closed = [(START_MS + n * MINUTE_MS, float(totals[START_MS + n * MINUTE_MS])) for n in range(min(MINUTES_READ))]
    code = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    replaced = {"localhost:9092": kafka.bootstrap, '"orders"': f'"{source}"', '"topic", "totals"': f'"topic", "{sink}"'}
    files = ('"checkpoints/', '"totals.parquet', '"by-customer.parquet', '"sessions.parquet', '"totals.db')
    replaced |= {place: f'"{tmp_path}/' + place[1:] for place in files}
    for written, here in replaced.items():
        assert written in code
        code = code.replace(written, here)
    # The page's queries run for ever; these end with the topic.
    started = DataStreamWriter.start
    monkeypatch.setattr(
        DataStreamWriter, "start", lambda writer, *given: started(writer.trigger(availableNow=True), *given)
    )
    names: dict[str, Any] = {"spark": spark}
    exec(compile(code, "docs/sinks.md", "exec"), names)
    queries = [names[name] for name in ("to_kafka", "to_parquet", "by_customer", "sessions", "to_database")]
    for query in queries:
        query.awaitTermination()
    parquet = spark.read.parquet(f"{tmp_path}/totals.parquet").orderBy("start").collect()
    assert written_to_kafka(kafka.bootstrap, sink) == closed
    assert [(millis(row.start.replace(tzinfo=UTC)), row.total) for row in parquet] == closed
    assert in_database(tmp_path / "totals.db") == closed

    # A customer orders for two minutes, in both partitions alike; the watermark is past the sixth minute.
    by_customer = spark.read.parquet(f"{tmp_path}/by-customer.parquet").orderBy("customer").collect()
    assert [(millis(row.start.replace(tzinfo=UTC)), str(row.day), row.customer, row.total) for row in by_customer] == [
        (START_MS, "2026-01-01", f"customer {c}", 2.0 * sum(range(12 * c, min(12 * c + 12, 30)))) for c in range(3)
    ]
    sessions = spark.read.parquet(f"{tmp_path}/sessions.parquet").orderBy("customer").collect()
    assert [(row.customer, (row.end - row.start).total_seconds(), row.total) for row in sessions] == [
        (f"customer {c}", 110.0 + 30.0, 2.0 * sum(range(12 * c, 12 * c + 12))) for c in range(2)
    ]

    not_completed(tmp_path / "checkpoints" / "totals-to-database")
    again: list[int] = []

    def counted(batch: Any, number: int) -> None:
        again.append(batch.count())
        names["insert_once"](batch, number)

    writer = names["totals"].writeStream.foreachBatch(counted)
    writer.option("checkpointLocation", f"{tmp_path}/checkpoints/totals-to-database").start().awaitTermination()
    assert sum(again) > 0, "a batch with windows was repeated"
    assert in_database(tmp_path / "totals.db") == closed
