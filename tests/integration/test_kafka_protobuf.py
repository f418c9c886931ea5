"""Protobuf of a real broker: windows by a field that its descriptor names, and columns by a registry's schemas."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.kafka import Kafka
from tests.avro_examples import message
from tests.integration.direct_kafka import DirectKafka
from tests.integration.evolving_payload import Value, check_both_schemas
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.test_kafka_event_time import produce
from tests.protobuf_examples import add_field, class_of, descriptor_set, file_of
from tests.protobuf_pairs import tagged, varint
from tests.schema_registry import schema_registry
from tests.spark.queries import START
from tests.unit.kafka.records.test_payload_protobuf import FORM, registered
from watermark_source import follow_watermark
from watermark_source.errors import PayloadError

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
FILE = file_of(syntax="proto3")
add_field(FILE.message_type.add(name="Payment"), "at", 1, "google.protobuf.Timestamp")
ORDER = FILE.message_type.add(name="Order")
add_field(ORDER, "id", 1, "string")
add_field(ORDER, "payment", 2, "shop.Payment")
CLASS = class_of(FILE, "shop.Order")


def order(number: int, seconds: float) -> bytes:
    at = {"seconds": START // 1_000 + int(seconds // 1), "nanos": round(seconds % 1 * 1_000) * 1_000_000}
    return message(7, b"\2\2" + CLASS(id=str(number), payment={"at": at}).SerializeToString())


@pytest.mark.long("test_windows_go_by_a_field_of_avro_whichever_schema_it_is_of")
def test_windows_go_by_a_field_of_protobuf(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    descriptors = tmp_path / "orders.desc"
    descriptors.write_bytes(descriptor_set(FILE))
    topic, chance = new_topic(2), np.random.default_rng(5)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)
    minutes: Counter[int] = Counter()
    for partition, begin in enumerate((0, 4_000)):
        for number in range(600):
            seconds = round(begin + number / 2 - chance.uniform(0, 20), 3)
            producer.send(topic, order(number, seconds), partition=partition)
            minutes[int(seconds // 60)] += 1
    # A record of another message has no event time.
    producer.send(topic, message(7, b"\0"), partition=0)
    producer.close(timeout=60)
    source = streams.source(
        subscribe=topic, valueFormat="protobuf", valueSchema=f"{descriptors}:shop.Order", valueFraming="confluent",
        valueColumn="none", eventTimeColumn="value:$.payment.at", eventTimeErrors="null",
        maxOutOfOrderness="30 seconds", maxOffsetsPerTrigger=200,
    )  # fmt: skip
    counts = follow_watermark(source).groupBy(F.window("event_time", "1 minute").alias("w")).count()
    streams.run(counts.select(((F.unix_millis("w.start") - START) / 60_000).cast("int"), "count"), "protobuf")
    closed = {row[0]: row[1] for row in streams.result("protobuf").collect()}
    # The partition of old times has been read to its end, and no row of theirs was late.
    assert {-1, 0, 1, 2, 3} <= closed.keys()
    assert closed == {minute: minutes[minute] for minute in closed}


def orders(*fields: tuple[str, int, str], behind: str | None = None) -> dict[str, Any]:
    """Return a registry's answer: an order with such fields, behind another message if one is named."""
    file = file_of(syntax="proto3")
    if behind is not None:
        file.message_type.add(name=behind)
    message_type = file.message_type.add(name="Order")
    for name, number, kind in fields:
        add_field(message_type, name, number, kind)
    return registered(file)


READ = orders(("number", 1, "string"), ("count", 2, "int64"), ("tag", 4, "string"))
FIRST = orders(("id", 1, "string"), ("count", 2, "int32"), ("old", 3, "string"))
LATER = orders(("tag", 4, "string"), ("number", 1, "string"), ("count", 2, "int64"), behind="First")


def test_a_schema_evolves_while_the_query_runs_and_batches_of_both_run_again(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    """A field is removed, one renamed, one widened, then one added; one value in a hundred is bad."""
    topic, password = new_topic(1), "pass-w0rd"

    def first(n: int) -> Value:
        value = tagged(1, 2, b"%d" % n) + tagged(2, 0, varint(-n)) + tagged(3, 2, b"old")
        return message(1, b"\0" + value), {"number": str(n), "count": -n, "tag": None}

    def later(n: int) -> Value:
        value = tagged(1, 2, b"%d" % n) + tagged(2, 0, varint(n << 40)) + tagged(4, 2, b"t")
        return message(2, b"\2\2" + value), {"number": str(n), "count": n << 40, "tag": "t"}

    answers = {f"/subjects/orders-value/versions/1{FORM}": READ, f"/schemas/ids/1{FORM}": FIRST}
    with schema_registry(answers) as registry:
        source = direct.source(
            subscribe=topic, valueFormat="protobuf", valueSchema="orders-value:1", columns="topic,partition,offset",
            schemaRegistry=f"http://me:{password}@127.0.0.1:{registry.port}", maxOffsetsPerTrigger=150,
        )  # fmt: skip
        check_both_schemas(
            direct, source, lambda values: produce(kafka, topic, {0: values}), first, later,
            lambda: answers.update({f"/schemas/ids/2{FORM}": LATER}),
        )  # fmt: skip

        # What does not resolve ends the query with both types, and an unknown id with the id, where the user chose so.
        answers[f"/schemas/ids/3{FORM}"] = orders(("count", 2, "uint64"))
        produce(kafka, topic, {0: [message(3, b"\0"), message(4, b"\0")]})
        ends = ("schema 3 does not .*field 2, count, is a single uint64 in it, and not a single int64", "no schema of")
        for offset, why in zip((900, 901), ends, strict=True):
            there = json.dumps({topic: {"0": offset}})
            with pytest.raises(PayloadError, match=rf"partition 0 offset {offset}: .*{why}") as ended:
                direct.run({**source, "valueMode": "FAILFAST", "startingOffsets": there}, f"from {offset}")
            assert password not in str(ended.value)
        assert set(registry.logins) == {"Basic bWU6cGFzcy13MHJk"}
