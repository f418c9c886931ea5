"""Every way to write a stream of a topic or of a table: exact, refused or warned of, none silent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from docs.surface_table import cells
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topic
from services.mysql import MySql
from services.mysql_client import run
from tests.integration.mysql_binlog import new_database
from tests.integration.mysql_streams import PASSWORD, RIGHTS, USER, make_user
from tests.spark.queries import START, at
from tests.spark.surfaces import ROWS, Rows, judged, surfaces, through_connect

pytestmark = [pytest.mark.service, pytest.mark.spark, pytest.mark.timeout(900)]

Judge = Callable[[str], tuple[Any, Any]]
TOPIC = "surfaces"


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> Rows:
    """A topic whose partitions are an hour apart; a batch has a record of each."""
    create_topic(kafka.bootstrap, TOPIC, len(ROWS))
    records = {}
    for partition, rows in ROWS.items():
        values = [json.dumps({"at": START + second * 1_000, "number": number}) for second, number in rows]
        bytes_ = np.array([list(value.encode().ljust(60)) for value in values], dtype=np.uint8)
        # Times of the records would let the limit read the oldest first.
        records[partition] = PartitionRecords(np.full(len(rows), START), bytes_)
    bulk_produce_partitions(kafka.bootstrap, TOPIC, records)
    return Rows(
        source="Kafka",
        format="aligned-kafka",
        options={
            "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": TOPIC, "eventTimeColumn": "value:$.at",
            "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2", "finalWatermark": "true",
        },
        number="CAST(get_json_object(CAST(value AS STRING), '$.number') AS INT)",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Table(Rows):
    """Snapshot and changes of a table, which is filled again for each query."""

    server: tuple[str, int]

    def written(self) -> Iterator[None]:
        # The chunk that is read first is an hour ahead of the other.
        table, closing = self.options["tables"], 10 * 3_600
        run(
            *self.server, f"DELETE FROM {table}",
            f"INSERT INTO {table} VALUES {_row(1, 3_600)}, {_row(2, 3_660)}, {_row(3, 0)}, {_row(4, 30)}",
        )  # fmt: skip
        yield
        run(
            *self.server, f"INSERT INTO {table} VALUES {_row(5, 3_720)}",
            f"UPDATE {table} SET value = 6, at = '{at(3_780)}' WHERE value = 1", f"DELETE FROM {table} WHERE value = 3",
            f"INSERT INTO {table} VALUES {_row(7, closing)}",
        )  # fmt: skip
        yield


def _row(number: int, seconds: int) -> str:
    return f"({number}, {number}, '{at(seconds)}')"


@pytest.fixture(scope="module")
def table(mysql: MySql) -> Iterator[Rows]:
    make_user(mysql, USER, *RIGHTS)
    with new_database(mysql) as database:
        database.run("CREATE TABLE rides (id INT PRIMARY KEY, value INT, at DATETIME)")
        yield Table(
            source="MySQL",
            format="mysql-cdc-wm",
            options={
                "hostname": mysql.host, "port": str(mysql.port), "username": USER,
                "tables": f"{database.name}.rides", "eventTimeColumn": "at", "maxOutOfOrderness": "2 hours",
                "snapshotChunkRows": "2", "snapshotParallelism": "1",
            },
            secrets={"password": PASSWORD},
            # Both rows of the update, and the one that was deleted.
            numbers=(1, 2, 3, 4, 5, 1, 6, 3, 7),
            windows=(1, 1, 1, 2, 3),
            server=(mysql.host, mysql.port),
        )  # fmt: skip


@pytest.fixture(scope="module")
def of_topic(spark: SparkSession, topic: Rows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judged(spark, topic, tmp_path_factory.mktemp("topic")) as judge:
        yield judge


@pytest.fixture(scope="module")
def of_table(spark: SparkSession, table: Rows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judged(spark, table, tmp_path_factory.mktemp("table")) as judge:
        yield judge


@pytest.mark.long("test_a_stream_is_exact_or_refused_or_warned_of")
@pytest.mark.parametrize("surface", surfaces())
def test_a_stream_of_a_topic_is_exact_or_refused_or_warned_of(of_topic: Judge, surface: str) -> None:
    seen, reported = of_topic(surface)
    assert seen == reported


@pytest.mark.parametrize("surface", surfaces("DataFrame"))
def test_a_stream_of_a_table_is_exact_or_refused_or_warned_of(of_table: Judge, surface: str) -> None:
    seen, reported = of_table(surface)
    assert seen == reported


@pytest.mark.long("test_windows_through_connect_are_the_same")
@pytest.mark.usefixtures("connect_port")
def test_a_topic_through_connect_and_in_pipelines_is_exact_or_refused_or_warned_of(topic: Rows, tmp_path: Path) -> None:
    seen = through_connect(topic, tmp_path)
    assert seen == {name: cells(name, topic.source) for name in seen}


@pytest.mark.long("test_windows_through_connect_are_the_same")
@pytest.mark.usefixtures("connect_port")
def test_a_table_through_connect_and_in_pipelines_is_exact_or_refused_or_warned_of(table: Rows, tmp_path: Path) -> None:
    seen = through_connect(table, tmp_path)
    assert seen == {name: cells(name, table.source) for name in seen}
