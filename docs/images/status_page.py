"""The picture of the status page of a query that runs.

::

    python -m docs.images.status_page

starts the broker and the topic of ``make play`` and a query in an alignment group, and has a browser take the picture
when the query has run for a minute and a half, down to its lines over time: ``status_page.png``.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

from examples.play import AHEAD_SECONDS, TOPIC, write
from examples.servers import topic_of
from services.browser import usable_browser
from watermark_source import StatusPage, follow_watermark, recommended_conf

WIDTH, HEIGHT, MARGIN = 1_280, 900, 16
RUNS_S = 90


def started(spark: SparkSession, bootstrap: str, folder: str) -> StreamingQuery:
    """Start the query: orders of each minute."""
    orders = follow_watermark(
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("eventTimeColumn", "value:$.order.created_at")
        .option("maxOutOfOrderness", "5 seconds")
        .option("idleTimeout", "10 seconds")
        .option("alignmentGroup", "checkout")
        .option("alignmentMaxDrift", "10 minutes")
        .load(),
        "event_time",
    )
    writer = orders.groupBy(window("event_time", "1 minute")).count().writeStream.queryName("orders-by-minute")
    writer = writer.format("noop").trigger(processingTime="1 second")
    return writer.option("checkpointLocation", f"{folder}/checkpoint").start()


def main() -> None:
    """Take the picture."""
    settings = recommended_conf(local_checkpoints=True)
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    program, _ = usable_browser()
    with (
        topic_of(None, TOPIC, len(AHEAD_SECONDS) + 1) as (bootstrap, topic),
        tempfile.TemporaryDirectory() as folder,
    ):
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(bootstrap, topic), daemon=True)
        writer.start()
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        query = started(spark, bootstrap, folder)
        with StatusPage(spark, port=0) as page, program.started() as browser:
            time.sleep(RUNS_S)
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            tab.goto(f"{page.url}?refresh=0")
            last = tab.locator("figure").last.bounding_box() or {}
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + MARGIN}
            tab.screenshot(path=Path(__file__).with_suffix(".png"), full_page=True, clip=clip)
        query.stop()
        spark.stop()
        writer.terminate()


if __name__ == "__main__":
    main()
