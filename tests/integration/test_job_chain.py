"""Jobs in a row, watermarks announced between them: the last has what a batch query has, over kills and by night."""

from __future__ import annotations

import json
import logging
import random
import re
import subprocess
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from pyspark_aligned_kafka import WatermarkAnnouncer, announce_watermark
from pyspark_aligned_kafka.announcing import audit
from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_record_batch import Millis
from tests.integration.kafka_streams import KafkaStreams, streams
from tests.integration.killed_chain_driver import (
    DRIFT_MS,
    HOURS,
    IN_PAYLOAD,
    MINUTES,
    TENS,
    WRITERS,
    ChainJob,
    counted,
    once,
    to_topic,
)
from tests.integration.killed_runs import PATIENCE_SECONDS, rows_written, run_with_kills
from tests.spark.queries import START
from watermark_source import follow_watermark
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.watermark import LAST

__all__ = ["streams"]
pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_log = logging.getLogger(__name__)
_HOUR = 3_600_000
_STEPS = 96
"""So often each writer announces: more often than once in the drift of the groups."""
_SPAN = 6 * _HOUR
_DISORDER = 120_000
_SILENT = 3
"""The partition without rows."""


def write_clicks(bootstrap: str, topic: str, clicks: int, chance: np.random.Generator) -> Counter[int]:
    """Write a backlog of two writers, one an hour of event time behind, and return the clicks of each hour.

    The fast one writes ten times as many clicks, and in the middle it is idle for a quarter of its steps.
    """
    kafka = {"kafka.bootstrap.servers": bootstrap}
    announcers = {name: WatermarkAnnouncer(topic=topic, kafka=kafka, writer=name) for name in WRITERS}
    hours: Counter[int] = Counter()
    steps_behind = _STEPS * _HOUR // _SPAN
    for step in range(_STEPS + steps_behind):
        for name, behind, share in (("fast", 0, 10), ("slow", steps_behind, 1)):
            own = step - behind
            if not 0 <= own < _STEPS:
                continue
            if name == "fast" and _STEPS // 2 <= own < _STEPS * 3 // 4:
                announcers[name].mark_idle()
                continue
            begin, end = START + own * _SPAN // _STEPS, START + (own + 1) * _SPAN // _STEPS
            records: dict[int, PartitionRecords] = {}
            for partition in range(_SILENT):
                times = np.linspace(begin, end, clicks * share // 11 // _STEPS // _SILENT, endpoint=False)
                shuffled: Millis = (times - chance.integers(0, _DISORDER, len(times))).astype(np.int64)
                hours.update((shuffled // _HOUR * _HOUR).tolist())
                records[partition] = PartitionRecords(shuffled, value_size=20)
            bulk_produce_partitions(bootstrap, topic, records)
            announcers[name].announce(end - _DISORDER - 1)
    for announcer in announcers.values():
        announcer.close(end=True)
    return hours


@pytest.mark.long("test_each_night_every_window_comes_out_that_the_job_before_has_finished")
def test_the_last_job_has_what_a_batch_query_has_whenever_the_jobs_are_killed(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    new_topic: Callable[..., str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    kills, clicks = request.config.getoption("--chain-kills"), request.config.getoption("--chain-clicks")
    seed = request.config.getoption("--kills-seed")
    topic, minutes, tens = (new_topic(_SILENT + 1) for _ in range(3))
    hours = write_clicks(kafka.bootstrap, topic, clicks, np.random.default_rng(seed))
    # A driver is killed at the next batch of the last job, and the first must have rows until then: it reads ahead.
    job = ChainJob("local[2]", tmp_path, kafka.bootstrap, topic, minutes, tens, str(clicks // max(60, 12 * kills)))
    run_with_kills(
        job, kills, random.Random(seed), lambda: rows_written(job) >= len(hours),
        patience=PATIENCE_SECONDS + clicks / 5_000,
    )  # fmt: skip
    found = {row.at // _HOUR * _HOUR: row.clicks for row in spark.read.parquet(str(job.sink(HOURS))).collect()}
    assert found == hours
    apart = {
        TENS: furthest_apart(job, TENS, [job.minutes, job.topic]),
        HOURS: furthest_apart(job, HOURS, [job.tens, job.minutes]),
    }
    _log.info("%d kills, %d clicks, %d hours, apart: %s", kills, hours.total(), len(hours), apart)
    assert all(most <= DRIFT_MS for most in apart.values()), apart
    assert apart[TENS] > 0, "the drift is longer than what its sources are apart in any case"
    for query, between in ((MINUTES, minutes), (TENS, tens)):
        audited = audit(
            between, {"kafka.bootstrap.servers": kafka.bootstrap, **IN_PAYLOAD}, IN_PAYLOAD["eventTimeColumn"]
        )
        assert audited, audited.broken
        # Of each batch one, and one by which readers wait for a writer that is new.
        assert 2 < sum(writer.announcements for writer in audited.writers) <= _done(job, query) + 1


def furthest_apart(job: ChainJob, query: str, topics: Sequence[str]) -> int:
    """Return by how many milliseconds a source of a query was ahead of the other at most, after any of its batches.

    It is not ahead by what no batch can part: where a source is, and the announcement with an earlier cut.
    """
    announced = [_announced(job.bootstrap, topic) for topic in topics]
    most = 0
    for file in (job.checkpoint(query) / "offsets").iterdir():
        if not file.name.isdigit():
            continue
        _, __, *offsets = file.read_text().splitlines()
        reached = [json.loads(offset).get("wm") for offset in offsets]
        for of, other, at in zip(reached, reversed(reached), announced, strict=True):
            before = 0 if of is None or of >= LAST else bisect_left(at, of)
            if before:
                most = max(most, LAST if other is None else at[before - 1] - other)
    return most


def _announced(bootstrap: str, topic: str) -> list[int]:
    """Return the watermarks that are announced, in order; of one cut the last: a late announcement has the next cut."""
    with closing(AnnouncementTopic({"kafka.bootstrap.servers": bootstrap}, topic)) as announcements:
        statements = [record.statement for record in announcements.records()]
    by_cut: dict[frozenset[tuple[str, int]], int] = {}
    for each in statements:
        if isinstance(each, Announcement) and each.watermark is not None:
            cut = frozenset(each.ends.items())
            by_cut[cut] = max(each.watermark, by_cut.get(cut, each.watermark))
    return sorted(by_cut.values())


def _done(job: ChainJob, query: str) -> int:
    return sum(file.name.isdigit() for file in (job.checkpoint(query) / "commits").iterdir())


@pytest.mark.usefixtures("built_in_kafka")
@pytest.mark.parametrize("nights", [2, pytest.param(10, marks=pytest.mark.long("2 of them"))])
def test_each_night_every_window_comes_out_that_the_job_before_has_finished(
    streams: KafkaStreams, new_topic: Callable[..., str], nights: int
) -> None:
    """A, B and C run one after another, each until it has read all; one partition of A's topic is an hour behind."""
    raw, minutes, tens = (new_topic(2) for _ in range(3))
    brokers = {"kafka.bootstrap.servers": streams.bootstrap}
    night = 4 * _HOUR // 1_000
    written: list[float] = []

    def run(rows: DataFrame, name: str, topic: str) -> int:
        """Run a job to its end and return its announced watermark."""
        writer = to_topic(rows, streams.bootstrap, topic, streams.checkpoint(name))
        query = writer.trigger(availableNow=True).start()
        streams.started.append(query)
        announcing = announce_watermark(query, topic, brokers, name)
        query.awaitTermination(240)
        announcing.flush()
        announcing.stop()
        assert not query.isActive
        assert sum(int(o["numRowsDroppedByWatermark"]) for p in query.recentProgress for o in p["stateOperators"]) == 0
        with closing(AnnouncementTopic(brokers, topic)) as announcements:
            (*_, last) = announcements.records()
        assert isinstance(last.statement, Announcement)
        return last.statement.watermark or 0

    def announced(topic: str, writer: str) -> DataFrame:
        by_writer = {"watermarkStrategy": "announced", "announcedBy": writer}
        return once(streams.source(subscribe=topic, **by_writer, **IN_PAYLOAD))

    for number in range(nights):
        ahead = np.arange(number * night, (number + 1) * night, 5.0)
        behind = ahead[ahead >= _HOUR // 1_000] - _HOUR // 1_000
        streams.write(raw, {0: ahead, 1: behind})
        written += [*ahead, *behind]
        clicks = follow_watermark(streams.source(subscribe=raw, maxOutOfOrderness="1 minute"))
        of_a = run(counted(clicks, "1 minute", F.count("*")), "minutes", minutes)
        of_b = run(counted(announced(minutes, "minutes"), "10 minutes", F.sum("clicks")), "tens", tens)
        hours = counted(announced(tens, "tens"), "1 hour", F.sum("clicks"))
        streams.run(hours, "hours")
        # What A has finished, B has, to the millisecond that each job announces less than Spark states. So has C.
        assert of_b == of_a - 1
        due = Counter(int(START + t * 1_000) // _HOUR * _HOUR for t in written)
        found = {row.at // _HOUR * _HOUR: row.clicks for row in streams.result("hours").collect()}
        assert found == {hour: count for hour, count in due.items() if hour + _HOUR - 1 <= of_b}
        assert len(found) > 2 * number
    for topic in (minutes, tens):
        assert audit(topic, {**brokers, **IN_PAYLOAD}, IN_PAYLOAD["eventTimeColumn"])


@pytest.mark.long("test_each_night_every_window_comes_out_that_the_job_before_has_finished")
def test_the_demo_loses_no_click_where_a_bound_loses_many(kafka: Kafka) -> None:
    command = [sys.executable, "-m", "examples.job_chain", "--seconds", "15", "--kafka", kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("Traceback|WARN|BrokenPipe", done.stdout + done.stderr)
    found = re.fullmatch(
        r"A bound in each job silently lost ([\d ]+) of 6 000 clicks \(\d+ %\); announced watermarks lost 0\.",
        done.stdout.splitlines()[-1],
    )
    assert found, done.stdout
    assert found[1] != "0"
