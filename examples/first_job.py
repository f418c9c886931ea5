"""A first job: how many records each minute has, as soon as every partition has passed that minute.

::

    python examples/first_job.py localhost:9092 orders --eventTimeColumn 'value:$.order.created_at'

It runs until Ctrl-C, and continues where it ended when it is started again with the same ``--checkpoint``. ``make
play`` starts a broker with a topic for it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import NoReturn

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from watermark_source import follow_watermark, recommended_conf, stop_between_batches  # above SparkSession.builder
from watermark_source.monitor.terminal import LiveStatus


def print_windows(windows: DataFrame, _: int) -> None:
    """Print the minutes that a batch has closed; a job of yours writes them to a table."""
    for row in windows.orderBy("window").collect():
        print(f"{row.window.start:%Y-%m-%d %H:%M} {row['count']:>10,} records")


def end_at_once(*_: object) -> NoReturn:
    """End by Ctrl-C before there is a query: an exception in its start would have Spark leave its Java behind."""
    print("Ctrl-C: ended before the query was there", flush=True)
    os._exit(130)


def main() -> None:
    """Count until Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap", help="a broker, HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--eventTimeColumn", metavar="WHERE", help="value:$.path in JSON, or header:name")
    parser.add_argument("--checkpoint", default="checkpoints/first-job", help="where the job keeps how far it is")
    given = parser.parse_args()

    settings = recommended_conf(local_checkpoints=True, installed_on_executors=True)
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    # Spark searches the error of a batch that is stopped in its function by an expression that takes a lot of stack.
    settings["spark.driver.extraJavaOptions"] = "-Xss16m"
    signal.signal(signal.SIGINT, end_at_once)
    spark = SparkSession.builder.master("local[2]").appName("first-job").config(map=settings).getOrCreate()
    signal.signal(signal.SIGINT, end_at_once)  # Spark has set its own, which waits for answers of Java
    spark.sparkContext.setLogLevel("ERROR")

    reader = spark.readStream.format("aligned-kafka")
    if given.eventTimeColumn:
        reader = reader.option("eventTimeColumn", given.eventTimeColumn)  # default: the record's own timestamp
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
    try:
        with LiveStatus(query), stop_between_batches(query):  # also by Ctrl-C
            query.awaitTermination()
    except StreamingQueryException as error:
        sys.exit(f"the job failed: {str(error).splitlines()[0]}")  # below come frames and plans of Spark
    spark.stop()


if __name__ == "__main__":
    main()
