"""Early and final answers: each window is answered soon, from most of its rows, and later corrected to the exact count.

Two queries read one topic. The early one has a learned bound (``watermarkStrategy=percentile``): 95 % of the rows are
on time, and a window is answered a few seconds after its end. The final one waits ``maxOutOfOrderness``, and counts
rows that are late even then as corrections. Both write one table with a row for each window, in which the early and the
final answer are two columns: whichever query writes last, a final answer is never replaced by an early one.

Orders of the topic are up to two seconds out of order; 3 % come up to 55 seconds later, and 1 % so late that the final
answer is without them. One of three partitions is half a minute behind the others.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import numpy as np
from kafka import KafkaProducer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from examples.demo import Progress, quiet_spark, run_demo, stopped_at_the_end, wait_for_start
from examples.servers import add_addresses, topic_of
from examples.sinks import WholeBatches
from watermark_source import follow_watermark, split_late

TOPIC = "answered-orders"
SHARES = (0.6, 0.3, 0.1)
"""Of the rows, by partition."""
BEHIND_MS = (0, 0, 30_000)
START_MS = 1_699_999_980_000
WINDOW_MS = 10_000
BOUND_MS = 60_000
SPEED = 10
"""Event time runs so many times faster than the clock, so that a short run closes many windows."""

EARLY, FINAL, LATE = "early", "final", "late"
"""What a row that a query writes is: an answer, or a correction of a final one by late rows."""


# The two queries.


def topic_options(bootstrap: str, topic: str, per_batch: int | None = None) -> dict[str, str]:
    """Return what both sources have in common: the rows that they read, and how long the final answer waits."""
    limit = {} if per_batch is None else {"maxOffsetsPerTrigger": str(per_batch)}
    return {
        **limit,
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",  # not latest: each query would begin where the topic ends when it starts
        "maxOutOfOrderness": f"{BOUND_MS} milliseconds",
    }


def early_answers(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return a count for each window, once 95 % of the rows can be expected to have come."""
    learned = {"watermarkStrategy": "percentile", "watermarkPercentile": "95"}
    stream = spark.readStream.format("aligned-kafka").options(**options, **learned).load()
    return _answers(follow_watermark(stream).groupBy(_window()).count(), EARLY)


def final_answers(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return a count for each window after ``maxOutOfOrderness``, and a correction for each row that is late then."""
    stream = spark.readStream.format("aligned-kafka").options(**options).option("includeLate", "true").load()
    on_time, late = split_late(follow_watermark(stream))
    corrections = late.select(_window(), F.lit(1).cast("long").alias("count"))
    return _answers(on_time.groupBy(_window()).count(), FINAL).unionByName(_answers(corrections, LATE))


def _window() -> Column:
    return F.window("event_time", f"{WINDOW_MS} milliseconds").alias("window")


def _answers(counts: DataFrame, answer: str) -> DataFrame:
    return counts.select(F.unix_millis("window.start").alias("start"), F.lit(answer).alias("answer"), "count")


# The table that both write.


_TABLES: Final = """
CREATE TABLE IF NOT EXISTS answers (
    start INTEGER PRIMARY KEY, early INTEGER, final INTEGER, late INTEGER NOT NULL DEFAULT 0, early_at REAL,
    final_at REAL);
CREATE TABLE IF NOT EXISTS batches (query TEXT PRIMARY KEY, batch INTEGER NOT NULL);
CREATE VIEW IF NOT EXISTS counts AS
    SELECT start, final IS NOT NULL AS is_final,
        CASE WHEN final IS NULL THEN max(coalesce(early, 0), late) ELSE final + late END AS count
    FROM answers;
"""
_UPSERTS: Final = {
    EARLY: "INSERT INTO answers (start, early, early_at) VALUES (?1, ?2, ?3) "
    "ON CONFLICT (start) DO UPDATE SET early = excluded.early, early_at = excluded.early_at",
    FINAL: "INSERT INTO answers (start, final, final_at) VALUES (?1, ?2, ?3) "
    "ON CONFLICT (start) DO UPDATE SET final = excluded.final, final_at = excluded.final_at",
    LATE: "INSERT INTO answers (start, late) VALUES (?1, ?2) "
    "ON CONFLICT (start) DO UPDATE SET late = answers.late + excluded.late",
}


class AnswerTable:
    """A SQLite file with a row for each window: its early and its final answer, and the late rows after that.

    A batch and its number are written in one transaction. So a batch that Spark repeats is written once, and a
    correction is added once. The table belongs to the checkpoints of its queries: a query with a new checkpoint
    location begins again with batch 0, and needs a new table.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._connected() as database:
            database.executescript(_TABLES)

    def sink(self, query: str) -> Callable[[DataFrame, int], None]:
        """Return the function for ``foreachBatch`` of a query."""

        def write(batch: DataFrame, number: int) -> None:
            self.record(query, number, [(row.answer, row.start, row["count"]) for row in batch.collect()])

        return write

    def record(self, query: str, number: int, rows: Iterable[tuple[str, int, int]]) -> None:
        """Write a batch of a query: answer, start of the window, count."""
        now = time.time()
        with self._connected() as database:
            database.execute("BEGIN IMMEDIATE")
            last = database.execute("SELECT batch FROM batches WHERE query = ?", (query,)).fetchone()
            if last is not None and number <= last[0]:
                return  # closing takes the transaction back
            for answer, start, count in rows:
                values = (start, count) if answer == LATE else (start, count, now)
                database.execute(_UPSERTS[answer], values)
            database.execute(
                "INSERT INTO batches VALUES (?, ?) ON CONFLICT (query) DO UPDATE SET batch = excluded.batch",
                (query, number),
            )
            database.execute("COMMIT")

    def counts(self) -> dict[int, int]:
        """Return the answer in force for each window, by its start."""
        return dict(self._rows("SELECT start, count FROM counts"))

    def answers(self) -> dict[int, tuple[int | None, int | None, int]]:
        """Return the early answer, the final one and the number of late rows of each window."""
        found = self._rows("SELECT start, early, final, late FROM answers")
        return {start: (early, final, late) for start, early, final, late in found}

    def leads(self) -> list[float]:
        """Return by how many seconds the early answer to each window came before the final one."""
        return [lead for (lead,) in self._rows("SELECT final_at - early_at FROM answers") if lead is not None]

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connected() as database:
            return database.execute(query).fetchall()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # Each query writes from a thread of its own, and waits for the other.
        with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as database:
            yield database


# The topic.


class Order(NamedTuple):
    """A row of the topic, and when it is written, in milliseconds after the first one."""

    written: int
    partition: int
    event_time: int


def orders(rows: int, seconds: float, seed: int = 1) -> list[Order]:
    """Return the rows of so many seconds of event time, in the order in which they are written.

    The last of each partition is far ahead: with it the watermark passes the windows of all others.
    """
    chance = np.random.default_rng(seed)
    span = int(seconds * 1_000)
    found = []
    for partition, share in enumerate(SHARES):
        count = round(rows * share)
        written = np.sort(chance.integers(0, span, count))
        kind = chance.random(count)
        delay = chance.integers(0, 2_000, count)
        delay[kind < 0.04] = chance.integers(10_000, BOUND_MS - 5_000, count)[kind < 0.04]
        delay[kind < 0.01] = chance.integers(BOUND_MS + 10_000, 5 * BOUND_MS, count)[kind < 0.01]
        times = START_MS + written - BEHIND_MS[partition] - delay
        found += [Order(int(at), partition, int(time)) for at, time in zip(written, times, strict=True)]
        found.append(Order(span, partition, START_MS + span + 1_000_000))
    return sorted(found)


def expected(rows: Iterable[Order]) -> Counter[int]:
    """Return how many rows each window has, by its start, without the windows of the last rows."""
    last = max(row.event_time for row in rows)
    return Counter(row.event_time // WINDOW_MS * WINDOW_MS for row in rows if row.event_time != last)


class Producer(Thread):
    """Writes rows: some at once, the others once they may be written, at so many times the speed of event time."""

    def __init__(self, bootstrap: str, topic: str, rows: Sequence[Order], speed: float | None = None) -> None:
        super().__init__(daemon=True)
        self.proceed = Event()
        """Set once the others may be written."""
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        self._topic = topic
        self._rows = rows
        self._speed = speed

    def run(self) -> None:
        """Write all rows."""
        first = len(self._rows) // 20
        self._write(self._rows[:first])
        self._producer.flush()
        self.proceed.wait()
        began = time.monotonic() - self._seconds(self._rows[first])
        for row in self._rows[first:]:
            time.sleep(max(0.0, began + self._seconds(row) - time.monotonic()))
            self._write([row])
        self._producer.close()

    def _seconds(self, row: Order) -> float:
        return 0.0 if self._speed is None else row.written / 1_000 / self._speed

    def _write(self, rows: Iterable[Order]) -> None:
        for row in rows:
            self._producer.send(self._topic, b"order", partition=row.partition, timestamp_ms=row.event_time)


def produce(bootstrap: str, topic: str, rows: Sequence[Order]) -> None:
    """Write all rows at once."""
    producer = Producer(bootstrap, topic, rows)
    producer.proceed.set()
    producer.run()


def batch_query(spark: SparkSession, bootstrap: str, topic: str) -> dict[int, int]:
    """Count the rows of each window that the topic holds now."""
    rows = spark.read.format("aligned-kafka").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    counts = rows.load().groupBy(_window()).count()
    return {row.start: row["count"] for row in _answers(counts, FINAL).collect()}


# The run.


class Result(NamedTuple):
    """What a run has shown."""

    windows: int
    wrong: int
    """Windows whose final answer with its corrections is not that of the batch query."""
    early: int
    """Windows with an early answer."""
    share: float
    """Of the rows of those windows, which are in the early answers."""
    late: int
    """Rows that corrected a final answer."""
    lead: float
    """Median of the seconds by which early answers came before final ones."""


def run(
    spark: SparkSession, options: Mapping[str, str], rows: list[Order], console: Console, speed: float | None = None
) -> Result:
    """Write the rows while both queries run, wait for the final answer to each window, and compare."""
    windows = expected(rows)
    bootstrap, topic = options["kafka.bootstrap.servers"], options["subscribe"]
    with tempfile.TemporaryDirectory(prefix="early-and-final-") as folder:
        table = AnswerTable(Path(folder, "answers.sqlite"))
        frames = {EARLY: early_answers(spark, options), FINAL: final_answers(spark, options)}
        sinks = {name: WholeBatches(table.sink(name)) for name in frames}
        queries: list[StreamingQuery] = []
        producer = Producer(bootstrap, topic, rows, speed)
        progress = Progress(console, queries, lambda: progress_line(table))
        for name, frame in frames.items():
            writer = frame.writeStream.queryName(f"{name} answers").foreachBatch(sinks[name])
            queries.append(writer.option("checkpointLocation", f"{folder}/{name}").start())
            wait_for_start(queries[-1])
        with stopped_at_the_end(*queries), closing(sinks[EARLY]), closing(sinks[FINAL]):
            producer.start()
            # A Spark that is starting would find everything in one batch, and no row late.
            progress.wait_until(lambda: all(query.lastProgress is not None for query in queries))
            producer.proceed.set()
            progress.wait_until(lambda: not producer.is_alive() and is_answered(table, windows))
            for query in queries:
                query.processAllAvailable()
        exact = batch_query(spark, bootstrap, topic)
        counts, answers = table.counts(), table.answers()
        answered = {start: early for start, (early, _, _) in answers.items() if early is not None}
        return Result(
            windows=len(windows),
            wrong=sum(counts.get(start) != exact[start] for start in windows),
            early=len(answered),
            share=sum(answered.values()) / sum(exact[start] for start in answered),
            late=sum(late for _, _, late in answers.values()),
            lead=median(table.leads()),
        )


def progress_line(table: AnswerTable) -> str:
    """Return how many windows have which answers, in a line."""
    answers = table.answers().values()
    early, final = (sum(answer[kind] is not None for answer in answers) for kind in (0, 1))
    return f"{early} windows have an early answer, {final} a final one"


def is_answered(table: AnswerTable, windows: Mapping[int, int]) -> bool:
    """Return whether the full windows have both answers: a window of a few rows that all came late may have none.

    The last windows are closed by the last rows, so the final answers have been sent then.
    """
    answers, most = table.answers(), max(windows.values())
    return all(start in answers and None not in answers[start] for start, rows in windows.items() if 2 * rows > most)


def main(console: Console) -> int:
    """Run the example; exit status 1 if an answer is wrong in the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long orders are written (default 60)")
    parser.add_argument("--rows", type=int, default=30_000, help="orders (default 30000)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    rows = orders(given.rows, given.seconds * SPEED)
    with topic_of(given.kafka, TOPIC, len(SHARES)) as (bootstrap, topic), quiet_spark("answers", console) as spark:
        result = run(spark, topic_options(bootstrap, topic), rows, console, SPEED)
    console.print(
        f"{result.early} of {result.windows} windows had an early answer, with {result.share:.1%} of their rows, "
        f"{result.lead:.1f} s before the final one (median). {result.late} late rows corrected final answers, "
        f"of which {result.wrong} differ from the batch query.",
        highlight=False,
        soft_wrap=True,
    )
    return 1 if result.wrong else 0


if __name__ == "__main__":
    run_demo(main)
