"""What tests do with a broker, so that its classes are loaded: ``... JAVA_OPTIONS FOLDER``."""

from __future__ import annotations

import sys
from contextlib import closing

import numpy as np
from kafka import KafkaConsumer

from services.kafka_bulk import bulk_produce
from services.kafka_local import Jvm, LocalKafka
from services.kafka_topics import create_topic


def run(java_options: str) -> None:
    """Start a broker, let it write, read and coordinate, and return when its Java has ended."""
    with closing(LocalKafka(jvm=Jvm(flags=tuple(java_options.split())))) as broker:
        broker.start()
        create_topic(broker.bootstrap, "topic", 2)
        bulk_produce(broker.bootstrap, "topic", 0, np.zeros(10, np.int64))
        consumer = KafkaConsumer(
            "topic", bootstrap_servers=broker.bootstrap, group_id="group", auto_offset_reset="earliest"
        )
        with closing(consumer):
            consumer.poll(timeout_ms=10_000)
            consumer.commit()
        broker.stop()


if __name__ == "__main__":
    run(sys.argv[1])
