"""Announced watermarks on a real broker: what writers announce, and what the auditor finds of it."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from pyspark_aligned_kafka import WatermarkAnnouncer, announce_watermark
from pyspark_aligned_kafka.announcing import Audit, announcer, audit
from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic
from pyspark_aligned_kafka.announcing.written_topic import WrittenTopic
from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.options.subscription import announcements_of
from services.kafka import Kafka, kafka_service
from services.kafka_local import FAST_START
from services.kafka_topics import add_partitions, create_topic, delete_records, delete_topic, records_refused
from services.wait_until import wait_until
from tests.integration.kafka_streams import KafkaStreams, write
from tests.integration.killed_announcing_driver import WINDOW_SECONDS, WINDOWS, AnnouncingJob
from tests.integration.killed_runs import batches, kill_once, last_commit, started, wait_for
from tests.spark.queries import START, settle
from watermark_source import follow_watermark
from watermark_source.command_line import main
from watermark_source.errors import SourceError, UsageError
from watermark_source.planning.announcement import Announcement, Removal
from watermark_source.planning.range_report import RowTotals
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.status_model.status_json import parse_progress

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
TIME = "value:$.t"
_log = logging.getLogger(__name__)


def options_of(kafka: Kafka) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap}


def audited(kafka: Kafka, topic: str, **given: str) -> Audit:
    return audit(topic, {**options_of(kafka), "eventTimeFormat": "millis"}, TIME, **given)


def produce(kafka: Kafka, topic: str, rows: Sequence[tuple[int, int, str]]) -> None:
    """Write rows, each with partition, event time, and the name of its writer."""
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for partition, time, writer in rows:
            value = json.dumps({"t": time, "of": writer}).encode()
            producer.send(topic, value, partition=partition, headers=[("other", b"x"), ("writer", writer.encode())])
        producer.flush()


def announced(kafka: Kafka, topic: str) -> list[Announcement | Removal | None]:
    with closing(AnnouncementTopic(options_of(kafka), topic)) as announcements:
        return [record.statement for record in announcements.records()]


def of_query(kafka: Kafka, topic: str) -> list[Announcement]:
    return [each for each in announced(kafka, topic) if isinstance(each, Announcement)]


def command(capsys: pytest.CaptureFixture[str], kafka: Kafka, topic: str, *words: str) -> tuple[int, str]:
    code = main(["watermarks", "--kafka", "--kafka.bootstrap.servers", kafka.bootstrap, "--topic", topic, *words])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_a_producer_announces_from_its_first_moment_to_its_end(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2, config={"retention.ms": "7200000"})
    with WatermarkAnnouncer(topic, options_of(kafka), "web-1") as writer:
        produce(kafka, topic, [(0, 1_000, "web-1"), (1, 900, "web-1"), (1, 1_100, "web-1")])
        writer.announce(1_000)
        add_partitions(kafka.bootstrap, topic, 3)
        writer.mark_idle()
        writer.announce(1_500)
        with pytest.raises(UsageError, match="a watermark never goes back"):
            writer.announce(1_499)
        writer.close(end=True)
        writer.close()
        with pytest.raises(UsageError, match="web-1 is closed"):
            writer.announce(2_000)
    found = of_query(kafka, topic)
    assert [(a.batch, a.watermark, a.idle) for a in found] == [
        (0, None, False), (1, 1_000, False), (2, 1_000, True), (3, 1_500, False), (4, MAX, False),
    ]  # fmt: skip
    assert [dict(a.ends) for a in found[:3]] == [{"0": 0, "1": 0}, {"0": 1, "1": 2}, {"0": 1, "1": 2, "2": 0}]
    with closing(KafkaAdmin(parse_settings(options_of(kafka)))) as admin:
        side = announcements_of(topic)
        assert {a.topic for a in found} == {admin.topics([topic])[topic].id}
        assert len(admin.topics([side])[side].leaders) == 1
        assert admin.topic_settings([side], ["cleanup.policy", "retention.ms"])[side] == {
            "cleanup.policy": "delete", "retention.ms": "7200000",
        }  # fmt: skip
    assert audited(kafka, topic)


def test_the_auditor_lists_rows_behind_a_promise_that_are_no_copies(
    kafka: Kafka, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(2)
    with WatermarkAnnouncer(topic, options_of(kafka), "web-1") as writer:
        produce(kafka, topic, [(0, 1_000, "web-1"), (1, 2_000, "web-1")])
        writer.announce(1_500)
        # The first is a copy, in another partition; the second is after the watermark; the third breaks the promise.
        produce(kafka, topic, [(1, 1_000, "web-1"), (0, 1_501, "web-1"), (0, 1_500, "web-1")])
    found = audited(kafka, topic)
    assert not found
    assert [(b.partition, b.offset, b.event_time, b.writer, b.watermark) for b in found.broken] == [
        (0, 2, 1_500, "web-1", 1_500)
    ]
    assert (found.rows, found.copies) == (5, 1)
    code, shown = command(capsys, kafka, topic, "--eventTimeColumn", TIME, "--eventTimeFormat", "millis", "audit")
    assert code == 1
    assert "1970-01-01 00:00:01.500" in shown
    assert "5 rows, 2 announcements of 1 writers: 1 rows break a promise, 1 copies, 0 faulty" in shown
    # Once the original has expired, nothing distinguishes a copy from a row that breaks the promise.
    delete_records(kafka.bootstrap, topic, {0: 1})
    code, shown = command(capsys, kafka, topic, "--eventTimeColumn", TIME, "--eventTimeFormat", "millis", "audit")
    assert code == 0
    assert "2 rows behind a promise may be copies of rows that retention or compaction has deleted" in shown
    assert "4 rows, 2 announcements of 1 writers: 0 rows break a promise, 0 copies" in shown


def test_a_row_of_an_equal_value_and_another_event_time_is_no_copy(kafka: Kafka, new_topic: NewTopic) -> None:
    """Where the record's timestamp is the event time, key and value do not show which row it is."""
    topic = new_topic(1)
    with (
        WatermarkAnnouncer(topic, options_of(kafka), "w") as writer,
        closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer,
    ):
        producer.send(topic, b"21.5", timestamp_ms=START + 9_000)
        producer.flush()
        writer.announce(START + 5_000)
        for late in (1_000, 9_000):
            producer.send(topic, b"21.5", timestamp_ms=START + late)
        producer.flush()
        writer.announce(START + 9_000)
        producer.send(topic, b"21.5", timestamp_ms=START + 9_000)
        producer.flush()
    found = audit(topic, options_of(kafka))
    assert ([b.offset for b in found.broken], found.copies, found.unknown) == ([1], 1, 0)


def test_of_several_writers_a_row_is_judged_by_its_own_or_by_the_lowest(
    kafka: Kafka, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(1)
    fast = WatermarkAnnouncer(topic, options_of(kafka), "fast")
    slow = WatermarkAnnouncer(topic, options_of(kafka), "slow")
    fast.announce(5_000)
    slow.announce(1_000)
    produce(kafka, topic, [(0, 1_500, "slow"), (0, 4_000, "fast"), (0, 900, "slow")])
    assert [b.offset for b in audited(kafka, topic).broken] == [2]
    by_header = audited(kafka, topic, writer_column="header:writer")
    assert [(b.offset, b.writer) for b in by_header.broken] == [(1, "fast"), (2, "slow")]
    code, shown = command(capsys, kafka, topic, "list")
    assert code == 0
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["fast", "active"], ["slow", "active"]]
    code, shown = command(capsys, kafka, topic, "drop", "slow")
    assert code == 0
    assert " ago: if it runs, readers do not wait for it until its next announcement" in shown
    assert announced(kafka, topic)[-1] == Removal("slow")
    assert "removed" in command(capsys, kafka, topic, "list")[1]
    code, shown = command(capsys, kafka, topic, "drop", "snow")
    assert (code, "no announcement of snow; it has writers: fast, slow" in shown) == (0, True)
    assert "if it runs" not in shown
    assert announced(kafka, topic)[-1] == Removal("snow")
    assert command(capsys, kafka, topic)[0] == 2
    fast.close()
    slow.close()


def test_a_writer_finds_its_last_announcement_however_many_others_came_since(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs once a night would begin again with batch 0 otherwise, which readers treat as a restored one."""
    monkeypatch.setattr(announcer, "_LOOKED_AT", (10, *announcer._LOOKED_AT[1:]))
    topic = new_topic(1)
    with closing(AnnouncementTopic(options_of(kafka), topic)) as announcements:
        cut = announcements.cut()
        night = Announcement(
            writer="night", query="q", batch=7, watermark=Millis(5), topic=cut.topic, ends=cut.ends
        )  # fmt: skip
        announcements.send(night)
        for batch in range(25):
            announcements.send(replace(night, writer="day", batch=batch))
        assert announcements.last_of("night") == night
        announcements.send(Removal("night"))
        assert announcements.last_of("night") is None
        assert announcements.last_of("night" * 2) is None


def test_keys_of_any_bytes_are_audited_and_rows_without_a_key_are_no_copies(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with (
        WatermarkAnnouncer(topic, options_of(kafka), "w") as writer,
        closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer,
    ):
        for key in (b"\xff", None, b"w"):
            producer.send(topic, b'{"t":2000}', key=key)
        producer.flush()
        writer.announce(1_500)
        for key in (b"\xff", None, b"w"):
            producer.send(topic, b'{"t":1000}', key=key)
        producer.flush()
    assert [b.offset for b in audited(kafka, topic, writer_column="key").broken] == [5]
    assert [(b.offset, b.writer) for b in audited(kafka, topic, copies_by="key").broken] == [(4, "w")]


def test_a_producer_whose_broker_has_gone_is_closed_once_its_record_has_expired() -> None:
    with kafka_service(jvm=FAST_START) as gone:
        create_topic(gone.bootstrap, "t", 1)
        limits = {"delivery_timeout_ms": 4_000, "request_timeout_ms": 2_000}
        producer = KafkaProducer(bootstrap_servers=gone.bootstrap, client_id="left-behind", **limits)
        producer.send("t", b"1").get(60)

    def is_running() -> bool:
        return any(thread.name == "left-behind-network-thread" for thread in threading.enumerate())

    producer.send("t", b"2")
    announcer._close(producer)
    assert is_running()
    wait_until(lambda: not is_running(), 120, "the end of the producer's thread")


def test_a_deleted_topic_of_announcements_is_created_again(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, usual = (
        {"delivery_timeout_ms": 3_000, "max_block_ms": 3_000, "request_timeout_ms": 2_000},
        announcer._OF_PRODUCER,
    )
    monkeypatch.setattr(announcer, "_OF_PRODUCER", {**usual, **limits})
    topic = new_topic(1)
    with WatermarkAnnouncer(topic, options_of(kafka), "web-1") as writer:
        delete_topic(kafka.bootstrap, announcements_of(topic))
        with pytest.raises(SourceError):
            writer.announce(1_000)
        # It may have been announced nevertheless: it is repeated under a number of its own, and nothing lower is.
        with pytest.raises(UsageError, match="a watermark never goes back"):
            writer.announce(999)
        monkeypatch.setattr(announcer, "_OF_PRODUCER", usual)
        writer.announce(1_000)
    assert [(a.batch, a.watermark) for a in of_query(kafka, topic)] == [(2, 1_000)]


def test_a_topic_that_cannot_hold_announcements_is_refused(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, other = new_topic(1), new_topic(1)
    create_topic(kafka.bootstrap, announcements_of(topic), 2)
    with pytest.raises(UsageError, match="2 partitions; announcements need their order"):
        WatermarkAnnouncer(topic, options_of(kafka), "web-1")
    create_topic(kafka.bootstrap, announcements_of(other), 1, config={"cleanup.policy": "compact"})
    with pytest.raises(UsageError, match="compaction removes announcements"):
        WatermarkAnnouncer(other, options_of(kafka), "web-1")


def values_of(kafka: Kafka, topic: str) -> list[dict[str, int]]:
    consumer = KafkaConsumer(topic, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    with closing(consumer):
        ends = consumer.end_offsets([TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)])
        found: list[dict[str, int]] = []
        while len(found) < sum(ends.values()):
            for records in consumer.poll(timeout_ms=1_000).values():
                found += [json.loads(record.value) for record in records]
    return found


# Queries.


def windows(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(F.window("event_time", "10 seconds")).count()
    fields = F.struct(F.unix_millis(F.window_time("window")).alias("t"), "count")
    return counted.select(F.to_json(fields).alias("value"))


@pytest.fixture
def streams(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[KafkaStreams]:
    made = KafkaStreams(spark, tmp_path, bootstrap=kafka.bootstrap)
    yield made
    made.stop()


def test_a_query_announces_what_its_operators_state(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, built_in_kafka: str
) -> None:
    source, sink = new_topic(2), new_topic(3)
    rows = follow_watermark(streams.source(subscribe=source, maxOutOfOrderness="5 seconds"))
    writer = windows(rows).writeStream.format(built_in_kafka).option("kafka.bootstrap.servers", kafka.bootstrap)
    writer = writer.option("topic", sink)
    # A second run of the checkpoint, and a fresh one under the same name.
    for run, checkpoint in enumerate(("a", "a", "fresh")):
        last = 100 * (run + 1)
        query = writer.option("checkpointLocation", str(streams.checkpoint(checkpoint))).start()
        streams.started.append(query)
        announcing = announce_watermark(query, sink, options_of(kafka), "sessions")
        for second in range(100 * run, last, 50):
            # The watermark is a millisecond before the end of a window: in milliseconds its window_time is the same.
            streams.write(source, {0: [second + 15, second + 11], 1: [second + 6, second + 18]})
            settle(query)
        announcing.flush()
        progress = query.lastProgress
        assert progress is not None
        query.stop()
        found = of_query(kafka, sink)
        assert found[-1].batch == progress["batchId"]
        # The lower partition's watermark in milliseconds, as Flink has it, and one below what Spark states.
        assert found[-1].watermark == START + (last - 50 + 15 - 5) * 1_000 - 1 - 1
    both = {a.query: [each for each in found if each.query == a.query] for a in found}
    assert len(both) == 2
    for each in both.values():
        # Readers wait for a new writer from the start. Then there is at most one announcement a batch.
        assert each[0].watermark is None
        assert len({a.batch for a in each[1:]}) == len(each) - 1
    # The fresh one begins again: what the earlier one announced is not true of its rows.
    result = audited(kafka, sink)
    assert result
    assert result.rows > 10


def test_readers_do_not_wait_for_a_query_whose_sources_are_idle_and_wait_again_before_its_next_rows(
    streams: KafkaStreams,
    kafka: Kafka,
    new_topic: NewTopic,
    built_in_kafka: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    source, sink = new_topic(2), new_topic(2)
    interval = "spark.sql.streaming.noDataProgressEventInterval"
    streams.spark.conf.set(interval, "500")
    rows = follow_watermark(streams.source(subscribe=source, idleTimeout="2 seconds"))
    writer = windows(rows).writeStream.format(built_in_kafka).option("kafka.bootstrap.servers", kafka.bootstrap)
    writer = writer.option("topic", sink).option("checkpointLocation", str(streams.checkpoint("a")))

    def last(of: str = "sessions") -> Announcement:
        return next(each for each in reversed(of_query(kafka, sink)) if each.writer == of)

    def run() -> StreamingQuery:
        query = writer.start()
        streams.started.append(query)
        announcing = announce_watermark(query, sink, options_of(kafka), "sessions")
        stack.callback(announcing.stop)
        return query

    by_announcements = {"watermarkStrategy": "announced", "eventTimeColumn": TIME, "eventTimeFormat": "millis"}
    counted = follow_watermark(streams.source(subscribe=sink, **by_announcements))
    counted = counted.groupBy(F.window("event_time", "10 seconds")).count()
    reader = streams.start(counted.select((F.unix_millis("window.end") - START) / 1_000, "count"))

    def read() -> RowTotals:
        (status,) = parse_progress(reader.query.lastProgress)
        return status.rows

    took: list[float] = []
    with ExitStack() as stack:
        stack.callback(streams.spark.conf.unset, interval)
        other = stack.enter_context(WatermarkAnnouncer(sink, options_of(kafka), "other"))
        query = run()
        streams.write(source, {0: [1, 15], 1: [2, 25]})
        wait_until(lambda: last().idle, 120, "an announcement that the query is idle")
        # It has a cut behind the windows that the last batch before it has closed.
        assert last().watermark is not None
        assert sum(last().ends.values()) == len(values_of(kafka, sink)) == 2
        for second in (600, 700):
            produce(kafka, sink, [(1, START + (second - 5) * 1_000, "other")])
            began = time.monotonic()
            other.announce(START + second * 1_000)
            wait_until(lambda second=second: (second, 1) in reader.rows(), 120, "the other's window", poll_seconds=0.3)  # type: ignore[misc]
            took.append(time.monotonic() - began)
        _log.info("windows beside a query that is idle came after %s s", took)
        assert not request.config.getoption("--long") or max(took) < 5, took
        # It comes back with rows of now. The other writer continues, and readers wait before the first is written.
        written = len(values_of(kafka, sink))
        streams.write(source, {0: [705, 715], 1: [712, 725]})
        wait_until(lambda: len(values_of(kafka, sink)) > written, 120, "a window of the query")
        assert not last().idle
        other.announce(START + 3_600_000)
        query.processAllAvailable()
        wait_until(lambda: read().read == len(values_of(kafka, sink)), 120, "all rows at the reader")
        # What it had open when it became idle is late, as its log has stated, and nothing of what it has read since.
        assert read().late.rows == 1
        (logged,) = (line for line in caplog.messages if "do not wait for it" in line)
        assert logged == (
            "writer sessions: all sources of its query are idle, and readers of its announcements do not wait for it. "
            "What it writes later is late where they have passed it, also from its 1 row of state, such as open "
            'windows. To have them wait, leave .option("idleTimeout", …) out of one of its sources'
        )
        assert audited(kafka, sink)

        # Where it ends, readers wait for its next run. Killed, it cannot report it before that.
        wait_until(lambda: last().idle, 120, "an announcement that the query is idle again")
        query.stop()
        wait_until(lambda: not last().idle, 60, "readers to wait for the next run")
        monkeypatch.setattr(WrittenTopic, "end_rest", lambda _: None)
        query = run()
        wait_until(lambda: last().idle, 120, "an announcement that the query is idle in its second run")
        query.stop()
        assert last().idle
        monkeypatch.undo()
        run()
        assert not last().idle


def test_a_topic_that_was_deleted_keeps_nothing_from_the_readers_of_another(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, built_in_kafka: str
) -> None:
    source, gone, sink = new_topic(1), new_topic(1), new_topic(1)
    rows = windows(follow_watermark(streams.source(subscribe=source)))
    writer = rows.writeStream.format(built_in_kafka).option("kafka.bootstrap.servers", kafka.bootstrap)
    query = writer.option("topic", sink).option("checkpointLocation", str(streams.checkpoint("a"))).start()
    streams.started.append(query)
    announcing = announce_watermark(query, [gone, sink], options_of(kafka), "sessions")
    delete_topic(kafka.bootstrap, gone)
    streams.write(source, {0: [15]})
    settle(query)
    wait_until(lambda: of_query(kafka, sink)[-1].watermark is not None, 120, "an announcement for the other topic")
    with pytest.raises(SourceError, match=gone):
        announcing.flush(timeout=1)
    query.stop()


@pytest.mark.long("test_a_query_announces_what_its_operators_state")
def test_for_each_batch_into_two_topics_announces_both_and_holds_back(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, built_in_kafka: str
) -> None:
    source, first, second = new_topic(1), new_topic(1), new_topic(1)
    rows = follow_watermark(streams.source(subscribe=source))
    starts = rows.groupBy(F.window("event_time", "10 seconds")).count()
    values = starts.select(F.to_json(F.struct(F.unix_millis("window.start").alias("t"), "count")).alias("value"))

    def write(frame: DataFrame, _: int) -> None:
        for topic in (first, second):
            sink = frame.write.format(built_in_kafka).option("kafka.bootstrap.servers", kafka.bootstrap)
            sink.option("topic", topic).save()

    # A Windows' start is not after the watermark: hold it back by the window's length, or readers lose rows.
    query = values.writeStream.foreachBatch(write).option("checkpointLocation", str(streams.checkpoint("a"))).start()
    streams.started.append(query)
    right = announce_watermark(query, [first, second], options_of(kafka), "sessions", hold="10 seconds")
    wrong = announce_watermark(query, second, options_of(kafka), "wrong")
    for seconds in range(0, 60, 6):
        streams.write(source, {0: [seconds]})
        settle(query)
        right.flush()
        wrong.flush()
    query.stop()
    right.stop()
    wrong.stop()
    assert audited(kafka, first)
    assert [a.watermark for a in of_query(kafka, first)][-1] == START + 54_000 - 1 - 1 - 10_000
    # Of two writers a row is judged by the lower one, which is right; by the other alone it is not.
    assert audited(kafka, second)
    given = [f"--{name}={value}" for name, value in options_of(kafka).items()]
    assert main(["watermarks", "--kafka", *given, f"--topic={second}", "list"]) == 0


@pytest.mark.long("test_a_query_announces_what_its_operators_state")
def test_what_a_query_on_spark_s_own_source_announces_holds(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, built_in_kafka: str
) -> None:
    source, sink = new_topic(2), new_topic(2)
    rows = streams.source(built_in_kafka, subscribe=source).withWatermark("timestamp", "10 seconds")
    writer = windows(rows.withColumnRenamed("timestamp", "event_time")).writeStream.format(built_in_kafka)
    options = {**options_of(kafka), "topic": sink, "checkpointLocation": str(streams.checkpoint("a"))}
    query = writer.options(**options).start()
    streams.started.append(query)
    announcing = announce_watermark(query, sink, options_of(kafka), "windows")
    for second in range(0, 200, 14):
        streams.write(source, {0: [second + 4], 1: [second, second + 2]})
        settle(query)
    announcing.flush()
    assert of_query(kafka, sink)[-1].watermark == START + (196 + 4 - 10) * 1_000 - 1
    result = audited(kafka, sink)
    assert result, result
    assert result.rows == 19


@pytest.mark.long("test_a_query_announces_what_its_operators_state")
def test_what_a_query_with_an_outer_join_announces_holds(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, built_in_kafka: str
) -> None:
    """A row without a match comes out long after it was read, with its own time, which the watermark must wait for."""
    clicks, views, sink = new_topic(2), new_topic(2), new_topic(2)
    left, right = (
        follow_watermark(streams.source(subscribe=topic, maxOutOfOrderness="5 seconds")).select(
            F.col("event_time").alias(time),
            F.unix_millis("event_time").alias(f"{time}_ms"),
            F.col("partition").alias(user),
        )
        for topic, time, user in ((clicks, "clicked", "clicking"), (views, "viewed", "viewing"))
    )
    within = F.expr("clicking = viewing AND clicked >= viewed AND clicked <= viewed + INTERVAL 30 SECONDS")
    joined = right.join(left, within, "leftOuter")
    value = F.to_json(F.struct(F.col("viewed_ms").alias("t"), "clicked_ms")).alias("value")
    writer = joined.select(value).writeStream.format(built_in_kafka)
    options = {**options_of(kafka), "topic": sink, "checkpointLocation": str(streams.checkpoint("a"))}
    query = writer.options(**options).start()
    streams.started.append(query)
    announcing = announce_watermark(query, sink, options_of(kafka), "joined")
    for second in range(0, 300, 24):
        # Every fourth view has a click in time, by 20 seconds later.
        streams.write(views, {0: [second], 1: [second + 0.5]})
        streams.write(clicks, {0: [second + 22.5 if second % 48 else second + 40], 1: [second]})
        settle(query)
    announcing.flush()
    values = values_of(kafka, sink)
    assert {v.get("clicked_ms") is None for v in values} == {True, False}
    last = of_query(kafka, sink)[-1].watermark
    assert last is not None
    assert last > START + 200_000
    assert audited(kafka, sink)


def test_a_query_without_an_output_watermark_is_refused(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    source, sink = new_topic(1), new_topic(1)
    rows = follow_watermark(streams.source(subscribe=source))
    counts = rows.groupBy("partition").count()
    streams.write(source, {0: [1]})
    writer = counts.writeStream.outputMode("complete").format("memory").queryName("totals")
    query = writer.option("checkpointLocation", str(streams.checkpoint("a"))).start()
    streams.started.append(query)
    settle(query)
    with pytest.raises(UsageError, match=r'totals cannot announce a watermark: the output mode is complete.*"append"'):
        announce_watermark(query, sink, options_of(kafka), "totals")
    with pytest.raises(UsageError, match="hold = 'soon'"):
        announce_watermark(query, sink, options_of(kafka), "totals", hold="soon")


def killed_before_its_announcement(job: AnnouncingJob, kafka: Kafka) -> bool:
    """Kill the driver after a commit whose announcement the broker refuses; return whether there is none of it."""

    def announced_last() -> int | None:
        found = of_query(kafka, job.sink_topic)
        return found[-1].batch if found and found[-1].watermark is not None else None

    def is_unannounced() -> bool:
        last = announced_last()
        return last is not None and last < last_commit(job, WINDOWS)

    with started(job) as driver:
        wait_for(lambda: announced_last() is not None, driver, "an announcement")
        with records_refused(kafka.bootstrap, announcements_of(job.sink_topic)):
            wait_for(is_unannounced, driver, "a commit without an announcement")
            driver.kill()
            return is_unannounced()


@pytest.mark.timeout(14_400)
@pytest.mark.long("test_each_night_every_window_comes_out_that_the_job_before_has_finished")
def test_promises_hold_whenever_the_driver_is_killed_and_when_tasks_write_again(
    request: pytest.FixtureRequest, kafka: Kafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    kills, seed = request.config.getoption("--announcing-kills"), request.config.getoption("--kills-seed")
    source, sink = new_topic(2), new_topic(3)
    batch_rows, chance = 200, random.Random(seed)
    rows = batch_rows * (8 + 4 * kills) // 2
    # Out of order by less than two seconds; the last row ends all windows before it.
    times = {p: [n / 4 + chance.uniform(0, 1.9) for n in range(rows)] + [rows / 4 + 1_000] for p in range(2)}
    write(kafka.bootstrap, source, times)
    job = AnnouncingJob("local[2]", tmp_path, kafka.bootstrap, source, sink, str(batch_rows))
    last = START + (rows // 4 + 1_000) * 1_000 - 2_000 - 2

    def is_done() -> bool:
        found = of_query(kafka, sink)
        return bool(found) and (found[-1].watermark or 0) >= last

    for number in range(kills):
        if number % 2 == 0:
            kill_once(job, chance, most_batches=3)
            continue
        while not killed_before_its_announcement(job, kafka):
            _log.info("the announcement was written before the broker refused it; once more")
    with started(job) as driver:
        # Up to half of the batches are left for it.
        wait_for(is_done, driver, "the last announcement", patience=3_600)
    result = audited(kafka, sink)
    assert result, result
    (writer,) = result.writers
    assert writer.queries == 1
    assert writer.announcements <= batches(job, "commits") + 1
    values = values_of(kafka, sink)
    length = WINDOW_SECONDS * 1_000
    counted = Counter((p, round(t * 1_000) // length) for p, found in times.items() for t in found[:-1])
    seen = {(v["partition"], (v["t"] - START) // length): v["count"] for v in values}
    assert seen == counted
    _log.info(
        "%d kills, %d of them between a commit and its announcement; %d announcements, %d rows, %d copies",
        kills, kills // 2, writer.announcements, len(values), result.copies,
    )  # fmt: skip
    # A task that Spark thinks dead writes its rows again, behind the announcement of its batch.
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as zombie:
        for value in chance.sample(values, 20):
            zombie.send(sink, json.dumps(value, separators=(",", ":")).encode())
        zombie.flush()
    again = audited(kafka, sink)
    assert again, again
    assert again.copies == result.copies + 20
