"""Queries of the kinds that tests run, so that their classes are loaded: ``... JAVA_OPTIONS FOLDER``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.functions import window
from pyspark.sql.types import StructType

_STORES = "org.apache.spark.sql.execution.streaming.state"


class _Numbers(DataSource):
    """A streaming source in Python of one row a batch."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "event_time timestamp, number int"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        return _NumbersReader()


class _NumbersReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Row], dict[str, int]]:
        from datetime import datetime

        rows = [Row(event_time=datetime.fromtimestamp(0, UTC), number=1)] if start["next"] == 0 else []
        return iter(rows), {"next": 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Row]:  # noqa: N802
        del end
        return self.read(start)[0]


def run(java_options: str, folder: Path) -> None:
    """Start a session, run the queries, and return when its Java has ended."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.dataSource.register(_Numbers)
    parquet = str(folder / "rows")
    spark.createDataFrame([(1, "one")], "number int, word string").write.parquet(parquet)
    words = spark.read.parquet(parquet).mapInArrow(lambda batches: batches, "number int, word string")
    for store in ("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"):
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{_STORES}.{store}")
        numbers = spark.readStream.format("numbers").load().withWatermark("event_time", "1 second")
        windows = numbers.groupBy(window("event_time", "1 second")).count()
        files = str(folder / f"counts-{store}")
        for number, writer in enumerate(
            (
                windows.writeStream.format("memory").queryName(store),
                windows.select("count").writeStream.format("parquet").option("path", files),
                numbers.join(words, "number").writeStream.foreachBatch(_collect),
            )
        ):
            checkpoint = str(folder / f"checkpoint-{number}-{store}")
            writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - the archive is written at the end of this process
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _collect(rows: DataFrame, batch: int) -> None:
    del batch
    rows.collect()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
