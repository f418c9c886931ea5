"""Lines of the pages, run as they stand but for addresses and names: each query gives the rows that were written."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from services.kafka import Kafka
from tests.unit.docs_blocks import ROOT, blocks
from watermark_source import data_rows, follow_watermark, recommended_conf

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
NOW_MS = int(time.time() * 1_000)
START_MS = NOW_MS // 3_600_000 * 3_600_000 - 7_200_000
"""Two hours ago and more: the first record's."""
STEP_MS = 10_000
RECORDS = 60
"""Of each of two partitions: ten minutes."""
USERS = 5


class Typed:
    """What a reader types of a page, in one Python; its queries end with what is there."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.names: dict[str, Any] = {"spark": spark, "follow_watermark": follow_watermark, "F": F}
        self.queries: list[StreamingQuery] = []
        self._folder = folder

    def run(self, page: str, *numbers: int, replaced: dict[str, str]) -> Any:
        """Run blocks of a page, by their numbers; return the value of the last line."""
        found = list(blocks(ROOT / "docs" / f"{page}.md"))
        code = "\n".join(found[number - 1].code for number in numbers)
        for written, here in replaced.items():
            assert written in code, written
            code = code.replace(written, here)
        *lines, last = ast.parse(code).body
        exec(compile(ast.Module(lines, []), page, "exec"), self.names)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), page, "eval"), self.names)
        return exec(compile(ast.Module([last], []), page, "exec"), self.names)

    def ended(self) -> list[int]:
        """Wait for the queries that the lines have started; return how many rows each has written."""
        for query in self.queries:
            query.awaitTermination()
        return [sum(max(0, p.sink.numOutputRows) for p in query.recentProgress) for query in self.queries]

    def rows(self, stream: DataFrame) -> list[Any]:
        """The rows of a stream that the lines have made and not started."""
        name = f"typed_{len(self.queries)}"
        checkpoint = str(self._folder / name)
        stream.writeStream.format("memory").queryName(name).option("checkpointLocation", checkpoint).start()
        self.ended()
        return self.spark.table(name).collect()


@pytest.fixture
def typed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    here, start = Typed(spark, tmp_path), DataStreamWriter.start

    def started(writer: DataStreamWriter, *given: Any) -> StreamingQuery:
        here.queries.append(start(writer.trigger(availableNow=True), *given))
        return here.queries[-1]

    monkeypatch.setattr(DataStreamWriter, "start", started)
    return here


@pytest.fixture
def topic(kafka: Kafka, new_topic: Callable[..., str]) -> str:
    """A topic whose records have their time everywhere that the pages look for it."""
    name = new_topic(2)
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for n in range(RECORDS):
            at = START_MS + STEP_MS * n
            for partition in range(2):
                created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at / 1_000))
                value = {"id": str(n), "at": at, "amount": 1.0, "order": {"created_at": created}}
                producer.send(
                    name, json.dumps(value).encode(), str(n % USERS).encode(), partition=partition,
                    timestamp_ms=at, headers=[("watermark", str(at).encode())],
                )  # fmt: skip
    return name


def of_kafka(kafka: Kafka, topic: str, named: str = "orders", address: str = "localhost:9092") -> dict[str, str]:
    """Where the lines name a broker and a topic; a topic that is there is read from its beginning."""
    subscribed = f'"subscribe", "{named}")'
    return {address: kafka.bootstrap, subscribed: f'"subscribe", "{topic}").option("startingOffsets", "earliest")'}


def options_of(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def test_lines_that_read_a_topic_give_its_records(typed: Typed, kafka: Kafka, topic: str) -> None:
    orders = of_kafka(kafka, topic)
    typed.run("event-time", 1, replaced=orders)
    assert len(typed.rows(typed.names["rows"])) == 2 * RECORDS

    typed.run("payload", 1, replaced=orders)
    assert {row[1] for row in typed.rows(typed.names["sums"])} == {12.0}

    ends = {"1735776000000": str(START_MS + 30 * STEP_MS), '"orders"': f'"{topic}"', "localhost:9092": kafka.bootstrap}
    typed.run("batch", 1, replaced=ends)
    assert typed.names["orders"].count() == (30 - 23) + 30
    typed.run("batch", 2, replaced={'"orders"': f'"{topic}"', "localhost:9092": kafka.bootstrap, "1 HOUR": "1 DAY"})
    assert data_rows(typed.names["last_hour"]).count() == 2 * RECORDS

    reader = typed.spark.readStream.format("aligned-kafka").options(**options_of(kafka, topic))
    typed.names |= {"reader": reader, "recommended_conf": recommended_conf}
    typed.run("tuning", 2, 3, 4, 5, replaced={})
    assert len(typed.rows(data_rows(reader.load()))) == 2 * RECORDS

    typed.spark.sql(
        f"CREATE TABLE rides USING `aligned-kafka` OPTIONS ('kafka.bootstrap.servers' '{kafka.bootstrap}', "
        f"subscribe '{topic}', startingOffsets 'earliest')"
    )
    try:
        assert sum(row[1] for row in typed.rows(typed.run("surfaces", 1, replaced={}))) == 2 * (RECORDS - 6)
    finally:
        typed.spark.sql("DROP TABLE rides")
