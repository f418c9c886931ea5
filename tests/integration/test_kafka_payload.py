"""JSON values of a real broker as a struct column: the same as with from_json, in streams, batches and replays."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.kafka import Kafka
from tests.avro_examples import message
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.test_kafka_event_time import produce
from tests.payload_documents import Documents
from tests.protobuf_pairs import decoded as messages_of
from tests.schema_registry import schema_registry
from tests.spark.queries import START
from tests.unit.kafka.records.test_payload_protobuf import ANSWERS, FORM, GUID, READ, files, order
from watermark_source import data_rows, follow_watermark

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
SCHEMA = (
    "id STRING, at BIGINT, n STRUCT<x: DOUBLE, y: DECIMAL(10,2)>, l ARRAY<INT>, ts TIMESTAMP, _corrupt_record STRING"
)
JSON = {"valueFormat": "json", "valueSchema": SCHEMA, "timeZone": "UTC"}


def test_a_batch_and_a_stream_deliver_what_from_json_does(
    streams: KafkaStreams, spark: SparkSession, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic, made = new_topic(2), Documents(SCHEMA, random.Random(11))
    documents = [made.one() for _ in range(400)]
    produce(kafka, topic, {0: documents[:200], 1: documents[200:]})
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    options = {"subscribe": topic, "columns": "value,partition,offset", **JSON}
    reader = spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    batch = reader.options(**options).load()
    streams.run(data_rows(streams.source(**options)).drop("event_time"), "stream")
    for rows in (batch, streams.result("stream")):
        text = F.col("value").cast("string")
        is_json = F.from_json(text, "map<string,string>").isNotNull()
        compared = rows.select("value", "payload", F.from_json(text, SCHEMA).alias("sparks"), is_json.alias("is_json"))
        assert rows.count() == 400
        # Members of what is not JSON are null here; Spark keeps some of them.
        wrong = compared.where("is_json and not (payload <=> sparks)").collect()
        assert wrong == []
        assert compared.where("not is_json and payload is not null and payload.at is not null").count() == 0
        assert compared.where("is_json and payload.at is not null").count() > 100


@pytest.mark.long("test_every_row_comes_out_exactly_once")
def test_restarts_sum_each_row_once(streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic) -> None:
    """By a member that is event time too: the same rows before and after a restart, and no bad one among them."""
    topic = new_topic(2)
    options = {"valueFormat": "json", "valueSchema": "at BIGINT, amount DOUBLE", "valueColumn": "order"}
    source = streams.source(
        subscribe=topic, eventTimeColumn="value:$.at", eventTimeErrors="timestamp", maxOffsetsPerTrigger=150, **options
    )
    rows = follow_watermark(source).where(F.col("order.at").isNotNull())
    frame = rows.select(F.col("order.at").alias("at"), F.col("order.amount").alias("amount"))
    written = []
    for run in range(2):
        good = [{"at": START + run * 1_000 + n, "amount": n / 4} for n in range(300)]
        values = [json.dumps(each).encode() for each in good]
        produce(kafka, topic, {0: [*values[:150], b"{"], 1: [b"'", *values[150:], b""]})
        written += good
        streams.run(frame, "q")
    found = streams.result("q").orderBy("at").collect()
    assert [(row["at"], row["amount"]) for row in found] == [(each["at"], each["amount"]) for each in written]


def test_one_document_in_a_hundred_does_not_fit_and_is_counted_by_the_status(
    direct: DirectKafka, new_topic: NewTopic, kafka: Kafka
) -> None:
    topic = new_topic(2)
    values = [b'{"at":%d}' % n if n % 100 else b'{"at":"bad"}' for n in range(1_000)]
    produce(kafka, topic, {0: values[:500], 1: values[500:]})
    rows = direct.run(direct.source(subscribe=topic, valueFormat="json", valueSchema="at BIGINT"), "q").status.rows
    assert (rows.read, rows.malformed) == (1_000, 10)


def test_failfast_ends_the_query_and_names_the_record(streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    produce(kafka, topic, {0: [b'{"at":1}', b'{"at":"x"}']})
    rows = data_rows(
        streams.source(subscribe=topic, valueFormat="json", valueSchema="at INT", valueMode="FAILFAST")
    ).drop("event_time")
    reported = "0 offset 1: the value does not fit valueSchema: at: it does not fit INT"
    with pytest.raises(StreamingQueryException, match=reported):
        streams.run(rows, "q")


def test_messages_of_protobuf_are_delivered_as_columns_in_streams_and_batches(
    streams: KafkaStreams, spark: SparkSession, kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Of every kind, through Spark: the same as in the column of the same bytes, with one that is bad among them.

    The stream reads schemas from a registry, by ids in headers and before values; the batch has a file.
    """
    topic, file = new_topic(1), tmp_path / "shop.desc"
    file.write_bytes(files().SerializeToString())
    values = [value for value, _ in READ] + [b"\x0a\x7f"]
    answers = {**ANSWERS, f"/schemas/guids/{GUID}{FORM}": ANSWERS[f"/schemas/ids/1{FORM}"]}
    index = b"\2\6"
    for in_header in (True, False):
        written = values if in_header else [message(1, index + value) for value in values]
        header = ("__value_schema_id", b"\1" + GUID.bytes + index)
        produce(kafka, topic, {0: written}, headers=[header] if in_header else [])
    options = {"subscribe": topic, "columns": "payload,offset", "valueFormat": "protobuf"}
    by_file = {**options, "valueSchema": f"{file}:shop.Order", "valueFraming": "confluent"}
    batch = (
        spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", kafka.bootstrap).options(**by_file).load()
    )
    with schema_registry(answers) as registry:
        by_id = {**options, "valueSchema": "orders-value:3:shop.Order",
                 "schemaRegistry": f"http://127.0.0.1:{registry.port}"}  # fmt: skip
        streams.run(data_rows(streams.source(**by_id)).drop("event_time"), "stream")
        assert {path.partition("?")[0] for path in registry.asked} == {
            "/subjects/orders-value/versions/3", "/schemas/ids/1", f"/schemas/guids/{GUID}"
        }  # fmt: skip
    expected = messages_of(order(), values).column.to_pylist() * 2
    for rows in (batch, streams.result("stream")):
        found = rows.orderBy("offset").toArrow()["payload"].combine_chunks()
        assert found.to_pylist() == expected
