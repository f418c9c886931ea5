"""A driver program of its own with one source of an alignment group, to be frozen and killed.

Run as ``python group_driver.py FOLDER OPTION=VALUE…``: it writes the rows of a stream of Kafka into files, and what its
progress shows of the group to ``FOLDER/groups``, a line whenever that has changed. ``FOLDER/addresses`` has the
addresses of its status page and of its metrics.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql import SparkSession

from tests.integration.killed_driver import Lines, session
from tests.integration.reader_loop import lines as read_lines
from watermark_source import StatusPage
from watermark_source.monitor.listener import StatusListener

_OFTEN = {"spark.sql.streaming.noDataProgressEventInterval": "100"}


def checkpoint_of(folder: Path) -> Path:
    """Return where the query's checkpoint is."""
    return folder / "checkpoint"


def sink_of(folder: Path) -> Path:
    """Return where its rows are."""
    return folder / "sink"


def addresses_of(folder: Path) -> list[str]:
    """Return the addresses of its page and of its metrics; none while it starts."""
    return lines[0]["at"] if (lines := read_lines(folder / "addresses")) else []


@contextmanager
def shown(spark: SparkSession) -> Iterator[list[str]]:
    """Show the queries of a session; yield the addresses of the page and of the metrics."""
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    spark.streams.addListener(listener)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with StatusPage(spark, port=0) as page:
            yield [page.url, f"http://127.0.0.1:{server.server_address[1]}/metrics"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        spark.streams.removeListener(listener)


def main(folder: Path, options: dict[str, str]) -> None:
    """Run the query for ever."""
    spark = session("local[1]", _OFTEN)
    with shown(spark) as addresses:
        Lines(folder / "addresses").write({"at": addresses})
        _run(spark, folder, options)


def _run(spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
    frame = spark.readStream.format("aligned-kafka").options(**options).load()
    rows = frame.where("marker IS NULL").select("partition", "offset")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint_of(folder)))
    query = writer.start(str(sink_of(folder)))
    log, group = Lines(folder / "groups"), None
    while query.isActive:
        time.sleep(0.05)
        progress = query.lastProgress
        status = json.loads(progress.sources[0].latestOffset) if progress and progress.sources[0].latestOffset else {}
        if status.get("group") != group:
            group = status.get("group")
            log.write({"at": time.time(), "group": group})
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(option.split("=", 1) for option in sys.argv[2:]))
