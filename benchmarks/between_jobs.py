"""Watermarks between jobs: the delay from one to the next at default triggers, what they cost the writer and plans."""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from benchmarks.figures import Figure, spread
from benchmarks.latency import RATE, SteadyProducer
from benchmarks.planning import PlannedQuery, Topics, time_of
from benchmarks.queries import BUILT_IN, OURS
from pyspark_aligned_kafka import WatermarkAnnouncer, announce_watermark
from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic
from services.kafka_topics import create_topic
from services.wait_until import wait_until
from watermark_source import follow_watermark
from watermark_source.planning.announced import LoggedStatement
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.split import Split

WARM_UP, SECONDS = 15.0, 45.0
WINDOW, BOUND = "1 second", "100 milliseconds"
_P50, _P99 = 600.0, 2_000.0
"""Milliseconds at most."""
_CPU = 1.0
"""Percent of a core for the thread that announces."""
_PLANNING = {8: 2.0, 1_000: 20.0}
"""Partitions, and milliseconds by which planning with announced watermarks may take longer."""
_WRITERS = 3
_ROUNDS = 15
_FIRST_SECONDS = 180
_WRITER = "windows"


def between_jobs(spark: SparkSession, bootstrap: str, topic: str, partitions: int) -> Iterator[Figure]:
    """Count by the second in one job, read and count again in the next; the two logs of batches show the delay."""
    between = f"{topic}-counts"
    create_topic(bootstrap, between, partitions)
    kafka = {"kafka.bootstrap.servers": bootstrap}
    with tempfile.TemporaryDirectory(prefix="between-jobs-") as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        rows = follow_watermark(_source(spark, bootstrap, topic, maxOutOfOrderness=BOUND))
        values = _counts(rows).select(F.to_json(F.struct("at", "count")).alias("value"))
        writer = values.writeStream.format(BUILT_IN).options(**kafka, topic=between)
        a = writer.option("checkpointLocation", str(first)).start()
        announcing = announce_watermark(a, between, kafka, _WRITER)
        options = {"watermarkStrategy": "announced", "announcedBy": _WRITER}
        of_a = {"eventTimeColumn": "value:$.at", "eventTimeFormat": "millis"}
        counts = _counts(follow_watermark(_source(spark, bootstrap, between, **options, **of_a)))
        b = counts.writeStream.format("noop").option("checkpointLocation", str(second)).start()
        producer = SteadyProducer(bootstrap, topic, partitions)
        producer.start()
        # The first batch of a query takes long.
        wait_until(lambda: len(_entries(second / "commits")) > 1, _FIRST_SECONDS, "batches of the second job")
        time.sleep(WARM_UP)
        used_before = cpu_of_announcing(_WRITER)
        time.sleep(SECONDS)
        used = cpu_of_announcing(_WRITER) - used_before
        # B must have the time to apply the last announcement that counts.
        until = time.time() - 5
        producer.stop()
        announcing.stop()
        for query in (a, b):
            query.stop()
        with closing(AnnouncementTopic(kafka, between)) as announcements:
            announced = list(announcements.records())
        found = list(_delays(first, second, announced, until - SECONDS, until))
        batches = len(_entries(first / "commits"))
    delays = sorted(each.total for each in found)
    p50, p99 = statistics.median(delays), delays[int(len(delays) * 0.99)]
    detail = f"{delays[0]:.0f} to {delays[-1]:.0f} ms, {len(delays)} commits at {RATE} records/s"
    yield Figure(
        "commit of a job to the batch of the next that applies it: p50", p50, "ms", at_most=_P50, detail=detail
    )
    yield Figure("commit of a job to the batch of the next that applies it: p99", p99, "ms", at_most=_P99)
    for part, of_part in (
        ("to its announcement", [each.announced for each in found]),
        ("from there to the batch of the next that carries it", [each.planned for each in found]),
        ("from there to the batch that applies it", [each.applied for each in found]),
    ):
        yield Figure(f"commit of a job, {part}: p50", statistics.median(of_part), "ms", detail=spread(of_part, 0))
    for job, query in (("the first", a), ("the next", b)):
        yield _duration(job, query)
    yield Figure("announcing: CPU of its thread", 100 * used / SECONDS, "% of a core", at_most=_CPU)
    # The first one has readers wait for a writer that is new, before any batch.
    yield Figure(
        "announcements a batch", (len(announced) - 1) / batches, at_most=1, unit="", detail=f"{batches} batches"
    )
    yield from _planning(bootstrap, topic)


def cpu_of_announcing(writer: str) -> float:
    """Return the seconds of CPU that the thread of this process has used which announces for a writer."""
    (ours,) = (each.native_id for each in threading.enumerate() if each.name == f"watermarks of {writer}")
    (thread,) = (each for each in psutil.Process().threads() if each.id == ours)
    return float(thread.user_time + thread.system_time)


def _planning(bootstrap: str, topic: str) -> Iterator[Figure]:
    """Plan the same rows with announced watermarks and without, in turn, after each writer has announced."""
    for count, most in _PLANNING.items():
        name = f"{topic}-planned-{count}"
        create_topic(bootstrap, name, count)
        topics = Topics(bootstrap, tuple(Split(name, number) for number in range(count)))
        kafka = {"kafka.bootstrap.servers": bootstrap}
        with ExitStack() as opened:
            writers = [opened.enter_context(WatermarkAnnouncer(name, kafka, f"w{at}")) for at in range(_WRITERS)]
            plain, ours = (
                opened.enter_context(closing(PlannedQuery(topics, options)))
                for options in ({"watermarkStrategy": "monotonous"}, {"watermarkStrategy": "announced"})
            )
            more: list[float] = []
            for number in range(_ROUNDS + 1):
                topics.write(topics.splits, 1)
                for writer in writers:
                    writer.announce(time_of(number))
                # Whichever is first finds the brokers as the other does not.
                took = {each: each.plan() for each in ((plain, ours) if number % 2 else (ours, plain))}
                more.append(took[ours] - took[plain])
        yield Figure(
            f"planning with {count} partitions and {_WRITERS} writers, more than without announcements",
            statistics.median(more[1:]), "ms", at_most=most, detail=spread(more[1:], 1),
        )  # fmt: skip


def _source(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format(OURS).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def _counts(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(F.window("event_time", WINDOW).alias("w")).count()
    return counted.select((F.unix_millis("w.end") - 1).alias("at"), "count")


class _Delay(NamedTuple):
    """The milliseconds from one moment to the next, from the commit of a batch to the batch that applies it."""

    announced: float
    planned: float
    applied: float

    @property
    def total(self) -> float:
        return self.announced + self.planned + self.applied


def _delays(
    first: Path, second: Path, announced: Sequence[LoggedStatement], begin: float, end: float
) -> Iterator[_Delay]:
    """Yield the delay of each commit whose announcement raised the watermark."""
    commits = {int(file.name): file.stat().st_mtime for file in _entries(first / "commits")}
    planned = sorted(map(_planned, _entries(second / "offsets")))
    highest = None
    for record in announced:
        each = record.statement
        if not isinstance(each, Announcement) or each.watermark is None or each.watermark == highest:
            continue
        highest = each.watermark
        at = commits.get(each.batch)
        if at is None or record.written_at is None or not begin <= at < end:
            continue
        carried = next(moment for moment, wm, _ in planned if moment > at and wm is not None and wm >= highest)
        applied = next(moment for moment, _, watermark in planned if moment > at and watermark >= highest)
        written = record.written_at / 1_000
        yield _Delay(*(1_000 * each for each in (written - at, carried - written, applied - carried)))


def _planned(file: Path) -> tuple[float, int | None, int]:
    """Return when a batch was planned, the watermark that its rows carry and the one that its operators apply."""
    _, of_query, of_source, *_ = file.read_text().splitlines()
    return file.stat().st_mtime, json.loads(of_source).get("wm"), json.loads(of_query)["batchWatermarkMs"]


def _duration(job: str, query: StreamingQuery) -> Figure:
    """Return how long a batch takes, and its parts as detail."""
    events = [each["durationMs"] for each in query.recentProgress if "addBatch" in each["durationMs"]]
    medians = {part: statistics.median(each.get(part, 0) for each in events) for part in events[-1]}
    total = medians.pop("triggerExecution")
    detail = ", ".join(f"{part} {millis:.0f}" for part, millis in medians.items())
    return Figure(f"a batch of {job} job: p50", total, "ms", detail=detail)


def _entries(folder: Path) -> list[Path]:
    return [file for file in folder.glob("*") if file.name.isdigit()]
