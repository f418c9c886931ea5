"""A picture of the status page.

::

    python -m docs.images.status_page

writes orders to a topic of a broker of its own, as ``make play`` does: partition 0 is an hour ahead, 1 is on time, 2 is
ten minutes behind, 3 is silent. A query counts them by minutes, kept together by an alignment group; after some time
a browser takes the picture, ``status_page.png``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.functions import window
from rich.console import Console

from examples.demo import quiet_spark
from examples.play import AHEAD_SECONDS, HISTORY_SECONDS, PER_SECOND, TOPIC, order
from services.browser import usable_browser
from services.kafka import kafka_service
from services.kafka_topics import create_topic
from watermark_source import StatusPage, follow_watermark

PICTURE = Path(__file__).with_suffix(".png")
SECONDS = 40
WIDTH, HEIGHT = 1_100, 1_000


def main() -> None:
    """Take the picture."""
    with kafka_service() as kafka, quiet_spark("status-page", Console()) as spark:
        create_topic(kafka.bootstrap, TOPIC, len(AHEAD_SECONDS) + 1)
        with tempfile.TemporaryDirectory() as folder, StatusPage(spark, port=0) as page:
            start(spark, kafka.bootstrap, folder)
            write(kafka.bootstrap)
            take(page.url)
            for query in spark.streams.active:
                query.stop()


def start(spark: SparkSession, bootstrap: str, folder: str) -> None:
    """Start the query."""
    reader = spark.readStream.format("aligned-kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
    reader = reader.option("eventTimeColumn", "value:$.order.created_at").option("maxOutOfOrderness", "5 seconds")
    reader = reader.option("idleTimeout", "10 seconds").option("sourceName", "orders")
    orders = reader.option("alignmentGroup", "checkout").option("alignmentMaxDrift", "20 minutes").load()
    counted = follow_watermark(orders).groupBy(window("event_time", "1 minute")).count()
    writer = counted.writeStream.format("noop").queryName("orders by minute").trigger(processingTime="1 second")
    writer.option("checkpointLocation", folder).start()


def write(bootstrap: str) -> None:
    """Write the history, then orders as time passes."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    began, number, end = time.time() - HISTORY_SECONDS, 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        while (at := began + number / PER_SECOND) <= time.time():
            for partition in range(len(AHEAD_SECONDS)):
                producer.send(TOPIC, order(partition, number, at), partition=partition)
            number += 1
        time.sleep(0.1)
    producer.close()


def take(url: str) -> None:
    """Have a browser take the picture."""
    program, _ = usable_browser()
    with program.started() as browser:
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(f"{url}?refresh=30")
        tab.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
