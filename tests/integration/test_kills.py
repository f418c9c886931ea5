"""Kill -9 of whatever two running queries need: what was delivered is as if nothing had happened.

A driver program on a cluster with one executor, over one broker: each of them is killed, and Python processes of both
sides of Spark.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from services.kafka import OwnKafka, kafka_service
from services.kafka_local import FAST_START
from services.kafka_topics import create_topic
from services.spark_cluster import SparkCluster
from tests.integration.killed_driver import KEEP_LOGS, OUT_OF_ORDERNESS_MS, QUERIES, ROWS, WINDOW_MS, WINDOWS, Job
from tests.integration.killing import Killer, Kind, cluster_for, master_of, schedule
from tests.integration.numbered_topic import (
    ACTIVE,
    PARTITIONS,
    Millis,
    NumberedTopic,
    is_bad,
    number_of,
    payload_times,
    values_of,
)
from tests.integration.outages import Outages
from tests.spark.queries import START, Streams
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.watermark import MIN

# Setting up is the test: a driver takes 15 s to come back, many times that on a busy machine.
pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_log = logging.getLogger(__name__)
_WATERMARKS = 4
"""So many different ones each query has at least."""


@dataclass(frozen=True)
class Aftermath:
    """What is left after the kills and two more runs to the end: the first as it was, the second with closing rows."""

    topic: NumberedTopic
    streams: Streams
    killer: Killer
    progress: list[dict[str, Any]]
    closed_by_first: dict[int, int]
    first_states: dict[str, SourceState]
    due: dict[str, int]
    """Combined watermark of each query after the first run, by the rows that were written."""

    def states(self, query: str) -> list[SourceState]:
        """Return what the offset log states after each batch."""
        offsets = self.streams.offsets(query)
        return [OffsetCodec(source="aligned-kafka", name=o["name"]).decode(o) for o in offsets]

    def starts(self, query: str) -> dict[int, int]:
        """Return the first offset of each partition that the query was to read."""
        return {split.number: state.observed for split, state in self.states(query)[0].splits.items()}

    def windows_due(self, watermark: int) -> dict[int, int]:
        """Return the windows closed at a watermark, by their start, and how many rows were written into each."""
        starts = self.starts(WINDOWS)
        times = np.concatenate([self.topic.timestamps(p)[starts[p] :] for p in range(PARTITIONS)])
        begins, counts = np.unique(times // WINDOW_MS * WINDOW_MS, return_counts=True)
        found = zip(begins.tolist(), counts.tolist(), strict=True)
        return {begin: count for begin, count in found if begin + WINDOW_MS <= watermark}


def event_times(topic: NumberedTopic, query: str, partition: int) -> Millis:
    """Return the event times of a partition's rows as a query has them; the index is the offset."""
    timestamps = topic.timestamps(partition)
    return payload_times(partition, timestamps) if query == ROWS else timestamps


def windows(streams: Streams) -> dict[int, int]:
    rows = streams.result(WINDOWS).selectExpr("unix_millis(start) AS start", "count").collect()
    assert len({row.start for row in rows}) == len(rows), "a window came out twice"
    return {row.start: row["count"] for row in rows}


def run_to_the_end(job: Job, spark: SparkSession) -> None:
    for writer in job.queries(spark).values():
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(scope="module")
def broker() -> Iterator[OwnKafka]:
    """A broker of this test's own: others need theirs alive."""
    with kafka_service(jvm=FAST_START) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[SparkCluster | None]:
    with cluster_for(request.config.getoption("--kills")) as made:
        yield made


@pytest.fixture(scope="module")
def aftermath(
    request: pytest.FixtureRequest,
    broker: OwnKafka,
    cluster: SparkCluster | None,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Aftermath:
    kills, seed = request.config.getoption("--kills"), request.config.getoption("--kills-seed")
    folder = tmp_path_factory.mktemp("kills")
    job = Job(master_of(cluster), folder, broker.bootstrap, f"kills-{folder.name}")
    create_topic(broker.bootstrap, job.topic, PARTITIONS)
    topic = NumberedTopic.of(broker.bootstrap, job.topic, np.random.default_rng(seed))
    # Before the queries begin, at "latest": none of theirs.
    topic.tick()
    killer = Killer(job, cluster, Outages(broker), random.Random(seed))
    streams = Streams(spark, folder)

    def has_moved() -> bool:
        """Each driver finds the silent partition idle again: on a busy machine one may not live for so long."""
        found = ({offset.get("wm") for offset in streams.offsets(query)} for query in QUERIES)
        return all(len(watermarks) > _WATERMARKS for watermarks in found)

    topic.start()
    try:
        killer.start()
        *kills_before, last = schedule(kills, random.Random(seed))
        for kind, moment in kills_before:
            killer.strike(kind, moment)
        killer.let_run(has_moved, "some watermarks")
        killer.strike(*last)
    finally:
        topic.stop()
        killer.close()
    # Every partition has rows for the last run, so that none is found idle while no one writes.
    topic.tick()
    spark.conf.set(*KEEP_LOGS)
    try:
        run_to_the_end(job, spark)
        due = {
            query: min(int(event_times(topic, query, p).max()) for p in ACTIVE) - OUT_OF_ORDERNESS_MS - 1
            for query in QUERIES
        }
        closed = windows(streams)
        codec = OffsetCodec(source="aligned-kafka", name="aligned-kafka")
        first = {query: codec.decode(streams.offsets(query)[-1]) for query in QUERIES}
        topic.close()
        run_to_the_end(job, spark)
    finally:
        spark.conf.unset(KEEP_LOGS[0])
    progress = [json.loads(line) for line in job.progress_log.read_text().splitlines()]
    _log.info("seed %d, %s", seed, [(k.kind.value, k.moment.value, k.uncommitted) for k in killer.kills])
    _log.info("recovered within %s s", [(kind.value, round(s, 1)) for kind, s in killer.recoveries])
    _log.info("outages of %s s", [round(s, 1) for s in killer.outages.seconds])
    _log.info("of batches in doubt, in the log: %s", topic.writer.doubtful)
    return Aftermath(topic, streams, killer, progress, closed, first, due)


def test_every_row_comes_out_exactly_once(aftermath: Aftermath) -> None:
    rows = aftermath.streams.result(ROWS).where("partition IS NOT NULL")
    found = rows.selectExpr("partition", "offset", "value", "unix_millis(event_time) AS time").toArrow()
    partitions = found["partition"].to_numpy()
    offsets, times = found["offset"].to_numpy(), found["time"].to_numpy()
    lost = doubled = 0
    for partition, start in aftermath.starts(ROWS).items():
        written = aftermath.topic.timestamps(partition)
        mine = partitions == partition
        delivered = np.bincount(offsets[mine], minlength=len(written))
        lost += int((delivered[start:] == 0).sum())
        doubled += int((delivered > 1).sum())
        assert not delivered[:start].any(), "rows before the start"
        np.testing.assert_array_equal(times[mine], payload_times(partition, written[offsets[mine]]))
        values = b"".join(found["value"].filter(pa.array(mine)).to_pylist())
        assert values == values_of(partition, offsets[mine], written[offsets[mine]]).tobytes()
    _log.info("%d rows, %d lost, %d doubled", len(found), lost, doubled)
    assert (lost, doubled) == (0, 0)
    assert len(found) > 1_000


def test_every_value_is_decoded_and_what_is_null_is_what_does_not_fit(aftermath: Aftermath) -> None:
    """One value in a hundred has a text in place of a number: that member is null, and the text is kept."""
    rows = aftermath.streams.result(ROWS).where("partition IS NOT NULL")
    found = rows.selectExpr("partition", "offset", "cast(value AS STRING) AS value", "payload.*").toArrow()
    offsets, partitions = found["offset"].to_numpy(), found["partition"].to_numpy()
    numbers, bad = found["n"].to_pandas().to_numpy(), is_bad(offsets)
    assert bad.any()
    np.testing.assert_array_equal(np.isnan(numbers), bad)
    np.testing.assert_array_equal(numbers[~bad], number_of(offsets)[~bad])
    assert found["row"].to_pylist() == [f"{p}-{o:012d}" for p, o in zip(partitions, offsets, strict=True)]
    for partition in aftermath.starts(ROWS):
        mine = partitions == partition
        times = payload_times(partition, aftermath.topic.timestamps(partition))
        np.testing.assert_array_equal(found["at"].to_numpy()[mine], times[offsets[mine]])
    corrupt = found["_corrupt_record"]
    assert corrupt.filter(pa.array(bad)).equals(found["value"].filter(pa.array(bad)))
    assert corrupt.filter(pa.array(~bad)).null_count == int(np.count_nonzero(~bad))


def test_every_window_that_closed_holds_every_row(aftermath: Aftermath) -> None:
    assert aftermath.closed_by_first == aftermath.windows_due(aftermath.due[WINDOWS])
    end = int(aftermath.topic.timestamps(ACTIVE[0])[-1])
    assert windows(aftermath.streams) == aftermath.windows_due(end - OUT_OF_ORDERNESS_MS - 1)


def test_the_last_watermark_is_what_the_rows_say(aftermath: Aftermath) -> None:
    assert {query: state.watermark for query, state in aftermath.first_states.items()} == aftermath.due


@pytest.mark.parametrize("query", QUERIES)
def test_every_watermark_is_what_it_would_be_without_a_kill(aftermath: Aftermath, query: str) -> None:
    """Each split's is that of all its rows before the batch; the combined one may be that of the batch's rows too.

    While a check for new partitions takes longer than a batch, as when its broker was killed, the combined one waits.
    """
    starts, held, waiting = aftermath.starts(query), MIN, 0
    highest = {p: np.maximum.accumulate(event_times(aftermath.topic, query, p)[starts[p] :]) for p in range(PARTITIONS)}

    def after(split: Split, position: int) -> int:
        read = position - starts[split.number]
        return int(highest[split.number][read - 1]) - OUT_OF_ORDERNESS_MS - 1 if read else MIN

    states = aftermath.states(query)
    for number, state in enumerate(states):
        before = {s: after(s, t.observed) for s, t in state.splits.items()}
        known = {s: MIN if t.watermark is None else t.watermark for s, t in state.splits.items()}
        assert known == before, f"batch {number}"
        counting = {s: t for s, t in state.splits.items() if t.status is not SplitStatus.IDLE}
        assert counting
        lowest, most = min(before[s] for s in counting), min(after(s, t.position) for s, t in counting.items())
        watermark = MIN if state.watermark is None else state.watermark
        assert held <= watermark <= max(held, most), f"batch {number}"
        waiting += watermark < lowest
        held = watermark
    # One that waits for each batch is another matter.
    assert waiting < 0.9 * len(states)


def test_no_watermark_ever_regresses(aftermath: Aftermath) -> None:
    """In the offset logs, in Spark's own, and in what was reported while the queries ran."""
    for query in QUERIES:
        recorded = [w for state in aftermath.states(query) if (w := state.watermark) is not None]
        followed = [w for _, w in sorted(aftermath.streams.committed(query).items())]
        reported = [line["watermark"] for line in aftermath.progress if line.get("query") == query]
        for sequence in (recorded, followed, [w for w in reported if w is not None]):
            assert sequence == sorted(sequence)
        assert len(set(recorded)) >= _WATERMARKS


def test_spark_follows_the_source_in_every_batch(aftermath: Aftermath) -> None:
    """But in one whose output was written and whose commit was not: Spark then skips it, marker and all.

    The process that plans next states its watermark in its first batch, whatever it is: that makes up for it.
    """
    states, followed = aftermath.states(WINDOWS), aftermath.streams.committed(WINDOWS)
    held = 0
    for number, state in enumerate(states):
        output, reached = state.watermark or 0, followed[number] + START
        last_of_its_run = number + 1 == len(states) or states[number + 1].run != state.run
        assert reached in ((output, held) if last_of_its_run else (output,)), f"batch {number}"
        held = reached
    assert held == states[-1].watermark


def test_the_marker_of_every_batch_comes_out_exactly_once(aftermath: Aftermath) -> None:
    sent = aftermath.streams.result(ROWS).select("marker.*").where("type = 'watermark'")
    offsets = aftermath.streams.offsets(ROWS)
    read = [offsets[0], *(after for before, after in pairwise(offsets) if after != before)]
    assert sorted(row.w for row in sent.selectExpr("unix_millis(watermark) AS w").collect()) == [
        o["wm"] for o in read if "wm" in o
    ]


@pytest.mark.parametrize("query", QUERIES)
def test_every_batch_begins_where_the_last_one_ended(aftermath: Aftermath, query: str) -> None:
    offsets = aftermath.streams.offsets(query)
    assert sorted(aftermath.streams.committed(query)) == list(range(len(offsets)))
    states = aftermath.states(query)
    for number, (before, after) in enumerate(pairwise(states)):
        if after != before:
            ends = {split: state.position for split, state in before.splits.items()}
            assert {split: state.observed for split, state in after.splits.items()} == ends, f"batch {number + 1}"
    written = {p: len(aftermath.topic.timestamps(p)) for p in range(PARTITIONS)}
    assert {split.number: state.position for split, state in states[-1].splits.items()} == written


def test_a_batch_done_again_has_the_same_end(aftermath: Aftermath) -> None:
    logged = {query: aftermath.streams.offsets(query) for query in QUERIES}
    ran = [line for line in aftermath.progress if "query" in line]
    assert ran
    for line in ran:
        assert json.loads(line["end"]) == logged[line["query"]][line["batch"]]


def test_no_row_is_late(aftermath: Aftermath) -> None:
    assert sum(line["late"] for line in aftermath.progress if "query" in line) == 0


def test_nothing_but_a_killed_runner_fails_a_query(aftermath: Aftermath) -> None:
    failures = [line["failure"] for line in aftermath.progress if "failure" in line]
    runners = sum(kill.kind is Kind.RUNNER for kill in aftermath.killer.kills)
    # A driver killed at once after its runner has had no time to write of it.
    assert len(failures) <= runners, failures


def test_nothing_outlives_a_killed_driver(aftermath: Aftermath) -> None:
    assert aftermath.killer.orphans == []


def test_some_kills_hit_a_batch_under_way(aftermath: Aftermath) -> None:
    assert any(kill.uncommitted for kill in aftermath.killer.kills)
    assert aftermath.killer.kills[0].uncommitted


def test_everyone_was_killed(aftermath: Aftermath) -> None:
    kinds = {kill.kind for kill in aftermath.killer.kills}
    assert len(kinds) == min(len(Kind), len(aftermath.killer.kills))
