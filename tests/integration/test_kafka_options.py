"""What the options of a stream change: batch sizes, triggers, columns, markers, names, the clock as event time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from pyspark.sql.streaming import StreamingQuery

from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import START, at, settle
from watermark_source import markers
from watermark_source.status_model.source_status import SourceStatus, Status
from watermark_source.status_model.status_json import parse_progress

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]


def test_once_takes_everything_and_chosen_columns_are_all_there_is(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(5), 1: range(3)})
    few = streams.source(
        subscribe=topic, columns="Offset, value,event_time", includeMarkers="false", maxOffsetsPerTrigger=2
    )
    assert few.columns == ["value", "offset", "event_time"]
    streams.run(few, "few", once=True)
    assert len(streams.batches("few")) == 1
    rows = streams.result("few").orderBy("event_time", "offset").collect()
    assert [row.offset for row in rows] == [0, 0, 1, 1, 2, 2, 3, 4]
    assert rows[-1].event_time == at(4)
    assert int.from_bytes(rows[-1].value[:8], "big") == 4


def of_last_progress(query: StreamingQuery) -> SourceStatus:
    assert query.lastProgress is not None
    (status,) = parse_progress(query.lastProgress.json)
    return status


def test_progress_holds_a_status_that_agrees_with_the_log_and_names_the_source(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(5), 1: range(3)})
    query = streams.start_file(streams.source(subscribe=topic, sourceName="orders"), "watched")
    settle(query)
    wait_for(lambda: (seen := of_last_progress(query)).lag == 0 and seen.watermark is not None, query)
    status = of_last_progress(query)
    query.stop()
    assert (status.source_name, status.format_name) == ("orders", "aligned-kafka")
    assert {offset["name"] for offset in streams.offsets("watched")} == {"orders"}
    assert status.watermark == START + 2_000 - 1
    found = {
        view.split.number: (view.backlog.position, view.backlog.end, view.watermark, view.status)
        for view in status.splits
    }
    assert found == {
        0: (5, 5, START + 4_000 - 1, Status.ACTIVE),
        1: (3, 3, START + 2_000 - 1, Status.ACTIVE),
    }


def test_without_a_strategy_event_time_is_the_recorded_clock_and_a_replay_repeats_it(
    direct: DirectKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: range(5), 1: range(3)})
    source = direct.source(subscribe=topic, watermarkStrategy="none")
    direct.run(source, "clock")
    direct.write(topic, {0: range(5, 8)})
    direct.run(source, "clock")
    columns = ("topic", "partition", "offset", "event_time")
    first = direct.data("clock", columns)
    reported = {marker["watermark"] for marker in direct.markers("clock") if marker["type"] == "watermark"}
    assert len(first) == 11
    # Each row's event time is one millisecond after a watermark that went out: never late.
    clocks = {row[3] for row in first}
    assert len(clocks) == 2
    assert {clock - timedelta(milliseconds=1) for clock in clocks} <= reported

    direct.die_in("clock", direct.last_with_rows("clock"))
    assert len(direct.data("clock")) == 8
    direct.run(source, "clock")
    assert direct.data("clock", columns) == first


@pytest.mark.long("test_markers_are_flat_and_name_the_whole_source")
def test_markers_of_a_stream_report_watermark_and_status(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: [0, 5], 1: [1, 3]})
    source = streams.source(subscribe=topic, idleTimeout="300 milliseconds")
    query = streams.start_file(markers(source), "markers")
    idle = "status = 'idle'"
    wait_for(lambda: query.lastProgress and streams.result("markers").where(idle).count() == 2, query)
    query.stop()
    rows = streams.result("markers").collect()
    assert {(row.log, row.split, row.status) for row in rows if row.type == "status"} == {
        (topic, 0, "idle"),
        (topic, 1, "idle"),
    }
    watermarks = [row.watermark for row in rows if row.type == "watermark"]
    assert min(watermarks) == at(2.999)
    # When all are idle, the furthest one counts.
    assert max(watermarks) == at(4.999)
