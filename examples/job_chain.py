"""Three jobs in a row over topics: clicks, sessions, counts. ``make demo-chain`` runs this.

Two writers produce clicks into one topic: ``app`` is most of an hour behind ``web``, one partition is ahead of the
others, and one is silent. The first job finds the sessions of each user, the second counts them every five minutes, the
third adds these counts up by the hour. The chain runs twice at the same time: with watermarks that each job announces
to the next, and with a bound and an idle timeout in each job. What was written shows what each hour should have.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from kafka import KafkaProducer
from pyspark.sql import Column, DataFrame, SparkSession
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
from pyspark_aligned_kafka import WatermarkAnnouncer, announce_watermark
from services.ivy import spark_kafka_jars
from services.kafka_topics import create_topic
from watermark_source import follow_watermark
from watermark_source.durations import count_text
from watermark_source.publishing.announced_query import AnnouncedQuery

CLICKS = "clicks"
PARTITIONS = 4
START_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS = 3_600_000
SPEED = 300
"""Event time runs so many times faster than the clock, so that a short demo has some hours."""
PER_SECOND = 200
DISORDER_MS = 30_000
AHEAD_MS = (600_000, 0, 0)
"""How far the event times of a partition are ahead; the last partition is silent."""
CLICKS_OF_USER = 10
GAP_MS = 60_000
"""Between two sessions of a user, at least."""
APP_STARTS_AFTER = 10.0
ROWS_A_BATCH = 1_000
"""Few, so that a machine that is slow to start has several batches, too."""
SET_UP = """\
Two writers produce clicks into one topic of four partitions for {seconds:g} s: app is {behind:g} minutes of event time
behind web, partition 0 is 10 minutes ahead, partition 3 is silent. Three jobs in a row find the sessions of users,
count them by five minutes, and add these counts up by the hour. The chain runs twice at the same time: with watermarks
that each job announces to the next, and with a bound and an idle timeout in each job."""
TYPES = "user STRING, clicks LONG, sessions LONG"


class Writer(threading.Thread):
    """Writes clicks, announces how far they have come, and keeps what each hour should have."""

    def __init__(self, bootstrap: str, topic: str, name: str, seconds: float, starts_after: float) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.clicks: list[tuple[str, int]] = []
        self.passed: dict[int, float] = {}
        """When the last click before the end of each hour was written, by the monotonic clock."""
        self.go_on = threading.Event()
        self._topic = topic
        self._clicks = int(seconds * PER_SECOND)
        self._starts_after = starts_after
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        # From now on readers wait for this writer.
        self._announcer = WatermarkAnnouncer(
            topic=topic, kafka={"kafka.bootstrap.servers": bootstrap}, writer=self.name
        )

    def run(self) -> None:
        self.go_on.wait()
        began = time.monotonic() + self._starts_after
        sent = 0
        while sent < self._clicks:
            due = min(int((time.monotonic() - began) * PER_SECOND), self._clicks)
            for n in range(sent, due):
                self._send(n)
            if due > sent:
                sent = due
                self._producer.flush()
                # The next click is at most this far behind the time that the writer has come to.
                self._announcer.announce(START_MS + sent * 1_000 * SPEED // PER_SECOND - DISORDER_MS - 1)
            time.sleep(0.2)
        self._announcer.close(end=True)
        self._producer.close()

    def _send(self, n: int) -> None:
        user = f"{self.name}-{n // CLICKS_OF_USER}"
        partition = n // CLICKS_OF_USER % len(AHEAD_MS)
        at = START_MS + AHEAD_MS[partition] + n * 1_000 * SPEED // PER_SECOND - n * 7_919 % DISORDER_MS
        value = json.dumps({"user": user, "at": at}).encode()
        self._producer.send(self._topic, value, key=user.encode(), partition=partition)
        self.clicks.append((user, at))
        self.passed[at // HOUR_MS * HOUR_MS] = time.monotonic()


def sessions_of(clicks: Sequence[tuple[str, int]]) -> Counter[tuple[int, str]]:
    """Return how many sessions and clicks each hour should have: a session counts where it ends."""
    hours: Counter[tuple[int, str]] = Counter()
    by_user: dict[str, list[int]] = {}
    for user, at in clicks:
        by_user.setdefault(user, []).append(at)
    for times in by_user.values():
        times.sort()
        first = 0
        for n in range(1, len(times) + 1):
            if n == len(times) or times[n] - times[n - 1] > GAP_MS:
                hour = (times[n - 1] + GAP_MS - 1) // HOUR_MS * HOUR_MS
                hours[hour, "sessions"] += 1
                hours[hour, "clicks"] += n - first
                first = n
    return hours


@dataclass
class Chain:
    """The three jobs, and what the last of them has."""

    title: str
    spark: SparkSession
    bootstrap: str
    folder: str
    clicks: str
    announces: bool
    hours: dict[int, tuple[int, int]] = field(default_factory=dict)
    emitted: dict[int, float] = field(default_factory=dict)
    queries: list[StreamingQuery] = field(default_factory=list)
    announced: list[AnnouncedQuery] = field(default_factory=list)

    def start(self) -> None:
        """Create the topics between the jobs, and start all jobs."""
        sessions, counts = f"{self.clicks}-sessions-{self.name}", f"{self.clicks}-counts-{self.name}"
        for topic in (sessions, counts):
            create_topic(self.bootstrap, topic, PARTITIONS)
        self._batches = WholeBatches(self._keep)
        self._job("sessions", self._sessions(self._read(self.clicks, "web,app")), to=sessions)
        self._job("counts", self._counts(self._read(sessions, "sessions")), to=counts)
        self._job("hours", self._hours(self._read(counts, "counts")), to=None)

    @property
    def name(self) -> str:
        """Part of the names of topics and checkpoints."""
        return "announced" if self.announces else "bounded"

    def close(self) -> None:
        """Let no other batch into a sink, and announce nothing more."""
        self._batches.close()
        for each in self.announced:
            each.stop()

    def _read(self, topic: str, writers: str) -> DataFrame:
        """Return what a topic holds, with the members of its documents as columns."""
        if self.announces:
            time_options = {"watermarkStrategy": "announced", "announcedBy": writers}
        else:
            time_options = {"maxOutOfOrderness": "30 seconds", "idleTimeout": "3 seconds"}
        rows = (
            self.spark.readStream.format("aligned-kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(ROWS_A_BATCH))
            .option("eventTimeColumn", "value:$.at")
            .option("eventTimeFormat", "millis")
            .options(**time_options)
            .load()
        )
        document = F.from_json(F.col("value").cast("string"), TYPES).alias("json")
        return follow_watermark(rows).select("event_time", document).select("event_time", "json.*")

    def _sessions(self, clicks: DataFrame) -> DataFrame:
        window = F.session_window("event_time", f"{GAP_MS} milliseconds")
        found = clicks.groupBy(window, "user").agg(F.count("*").alias("clicks"))
        return found.select("user", "clicks", last_moment("session_window"))

    def _counts(self, sessions: DataFrame) -> DataFrame:
        found = sessions.groupBy(F.window("event_time", "5 minutes")).agg(
            F.count("*").alias("sessions"), F.sum("clicks").alias("clicks")
        )
        return found.select("sessions", "clicks", last_moment("window"))

    def _hours(self, counts: DataFrame) -> DataFrame:
        found = counts.groupBy(F.window("event_time", "1 hour")).agg(
            F.sum("sessions").alias("sessions"), F.sum("clicks").alias("clicks")
        )
        return found.select(F.unix_millis("window.start").alias("start"), "sessions", "clicks")

    def _job(self, name: str, rows: DataFrame, *, to: str | None) -> None:
        writer = rows.writeStream if to is None else rows.select(F.to_json(F.struct("*")).alias("value")).writeStream
        writer = writer.outputMode("append").option("checkpointLocation", f"{self.folder}/{self.name}-{name}")
        if to is None:
            writer = writer.foreachBatch(self._batches)
        else:
            writer = writer.format("kafka").option("kafka.bootstrap.servers", self.bootstrap).option("topic", to)
        query = writer.queryName(f"{name} ({self.name})").start()
        self.queries.append(query)
        wait_for_start(query)
        if self.announces and to is not None:
            kafka = {"kafka.bootstrap.servers": self.bootstrap}
            self.announced.append(announce_watermark(query, topic=to, kafka=kafka, writer=name))

    def _keep(self, batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            self.hours[row.start] = (row.sessions, row.clicks)
            self.emitted[row.start] = time.monotonic()


def last_moment(window: str) -> Column:
    """Return the last millisecond of a window as ``at``: the time that the next job counts its row by."""
    return (F.unix_millis(f"{window}.end") - 1).alias("at")


@dataclass(frozen=True)
class Result:
    """What the last job of a chain has, judged by what was written."""

    hours: int
    sessions: int
    wrong: int
    lost: int
    delay: float

    @classmethod
    def of(cls, chain: Chain, expected: Counter[tuple[int, str]], passed: dict[int, float]) -> Result:
        closed = [hour for hour, kind in expected if kind == "clicks" and hour <= max(chain.hours, default=0)]
        should = {hour: (expected[hour, "sessions"], expected[hour, "clicks"]) for hour in closed}
        delays = sorted(chain.emitted[hour] - passed[hour] for hour in closed if hour in chain.emitted)
        return cls(
            hours=len(chain.hours),
            sessions=sum(sessions for sessions, _ in chain.hours.values()),
            wrong=sum(chain.hours.get(hour) != counts for hour, counts in should.items()),
            lost=sum(clicks - chain.hours.get(hour, (0, 0))[1] for hour, (_, clicks) in should.items()),
            delay=delays[len(delays) // 2] if delays else 0.0,
        )


def run(
    spark: SparkSession, bootstrap: str, topic: str, seconds: float, console: Console
) -> tuple[Result, Result, int]:
    """Write clicks, run both chains beside each other, and wait until the announced one has every hour."""
    writers = [
        Writer(bootstrap, topic, "web", seconds, starts_after=0),
        Writer(bootstrap, topic, "app", seconds, starts_after=APP_STARTS_AFTER),
    ]
    for writer in writers:
        writer.start()
    with tempfile.TemporaryDirectory(prefix="job-chain-") as folder:
        announced = Chain("announced", spark, bootstrap, folder, topic, announces=True)
        bounded = Chain("with a bound", spark, bootstrap, folder, topic, announces=False)
        chains = (announced, bounded)
        for chain in chains:
            chain.start()
        queries = [query for chain in chains for query in chain.queries]
        with stopped_at_the_end(*queries), closing(announced), closing(bounded):
            progress = Progress(
                console,
                queries,
                lambda: (
                    f"{count_text(sum(len(writer.clicks) for writer in writers))} clicks written; hours emitted: "
                    f"{len(bounded.hours)} with a bound, {len(announced.hours)} announced"
                ),
            )
            for writer in writers:
                writer.go_on.set()
            progress.wait_until(lambda: not any(writer.is_alive() for writer in writers))
            clicks = [click for writer in writers for click in writer.clicks]
            expected = sessions_of(clicks)
            last = max(hour for hour, _ in expected)
            progress.wait_until(lambda: last in announced.hours)
            for query in bounded.queries:
                query.processAllAvailable()
    passed = {hour: max(w.passed.get(hour, 0.0) for w in writers) for hour, _ in expected}
    return Result.of(bounded, expected, passed), Result.of(announced, expected, passed), len(clicks)


def side_by_side(bounded: Result, announced: Result, clicks: int) -> Table:
    """Return the two results as a table."""
    table = Table(title=f"{clicks} clicks, as the last of three jobs counts them by the hour")
    table.add_column("")
    table.add_column("bound and idle timeout in each job", justify="right")
    table.add_column("announced from job to job", justify="right")
    for label, name in (
        ("hours emitted", "hours"),
        ("sessions in them", "sessions"),
        ("hours wrong", "wrong"),
        ("clicks missing from them", "lost"),
    ):
        table.add_row(label, str(getattr(bounded, name)), str(getattr(announced, name)))
    table.add_row("seconds from an hour's last click to its result", f"{bounded.delay:.1f}", f"{announced.delay:.1f}")
    return table


def main(console: Console) -> int:
    """Run the demo; exit status 1 if the announced chain lost a click."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="how long each writer writes (default 40)")
    add_addresses(parser, kafka=True)
    given = parser.parse_args()
    introduce(console, SET_UP.format(seconds=given.seconds + APP_STARTS_AFTER, behind=APP_STARTS_AFTER * SPEED / 60))
    settings = {"spark.jars": ",".join(map(str, spark_kafka_jars())), "spark.sql.session.timeZone": "UTC"}
    with (
        topic_of(given.kafka, CLICKS, PARTITIONS) as (bootstrap, topic),
        quiet_spark("job-chain", console, settings) as spark,
    ):
        bounded, announced, clicks = run(spark, bootstrap, topic, given.seconds, console)
    console.print(side_by_side(bounded, announced, clicks))
    whole = announced.hours > 0 and not (announced.lost or announced.wrong)
    if not whole:
        console.print(f"the announced chain is NOT complete: {announced}")
    say(
        console,
        last_sentence(
            "A bound in each job",
            bounded.lost,
            clicks,
            "clicks",
            ours="announced watermarks",
            ours_lost=announced.lost,
        ),
    )
    return 0 if whole else 1


if __name__ == "__main__":
    run_demo(main)
