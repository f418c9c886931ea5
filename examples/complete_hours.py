"""Hours of a skewed topic, counted into files and read by two batch jobs. ``make demo-complete`` runs this.

One job reads an hour once ``complete_until`` says that it is complete; the other one ten minutes after its end, by the
clock of the partition that is on time. How many orders each hour has is known from what was produced.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

from examples.demo import (
    Progress,
    last_sentence,
    run_demo,
    say,
    stopped_at_the_end,
    wait_for_start,
)
from examples.skewed_topic import Orders, orders, skewed_topic
from watermark_source import complete_until, follow_watermark, publish_completeness
from watermark_source.durations import count_text
from watermark_source.planning.range_report import NO_ROWS, RowTotals
from watermark_source.status_model.status_json import parse_progress

HOUR_MS = 3_600_000
LATER_MS = 600_000
SPEED = 450
"""Event time runs so many times faster than the clock, so that an hour takes eight seconds."""
WRITER = "hourly-counts"
SILENCE = "10 seconds"
"""After it a partition is not waited for. What it brings later is late for the query, and missing by right."""

SET_UP = """\
The topic orders has four partitions: 0 is an hour ahead, 1 is on time, 2 is slow, 3 is silent.
For {seconds:g} s orders are written, an hour of their time in eight seconds. A query counts them by hour into files,
and states beside them up to when they are complete. Two batch jobs read each hour: one once it is complete, one ten
minutes after its end."""


@dataclass
class BatchJob:
    """What a job found in the files, by the start of the hour."""

    found: dict[int, int] = field(default_factory=dict)

    def read(self, spark: SparkSession, table: Path, hours: list[int]) -> None:
        """Read hours that it has not read yet."""
        if due := [hour for hour in hours if hour not in self.found]:
            counts = counts_in(spark, table)
            self.found.update({hour: counts.get(hour, 0) for hour in due})

    def missed(self, produced: dict[int, int]) -> int:
        """Return how many orders of the hours that it has read were not there."""
        return sum(produced[hour] - found for hour, found in self.found.items())


@dataclass(frozen=True)
class Result:
    """What both jobs have found, judged by what was produced."""

    produced: dict[int, int]
    """The orders of each hour, by its start."""
    by_clock: BatchJob
    once_complete: BatchJob
    late: int
    """Orders that were late for the query."""


def counts_in(spark: SparkSession, table: Path) -> dict[int, int]:
    """Return the orders of each hour that the files have."""
    try:
        return {row.start: row.orders for row in spark.read.parquet(str(table)).collect()}
    except AnalysisException:
        # Before the first batch there are no files.
        return {}


def run(spark: SparkSession, bootstrap: str, topic: str, seconds: float, console: Console) -> Result:
    """Produce and count, and let both jobs read each hour when they think that it is there."""
    source = Orders(bootstrap, topic, seconds, speed=SPEED, window_ms=HOUR_MS)
    by_clock, once_complete = BatchJob(), BatchJob()
    with tempfile.TemporaryDirectory(prefix="complete-hours-") as folder:
        table = Path(folder, "counts")
        rows = orders(spark, bootstrap, topic, idleTimeout=SILENCE)
        counts = follow_watermark(rows).groupBy(F.window("event_time", "1 hour")).count()
        query = (
            counts.select(F.unix_millis("window.start").alias("start"), F.col("count").alias("orders"))
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .queryName(WRITER)
            .start(str(table))
        )
        wait_for_start(query)
        # Without a pause: partitions that are silent together let the watermark pass to the one that is ahead.
        source.go_on.set()
        source.start()
        published = publish_completeness(query, table, WRITER)

        def ended(end: float) -> list[int]:
            return [hour for hour in range(source.first, int(end) - HOUR_MS + 1, HOUR_MS) if hour in source.windows]

        def let_jobs_read() -> None:
            by_clock.read(spark, table, ended(source.now - LATER_MS))
            if (until := complete_until(table, [WRITER])) is not None:
                once_complete.read(spark, table, ended(until.timestamp() * 1_000))

        def read() -> RowTotals:
            return sum((status.rows for status in parse_progress(query.lastProgress)), NO_ROWS)

        def is_over() -> bool:
            is_written = source.is_over()
            let_jobs_read()
            is_read = is_written and read().read == source.windows.total()
            return is_read and by_clock.found.keys() <= once_complete.found.keys()

        def line() -> str:
            done = f"{len(by_clock.found)} hours read ten minutes after them, {len(once_complete.found)} once complete"
            return f"{count_text(source.windows.total())} orders written; {done}"

        progress = Progress(console, [query], line)
        with stopped_at_the_end(query):
            progress.wait_until(is_over)
            published.stop()
            late = read().late.rows
    hours = by_clock.found.keys()
    once_complete.found = {hour: found for hour, found in once_complete.found.items() if hour in hours}
    return Result({hour: source.windows[hour] for hour in hours}, by_clock, once_complete, late)


def main(console: Console) -> int:
    """Run the demo; exit status 1 if an hour that was complete lacked an order that was on time, or none was read."""
    with skewed_topic("complete-hours", __doc__, SET_UP, console) as (spark, bootstrap, topic, seconds):
        result = run(spark, bootstrap, topic, seconds, console)
    produced, by_clock, once_complete = result.produced, result.by_clock, result.once_complete
    for hour, orders_of_hour in sorted(produced.items()):
        say(
            console,
            f"hour {(hour - min(produced)) // HOUR_MS + 1}: {count_text(orders_of_hour)} orders; ten minutes after it "
            f"{count_text(by_clock.found[hour])} were there, once complete {count_text(once_complete.found[hour])}",
        )
    say(console, f"late for the query, after a silence of {SILENCE} or more: {count_text(result.late, 'order')}")
    missed, total = once_complete.missed(produced), sum(produced.values())
    job = "A job that waits ten minutes and hopes"
    say(
        console, last_sentence(job, by_clock.missed(produced), total, "orders", ours="complete_until", ours_lost=missed)
    )
    return 0 if produced and missed <= result.late else 1


if __name__ == "__main__":
    run_demo(main)
