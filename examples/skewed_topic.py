"""A skewed topic, windowed twice: by plain Spark, and by Spark following our watermark. ``make demo`` runs this.

The topic ``orders`` has four partitions: one an hour ahead, one on time, one slow, one silent. Both queries count
orders per minute of event time. What each of them should have counted is known from what was produced.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from examples.demo import (
    Progress,
    introduce,
    last_sentence,
    quiet_spark,
    run_demo,
    say,
    stopped_at_the_end,
    wait_for_start,
)
from examples.servers import add_addresses, topic_of
from examples.sinks import WholeBatches
from watermark_source import data_rows, follow_watermark
from watermark_source.durations import count_text
from watermark_source.monitor.terminal import LiveStatus
from watermark_source.status_model.source_status import SourceStatus, Status
from watermark_source.status_model.status_json import late_rows, parse_progress

TOPIC = "orders"
WINDOW_MS = 60_000
SPEED = 30
"""Event time runs so many times faster than the clock, so that a short demo closes many windows."""
DISORDER_MS = 5_000
FIRST_SECONDS = 2


@dataclass(frozen=True)
class Partition:
    """How one partition of the topic behaves: records a second, and how fast its event time runs."""

    per_second: float
    ahead_ms: int = 0
    pace: float = 1.0

    def time_of(self, n: int, speed: int) -> int:
        """Return the event time of its n-th record, in milliseconds after the first moment of the partition on time."""
        return self.ahead_ms + int(n / self.per_second * 1_000 * speed * self.pace)


PARTITIONS = (
    Partition(per_second=200, ahead_ms=3_600_000),  # an hour ahead
    Partition(per_second=200),  # on time
    Partition(per_second=20, pace=0.4),  # slow
    Partition(per_second=0),  # silent
)


SET_UP = """\
The topic orders has four partitions: 0 is an hour ahead, 1 is on time, 2 is slow, 3 is silent.
For {seconds:g} s orders are written, their event time thirty times faster than the clock. Two queries count them by
minute of event time: one with withWatermark, which follows the partition that is ahead, and one with this source and
follow_watermark, which follows the slowest active one."""


def first_moment(now: int, seconds: float, speed: int, window_ms: int) -> int:
    """Return the start of a window from which on no partition reaches the present: brokers refuse later times."""
    last = max(each.ahead_ms + seconds * 1_000 * speed * each.pace for each in PARTITIONS)
    return (now - int(last)) // window_ms * window_ms


class Orders(threading.Thread):
    """Produces to every partition for a while, and keeps what every window should count.

    After the first moments it waits for ``go_on``: what is produced once a query has a watermark can be late for it.
    """

    def __init__(
        self, bootstrap: str, topic: str, seconds: float, *, speed: int = SPEED, window_ms: int = WINDOW_MS
    ) -> None:
        super().__init__(daemon=True)
        self.windows: Counter[int] = Counter()
        self.go_on = threading.Event()
        self._topic = topic
        self._seconds = seconds
        self._speed = speed
        self._window_ms = window_ms
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        self.first = first_moment(int(time.time() * 1_000), seconds, speed, window_ms)
        self._sent = [0] * len(PARTITIONS)
        self._refused: Exception | None = None

    @property
    def now(self) -> int:
        """The time of the partition that is on time."""
        return self.first + PARTITIONS[1].time_of(self._sent[1], self._speed)

    def is_over(self) -> bool:
        """Return whether all orders are in the topic.

        Raises:
            SystemExit: the broker has refused one, so that it is in no window.
        """
        # In this order: the last order is answered before the thread ends.
        is_over = not self.is_alive()
        if self._refused is not None:
            raise SystemExit(f"the broker has refused an order: {self._refused}")
        return is_over

    def run(self) -> None:
        self._produce(0, FIRST_SECONDS)
        self.go_on.wait()
        self._produce(FIRST_SECONDS, self._seconds)
        self._producer.close()

    def _produce(self, start: float, end: float) -> None:
        began = time.monotonic() - start
        while (elapsed := time.monotonic() - began) < end:
            for number, partition in enumerate(PARTITIONS):
                for n in range(self._sent[number], int(elapsed * partition.per_second)):
                    event_time = self.first + partition.time_of(n, self._speed) - n * 7_919 % DISORDER_MS
                    sent = self._producer.send(self._topic, b"order", partition=number, timestamp_ms=event_time)
                    sent.add_errback(self._note_refused)
                    self.windows[event_time // self._window_ms * self._window_ms] += 1
                    self._sent[number] = n + 1
            time.sleep(0.01)

    def _note_refused(self, error: Exception) -> None:
        # The first one: the producer then gives up what it holds for other partitions, too.
        self._refused = self._refused or error


class Count:
    """A running count of orders per minute, and the windows it has emitted."""

    def __init__(self, title: str, rows: DataFrame, checkpoint: str) -> None:
        self.emitted: dict[int, int] = {}
        self.batches = WholeBatches(self._sink)
        counts = rows.groupBy(F.window("event_time", "1 minute")).count()
        self.query: StreamingQuery = (
            counts.select(F.unix_millis("window.start").alias("start"), F.col("count").alias("orders"))
            .writeStream.outputMode("append")
            .foreachBatch(self.batches)
            .option("checkpointLocation", checkpoint)
            .queryName(title)
            .start()
        )
        wait_for_start(self.query)

    def _sink(self, batch: DataFrame, _: int) -> None:
        self.emitted.update({row.start: row.orders for row in batch.collect()})

    @property
    def status(self) -> SourceStatus | None:
        found = parse_progress(self.query.lastProgress)
        return found[0] if found else None

    @property
    def rows(self) -> int:
        """How many rows have been read."""
        return 0 if self.status is None else self.status.rows.read

    def is_done(self, rows: int) -> bool:
        """Whether every row was read and every partition has come to rest."""
        status = self.status
        return status is not None and status.rows.read == rows and status.counts.get(Status.IDLE, 0) == len(PARTITIONS)


@dataclass(frozen=True)
class Result:
    """What a count has to show for itself, judged by what was produced."""

    read: int
    late: int
    emitted: int
    wrong: int
    missing: int

    @classmethod
    def of(cls, count: Count, produced: Counter[int]) -> Result:
        progress = count.query.recentProgress
        # Append mode emits a window once the watermark has passed its end: up to the last all must be there.
        closed = [start for start in produced if start <= max(count.emitted, default=0)]
        return cls(
            read=max((s.rows.read for p in progress for s in parse_progress(p)), default=0),
            late=sum(late_rows(p) for p in progress),
            emitted=len(count.emitted),
            wrong=sum(count.emitted.get(start) != produced[start] for start in closed),
            missing=sum(produced[start] - count.emitted.get(start, 0) for start in closed),
        )


def orders(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """Return the topic as a stream, from its beginning."""
    return (
        spark.readStream.format("aligned-kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOutOfOrderness", "5 seconds")
        .option("idleTimeout", "5 seconds")
        .options(**options)
        .load()
    )


def run(
    spark: SparkSession, bootstrap: str, topic: str, seconds: float, console: Console
) -> tuple[Result, Result, int]:
    """Produce, count twice at the same time, and wait until both have seen everything."""
    aligned = orders(spark, bootstrap, topic, alignmentGroup="demo", alignmentMaxDrift="10 minutes")
    source = Orders(bootstrap, topic, seconds)
    with tempfile.TemporaryDirectory(prefix="skewed-topic-") as checkpoints:
        plain = Count(
            "withWatermark",
            data_rows(orders(spark, bootstrap, topic)).withWatermark("event_time", "5 seconds"),
            f"{checkpoints}/plain",
        )
        ours = Count("follow_watermark", follow_watermark(aligned, "event_time"), f"{checkpoints}/ours")
        counts = (plain, ours)
        source.start()
        progress = Progress(console, [count.query for count in counts], lambda: progress_line(source, plain, ours))
        # Where nothing can be redrawn in place, the lines of progress are enough.
        live = LiveStatus(ours.query, console=console) if console.is_terminal else nullcontext()
        with live, stopped_at_the_end(plain.query, ours.query), closing(plain.batches), closing(ours.batches):
            progress.wait_until(lambda: all(count.rows for count in counts))
            source.go_on.set()
            progress.wait_until(source.is_over)
            produced = source.windows.total()
            progress.wait_until(lambda: all(count.is_done(produced) for count in counts))
            # The batch after the last marker emits the last windows.
            for count in counts:
                count.query.processAllAvailable()
    return Result.of(plain, source.windows), Result.of(ours, source.windows), produced


def progress_line(source: Orders, plain: Count, ours: Count) -> str:
    """Return how far all is, in a line."""
    each = (f"{name} read {count_text(c.rows)}, closed {len(c.emitted)} windows" for name, c in
            (("withWatermark", plain), ("this source", ours)))  # fmt: skip
    return f"{count_text(source.windows.total())} orders written; {'; '.join(each)}"


def side_by_side(plain: Result, ours: Result, produced: int) -> Table:
    """Return the two results as a table."""
    table = Table(title=f"{produced} orders produced, counted per minute of event time")
    table.add_column("")
    table.add_column("withWatermark", justify="right")
    table.add_column("follow_watermark", justify="right")
    for label, name in (
        ("rows read", "read"),
        ("rows missing from closed windows", "missing"),
        ("dropped as late (Spark's own count, of groups)", "late"),
        ("windows emitted", "emitted"),
        ("windows wrong", "wrong"),
    ):
        table.add_row(label, str(getattr(plain, name)), str(getattr(ours, name)))
    return table


@contextmanager
def skewed_topic(
    name: str, description: str | None, set_up: str, console: Console
) -> Iterator[tuple[SparkSession, str, str, float]]:
    """Yield Spark, the broker, the topic, and for how many seconds to produce, as the command line has them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=40, help="how long to produce (default 40)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    introduce(console, set_up.format(seconds=given.seconds))
    with (
        topic_of(given.kafka, TOPIC, len(PARTITIONS)) as (bootstrap, topic),
        quiet_spark(name, console) as spark,
    ):
        yield spark, bootstrap, topic, given.seconds


def main(console: Console) -> int:
    """Run the demo; exit status 1 if ours lost a row, or if it read less than everything."""
    with skewed_topic("skewed-topic", __doc__, SET_UP, console) as (spark, bootstrap, topic, seconds):
        plain, ours, produced = run(spark, bootstrap, topic, seconds, console)
    console.print(side_by_side(plain, ours, produced))
    whole = ours.read == produced and ours.emitted > 0 and not (ours.missing or ours.wrong or ours.late)
    if not whole:
        console.print(f"follow_watermark is NOT complete: {ours}")
    say(console, last_sentence("withWatermark", plain.missing, produced, "orders", ours_lost=ours.missing))
    return 0 if whole else 1


if __name__ == "__main__":
    run_demo(main)
