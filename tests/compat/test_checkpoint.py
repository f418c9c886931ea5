"""Checkpoints of released versions are resumed by this one, with the result the old version would have had."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from services.kafka_topics import create_topic
from tests.compat.checkpoint_query import FIRST, LATER, NAME, PARTITIONS, TOPIC, expected, windows
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import at

pytestmark = [pytest.mark.service, pytest.mark.spark]

VERSIONS = sorted(folder.parent.name for folder in Path(__file__).parent.glob("*/checkpoint"))


def test_there_is_a_checkpoint_of_the_first_version() -> None:
    assert "0.1" in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_of_an_old_version_is_resumed_with_the_right_windows(streams: KafkaStreams, version: str) -> None:
    shutil.copytree(Path(__file__).parent / version / "checkpoint", streams.checkpoint(NAME))
    committed = streams.committed(NAME)
    last = max(committed)
    # The batch that was logged and not committed is run again; it is the one this watermark is for.
    assert len(streams.offsets(NAME)) == last + 2
    emitted = committed[last - 1] / 1_000
    create_topic(streams.bootstrap, TOPIC, PARTITIONS)
    streams.write(TOPIC, FIRST)
    streams.write(TOPIC, LATER)

    query = streams.run(windows(streams), NAME)
    assert sum(o["numRowsDroppedByWatermark"] for p in query.recentProgress for o in p["stateOperators"]) == 0
    # The slowest partition's last record is at 895 s, less the 10 s of disorder allowed.
    # The files themselves: the sink's own log does not reach back to the batches of the old version's run.
    rows = streams.spark.read.parquet(str(streams.sink(NAME) / "*.parquet")).collect()
    found = sorted(map(tuple, rows))
    assert found == [(at(w), p, count) for w, p, count in expected(emitted, 884)]
