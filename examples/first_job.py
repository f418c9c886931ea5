"""A first job: how many records each minute has, as soon as every partition has passed that minute.

::

    python examples/first_job.py localhost:9092 orders --time 'value:$.order.created_at'

It runs until Ctrl-C, and continues where it ended when it is started again with the same ``--checkpoint``. ``make
play`` starts a broker with a topic for it.
"""

from __future__ import annotations

import argparse
import signal
import time
from threading import Event

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

from watermark_source import follow_watermark, recommended_conf  # above SparkSession.builder
from watermark_source.monitor.terminal import LiveStatus


def print_windows(windows: DataFrame, _: int) -> None:
    """Print the minutes that a batch has closed; a job of yours writes them to a table."""
    for row in windows.orderBy("window").collect():
        print(f"{row.window.start:%Y-%m-%d %H:%M} {row['count']:>10,} records")


def await_ctrl_c(query: StreamingQuery) -> None:
    """Wait for Ctrl-C or the end of the query, and stop between two batches: killed tasks would print tracebacks."""
    stopped = Event()
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    while not stopped.is_set() and not query.awaitTermination(1):
        pass
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(0.01)
    query.stop()


def main() -> None:
    """Count until Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap", help="a broker, HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--time", metavar="WHERE", help="the event time: value:$.path in JSON, or header:name")
    parser.add_argument("--checkpoint", default="checkpoints/first-job", help="where the job keeps how far it is")
    given = parser.parse_args()

    settings = recommended_conf(local_checkpoints=True, installed_on_executors=True)
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").appName("first-job").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    reader = spark.readStream.format("aligned-kafka")
    if given.time:
        reader = reader.option("eventTimeColumn", given.time)  # default: the record's own timestamp
    records = (
        reader.option("kafka.bootstrap.servers", given.bootstrap)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOutOfOrderness", "5 seconds")  # within a partition
        .option("idleTimeout", "10 seconds")  # a silent partition no longer holds the others back
        .load()
    )
    counts = follow_watermark(records, "event_time").groupBy(window("event_time", "1 minute")).count()
    query = (
        counts.writeStream.outputMode("append")
        .foreachBatch(print_windows)
        .option("checkpointLocation", given.checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    with LiveStatus(query):
        await_ctrl_c(query)
    spark.stop()


if __name__ == "__main__":
    main()
