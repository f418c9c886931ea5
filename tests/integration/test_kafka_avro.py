"""Avro of a real broker, with schemas from a registry: windows by a field, and keys and values as columns."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.kafka import Kafka
from tests.avro_examples import encoded, message
from tests.integration.direct_kafka import DirectKafka
from tests.integration.evolving_payload import Value, check_both_schemas
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.test_kafka_event_time import produce
from tests.schema_registry import schema_registry
from tests.spark.queries import START
from watermark_source import data_rows, follow_watermark
from watermark_source.errors import PayloadError

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
OLD = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
NEW = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "id", "type": "string"},
    ],
}  # fmt: skip
ANSWERS = {"/schemas/ids/1": {"schema": json.dumps(OLD)}, "/schemas/ids/300": {"schema": json.dumps(NEW)}}
PASSWORD = "pass-w0rd"


def order(number: int, seconds: float) -> bytes:
    """Every third record is of the newer schema."""
    if number % 3:
        return message(1, encoded(_plain(OLD), {"id": str(number), "at": START + round(seconds * 1_000)}))
    value = {"tags": {"a": None, "b": 0.5}, "at": START * 1_000 + round(seconds * 1e6), "id": str(number)}
    return message(300, encoded(_plain(NEW), value))


def _plain(schema: object) -> object:
    """Return the schema as one by which fastavro takes numbers for moments."""
    return json.loads(json.dumps(schema).replace("logicalType", "was"))


def test_windows_go_by_a_field_of_avro_whichever_schema_it_is_of(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic, chance = new_topic(2), np.random.default_rng(5)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)
    minutes: Counter[int] = Counter()
    for partition, begin in enumerate((0, 4_000)):
        for number in range(600):
            seconds = round(begin + number / 2 - chance.uniform(0, 20), 3)
            producer.send(topic, order(number, seconds), partition=partition)
            minutes[int(seconds // 60)] += 1
    producer.flush(60)
    with schema_registry(ANSWERS) as registry:
        by_schema = {
            "valueFormat": "avro", "valueSchema": json.dumps(OLD), "eventTimeColumn": "value:$.at",
            "schemaRegistry": f"http://me:{PASSWORD}@127.0.0.1:{registry.port}",
        }  # fmt: skip
        source = streams.source(
            subscribe=topic, maxOutOfOrderness="30 seconds", maxOffsetsPerTrigger=200, valueColumn="none", **by_schema
        )
        assert {"key", "value"} < set(source.columns)
        assert "payload" not in source.columns
        counts = follow_watermark(source).groupBy(F.window("event_time", "1 minute").alias("w")).count()
        frame = counts.select(((F.unix_millis("w.start") - START) / 60_000).cast("int"), "count")
        streams.run(frame, "avro")
        closed = {row[0]: row[1] for row in streams.result("avro").collect()}
        # The partition of old times has been read to its end, and no row of theirs was late.
        assert {-1, 0, 1, 2, 3} <= closed.keys()
        assert closed == {minute: minutes[minute] for minute in closed}
        assert set(registry.asked) == set(ANSWERS)
        assert set(registry.logins) == {"Basic bWU6cGFzcy13MHJk"}

        # A value that begins with a zero byte by chance.
        producer.send(topic, message(2, b"x"), partition=0)
        producer.close(timeout=60)
        with pytest.raises(
            StreamingQueryException,
            match=r"partition 0 offset 600: no event time at .*: the schema registry .* has no schema of its id",
        ) as ended:
            streams.run(frame, "avro")
        assert PASSWORD not in str(ended.value)

        # The same by the column of decoded values.
        resumed = streams.source(subscribe=topic, eventTimeErrors="null", **by_schema)
        columns = (
            "partition",
            "offset",
            F.unix_millis("event_time").alias("at"),
            F.unix_millis("payload.at").alias("in"),
        )
        streams.run(data_rows(resumed).select(*columns), "whole")
        rows = streams.result("whole").collect()
        assert len(rows) == 1_201
        assert [(r["partition"], r["offset"]) for r in rows if r["at"] is None] == [(0, 600)]
        assert [r["at"] for r in rows] == [r["in"] for r in rows]
        assert Counter((r["at"] - START) // 60_000 for r in rows if r["at"] is not None) == minutes


FIRST = {
    "type": "record", "name": "Order",
    "fields": [{"name": "number", "type": "int"}, {"name": "amount", "type": "int"}, {"name": "old", "type": "string"}],
}  # fmt: skip
READ = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long", "aliases": ["number"]}, {"name": "amount", "type": "double"},
        {"name": "tag", "type": "string", "default": "none"},
    ],
}  # fmt: skip
LATER = {
    "type": "record", "name": "Order",
    "fields": [{"name": "tag", "type": "string"}, {"name": "id", "type": "long"}, {"name": "amount", "type": "float"}],
}  # fmt: skip


def test_a_schema_evolves_while_the_query_runs_and_batches_of_both_run_again(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    """A field is removed, one renamed, one widened, then one added; one value in a hundred is bad."""
    topic = new_topic(1)

    def first(n: int) -> Value:
        value = encoded(FIRST, {"number": n, "amount": n, "old": "x"})
        return message(1, value), {"id": n, "amount": float(n), "tag": "none"}

    def later(n: int) -> Value:
        return message(2, encoded(LATER, {"id": n, "amount": n / 4, "tag": "t"})), {
            "id": n,
            "amount": n / 4,
            "tag": "t",
        }

    answers = {
        "/subjects/orders-value/versions/1": {"schema": json.dumps(READ)},
        "/schemas/ids/1": {"schema": json.dumps(FIRST)},
        "/schemas/ids/9": {"schema": '"string"'},
    }
    with schema_registry(answers) as registry:
        source = direct.source(
            subscribe=topic, valueFormat="avro", valueSchema="orders-value:1", keyFormat="avro", keySchema='"string"',
            columns="topic,partition,offset", schemaRegistry=f"http://127.0.0.1:{registry.port}",
            maxOffsetsPerTrigger=150,
        )  # fmt: skip
        check_both_schemas(
            direct, source, lambda values: produce(kafka, topic, {0: values}, key=message(9, b"\x02k")), first, later,
            lambda: answers.update({"/schemas/ids/2": {"schema": json.dumps(LATER)}}),
            columns=("key_payload", "payload"), key=("k",),
        )  # fmt: skip

        # What does not resolve ends the query with both schemas, where the user chose so.
        answers["/schemas/ids/3"] = {"schema": json.dumps({**FIRST, "name": "Another"})}
        produce(kafka, topic, {0: [message(3, b"")]})
        with pytest.raises(PayloadError, match=r"partition 0 offset 900: .*schema 3, .*Another.*, does not .*Order"):
            direct.run({**source, "valueMode": "FAILFAST", "startingOffsets": json.dumps({topic: {"0": 900}})}, "other")


EVERY_TYPE = {
    "type": "record", "name": "Every",
    "fields": [
        {"name": "boolean", "type": "boolean"},
        {"name": "text", "type": "string"},
        {"name": "bytes", "type": "bytes"},
        {"name": "symbol", "type": {"type": "enum", "name": "Symbol", "symbols": ["A", "B"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "float", "type": "float"},
        {"name": "date", "type": {"type": "int", "logicalType": "date"}},
        {"name": "moment", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "decimal", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "several", "type": ["null", "boolean", "string"]},
        {"name": "number", "type": ["int", "long"]},
        {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [
            {"name": "x", "type": "double"}]}]},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "boolean": True, "text": "ä", "bytes": b"\0\xff", "symbol": "B", "fixed": b"ab", "float": 0.5,
    "date": dt.date(2026, 11, 27), "moment": dt.datetime(2026, 11, 27, 12, 0, 0, 5_000, dt.UTC),
    "local": dt.datetime.fromisoformat("2026-11-27T12:00:00.000007"), "decimal": Decimal("-123456789012345678.90"),
    "list": [1, None, -3], "map": {"a": 1.5}, "several": "x", "number": 7, "inner": {"x": 2.5},
}  # fmt: skip


def test_every_type_comes_to_spark_in_batches_and_in_streams(
    streams: KafkaStreams, spark: SparkSession, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    produce(kafka, topic, {0: [encoded(EVERY_TYPE, VALUE), b"", encoded(EVERY_TYPE, {**VALUE, "inner": None})]})
    options = {
        "subscribe": topic, "valueFormat": "avro", "valueFraming": "none", "valueSchema": json.dumps(EVERY_TYPE),
        "columns": "offset",
    }  # fmt: skip
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    reader = spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    streams.run(data_rows(streams.source(**options)), "q")
    shown = {**VALUE, "bytes": bytearray(VALUE["bytes"]), "fixed": bytearray(VALUE["fixed"])}
    shown["moment"] = VALUE["moment"].astimezone().replace(tzinfo=None)  # as collect() has it, in the local zone
    shown["several"] = Row(member0=None, member1="x")
    for frame in (reader.options(**options).load(), streams.result("q")):
        rows = [row.payload.asDict(recursive=False) for row in frame.orderBy("offset").collect()]
        assert rows[0] == {**shown, "inner": Row(x=2.5)}
        assert set(rows[1].values()) == {None}
        assert rows[2] == {**shown, "inner": None}
