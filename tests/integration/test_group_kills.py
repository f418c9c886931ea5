"""Kill -9 of a query on three topics of a group, one silent, one whose broker stops answering now and then."""

from __future__ import annotations

import json
import logging
import random
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from services.kafka import Kafka, kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic
from tests.integration.kafka_streams import write
from tests.integration.killed_group_driver import DRIFT_MS, MOST_SPARSE, SOURCES, UNION, GroupJob
from tests.integration.killed_runs import rows_written, run_with_kills, written
from tests.spark.queries import START
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.state import SplitState, SplitStatus

pytestmark = [
    pytest.mark.service,
    pytest.mark.timeout(7_200),
    pytest.mark.long("test_in_drawn_scenarios_the_drift_holds_or_what_broke_it_is_named"),
]

_log = logging.getLogger(__name__)
STEP_MS = {"dense": 100, "sparse": 1_000, "silent": 1_000}
PROMISED = "this source had published that its batch reaches "
_MOMENT = re.compile(f"{PROMISED}(\\S+ [0-9:.]+)")

Splits = Mapping[str, SplitState]
"""The only split of each source, as a batch leaves it."""


@contextmanager
def freezing(broker: LocalKafka, seconds: float, chance: random.Random) -> Iterator[list[float]]:
    """Freeze a broker for so many seconds, now and then; yield the pauses between."""
    done, pauses = threading.Event(), list[float]()

    def freeze() -> None:
        while not done.wait(pauses[-1] if pauses else seconds):
            broker.pause()
            done.wait(seconds)
            broker.resume()
            pauses.append(chance.uniform(seconds, 3 * seconds))

    thread = threading.Thread(target=freeze, name="freezing")
    thread.start()
    try:
        yield pauses
    finally:
        done.set()
        thread.join()


def test_three_topics_of_a_query_stay_together_whenever_it_is_killed_and_a_broker_is_silent(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path
) -> None:
    kills, seed = request.config.getoption("--group-kills"), request.config.getoption("--kills-seed")
    frozen = min(20, request.config.getoption("--broker-frozen"))
    seconds = 300 + 120 * kills
    rows = {"dense": 10 * seconds, "sparse": seconds, "silent": 5}
    with kafka_cluster(1, jvm=FAST_START) as other:
        job = GroupJob("local[2]", tmp_path, kafka.bootstrap, f"kills-{tmp_path.name}", other.bootstrap)
        for source in SOURCES:
            create_topic(job.bootstrap_of(source), job.topic_of(source), 1)
            times = np.arange(rows[source]) * STEP_MS[source] / 1_000
            write(job.bootstrap_of(source), job.topic_of(source), {0: times})
        with freezing(other, frozen, random.Random(seed)) as pauses:
            run_with_kills(
                job, kills, random.Random(seed), lambda: rows_written(job) == sum(rows.values()), most_batches=3
            )
    assert pauses
    files = written(job)
    batches = [ends_of(job, number) for number in range(len(files))]
    before = [dict.fromkeys(SOURCES, SplitState(0, 0)), *batches[:-1]]
    # What each batch has written lies between its entry in the log of offsets and the one before; together it is all.
    assert list(map(ranges_in, files)) == list(map(ranges_between, before, batches))
    assert {source: at.position for source, at in batches[-1].items()} == rows
    # A batch that a later process did again ended where it had ended.
    reported = [line for line in map(json.loads, job.progress_log.read_text().splitlines()) if "query" in line]
    assert all(ends_in(line["ends"]) == batches[line["batch"]] for line in reported)
    named = {text for line in reported for text in line["troubles"] if text} | promises_in(tmp_path / "log")
    beyond = [n for n, splits in enumerate(batches) if is_beyond(before[n], splits, rows)]
    unnamed = [n for n in beyond if not any(is_named(before[n], text) for text in named)]
    _log.info(
        "seed %d: %d kills, %d batches, %d of them repeated, %d outages of %.0f s; beyond the drift %s, %d lines",
        seed, kills, len(batches), len(reported) - len({line["batch"] for line in reported}), len(pauses), frozen,
        beyond, len(named),
    )  # fmt: skip
    assert unnamed == [], ([(n, before[n], batches[n]) for n in unnamed], named)
    # A group that waits for a drift in each batch is another matter.
    assert len(batches) < 3 * rows["sparse"] / MOST_SPARSE + 5 * kills


def ends_of(job: GroupJob, number: int) -> Splits:
    """Return where a batch ends by the log of offsets."""
    _, _, *ends = (job.checkpoint(UNION) / "offsets" / str(number)).read_text().splitlines()
    return ends_in(ends)


def ends_in(ends: list[str]) -> Splits:
    found = {}
    for source, end in zip(SOURCES, ends, strict=True):
        ((_, found[source]),) = OffsetCodec(source="aligned-kafka", name=source).decode(json.loads(end)).splits.items()
    return found


def ranges_between(before: Splits, after: Splits) -> dict[str, range]:
    return {source: range(at.position, after[source].position) for source, at in before.items()}


def ranges_in(files: list[Path]) -> dict[str, range]:
    """Return the offsets of each source's rows in the files of a batch, which are without a gap."""
    offsets: dict[str, list[int]] = {source: [] for source in SOURCES}
    for row in chain.from_iterable(pq.read_table(file).to_pylist() for file in files):
        offsets[row["source"]].append(row["offset"])
    found = {}
    for source, each in offsets.items():
        found[source] = range(min(each, default=0), max(each, default=-1) + 1)
        assert sorted(each) == list(found[source])
    return found


def is_beyond(before: Splits, after: Splits, rows: Mapping[str, int]) -> bool:
    """Return whether a batch reads a row that is later, by more than the drift and one record, than what another topic
    has reached: one that is idle counts for nothing, and one that is read up to a row has reached the moment before it.
    """
    reached = {
        source: (at.position - (at.position == rows[source])) * STEP_MS[source] - 1
        for source, at in after.items()
        if at.status is not SplitStatus.IDLE
    }
    return any(
        (at.position - 1) * STEP_MS[source] > lowest + DRIFT_MS + STEP_MS[source]
        for source, at in after.items()
        if at.position > before[source].position
        and (lowest := min((to for other, to in reached.items() if other != source), default=None)) is not None
    )


def promises_in(log: Path) -> set[str]:
    return {line for line in log.read_text(errors="replace").splitlines() if PROMISED in line}


def is_named(before: Splits, text: str) -> bool:
    """Return whether a line is about the batch that follows: what it names lies in what the frozen topic could read.

    It need not be the time of a row there: one that another topic does not let read on promises no more than that one
    has reached, and the drift.
    """
    named = (datetime.fromisoformat(f"{moment}+00:00").timestamp() for moment in _MOMENT.findall(text))
    first = START / 1_000 + before["sparse"].position * STEP_MS["sparse"] / 1_000
    return any(first < moment < first + MOST_SPARSE * STEP_MS["sparse"] / 1_000 for moment in named)
