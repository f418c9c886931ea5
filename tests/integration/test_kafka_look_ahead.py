"""Looking ahead on a real broker: no row of the band is late, however disordered, and nothing waits for a bound."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pyspark.errors import StreamingQueryException

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import START
from watermark_source import follow_watermark
from watermark_source.status_model.status_json import parse_progress

pytestmark = [pytest.mark.service, pytest.mark.spark]
_log = logging.getLogger(__name__)

NewTopic = Callable[..., str]
PARTITIONS, BATCHES = 4, 12
BEHIND = 600_000
LOSES_NOTHING = {"maxOutOfOrderness": f"{BEHIND} ms"}
Times = Mapping[int, npt.NDArray[np.int64]]


def with_devices_that_come_back(rows: int) -> Times:
    """An hour, in order within a second except for two stretches, of rows up to ten minutes behind."""
    chance = np.random.default_rng(7)
    found = {}
    for partition in range(PARTITIONS):
        times = START + (np.arange(rows, dtype=np.int64) * 3_600_000) // rows - chance.integers(0, 1_000, rows)
        for begin in (0.3, 0.7):
            stretch = slice(int(begin * rows), int((begin + 0.05) * rows))
            times[stretch] -= chance.integers(0, BEHIND, len(times[stretch]))
        found[partition] = times
    return found


def produce(kafka: Kafka, topic: str, times: Times, *, in_payload: bool) -> None:
    for partition, found in times.items():
        records = PartitionRecords(found, value_size=20)
        if in_payload:
            texts = np.char.mod('{"at":%d}', found).astype("S")
            values = texts.view(np.uint8).reshape(len(texts), -1)
            records = PartitionRecords(np.full(len(found), START), values=values)
        bulk_produce_partitions(kafka.bootstrap, topic, {partition: records})


def delays(streams: KafkaStreams, name: str, times: Times) -> list[float]:
    """Return how far each batch's watermark is behind the event time that the slowest partition has come to, in s."""
    highest = {p: np.maximum.accumulate(found) for p, found in times.items()}
    found = []
    for offset in streams.offsets(name):
        (splits,) = offset["splits"].values()
        reached = min(int(highest[int(p)][fields[0] - 1]) for p, fields in splits.items() if fields[0])
        if "wm" in offset:
            found.append((reached - offset["wm"]) / 1_000)
    return found


def run(streams: KafkaStreams, name: str, topic: str, rows: int, **options: Any) -> tuple[float, int]:
    """Read all of a topic; return the seconds that took, and how many rows were late."""
    limit = PARTITIONS * rows // BATCHES
    source = streams.source(
        subscribe=topic, columns="partition,offset", includeLate=True, maxOffsetsPerTrigger=limit, **options
    )
    began = time.perf_counter()
    streams.run(follow_watermark(source).select("partition", "offset", "late"), name)
    wall = time.perf_counter() - began
    found = streams.result(name).where("partition IS NOT NULL")
    assert found.select("partition", "offset").distinct().count() == PARTITIONS * rows
    return wall, found.where("late").count()


def compare(streams: KafkaStreams, kafka: Kafka, topic: str, rows: int, *, in_payload: bool) -> float:
    """Hold the strategies against each other; return the speed with / without looking ahead."""
    times = with_devices_that_come_back(rows)
    produce(kafka, topic, times, in_payload=in_payload)
    place = {"eventTimeColumn": "value:$.at"} if in_payload else {}
    walls, late = {}, {}
    strategies: dict[str, dict[str, Any]] = {
        "ahead": {"watermarkStrategy": "lookahead", "lookaheadRows": rows // 5},
        "short": {"maxOutOfOrderness": "30 seconds"},
        "long": LOSES_NOTHING,
    }
    for name, options in strategies.items():
        walls[name], late[name] = run(streams, name, topic, rows, **options, **place)
    behind = {name: float(np.mean(delays(streams, name, times))) for name in walls}
    _log.info("late %s; mean delay s %s; wall s %s", late, behind, walls)
    assert (late["ahead"], late["long"]) == (0, 0)
    assert late["short"] > 0
    assert behind["ahead"] <= behind["long"] / 2
    return walls["long"] / walls["ahead"]


@pytest.mark.parametrize("in_payload", [pytest.param(False, marks=pytest.mark.long("in the payload")), True])
def test_rows_ten_minutes_behind_are_on_time_and_the_watermark_does_not_wait_for_them_all_day(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, in_payload: bool
) -> None:
    compare(streams, kafka, new_topic(PARTITIONS), 40_000, in_payload=in_payload)


@pytest.mark.long("test_rows_ten_minutes_behind_are_on_time_and_the_watermark_does_not_wait_for_them_all_day")
def test_a_record_without_an_event_time_ahead_takes_no_other_partition_its_look_ahead(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    """And the watermark is one millisecond before the lowest event time behind each batch, in steps of its rows."""
    topic, rows = new_topic(2), 600
    times = {p: START + np.arange(rows, dtype=np.int64) * 1_000 for p in range(2)}
    times[0][::10] -= BEHIND
    for partition, found in times.items():
        texts = np.char.mod('{"at":%d}', found).astype("S")
        if partition:
            texts[-5] = texts[-5].replace(b"at", b"no")
        values = texts.view(np.uint8).reshape(rows, -1)
        bulk_produce_partitions(kafka.bootstrap, topic, {partition: PartitionRecords(found, values=values)})
    source = streams.source(
        subscribe=topic, columns="offset", includeLate=True, maxOffsetsPerTrigger=100, watermarkStrategy="lookahead",
        eventTimeColumn="value:$.at",
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match="no event time at value"):
        streams.run(follow_watermark(source).select("offset", "late"), "q")
    assert streams.result("q").where("late").count() == 0
    offsets = streams.offsets("q")
    assert len(offsets) > 10
    for offset in offsets:
        (splits,) = offset["splits"].values()
        ahead = [times[int(p)][fields[0] :] for p, fields in splits.items()]
        ahead[1] = ahead[1][ahead[1] != times[1][-5]]
        lowest = [int(each.min()) if len(each) else int(times[p].max()) for p, each in enumerate(ahead)]
        assert offset["wm"] == min(lowest) - 1


@pytest.mark.long("test_rows_ten_minutes_behind_are_on_time_and_the_watermark_does_not_wait_for_them_all_day")
def test_the_same_of_a_million_rows_a_partition_at_no_less_than_two_thirds_of_the_speed(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    assert compare(streams, kafka, new_topic(PARTITIONS), 1_000_000, in_payload=False) >= 0.65


@pytest.mark.long("test_no_row_of_the_band_becomes_late_by_a_watermark_that_went_out_with_the_batch_before_it")
def test_at_the_end_of_a_live_topic_the_bound_holds_and_a_kill_takes_nothing_back(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    """What is not in the log yet is covered by the bound alone; a new process looks at the band again."""
    topic = new_topic(1)
    options = {"watermarkStrategy": "lookahead", "maxOutOfOrderness": "5 seconds"}
    frame = follow_watermark(streams.source(subscribe=topic, includeLate=True, **options)).select("offset", "late")
    written: list[float] = []
    for seconds in ([10, 20, 16], [30, 26, 24], [40, 50, 28]):
        streams.write(topic, {0: seconds})
        query = streams.run(frame, "q")
        written += seconds
        assert streams.offsets("q")[-1]["wm"] == START + (max(written) - 5) * 1_000 - 1
    late = [row.offset for row in streams.result("q").where("late").collect()]
    # 24 is further behind 30 than the bound, and was in the log with it.
    assert late == []
    last = streams.last_with_rows("q")
    planned = streams.offsets("q")[last]
    streams.die_in("q", last)
    query = streams.run(frame, "q")
    assert streams.offsets("q")[last] == planned
    assert query.lastProgress is not None
    (status,) = parse_progress(query.lastProgress.json)
    assert status.watermark == START + 45_000 - 1


@pytest.mark.long("test_rows_ten_minutes_behind_are_on_time_and_the_watermark_does_not_wait_for_them_all_day")
def test_the_status_tells_how_far_it_looks(streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: list(range(3_000))})
    options: dict[str, Any] = {"watermarkStrategy": "lookahead", "lookaheadRows": 700, "maxOffsetsPerTrigger": 1_000}
    query = streams.run(follow_watermark(streams.source(subscribe=topic, **options)).select("offset"), "q")
    seen = [parse_progress(p.json)[0].splits[0].looked_ahead for p in query.recentProgress]
    assert (seen[0], seen[-1]) == (700, 0)
