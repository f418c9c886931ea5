"""Event time in a field of Protobuf, through the stream: windows by a field that its descriptor names."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.kafka import Kafka
from tests.avro_examples import message
from tests.integration.kafka_streams import KafkaStreams
from tests.protobuf_examples import add_field, class_of, descriptor_set, file_of
from tests.spark.queries import START
from watermark_source import follow_watermark

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
    descriptors, name = tmp_path / "orders.desc", f"protobuf_times_{uuid.uuid4().hex}"
    descriptors.write_bytes(descriptor_set(FILE))
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\n"
        "from watermark_source.extractors import protobuf_event_time\n"
        "event_time = protobuf_event_time(\n"
        f"    'payment.at', message='shop.Order', descriptors=Path({str(descriptors)!r})\n"
        ")\n"
    )
    streams.spark.sparkContext.addPyFile(str(tmp_path / f"{name}.py"))
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
        subscribe=topic, eventTimeColumn=f"{name}:event_time", maxOutOfOrderness="30 seconds", eventTimeErrors="null",
        maxOffsetsPerTrigger=200,
    )  # fmt: skip
    counts = follow_watermark(source).groupBy(F.window("event_time", "1 minute").alias("w")).count()
    streams.run(counts.select(((F.unix_millis("w.start") - START) / 60_000).cast("int"), "count"), "protobuf")
    closed = {row[0]: row[1] for row in streams.result("protobuf").collect()}
    # The partition of old times has been read to its end, and no row of theirs was late.
    assert {-1, 0, 1, 2, 3} <= closed.keys()
    assert closed == {minute: minutes[minute] for minute in closed}
