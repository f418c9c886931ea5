"""The examples of JSON, of ordering and of joining two topics, run short on the run's own broker."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples import (
    change_feeds,
    complete_hours,
    early_and_final,
    json_event_time,
    night_uploads,
    sensor_ordering,
    two_topics_join,
)
from examples.skewed_topic import PARTITIONS, Orders
from services.kafka import Kafka
from services.kafka_topics import create_topic

pytestmark = [pytest.mark.service, pytest.mark.spark]


@pytest.mark.usefixtures("rocksdb")
@pytest.mark.long("test_rows_of_a_topic_leave_in_order_and_once_though_batches_are_retried")
def test_early_readings_wait_for_those_on_time_and_late_ones_are_distinguished(
    spark: SparkSession, kafka: Kafka
) -> None:
    create_topic(kafka.bootstrap, sensor_ordering.TOPIC, partitions=3)
    written = sensor_ordering.produce(kafka.bootstrap, sensor_ordering.TOPIC, 60)
    console = Console(file=io.StringIO())
    readings = sensor_ordering.run(spark, kafka.bootstrap, sensor_ordering.TOPIC, console)
    assert sensor_ordering.verdict(readings, written, console)
    ordered, late = readings.left(late=False), readings.left(late=True)
    assert {sensor for _, sensor, _ in late} == {"late"}
    # Early and on time in turn: what was measured at one time was written half a minute apart.
    assert {sensor for _, sensor, measured in ordered if measured > sensor_ordering.START_MS + 31_000} == {
        "early",
        "on time",
    }
    # The example finds a reading that is missing, and one that is out of place.
    number, kept = next((number, kept) for number, kept in readings.batches.items() if kept)
    readings.batches[number] = kept[1:]
    assert not sensor_ordering.verdict(readings, written, console)
    readings.batches[number] = kept[::-1]
    assert not sensor_ordering.verdict(readings, written, console)


@pytest.mark.long("test_two_topics_of_one_query_are_never_further_apart_than_the_drift")
def test_a_join_of_aligned_topics_keeps_fewer_rows_with_an_equal_result(spark: SparkSession, kafka: Kafka) -> None:
    for name in (two_topics_join.SHOWN, two_topics_join.CLICKED):
        create_topic(kafka.bootstrap, name, partitions=two_topics_join.PARTITIONS)
    day = two_topics_join.Day(rows=10_000, hours=1)
    expected = two_topics_join.produce(kafka.bootstrap, day)
    console = Console(file=io.StringIO(), width=100)
    alone = two_topics_join.replay(spark, kafka.bootstrap, day, console)
    aligned = two_topics_join.replay(spark, kafka.bootstrap, day, console, **two_topics_join.ALIGNED)
    assert alone.result == aligned.result
    assert alone.result[0] == expected > 8_000
    # A partition has every second row.
    record_ms = two_topics_join.PARTITIONS * day.hours * 3_600_000 / day.rows
    limit_ms = two_topics_join.DRIFT_MINUTES * 60_000
    assert aligned.drift_ms <= limit_ms + record_ms < alone.drift_ms, (aligned.drift_ms, alone.drift_ms)
    # Alone, the fast topic is in state as a whole before the slow one is far; over more hours the ratio grows.
    assert alone.highest > 10_000 > 1.2 * aligned.highest
    two_topics_join.show({"alone": alone, "aligned": aligned}, console)
    assert f"full height: {alone.highest:,}".replace(",", " ") in console.file.getvalue()  # type: ignore[attr-defined]
    assert "limit: 10 min" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_chart_has_the_height_of_its_numbers() -> None:
    assert two_topics_join.chart([0, 4, 8], 8, height=2) == ["  █", " ██"]
    assert two_topics_join.chart([1, 8, 2, 3], 8, width=2, height=1) == ["█▃"]


def test_a_watermark_per_partition_counts_the_orders_that_one_on_the_parsed_column_loses(
    spark: SparkSession, kafka: Kafka
) -> None:
    rows = 1_500
    topic = json_event_time.TOPIC
    create_topic(kafka.bootstrap, topic, partitions=len(json_event_time.AHEAD_MS))
    produced = json_event_time.produce(kafka.bootstrap, topic, rows)
    console = Console(file=io.StringIO(), width=100)
    by_column = json_event_time.on_the_parsed_column(spark, kafka.bootstrap, topic, rows)
    plain = json_event_time.count(by_column, produced, console, "withWatermark")
    by_partition = json_event_time.by_partition(spark, kafka.bootstrap, topic, rows)
    ours = json_event_time.count(by_partition, produced, console, "eventTimeColumn")
    assert plain.lost > rows / 2
    assert ours.lost == 0
    assert ours.windows == {start: produced[start] for start in ours.windows}
    # Up to a minute behind the slowest partition, which is half an hour behind the first.
    slowest = json_event_time.START_MS - 1_800_000 + 500 * rows
    assert max(ours.windows) >= slowest - 3 * 60_000
    json_event_time.side_by_side({"withWatermark": plain, "eventTimeColumn": ours}, console)
    assert str(plain.lost) in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("feed", [change_feeds.COCKROACHDB, change_feeds.TICDC], ids=lambda feed: feed.topic)
@pytest.mark.long("test_only_records_with_a_watermark_move_it_and_never_back")
@pytest.mark.long("test_a_watermark_in_json_moves_and_null_or_nothing_does_not")
def test_the_markers_of_a_change_feed_close_windows_and_make_no_change_late(
    spark: SparkSession, kafka: Kafka, feed: change_feeds.Feed
) -> None:
    rows = 300
    create_topic(kafka.bootstrap, feed.topic, partitions=change_feeds.PARTITIONS)
    change_feeds.produce(kafka.bootstrap, feed, rows)
    console = Console(file=io.StringIO())
    windows = change_feeds.count(change_feeds.changes(spark, kafka.bootstrap, feed, per_batch=60), console)
    assert change_feeds.missing(windows, rows) == 0
    # 21 windows; at the end the last markers are behind the last batch.
    assert len(windows) >= 15


@pytest.mark.long("test_a_strategy_of_the_users_own_uses_the_heartbeats_of_records_and_without_them_a_bound")
def test_a_bound_for_each_hour_loses_no_reading_of_the_night_and_delays_no_window_of_the_day(
    spark: SparkSession, kafka: Kafka
) -> None:
    rows, topic = 1_200, night_uploads.TOPIC
    create_topic(kafka.bootstrap, topic, partitions=night_uploads.PARTITIONS)
    taken = night_uploads.produce(kafka.bootstrap, topic, rows)
    minute, own = (
        night_uploads.count(spark, kafka.bootstrap, topic, name, Console(quiet=True), per_batch=rows // 12)
        for name in ("a minute", "NightUploads")
    )
    assert night_uploads.lost(minute, taken) > 0
    assert night_uploads.lost(own, taken) == 0
    # The last windows are of the day: a bound of two hours would leave the last twelve open.
    assert len(own) >= len(minute) - 1


def test_early_answers_become_the_counts_of_a_batch_query(spark: SparkSession, kafka: Kafka) -> None:
    """Two queries on a skewed topic, of whose rows 1 % are late."""
    create_topic(kafka.bootstrap, early_and_final.TOPIC, partitions=len(early_and_final.SHARES))
    options = early_and_final.topic_options(kafka.bootstrap, early_and_final.TOPIC, per_batch=400)
    rows = early_and_final.orders(4_000, seconds=400)
    result = early_and_final.run(spark, options, rows, Console(file=io.StringIO()))
    assert result.wrong == 0
    assert result.early >= 400_000 // early_and_final.WINDOW_MS
    assert 0.9 < result.share < 1
    # Of 1 % most: the first 400 rows come before there is a watermark.
    assert 20 < result.late < 60


def test_an_order_that_the_broker_refuses_ends_a_demo(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    """It would be missing from a window that lacks nothing of what is in the topic."""
    topic = new_topic(len(PARTITIONS), config={"message.timestamp.after.max.ms": "3600000"})
    source = Orders(kafka.bootstrap, topic, seconds=1)
    source.first += 8 * complete_hours.HOUR_MS
    source.go_on.set()
    source.start()
    source.join()
    with pytest.raises(SystemExit, match="the broker has refused an order: "):
        source.is_over()


@pytest.mark.long("test_an_order_that_the_broker_refuses_ends_a_demo")
def test_hours_that_are_read_once_they_are_complete_have_every_order(
    spark: SparkSession, kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    topic, console = new_topic(len(PARTITIONS)), Console(file=io.StringIO(), width=100)
    result = complete_hours.run(spark, kafka.bootstrap, topic, 25, console)
    assert len(result.produced) > 1
    assert 0 <= result.once_complete.missed(result.produced) <= result.late
    assert result.by_clock.missed(result.produced) > result.late
