"""Count JSON lines by minute with the connector beside this file: ``python examples/file_log/count.py``.

Two files are written; one is a day ahead. With one watermark for all, as ``withWatermark`` has it, its rows would make
those of the other late. Here each file has its own: every minute that the slower one has left behind is complete.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import watermark_source

HERE = Path(__file__).parent
NOON, DAY = 1_700_049_600_000, 86_400_000


def write(folder: Path) -> None:
    """Write ten minutes of orders, one a second, to two files."""
    for number, start in enumerate((NOON, NOON + DAY)):
        orders = ({"time": start + 1_000 * n, "id": n, "item": "tea" if n % 3 else "rice"} for n in range(600))
        (folder / f"orders-{number}.jsonl").write_text("".join(json.dumps(order) + "\n" for order in orders))


def end_at_once(*_: object) -> NoReturn:
    """End by Ctrl-C before there is a query: an exception in its start would have Spark leave its Java behind."""
    print("\nCtrl-C: ended before the query was there", flush=True)
    os._exit(130)


def main() -> None:
    """Write, count, show."""
    signal.signal(signal.SIGINT, end_at_once)
    # Spark looks for formats in the Python processes that it starts: they must find the module too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    signal.signal(signal.SIGINT, end_at_once)  # Spark has set its own, which waits for answers of Java
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        orders = watermark_source.follow_watermark(
            spark.readStream.format("file-log")
            .option("folder", name)
            .option("columns", "id long, item string")
            .option("startingOffsets", "earliest")
            .option("maxRowsPerTrigger", 200)
            .load(),
            "event_time",
        )
        counts = orders.groupBy(F.window("event_time", "1 minute").alias("minute")).count()
        query = (
            counts.writeStream.format("memory").queryName("counts").outputMode("append")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        print("counting …", flush=True)
        with watermark_source.stop_between_batches(query):
            query.awaitTermination()
        spark.table("counts").select("minute.start", "count").orderBy("start").show(30)
    spark.stop()


if __name__ == "__main__":
    main()
