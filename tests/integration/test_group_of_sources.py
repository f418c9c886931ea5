"""Sources of one group that are in one query, in several, and in several drivers wait for each other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.alignment_join import STEPS, Backlog, alignment_join
from tests.integration.emitted import Emitted
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.integration.mysql_streams import MySqlStreams
from tests.spark.queries import at
from watermark_source import follow_watermark
from watermark_source.command_line import main
from watermark_source.group_store import store_waits
from watermark_source.status_model.status_json import parse_progress

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
DRIFT, STEP = 10.0, 0.2
TIMES = {"slow": np.round(np.arange(0, 200, STEP), 3), "fast": np.round(np.arange(0, 200, 0.02), 3)}


def aligned(group: str, **options: Any) -> dict[str, Any]:
    return {"alignmentGroup": group, "alignmentMaxDrift": "10 seconds", **options}


def position(offset: dict[str, Any]) -> int:
    """Return how far the only split of a source is read."""
    ((_, numbers),) = offset["splits"].items()
    return int(numbers["0"][0])


def run_into(emitted: Emitted, streams: KafkaStreams, frames: dict[str, DataFrame]) -> None:
    """Run one query on several sources until it has read all that is there."""
    of_each = [
        follow_watermark(frame).select(F.lit(name).alias("source"), "event_time") for name, frame in frames.items()
    ]
    writer = reduce(DataFrame.union, of_each).writeStream.foreachBatch(emitted.sink).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(streams.checkpoint("both"))).start()
    streams.started.append(query)
    query.awaitTermination(240)
    assert not query.isActive, "the run did not end"


def test_two_topics_of_one_query_are_never_further_apart_than_the_drift(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    frames, emitted = {}, Emitted()
    for name, times in TIMES.items():
        topic = new_topic(1)
        streams.write(topic, {0: times})
        limits: dict[str, Any] = {"maxOffsetsPerTrigger": 250} if name == "slow" else {}
        frames[name] = streams.source(subscribe=topic, sourceName=name, **aligned("one query"), **limits)
    run_into(emitted, streams, frames)
    assert {name: len(emitted.times(name)) for name in TIMES} == {name: len(times) for name, times in TIMES.items()}
    drift = emitted.greatest_drift(*TIMES)
    assert drift.seconds <= DRIFT + STEP, f"{drift}; allowed are {DRIFT} s and a record, {STEP} s"
    # Alone, the fast topic has no limit, and comes in one batch; by a drift a batch it would be twenty.
    assert 3 < sum("fast" in batch for batch in emitted.batches.values()) < 15


@pytest.mark.long("test_two_topics_of_one_query_are_never_further_apart_than_the_drift")
def test_a_join_of_two_topics_replays_a_backlog_with_little_state(streams: KafkaStreams, new_topic: NewTopic) -> None:
    """The small form of the benchmark ``alignment-join``."""
    topics = {name: new_topic(1) for name in STEPS}
    backlog = Backlog(hours=2, batches=40)
    backlog.fill(streams.bootstrap, topics)
    speed, drift, state = alignment_join(streams.spark, streams.bootstrap, topics, 0, backlog)
    assert drift.holds
    assert state.value < 0.2
    assert speed.value > 0.3


@pytest.mark.parametrize("slow", ["topic", "table"])
@pytest.mark.long("test_two_topics_of_one_query_are_never_further_apart_than_the_drift")
def test_by_a_column_sources_are_never_further_apart_than_the_drift_and_one_range(
    slow: str, streams: KafkaStreams, mysql_streams: MySqlStreams, new_topic: NewTopic
) -> None:
    """Nothing shows where in the binlog a column passes the limit: what is read blindly may be beyond it."""
    times = {"slow": np.round(np.arange(0, 100, 0.2), 3), "fast": np.arange(0, 300, 2.0)}
    for name in times:
        mysql_streams.run_sql(f"CREATE TABLE {name} (id INT PRIMARY KEY AUTO_INCREMENT, at DATETIME(3))")
    # In turn, so that the same stretch of the binlog has nine times as much event time of the fast table.
    parts = zip(*(np.array_split(each, 15) for each in times.values()), strict=True)
    for part in parts:
        for name, seconds in zip(times, part, strict=True):
            rows = ", ".join(f"('{at(float(second))}')" for second in seconds)
            mysql_streams.run_sql(f"INSERT INTO {name} (at) VALUES {rows}")
    since = mysql_streams.database.since
    begin = json.dumps({"file": since.file, "position": since.position})
    by_column = {"eventTimeColumn": "at", "columns": "id", "startingOffsets": begin}
    frames = {
        name: mysql_streams.source(
            name, sourceName=name, maxRowsPerTrigger=rows, **by_column, **aligned("by columns", alignmentMembers=2)
        )
        for name, rows in (("slow", 100), ("fast", 20))
    }
    if slow == "topic":
        topic = new_topic(1)
        streams.write(topic, {0: times["slow"]})
        frames["slow"] = streams.source(
            subscribe=topic, sourceName="slow", maxOffsetsPerTrigger=100, **aligned("by columns", alignmentMembers=2)
        )
    emitted = Emitted()
    run_into(emitted, streams, frames)
    assert {name: len(emitted.times(name)) for name in times} == {name: len(each) for name, each in times.items()}
    drift = emitted.greatest_drift(*times)
    widest = emitted.widest_range(drift.ahead)
    assert DRIFT / 2 < drift.seconds <= DRIFT + widest, f"{drift}; allowed are {DRIFT} s and a range, {widest} s"
    assert widest < 50


def test_a_query_waits_for_another_that_is_stopped_until_it_has_left(
    streams: KafkaStreams, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = new_topic(1), new_topic(1)
    streams.write(slow, {0: TIMES["slow"][:500]})
    streams.write(fast, {0: TIMES["fast"]})
    limits: dict[str, dict[str, Any]] = {"slow": {"maxOffsetsPerTrigger": 50}, "fast": {}}
    store = {"alignmentStore": f"sqlite:///{streams.root / 'alignment.sqlite'}"}
    frames = {
        name: streams.source(
            subscribe=topic, sourceName=name, **aligned("two queries", alignmentMembers=2, **store), **limits[name]
        )
        for name, topic in (("slow", slow), ("fast", fast))
    }
    queries = {name: streams.start_file(frame, name) for name, frame in frames.items()}
    written = 500

    def all_it_may() -> int:
        """Return how many rows the fast one may read: the slow one is not idle at its end, its next may be old."""
        return int((TIMES["slow"][written - 1] + DRIFT) / 0.02) + 1

    wait_for(lambda: delivered(streams, "fast") >= all_it_may(), queries["fast"])
    while len(apart := leads(streams)) <= 3:
        # On a busy machine the slow one may have come to its end in few batches of the fast one.
        streams.write(slow, {0: TIMES["slow"][written : written + 50]})
        written += 50
        wait_for(lambda: delivered(streams, "fast") >= all_it_may(), queries["fast"])
    last = all_it_may()
    time.sleep(2)
    assert delivered(streams, "fast") == last

    def knows_the_other() -> bool:
        group = parse_progress(queries["fast"].lastProgress)[0].group
        return group is not None and (group.others, group.slowest) == (1, "slow")

    wait_for(knows_the_other, queries["fast"])
    assert max(apart) <= DRIFT + STEP
    # Started again with another option it is waited for, as after a kill.
    queries["slow"].stop()
    again = streams.source(
        subscribe=slow, sourceName="slow", **aligned("two queries", **store), maxOffsetsPerTrigger=20
    )
    query = streams.start_file(again, "slow")
    streams.write(slow, {0: TIMES["slow"][written : written + 50]})
    written += 50
    wait_for(lambda: delivered(streams, "fast") >= all_it_may(), query)
    assert delivered(streams, "fast") == all_it_may()
    query.stop()
    # Stopped for good it reports it, and no time to live has to pass.
    monkeypatch.setenv("WATERMARK_SOURCE_ALIGNMENT_STORE", store["alignmentStore"])
    monkeypatch.setattr(store_waits, "CUT_AFTER", 0)
    wait_for(lambda: main(["group", "--alignmentGroup", "two queries", "leave", "slow"]) == 0, queries["fast"])
    wait_for(lambda: delivered(streams, "fast") == len(TIMES["fast"]), queries["fast"])


def leads(streams: KafkaStreams) -> list[float]:
    """Return by how many seconds of event time the one was ahead at each plan, while the other had rows."""
    reached: dict[str, list[tuple[int, float]]] = {}
    for name in ("slow", "fast"):
        planned = [streams.checkpoint(name) / "offsets" / str(n) for n in range(len(streams.offsets(name)))]
        positions = [position(offset) for offset in streams.offsets(name)]
        reached[name] = [
            (file.stat().st_mtime_ns, float(TIMES[name][max(0, at - 1)]))
            for file, at in zip(planned, positions, strict=True)
        ]
    apart = []
    for moment, fast in reached["fast"]:
        # What is planned is reported before it is written down.
        later = [slow for at, slow in reached["slow"] if at > moment]
        if later:
            apart.append(fast - later[0])
    return apart


@pytest.mark.long("test_on_processing_time_no_click_is_joined_before_the_snapshot_and_each_finds_the_latest_row")
def test_nothing_is_read_beside_a_snapshot_that_holds_the_group(
    streams: KafkaStreams, mysql_streams: MySqlStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: TIMES["slow"], 1: TIMES["slow"]})
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i, 'name' FROM n"
    mysql_streams.run_sql("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", f"INSERT INTO users {numbers}")
    clock: dict[str, Any] = {
        "alignmentGroup": "clicks and users",
        "watermarkStrategy": "none",
        "alignmentMembers": 2,
    }
    clicks = streams.source(subscribe=topic, sourceName="clicks", **clock)
    users = mysql_streams.source(
        "users",
        sourceName="users",
        snapshotChunkRows=150,
        snapshotParallelism=1,
        **clock,
    )
    rows = clicks.selectExpr("'click' AS kind", "marker").union(users.selectExpr("'user' AS kind", "marker"))
    query = streams.start_file(rows.where("marker IS NULL").drop("marker"), "both")
    wait_for(lambda: delivered(streams, "both") == 900 + 2 * len(TIMES["slow"]), query, seconds=150)
    query.stop()
    in_snapshot = ["snapshot" in offset for offset in streams.offsets("both", source=1)]
    read = [sum(numbers[n][0] for n in numbers) for o in streams.offsets("both") for numbers in o["splits"].values()]
    assert in_snapshot.count(True) >= 5
    assert all(not clicks for clicks, held in zip(read, in_snapshot, strict=True) if held)
    assert read[-1] == 2 * len(TIMES["slow"])


def delivered(streams: KafkaStreams, name: str) -> int:
    """Return how many rows a file sink holds."""
    log = streams.sink(name) / "_spark_metadata"
    if not any('"add"' in file.read_text() for file in log.glob("[0-9]*")):
        return 0
    found = streams.result(name)
    return (found.where("marker IS NULL") if "marker" in found.columns else found).count()
