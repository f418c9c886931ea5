"""Sinks of examples: counts of windows, and a function for ``foreachBatch``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from threading import Lock

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

from examples.demo import Progress, stopped_at_the_end


def counted_windows(rows: DataFrame, length: str, console: Console, title: str) -> dict[int, int]:
    """Count the rows of each window of ``event_time`` until all are read; return closed windows by start in ms.

    Prints its progress, with the title of the count.
    """
    windows: dict[int, int] = {}

    def keep(batch: DataFrame, _: int) -> None:
        windows.update({row.start: row.rows for row in batch.collect()})

    counts = rows.groupBy(F.window("event_time", length)).count()
    console.print(f"starting {title} …")
    with tempfile.TemporaryDirectory(prefix="counted-windows-") as checkpoint:
        query = (
            counts.select(F.unix_millis("window.start").alias("start"), F.col("count").alias("rows"))
            .writeStream.outputMode("append")
            .foreachBatch(keep)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .queryName(title)
            .start()
        )
        progress = Progress(console, [query], lambda: f"{title}: {len(windows)} windows are closed")
        with stopped_at_the_end(query):
            progress.wait_until(lambda: not query.isActive)
            query.awaitTermination()
    return windows


class WholeBatches:
    """Calls a function for each batch, until it is closed.

    A query that is stopped while its function asks Spark has the function fail, and Spark look through that error with
    a regular expression, which may end in a ``StackOverflowError`` of a thousand lines. So close this before the stop.
    """

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        self._function = function
        self._lock = Lock()
        self._is_closed = False

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Call the function; once this is closed do nothing, though Spark takes the batch for done."""
        with self._lock:
            if not self._is_closed:
                self._function(batch, number)

    def close(self) -> None:
        """Wait for the batch that is with the function, and let no other one in."""
        with self._lock:
            self._is_closed = True
