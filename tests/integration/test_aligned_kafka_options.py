"""What the options of a stream change: batch sizes, triggers, columns, markers, names, the clock as event time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from tests.integration.kafka_streams import START, KafkaStreams, wait_for
from tests.spark.queries import at
from watermark_source import follow_watermark, markers
from watermark_source.monitor.progress_event import parse_progress
from watermark_source.monitor.status import SourceStatus, Status

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]


def test_available_now_obeys_the_batch_limit_and_once_takes_everything(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    streams.write(topic, {0: range(100), 1: range(50)})
    source = streams.source(subscribe=topic, maxOffsetsPerTrigger=20)
    everything = [(topic, 0, n) for n in range(100)] + [(topic, 1, n) for n in range(50)]

    streams.run(source, "limited")
    sizes = [sum(end - first for first, end in batch.values()) for batch in streams.batches("limited")]
    assert 0 < max(sizes) <= 20
    assert streams.data("limited") == everything

    streams.run(source, "once", once=True)
    assert len(streams.batches("once")) == 1
    assert streams.data("once") == everything


def test_available_now_ends_where_the_log_ended_when_it_began(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(50)})
    source = streams.source(subscribe=topic, maxOffsetsPerTrigger=5)
    query = streams.start_file(source, "bounded", availableNow=True)
    wait_for(lambda: (streams.checkpoint("bounded") / "offsets" / "1").exists(), query)
    streams.write(topic, {0: range(50, 60)})
    assert query.awaitTermination(120)
    assert len(streams.data("bounded")) == 50
    streams.run(source, "bounded")
    assert len(streams.data("bounded")) == 60


def test_chosen_columns_are_all_there_is_and_markers_can_be_left_out(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(5), 1: range(3)})
    few = streams.source(subscribe=topic, columns="Offset, value,event_time", includeMarkers="false")
    assert few.columns == ["value", "offset", "event_time"]
    streams.run(few, "few")
    rows = streams.result("few").orderBy("event_time", "offset").collect()
    assert [row.offset for row in rows] == [0, 0, 1, 1, 2, 2, 3, 4]
    assert rows[-1].event_time == at(4)
    assert int.from_bytes(rows[-1].value[:8], "big") == 4


def of_last_progress(query: StreamingQuery) -> SourceStatus:
    (status,) = parse_progress(query.lastProgress.json)
    return status


def test_the_source_name_is_in_offsets_and_status_and_a_checkpoint_belongs_to_it(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(5), 1: range(3)})
    query = streams.start_file(streams.source(subscribe=topic, sourceName="orders"), "named")
    query.processAllAvailable()
    status = of_last_progress(query)
    query.stop()
    assert (status.source_name, status.format_name) == ("orders", "aligned-kafka")
    assert {offset["name"] for offset in streams.offsets("named")} == {"orders"}


def test_progress_holds_a_status_that_agrees_with_the_log(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(5), 1: range(3)})
    query = streams.start_file(streams.source(subscribe=topic), "watched")
    query.processAllAvailable()
    wait_for(lambda: of_last_progress(query).lag == 0, query)
    status = of_last_progress(query)
    query.stop()
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
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: range(5), 1: range(3)})
    source = streams.source(subscribe=topic, watermarkStrategy="none")
    streams.run(source, "clock")
    streams.write(topic, {0: range(5, 8)})
    streams.run(source, "clock")
    columns = ("topic", "partition", "offset", "event_time")
    first = streams.data("clock", columns)
    told = {row.watermark for row in markers_of(streams, "clock")}
    assert len(first) == 11
    # Each row's event time is one millisecond after a watermark that went out: never late.
    clocks = {row.event_time for row in first}
    assert len(clocks) == 2
    assert {clock.timestamp() * 1_000 - 1 for clock in clocks} <= {moment.timestamp() * 1_000 for moment in told}

    streams.die_in("clock", streams.last_with_rows("clock"))
    assert len(streams.data("clock")) == 8
    streams.run(source, "clock")
    assert streams.data("clock", columns) == first


def markers_of(streams: KafkaStreams, name: str) -> list[Row]:
    return streams.result(name).where("marker.type = 'watermark'").select("marker.*").collect()


def test_windows_over_the_clock_lose_nothing(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    source = streams.source(subscribe=topic, watermarkStrategy="none", watermarkInterval="200 milliseconds")
    windows = follow_watermark(source).groupBy(F.window("event_time", "1 second")).count()
    running = streams.start(windows)
    for turn in range(3):
        streams.write(topic, {0: range(10), 1: [turn]})
        # The clock closes every window, and never stands still: there is always one more batch to come.
        wait_for(lambda rows=11 * (turn + 1): sum(count for _, count in running.rows()) >= rows, running.query)
    assert sum(count for _, count in running.rows()) == 33
    assert running.dropped == 0


def test_markers_of_a_stream_tell_watermark_and_status(streams: KafkaStreams, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: [0, 5], 1: [1, 3]})
    source = streams.source(subscribe=topic, idleTimeout="300 milliseconds")
    query = streams.start_file(markers(source), "markers")
    told = lambda: streams.result("markers").where("status = 'idle'").count() == 2  # noqa: E731
    wait_for(lambda: query.lastProgress and told(), query)
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
