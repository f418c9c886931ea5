"""Lines of the pages, run as they stand except for addresses and names: each query gives the rows that were written."""

from __future__ import annotations

import ast
import json
import re
import socket
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from examples.servers import MySqlServer
from services.kafka import Kafka
from services.mysql import MySql
from tests.unit.docs_blocks import ROOT, blocks
from watermark_source import data_rows, follow_watermark, order_by_event_time, recommended_conf

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
NOW_MS = int(time.time() * 1_000)
START_MS = NOW_MS // 3_600_000 * 3_600_000 - 7_200_000
"""Two hours ago and more: the first record's."""
STEP_MS = 10_000
RECORDS = 60
"""Of each of two partitions: ten minutes."""
DATABASE = "pages"
USERS = 5


class Typed:
    """What a reader types of a page, in one Python; its queries end with what exists."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.names: dict[str, Any] = {"spark": spark, "follow_watermark": follow_watermark, "F": F}
        self.queries: list[StreamingQuery] = []
        self._folder = folder

    def run(self, page: str, *numbers: int, replaced: dict[str, str]) -> Any:
        """Run blocks of a page, by their numbers; return the value of the last line."""
        found = list(blocks(ROOT / "docs" / f"{page}.md"))
        code = "\n".join(textwrap.dedent(found[number - 1].code) for number in numbers)
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


@pytest.fixture
def database(mysql: MySql) -> Iterator[MySqlServer]:
    server = MySqlServer(mysql.host, mysql.port)
    server.run(
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.users (user_id INT PRIMARY KEY, name TEXT, at TIMESTAMP NOT NULL)",
        f"CREATE TABLE {DATABASE}.orders (id INT PRIMARY KEY, amount INT)",
        f"INSERT INTO {DATABASE}.users VALUES " + ", ".join(f"({n}, 'n{n}', now())" for n in range(USERS)),
    )
    rights = list(blocks(ROOT / "docs" / "mysql.md"))[1].code.replace("shop.", f"{DATABASE}.").replace("…", "secret")
    rights = rights.replace("SET PERSIST", "SET GLOBAL")
    server.run(*filter(str.strip, rights.split(";\n")), f"GRANT SELECT ON {DATABASE}.users TO 'cdc'@'%'")
    yield server
    server.run(f"DROP DATABASE {DATABASE}", "DROP USER cdc@'%'")


def of_kafka(kafka: Kafka, topic: str, named: str = "orders", address: str = "localhost:9092") -> dict[str, str]:
    """Where the lines name a broker and a topic; a topic that is there is read from its beginning."""
    subscribed = f'"subscribe", "{named}")'
    return {address: kafka.bootstrap, subscribed: f'"subscribe", "{topic}").option("startingOffsets", "earliest")'}


def options_of(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def minutes(rows: Sequence[Any]) -> int:
    """How many records closed windows of a minute have; each partition has six of a minute."""
    assert {row["count"] for row in rows} == {12}
    return len(rows)


def test_lines_that_read_a_topic_give_its_records(typed: Typed, kafka: Kafka, topic: str) -> None:
    orders = of_kafka(kafka, topic)
    typed.run("event-time", 1, replaced=orders)
    assert len(typed.rows(typed.names["rows"])) == 2 * RECORDS

    typed.run("payload", 1, replaced=orders)
    assert {row[1] for row in typed.rows(typed.names["sums"])} == {12.0}
    with pytest.raises(AnalysisException) as failed:
        typed.names["orders"].select("value")
    condition, *_ = str(failed.value.getCondition()).split(".")
    assert f"| `{condition}` with `value` or `key`" in (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")

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


def test_lines_that_look_at_a_query_print_what_holds_it(
    typed: Typed, kafka: Kafka, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = typed.spark.readStream.format("aligned-kafka").options(**options_of(kafka, topic)).load()
    counts = follow_watermark(orders).groupBy(F.window("event_time", "1 minute")).count()
    assert minutes(typed.rows(counts)) == 9
    (typed.names["query"],) = typed.queries
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    typed.run("monitoring", 4, 8, 10, 13, replaced={})
    assert len(re.findall(rf"^{topic}-[01] FINISHED 0 ", capsys.readouterr().out, re.MULTILINE)) == 2
    typed.run("monitoring", 6, 14, replaced={"4050": "0", "9400": port})
    page, registry = typed.names["page"], typed.names["registry"]
    try:
        assert capsys.readouterr().out.strip() == page.url
        assert typed.rows(data_rows(orders))
        deadline = time.monotonic() + 60
        while not list(registry.collect()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        page.stop()


@pytest.mark.long("test_lines_that_read_a_topic_give_its_records")
def test_lines_of_strategies_and_late_rows_give_what_was_written(
    typed: Typed, kafka: Kafka, topic: str, tmp_path: Path, database: MySqlServer
) -> None:
    brokers = options_of(kafka, topic)
    typed.names |= {"kafka": brokers, "checkpoint": str(tmp_path / "late"), "DataFrame": DataFrame}
    for number in (1, 2):
        typed.run("strategies", number, replaced={})
        counts = follow_watermark(typed.names["stream"]).groupBy(F.window("event_time", "1 minute")).count()
        assert number == 1 or minutes(typed.rows(counts)) == 9

    typed.run("late-rows", 1, replaced={})
    typed.names["checkpoint"] = str(tmp_path / "corrected")
    typed.run("late-rows", 2, replaced={"/data/counts": str(tmp_path / "counts")})
    try:
        typed.ended()
        assert minutes(typed.spark.table("counts").collect()) == 9
        assert minutes(typed.spark.read.parquet(str(tmp_path / "counts")).collect()) == 9
    finally:
        typed.spark.sql("DROP TABLE IF EXISTS counts")
        typed.spark.sql("DROP TABLE IF EXISTS late")

    replaced = {'"subscribe": "orders"': f'"subscribe": "{topic}"', "10 minutes": "10 seconds"}
    typed.names["brokers"] = {"kafka.bootstrap.servers": kafka.bootstrap}
    typed.run("late-rows", 3, replaced=replaced)
    assert {row.answer for row in typed.rows(typed.names["corrected"])} == {"final"}
    assert typed.rows(typed.names["early"])

    typed.names |= {"stream": typed.spark.readStream.format("aligned-kafka").options(**brokers).load()}
    typed.names |= {"Column": Any}
    typed.run("late-rows", 5, replaced={})
    assert {row.answer for row in typed.rows(typed.names["both"])} == {"early", "final"}

    typed.run("processing-time", 1, replaced=of_kafka(kafka, topic))
    assert minutes(typed.rows(typed.names["counts"])) >= 9
    typed.run("processing-time", 2, replaced={})


@pytest.mark.usefixtures("rocksdb")
@pytest.mark.long("test_lines_that_read_a_topic_give_its_records")
def test_lines_of_tables_joins_and_ordering_give_what_was_written(
    typed: Typed, kafka: Kafka, topic: str, tmp_path: Path, database: MySqlServer, new_topic: Callable[..., str]
) -> None:
    typed.names["password"] = "secret"
    at = f'"{database.host}").option("port", "{database.port}")'
    typed.run("mysql", 1, replaced={'"db1.example.org")': at, "shop.": f"{DATABASE}."})
    typed.run("ordering", 1, 2, replaced=of_kafka(kafka, topic, "readings") | {"/data/": f"{tmp_path}/"})
    typed.ended()
    assert typed.spark.read.parquet(str(tmp_path / "in_order")).count() > RECORDS

    clicks, users = new_topic(1), new_topic(1)
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for n in range(USERS):
            producer.send(clicks, str(n).encode())
            producer.send(users, f"n{n}".encode(), str(n).encode())
    server = f'hostname="{database.host}", port="{database.port}"'
    places = {'hostname="db1.example.org"': server, "shop.": f"{DATABASE}.", "/tmp/": f"{tmp_path}/table-"}
    typed.run("joins", 1, 2, replaced=of_kafka(kafka, clicks, "clicks") | places)
    assert typed.ended()[-1] == USERS
    typed.run("joins", 4, replaced={})

    places = of_kafka(kafka, clicks, "clicks") | {'"users")\n': f'"{users}")\n', "/tmp/": f"{tmp_path}/topic-"}
    typed.run("joins", 5, replaced=places)
    assert typed.ended()[-1] == USERS

    typed.names |= {
        "mysql": {
            "hostname": database.host, "port": database.port, "username": "cdc", "password": "secret",
            "tables": f"{DATABASE}.users",
        },
        "order_by_event_time": order_by_event_time,
        "checkpoint": str(tmp_path / "ordered"),
        "path": str(tmp_path / "users"),
    }  # fmt: skip
    typed.run("watermarks", 3, replaced={'"user")': '"user_id")'})
    typed.ended()
    assert typed.spark.read.parquet(str(tmp_path / "users")).count() == USERS
    table = typed.spark.readStream.format("mysql-cdc-wm").options(**typed.names["mysql"], eventTimeColumn="at")
    typed.names["users"] = table.load()
    typed.run("joins", 3, replaced={})
    assert len(typed.rows(typed.names["users"])) == USERS


@pytest.mark.usefixtures("built_in_kafka")
@pytest.mark.long("test_lines_that_read_a_topic_give_its_records")
def test_lines_of_jobs_in_a_row_give_what_the_first_one_wrote(
    typed: Typed, kafka: Kafka, topic: str, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    sessions = new_topic(1)
    rows = typed.spark.readStream.format("aligned-kafka").options(**options_of(kafka, topic)).load()
    ended = follow_watermark(rows).selectExpr("string(key) AS user", "event_time AS end", "1L AS clicks")
    typed.names |= {"clicks_per_session": ended, "brokers": kafka.bootstrap, "checkpoint": str(tmp_path / "a")}
    typed.run("between-jobs", 2, replaced={'"sessions"': f'"{sessions}"'})
    typed.ended()
    typed.names["announced"].flush()
    typed.names["announced"].stop()

    alarms, brokers = new_topic(1), {"kafka.bootstrap.servers": kafka.bootstrap}
    typed.names["kafka"] = brokers
    typed.names["writer"] = (
        ended.selectExpr("user AS value").writeStream.format("kafka").options(**brokers, topic=alarms)
        .option("checkpointLocation", str(tmp_path / "b"))
    )  # fmt: skip
    typed.run("between-jobs", 3, replaced={'"sessions"': f'"{alarms}"'})
    typed.ended()

    typed.names |= {"value": b"clicked", "watermark_ms": START_MS}
    typed.run("between-jobs", 4, replaced={'"clicks"': f'"{new_topic(1)}"'})
    replaced = of_kafka(kafka, sessions, "sessions", "broker:9092")
    typed.run("between-jobs", 1, replaced=replaced | {"1 hour": "1 minute"})
    assert minutes(typed.rows(typed.names["counts"])) == 9
    typed.run("between-jobs", 7, replaced={'"sessions"': f'"{sessions}"'})
    typed.run("between-jobs", 8, replaced={})
    # Both partitions have the same keys and ends.
    assert len(typed.rows(typed.names["once"])) == RECORDS
