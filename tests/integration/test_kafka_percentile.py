"""A bound that is learned, on a real broker: disorder that grows sixtyfold and shrinks again, kills, other cuts."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pytest

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from tests.integration.direct_kafka import DirectKafka, Options
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.killed_percentile_driver import LEARNED, PercentileJob
from tests.integration.killed_runs import rows_written, run_with_kills
from tests.spark.queries import START
from watermark_source.planning.disorder import SEGMENT, rows_of
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState

pytestmark = pytest.mark.service
_log = logging.getLogger(__name__)

NewTopic = Callable[..., str]
Millis = npt.NDArray[np.int64]
PARTITIONS = 2
SMALL, LARGE = 1_000, 60_000
"""Milliseconds of disorder."""
WISH = 0.005
LEARNS = {"watermarkStrategy": "percentile", "maxOutOfOrderness": "1 hour", "watermarkPercentile": "99.5"}


@dataclass(frozen=True)
class Batch:
    """One batch with rows: what the offset before it and its own say."""

    before: SourceState
    after: SourceState

    def rows(self, partition: int) -> tuple[int, int]:
        at = self.after.splits[next(s for s in self.after.splits if s.number == partition)]
        return at.observed, at.position


def batches(direct: DirectKafka, name: str) -> Iterator[Batch]:
    codec = OffsetCodec(source="aligned-kafka", name="aligned-kafka")
    before = SourceState()
    for offset in direct.offsets(name):
        after = codec.decode(offset)
        if offset != codec.encode(before) and any(t.position > t.observed for t in after.splits.values()):
            yield Batch(before, after)
        before = after


def disordered(chance: np.random.Generator, sizes: Millis, step: int, begin: int = 0) -> Millis:
    """One row each ``step`` ms, each too early by up to its size."""
    forth = START + begin + step * np.arange(len(sizes))
    return np.asarray(forth - (chance.random(len(sizes)) * sizes).astype(np.int64))


def behind(times: Millis) -> Millis:
    return np.asarray(np.maximum.accumulate(times) - times)


def write(kafka: Kafka, topic: str, times: dict[int, Millis]) -> None:
    bulk_produce_partitions(kafka.bootstrap, topic, {p: PartitionRecords(t, value_size=20) for p, t in times.items()})


@pytest.mark.parametrize(
    ("rows", "batch"),
    [
        pytest.param(320_000, 20_000, id="320 000 rows"),
        pytest.param(
            4_000_000,
            100_000,
            marks=[pytest.mark.long("320 000 rows"), pytest.mark.timeout(1_800)],
            id="4 000 000 rows",
        ),
    ],
)
def test_a_bound_follows_disorder_that_grows_and_shrinks(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic, rows: int, batch: int
) -> None:
    """Two batches after each change as many rows are late as was wished, and the watermark is not much too slow."""
    topic, chance = new_topic(PARTITIONS, config={"retention.ms": "-1"}), np.random.default_rng(11)
    each = rows // PARTITIONS
    # Two batches are longer than the disorder: a watermark that must not go back is overtaken by then.
    step = round(0.8 * LARGE * PARTITIONS / batch)
    phases = np.array_split(np.arange(each), [each // 4, each // 2 + each // 8])
    sizes = np.full(each, SMALL)
    sizes[phases[1]] = LARGE
    times = {p: disordered(chance, sizes, step) for p in range(PARTITIONS)}
    write(kafka, topic, times)
    source = direct.source(
        subscribe=topic,
        maxOffsetsPerTrigger=batch,
        includeLate="true",
        columns="topic,partition,offset",
        **LEARNS,
    )
    status = direct.run(source, "q").status
    far = {p: behind(t) for p, t in times.items()}
    ideal = [max(np.quantile(far[p][phase[batch:]], 1 - WISH) for p in far) for phase in phases]
    late = settled_late = settled_rows = settled_beyond = 0
    slowest = 0.0
    for found in batches(direct, "q"):
        bound = None if found.after.learned is None else found.after.learned.bound
        for p in range(PARTITIONS):
            first, end = found.rows(p)
            part = slice(first, end)
            watermark = found.before.watermark
            here = 0 if watermark is None else int((times[p][part] <= watermark).sum())
            late += here
            number = next(n for n, phase in enumerate(phases) if first <= phase[-1])
            settled = first - phases[number][0] >= 2 * batch // PARTITIONS and end - 1 <= phases[number][-1]
            if not settled:
                continue
            assert bound is not None
            settled_late, settled_rows = settled_late + here, settled_rows + end - first
            settled_beyond += int((far[p][part] > bound).sum())
            at = found.after.splits[Split(topic, p)]
            assert at.highest is not None
            assert at.watermark is not None
            slowest = max(slowest, (at.highest - at.watermark - 1) / ideal[number])
    _log.info(
        "of %d rows %d are late, %.3f %%; of %d in settled batches %.3f %% are late and %.3f %% beyond the bound; "
        "watermarks at most %.2f times as far behind as need be; at last a bound of %s",
        rows, late, 100 * late / rows, settled_rows, 100 * settled_late / settled_rows,
        100 * settled_beyond / settled_rows, slowest, status.bound,
    )  # fmt: skip
    assert pc.sum(direct.table("q")["late"]).as_py() == status.rows.late.rows == late
    # Those that no one could foresee.
    assert late > 100
    assert settled_rows >= rows / 3
    for share in (settled_late / settled_rows, settled_beyond / settled_rows):
        assert share <= WISH + 0.002
    assert slowest <= 2
    assert status.bound is not None
    assert ideal[2] <= status.bound.bound <= 2 * ideal[2]
    assert status.bound.since is not None
    assert status.late_share == pytest.approx(late / rows)


def end_states(offsets: Sequence[dict[str, Any]]) -> dict[tuple[int, ...], Any]:
    """Return what the last of the offsets at each position states of event time, and of disorder."""
    codec = OffsetCodec(source="aligned-kafka", name="aligned-kafka")
    found = {}
    for state in map(codec.decode, offsets):
        positions = tuple(at.position for at in state.splits.values())
        found[positions] = state.watermark, state.learned, [(t.watermark, t.highest) for t in state.splits.values()]
    return found


def test_kills_and_other_numbers_of_tasks_change_nothing_that_is_learned(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    """A partition's share of a batch is several stretches, read by one task, by many, and by the driver itself."""
    topic, chance = new_topic(2, config={"retention.ms": "-1"}), np.random.default_rng(7)
    sizes = np.repeat([300, 30_000, 300, 3_000], 150_000)
    write(kafka, topic, {0: disordered(chance, sizes, 1), 1: disordered(chance, sizes[::2], 2)})
    # Learned from 200 000 rows.
    limits = {
        "maxOffsetsPerTrigger": 200_000, "columns": "topic,partition,offset", **LEARNS, "watermarkPercentile": "99.95"
    }  # fmt: skip

    def source(tasks: int) -> Options:
        return direct.source(subscribe=topic, minPartitions=tasks, **limits)

    direct.run(source(1), "unhurt")
    expected = end_states(direct.offsets("unhurt"))
    codec = OffsetCodec(source="aligned-kafka", name="aligned-kafka")
    learned = [known for offset in direct.offsets("unhurt") if (known := codec.decode(offset).learned) is not None]
    # More than the first stretch of each partition has.
    assert max(rows_of(each.earlier) for each in learned) > 2 * SEGMENT
    assert len({each.bound for each in learned}) >= 3
    # A process that ends after a batch, and one that ends within one, over and over; none passes anything to the next.
    number = 0
    while len(direct.offsets("hurt") if number else []) < len(direct.offsets("unhurt")):
        query = direct.start(source([7, 2, 16][number % 3]), "hurt")
        query.step()
        query.step()
        if number % 2:
            direct.die_in("hurt", len(direct.offsets("hurt")) - 1)
        number += 1
    direct.run(source(5), "hurt")
    assert number > 3
    found = end_states(direct.offsets("hurt"))
    assert found.keys() == expected.keys()
    for positions, state in expected.items():
        assert found[positions] == state
    rows = direct.table("hurt", ["partition", "offset"])
    distinct = rows.group_by(["partition", "offset"]).aggregate([]).num_rows
    assert len(rows) == distinct == len(sizes) * 3 // 2


@pytest.mark.long("test_kills_and_other_numbers_of_tasks_change_nothing_that_is_learned")
@pytest.mark.timeout(3_600)
def test_thirty_killed_drivers_learn_what_one_alone_does(
    request: pytest.FixtureRequest,
    direct: DirectKafka,
    streams: KafkaStreams,
    kafka: Kafka,
    new_topic: NewTopic,
    tmp_path: Path,
) -> None:
    """4 million rows whose disorder grows from a second to a minute and shrinks again; each life has other tasks."""
    kills, seed = 30, request.config.getoption("--kills-seed")
    topic, chance, each = new_topic(PARTITIONS, config={"retention.ms": "-1"}), np.random.default_rng(13), 2_000_000
    sizes = np.repeat([SMALL, LARGE, SMALL, SMALL], each // 4)
    write(kafka, topic, {p: disordered(chance, sizes, 1) for p in range(PARTITIONS)})
    job = PercentileJob("local[2]", tmp_path, kafka.bootstrap, topic, str(100_000))
    direct.run(job.options(1), "unhurt")
    expected = end_states(direct.offsets("unhurt"))
    run_with_kills(job, kills, random.Random(seed), lambda: rows_written(job) >= PARTITIONS * each)
    found = end_states(streams.offsets(LEARNED))
    assert found.keys() == expected.keys()
    assert len(found) > kills
    *before, _ = found
    # What follows from the last batch, its driver had no time to say.
    assert {positions: found[positions] for positions in before} == {p: expected[p] for p in before}
    rows = streams.result(LEARNED)
    assert rows.count() == rows.distinct().count() == PARTITIONS * each
