"""The program of a new user, whose environment is not activated: one thing after the other that goes wrong at first."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from services.spark_start import LOCAL_CHECKPOINTS
from watermark_source import follow_watermark


def main(bootstrap: str, topics: dict[str, str]) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=dict(LOCAL_CHECKPOINTS))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
        .getOrCreate()
    )

    def load(topic: str, **options: Any) -> DataFrame:
        reader = spark.readStream.format("aligned-kafka").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()

    def counted(name: str, topic: str, seconds: int = 0, checkpoint: str | None = None, **options: Any) -> None:
        windows = follow_watermark(load(topic, **options)).groupBy(window("event_time", "1 minute")).count()
        writer = windows.writeStream.format("noop").queryName(name)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        query = (writer if seconds else writer.trigger(availableNow=True)).start()
        # How long its processes take to start is up to the machine.
        while seconds and query.isActive and query.lastProgress is None:
            time.sleep(0.1)
        query.awaitTermination(seconds or None)
        query.stop()

    def of_table(name: str) -> None:
        spark.sql(
            f"CREATE TABLE orders USING `aligned-kafka` OPTIONS (kafka.bootstrap.servers '{bootstrap}', "
            f"subscribe '{topics['orders']}') TBLPROPERTIES (startingOffsets 'earliest')"
        )
        streamed = follow_watermark(spark.readStream.table("orders")).writeStream.format("memory").queryName(name)
        streamed.trigger(availableNow=True).start().awaitTermination()
        say(f"rows {spark.table('orders').count()} {spark.table(name).count()}")

    def of_another_topic(name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            counted(name, topics["even"], checkpoint=folder)
            counted(name, topics["orders"], checkpoint=folder)

    def without_rich(_: str) -> None:
        sys.modules["rich"] = None  # type: ignore[assignment]
        from watermark_source.monitor.terminal import LiveStatus  # noqa: F401

    def started(rows: DataFrame) -> object:
        return rows.writeStream.format("noop").start()

    # The log's lines are found by their query, which has the name of its stage.
    stages: dict[str, Callable[[str], object]] = {
        "silent": lambda name: counted(name, topics["orders"]),
        "silent_live": lambda name: counted(name, topics["orders"], 20, watermarkWarningAfter="6 seconds"),
        "disorder": lambda name: counted(name, topics["disorder"], maxOffsetsPerTrigger=10),
        "undated": lambda name: counted(name, topics["undated"], eventTimeColumn="value:$.at", eventTimeErrors="null"),
        "streamed_table": of_table,
        "another_topic": of_another_topic,
        "no_such_topic": lambda name: counted(name, "there-is-none"),
        "second_watermark": lambda _: started(
            follow_watermark(load(topics["orders"])).withWatermark("event_time", "1 second")
        ),
        "missing_extra": without_rich,
    }
    for name, stage in stages.items():
        say(f"== {name}")
        try:
            stage(name)
        except Exception as error:  # noqa: BLE001 - as a notebook shows it
            say(f"{type(error).__name__}: {error}")
    load(topics["orders"], idleTimout="5 s")


def say(text: str) -> None:
    # Where nobody else writes: the log's lines come from several processes, each when it comes.
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], dict(pair.split("=") for pair in sys.argv[2:]))
