"""Watermarks that the writers of a topic announce, read from a real broker beside the rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.sql.functions import window
from pyspark.sql.streaming import StreamingQuery

from pyspark_aligned_kafka import WatermarkAnnouncer
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.lookup import announcements
from pyspark_aligned_kafka.options.kafka_options import parse
from services.kafka import Kafka
from services.kafka_topics import add_partitions, create_topic, delete_records, delete_topic
from services.wait_until import wait_until
from tests.integration.direct_kafka import DirectKafka, DirectQuery
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import START
from tests.unit.spark.driver.test_query_turns import another
from watermark_source import follow_watermark
from watermark_source.errors import UsageError
from watermark_source.group_store.local_members import driver_folder
from watermark_source.planning.announcement import Announcement, Removal, encoded
from watermark_source.planning.watermark import LAST, MAX, Millis, watermark_text
from watermark_source.status_model.status_json import parse_progress

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]


@dataclass
class Announcing:
    """Announces watermarks of a topic as its writers would."""

    kafka: Kafka
    topic: str
    batches: dict[str, int] = field(default_factory=dict)

    @property
    def side(self) -> str:
        return f"{self.topic}.watermarks"

    def create(self) -> None:
        create_topic(self.kafka.bootstrap, self.side)

    def topic_id(self) -> str:
        options = parse({"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": self.topic})
        admin = KafkaAdmin(options.client)
        try:
            found = admin.topics({self.topic})[self.topic].id
        finally:
            admin.close()
        assert found is not None
        return found

    def at(
        self,
        watermark: float | None,
        ends: Mapping[int, int],
        *,
        writer: str = "a",
        query: str = "q",
        written_at: int | None = None,
        **more: Any,
    ) -> None:
        """Announce a watermark, in seconds after ``START``, at the ends of partitions."""
        batch = self.batches[query] = self.batches.get(query, -1) + 1
        at = None if watermark is None else Millis(MAX if watermark == MAX else START + round(watermark * 1_000))
        given: dict[str, Any] = {"batch": batch, "topic": self.topic_id(), **more}
        named = {str(partition): end for partition, end in ends.items()}
        made = Announcement(writer=writer, query=query, watermark=at, ends=named, **given)
        self.send(encoded(made), writer, written_at=written_at)

    def drop(self, writer: str) -> None:
        self.send(encoded(Removal(writer)), writer)

    def send(self, value: bytes, key: str | None, *, written_at: int | None = None) -> None:
        producer = KafkaProducer(bootstrap_servers=self.kafka.bootstrap)
        producer.send(self.side, value, key=None if key is None else key.encode(), timestamp_ms=written_at)
        producer.flush(60)
        producer.close()


@pytest.fixture
def announcing(kafka: Kafka, new_topic: NewTopic) -> Callable[..., Announcing]:
    def make(partitions: int = 1, *, created: bool = True) -> Announcing:
        made = Announcing(kafka, new_topic(partitions))
        if created:
            made.create()
        return made

    return make


def reading(direct: DirectKafka, writers: Announcing, **options: Any) -> Mapping[str, str]:
    return direct.source(subscribe=writers.topic, watermarkStrategy="announced", **options)


def seconds(query: DirectQuery) -> float | None:
    """Return the watermark in seconds after ``START``."""
    watermark = query.status.watermark
    return None if watermark is None else (watermark - START) / 1_000


def reaches(query: DirectQuery, watermark: float) -> None:
    query.step()
    query.run_until(lambda: seconds(query) == watermark)


def test_the_watermark_is_as_announced_though_seven_of_eight_partitions_are_silent(
    direct: DirectKafka, announcing: Callable[..., Announcing]
) -> None:
    writers = announcing(8)
    direct.write(writers.topic, {0: [1, 5, 90]})
    writers.at(60, {0: 3, **dict.fromkeys(range(1, 8), 0)})
    query = direct.start(reading(direct, writers, announcedBy="a"), "b")
    reaches(query, 60)
    # Rows that are read and not announced of advance nothing; an announcement without rows does.
    direct.write(writers.topic, {0: [300]})
    query.process_all()
    assert seconds(query) == 60
    writers.at(200, {0: 4})
    reaches(query, 200)
    writers.at(400, {0: 5})
    query.run_for(1)
    assert seconds(query) == 200
    direct.write(writers.topic, {0: [390]})
    reaches(query, 400)
    assert len(direct.data("b")) == 5


def test_of_two_writers_the_lower_counts_and_idle_ended_and_dropped_ones_do_not(
    direct: DirectKafka, announcing: Callable[..., Announcing]
) -> None:
    writers = announcing(2)
    writers.at(50, {0: 0}, writer="a", query="qa")
    query = direct.start(reading(direct, writers, announcedBy="a,b"), "b")
    query.run_for(1)
    assert seconds(query) is None
    writers.at(None, {0: 0}, writer="b", query="qb")
    query.run_for(0.5)
    assert seconds(query) is None
    writers.at(20, {0: 0}, writer="b", query="qb")
    reaches(query, 20)
    writers.at(20, {0: 0}, writer="b", query="qb", idle=True)
    reaches(query, 50)
    writers.at(60, {0: 0}, writer="b", query="qb")
    writers.at(70, {0: 0}, writer="a", query="qa")
    reaches(query, 60)
    writers.drop("b")
    # It was named, so it is waited for all the same until it announces.
    query.run_for(0.5)
    assert seconds(query) == 60
    writers.at(MAX, {0: 0}, writer="b", query="qb2")
    reaches(query, 70)
    writers.at(MAX, {0: 0}, writer="a", query="qa")
    # Not the end of the stream, which would read nothing any more. Its marker is a moment that Python cannot show.
    start, limit = direct.offsets("b")[-1], query.limit
    wait_until(lambda: query.reader.latestOffset(start, limit).get("wm") == LAST, 60, "the last watermark")


def test_a_run_closes_exactly_what_the_writer_had_finished(
    direct: DirectKafka, announcing: Callable[..., Announcing]
) -> None:
    writers = announcing(2)
    source = reading(direct, writers, announcedBy="a")
    expected = []
    for night in range(1, 4):
        direct.write(writers.topic, {0: [night * 100, night * 100 + 9]})
        writers.at(night * 100, {0: night * 2, 1: 0})
        # Of the next night.
        writers.at(night * 100 + 99, {0: night * 2 + 1, 1: 0})
        writers.batches["q"] -= 1
        expected.append(seconds(direct.run(source, "b")))
        writers.batches["q"] += 1
    assert expected == [100, 200, 300]
    assert len(direct.data("b")) == 6


def test_a_restarted_query_waits_for_all_writers_it_knew_and_reads_on_from_its_checkpoint(
    direct: DirectKafka, announcing: Callable[..., Announcing], kafka: Kafka
) -> None:
    writers = announcing(1)
    source = reading(direct, writers)
    writers.at(10, {0: 0}, writer="a", query="qa")
    writers.at(30, {0: 0}, writer="b", query="qb")
    writers.at(20, {0: 0}, writer="a", query="qa")
    assert seconds(direct.run(source, "q")) == 20
    assert direct.offsets("q")[-1]["announced"]["at"] == 1
    assert direct.offsets("q")[-1]["announced"]["writers"] == ["a", "b"]
    # The record of b has expired: b is waited for, since its name is in the checkpoint.
    delete_records(kafka.bootstrap, writers.side, {0: 2})
    writers.at(99, {0: 0}, writer="a", query="qa")
    query = direct.start(source, "q")
    query.run_for(1)
    assert seconds(query) == 20
    writers.at(40, {0: 0}, writer="b", query="qb")
    reaches(query, 40)


def test_a_topic_of_announcements_that_does_not_exist_yet_holds_and_says_so(
    direct: DirectKafka, announcing: Callable[..., Announcing], caplog: pytest.LogCaptureFixture
) -> None:
    writers = announcing(1, created=False)
    direct.write(writers.topic, {0: [1, 2]})
    query = direct.start(reading(direct, writers), "b")
    with caplog.at_level(logging.WARNING):
        query.run_until(lambda: f"topic {writers.side} does not exist" in caplog.text)
    query.process_all()
    assert (seconds(query), len(direct.data("b"))) == (None, 2)
    writers.create()
    writers.at(1.5, {0: 2})
    reaches(query, 1.5)


def test_what_is_no_announcement_holds_the_writer_of_its_key_until_the_next(
    direct: DirectKafka, announcing: Callable[..., Announcing], caplog: pytest.LogCaptureFixture
) -> None:
    writers = announcing(1)
    writers.at(10, {0: 0})
    writers.send(b"garbage", None)
    writers.send(b'{"v":2,"writer":"new"}', "new")
    query = direct.start(reading(direct, writers), "b")
    with caplog.at_level(logging.WARNING):
        ignored = "a record without a writer's name as its key, at 1, is ignored: not an announcement of a watermark"
        query.run_until(lambda: ignored in caplog.text)
        query.run_for(1)
    assert seconds(query) is None
    writers.at(7, {0: 0}, writer="new", query="qn")
    reaches(query, 7)


def test_what_no_writer_can_have_meant_is_refused_and_its_next_announcement_counts(
    direct: DirectKafka, announcing: Callable[..., Announcing], caplog: pytest.LogCaptureFixture
) -> None:
    writers = announcing(2)
    cut = {0: 0, 1: 0}
    writers.at(10, cut)
    query = direct.start(reading(direct, writers), "b")
    reaches(query, 10)
    in_microseconds = (START * 1_000 - START) / 1_000
    for position, watermark, ends, fault in (
        (1, in_microseconds, cut, "as microseconds it is 2"), (3, 30, {**cut, 7: 3}, "names partition '7'"),
    ):  # fmt: skip
        before = seconds(query)
        writers.at(watermark, ends)
        with caplog.at_level(logging.WARNING):
            query.run_until(lambda fault=fault: fault in caplog.text)  # type: ignore[misc]
        assert f"{writers.side}: the record at {position}, of a, is refused" in caplog.text
        query.process_all()
        assert seconds(query) == before
        writers.at(10 + 10 * position, cut)
        reaches(query, 10 + 10 * position)


def test_the_newer_run_of_a_writer_counts_and_an_earlier_one_that_announces_again_is_named_and_ignored(
    direct: DirectKafka, announcing: Callable[..., Announcing], kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a rolling restart: for readers that run, are restarted, or begin then."""
    writers = announcing(1)
    source, given = reading(direct, writers), (writers.topic, {"kafka.bootstrap.servers": kafka.bootstrap}, "w")
    with WatermarkAnnouncer(*given) as earlier:
        earlier.announce(START + 10_000)
        running = direct.start(source, "running")
        reaches(running, 10)
        assert seconds(direct.run(source, "restarted")) == 10
        with WatermarkAnnouncer(*given) as newer:
            with caplog.at_level(logging.WARNING):
                earlier.announce(START + 90_000)
                running.run_until(lambda: "w: the earlier run" in caplog.text)
            assert seconds(direct.run(source, "restarted")) == 10
            assert seconds(direct.run(source, "fresh")) is None
            newer.announce(START + 20_000)
            earlier.announce(START + 91_000)
            newer.announce(START + 21_000)
            reaches(running, 21)
            assert [seconds(direct.run(source, name)) for name in ("restarted", "fresh", "later")] == [21, 21, 21]


def test_announcements_about_an_earlier_topic_of_the_name_are_ignored(
    direct: DirectKafka, announcing: Callable[..., Announcing], kafka: Kafka
) -> None:
    writers = announcing(1)
    writers.at(900, {0: 0})
    first = writers.topic_id()
    delete_topic(kafka.bootstrap, writers.topic)
    create_again(kafka, writers.topic)
    assert writers.topic_id() != first
    query = direct.start(reading(direct, writers), "b")
    query.run_for(1)
    assert seconds(query) is None
    writers.at(5, {0: 0}, query="other")
    reaches(query, 5)


def test_what_was_announced_of_a_topic_is_not_applied_to_one_created_again_and_refilled_between_two_looks(
    direct: DirectKafka,
    announcing: Callable[..., Announcing],
    kafka: Kafka,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader's positions pass the cuts of the earlier topic in rows of the new one, which were late then.

    That the topic is another one is a loss by itself, after which the new one is read from its beginning.
    """
    monkeypatch.setattr(announcements, "_IDS_LAST", 600.0)
    writers = announcing(1)
    with WatermarkAnnouncer(writers.topic, {"kafka.bootstrap.servers": kafka.bootstrap}, "w") as writer:
        for seconds_of in ((1, 2, 3), (100, 101)):
            direct.write(writers.topic, {0: seconds_of})
            writer.announce(START + 1_000 * seconds_of[-1])
        options = reading(direct, writers, maxOffsetsPerTrigger=1)
        query = direct.start({**options, "failOnDataLoss": "false"}, "b")
        query.run_until(lambda: len(direct.data("b")) == 2)
        assert seconds(query) is None
        delete_topic(kafka.bootstrap, writers.topic)
        create_again(kafka, writers.topic)
        direct.write(writers.topic, {0: [20, 21, 22, 23, 24, 25, 26, 27]})
        with caplog.at_level(logging.WARNING):
            query.run_until(lambda: len(set(direct.data("b"))) == 8)
            query.process_all()
        assert (seconds(query), query.status.rows.late.rows) == (None, 0)
        assert "the data's topic was deleted and created again" in caplog.text
        assert f"{writers.topic}-0 was read up to" in caplog.text
        # The writer's next announcement is about the new one.
        writer.announce(START + 102_000)
        reaches(query, 102)


def test_a_topic_of_announcements_that_is_created_again_is_read_from_its_beginning(
    direct: DirectKafka, announcing: Callable[..., Announcing], kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    writers = announcing(1)
    for at in (1, 2, 3):
        writers.at(at, {0: 0})
    query = direct.start(reading(direct, writers), "b")
    reaches(query, 3)
    delete_topic(kafka.bootstrap, writers.side)
    create_again(kafka, writers.side)
    with caplog.at_level(logging.WARNING):
        writers.at(8, {0: 0})
        reaches(query, 8)
    assert f"{writers.side} was" in caplog.text


def test_rows_of_a_partition_that_is_added_are_on_time(
    direct: DirectKafka, announcing: Callable[..., Announcing], kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    writers = announcing(1)
    writers.at(10, {0: 0})
    query = direct.start(reading(direct, writers), "b")
    reaches(query, 10)
    add_partitions(kafka.bootstrap, writers.topic, 2)
    direct.write(writers.topic, {1: [15, 30]})
    with caplog.at_level(logging.WARNING):
        writers.at(20, {0: 0, 1: 2})
        # Until the partition is found and read, the announcement is not reached.
        reaches(query, 20)
    assert len(direct.data("b")) == 2
    query.process_all()
    assert query.status.rows.late.rows == 0
    assert "Rows there" not in caplog.text


def test_a_repeated_batch_has_the_watermark_it_was_planned_with(
    direct: DirectKafka, announcing: Callable[..., Announcing]
) -> None:
    writers = announcing(1)
    source = reading(direct, writers)
    direct.write(writers.topic, {0: [1, 2]})
    writers.at(2, {0: 2})
    assert seconds(direct.run(source, "q")) == 2
    batch = direct.last_with_rows("q")
    before = [marker["watermark"] for marker in direct.markers("q")]
    direct.die_in("q", batch)
    writers.at(5, {0: 2})
    query = direct.start(source, "q")
    query.step()
    assert [marker["watermark"] for marker in direct.markers("q")] == before[: len(direct.markers("q"))]
    reaches(query, 5)


def test_a_silent_writer_is_left_out_after_its_time_to_live_and_its_rows_are_late_then(
    direct: DirectKafka, announcing: Callable[..., Announcing]
) -> None:
    writers = announcing(1)
    writers.at(10, {0: 0}, writer="dead", query="qd")
    begun, at = time.monotonic(), 20
    query = direct.start(reading(direct, writers, writerTimeToLive="2 seconds"), "b")
    reaches(query, 10)
    while seconds(query) == 10:
        writers.at(at, {0: 0}, writer="alive", query="qa")
        query.run_for(0.1)
        at += 1
        assert time.monotonic() < begun + 120
    assert time.monotonic() - begun >= 2
    (dead,) = (each for each in query.status.writers if each.name == "dead")
    assert (dead.status, dead.holds_back) == ("silent", False)
    direct.write(writers.topic, {0: [15]})
    query.run_until(lambda: query.status.rows.late.rows == 1)


def test_each_run_ends_though_a_writer_is_gone_and_names_it_until_its_time_to_live_has_passed(
    direct: DirectKafka, announcing: Callable[..., Announcing], caplog: pytest.LogCaptureFixture
) -> None:
    writers, day = announcing(1), 86_400
    now = int(time.time())
    direct.write(writers.topic, {0: [1, 11]})
    writers.at(10, {0: 0}, writer="dead", query="qd", written_at=1_000 * (now - 2 * day))
    for night in (1, 2):
        writers.at(50 * night, {0: 2 * night}, writer="alive", query="qa")
        assert seconds(direct.run(reading(direct, writers), "b")) == 10
        direct.write(writers.topic, {0: [60 * night, 61 * night]})
    gone = watermark_text(Millis(1_000 * (now - 2 * day)))
    # The first one had its watermark from nothing; the second read rows, and closed no window.
    words = "the run is over, and the source's watermark closed no window: 2 rows read"
    (text,) = (each for each in caplog.messages if words in each)
    assert f"It is held back by writer dead: announced last at {gone} UTC, after batch 0. Start writer dead; if" in text
    assert "drop dead" in text
    assert seconds(direct.run(reading(direct, writers, writerTimeToLive="1 day"), "b")) == 100
    assert "writer dead has announced nothing for 2 d, longer than writerTimeToLive (1 d)" in caplog.text


def test_in_a_group_a_reader_waits_for_another_source_and_that_for_what_is_announced(
    direct: DirectKafka, announcing: Callable[..., Announcing], new_topic: NewTopic
) -> None:
    writers, topic = announcing(2), new_topic(1)
    times = np.arange(0, 100, 1.0)
    direct.write(writers.topic, {0: times, 1: times})
    direct.write(topic, {0: times})
    for end in range(10, 110, 10):
        writers.at(end - 1, {0: end, 1: end})
    group = {"alignmentGroup": writers.topic, "alignmentMaxDrift": "15 seconds", "alignmentMembers": 2}
    reader = direct.start(reading(direct, writers, sourceName="reader", **group), "reader")
    beside = direct.start(direct.source(subscribe=topic, maxOffsetsPerTrigger=7, **group), "beside")
    ahead: list[float] = []

    def have_ended() -> bool:
        beside.step_or_wait()
        one, other = seconds(reader), seconds(beside)
        if one is not None and other is not None:
            ahead.append(one - other)
        return (one, other) == (99, 98.999)

    reader.step()
    reader.run_until(have_ended)
    # A batch of either goes no further than the drift; that of the other may have been planned meanwhile.
    assert 0 < max(ahead) <= 15 + 7
    assert min(ahead) >= -15 - 7
    assert 5 < sum(map(bool, direct.batches("reader"))) < 15
    # The query that announces joins the group.
    with another(driver_folder(), writers.topic) as query:
        query.tell('["q 0d2c9f3e", "clicks", "m", 1, ["active", 50], null, null, null]')
        with pytest.raises(UsageError, match="reads what the query of writer a writes"):
            reader.step()


def test_windows_of_a_query_close_as_soon_as_they_are_announced_and_the_status_names_who_holds_them(
    streams: KafkaStreams, announcing: Callable[..., Announcing]
) -> None:
    writers = announcing(8)
    source = streams.source(subscribe=writers.topic, watermarkStrategy="announced", announcedBy="a,late")
    counts = follow_watermark(source).groupBy(window("event_time", "10 seconds")).count()
    running = streams.start(counts.selectExpr("unix_seconds(window.start) AS start", "count"))
    streams.write(writers.topic, {0: [1, 2, 11, 25]})
    writers.at(12, {0: 4, **dict.fromkeys(range(1, 8), 0)})
    wait_until(lambda: holders(running.query) == ["late"], 240, "the writer that has not announced yet")
    assert running.rows() == []
    writers.at(30, {0: 4}, writer="late", query="ql")
    wait_until(lambda: running.rows() == [(START // 1_000, 2)], 240, "the first window", poll_seconds=0.3)
    writers.at(31, {0: 4})
    wait_until(lambda: len(running.rows()) == 3, 240, "all windows", poll_seconds=0.3)
    assert running.dropped == 0


@pytest.mark.long("test_windows_of_a_query_close_as_soon_as_they_are_announced_and_the_status_names_who_holds_them")
def test_in_a_union_of_topics_the_lowest_announced_watermark_counts(
    streams: KafkaStreams, announcing: Callable[..., Announcing]
) -> None:
    first, second = announcing(1), announcing(2)
    one, other = (
        follow_watermark(streams.source(subscribe=each.topic, watermarkStrategy="announced"))
        for each in (first, second)
    )
    counts = one.unionByName(other).groupBy(window("event_time", "10 seconds")).count()
    running = streams.start(counts.selectExpr("unix_seconds(window.start) AS start", "count"))
    streams.write(first.topic, {0: [1, 11, 25]})
    streams.write(second.topic, {1: [2]})
    first.at(31, {0: 3})
    second.at(5, {0: 0, 1: 1})
    running.query.processAllAvailable()
    assert running.rows() == []
    second.at(12, {0: 0, 1: 1})
    wait_until(lambda: running.rows() == [(START // 1_000, 2)], 240, "the first window", poll_seconds=0.3)
    second.at(31, {0: 0, 1: 1})
    wait_until(lambda: len(running.rows()) == 3, 240, "all windows", poll_seconds=0.3)
    assert running.dropped == 0


def holders(query: StreamingQuery) -> list[str]:
    statuses = parse_progress(query.lastProgress)
    return [writer.name for status in statuses for writer in status.writers if writer.holds_back]


def create_again(kafka: Kafka, topic: str) -> None:
    def created() -> bool:
        try:
            create_topic(kafka.bootstrap, topic)
        except Exception:  # noqa: BLE001 - it may still be being deleted
            return False
        return True

    wait_until(created, 60, f"{topic} created again")
