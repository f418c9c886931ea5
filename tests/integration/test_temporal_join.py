"""``temporal_join`` of topics and tables: what comes out is what the database would have answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.wait_until import wait_until
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.mysql_streams import MySqlStreams
from tests.spark.queries import START, Running
from watermark_source import follow_clock, follow_watermark, temporal_join
from watermark_source.errors import UsageError

pytestmark = [
    pytest.mark.service, pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.usefixtures("rocksdb"),
]  # fmt: skip

NewTopic = Callable[..., str]
_SECONDS = 240
TOGETHER: dict[str, Any] = {"alignmentGroup": "clicks and users", "alignmentStore": "driver", "alignmentMembers": 2}
DRIFT = {"alignmentMaxDrift": "1 hour"}
ON_CLOCK = {"watermarkStrategy": "none", **TOGETHER}


def click(streams: KafkaStreams, topic: str, users: list[int], seconds: list[float] | None = None) -> None:
    """Write clicks of users to one partition, at some seconds after ``START``."""
    values = np.array([list(b"%06d" % user) for user in users], dtype=np.uint8)
    times = START + np.round(np.array(seconds or [0.0] * len(users)) * 1_000).astype(np.int64)
    bulk_produce_partitions(streams.bootstrap, topic, {0: PartitionRecords(times, values=values)})


def clicks(streams: KafkaStreams, topic: str, **options: Any) -> DataFrame:
    rows = follow_watermark(streams.source(subscribe=topic, sourceName="clicks", **options))
    return rows.selectExpr("CAST(CAST(value AS STRING) AS INT) AS id", "offset", "event_time AS at")


def users(streams: MySqlStreams, **options: Any) -> DataFrame:
    left_out = "_snapshot,_commit_timestamp,_database,_table"
    rows = streams.source("users", sourceName="users", excludeColumns=left_out, snapshotParallelism=1, **options)
    return follow_watermark(rows).withColumnRenamed("event_time", "since")


def test_on_processing_time_no_click_is_joined_before_the_snapshot_and_each_finds_the_latest_row(
    streams: KafkaStreams, mysql_streams: MySqlStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    click(streams, topic, list(range(1, 951)))
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i, 'first' FROM n"
    mysql_streams.run_sql("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20))", f"INSERT INTO users {numbers}")
    build = users(mysql_streams, snapshotChunkRows=300, **ON_CLOCK)
    joined = temporal_join(
        clicks(streams, topic, **ON_CLOCK), build, on="id", probe_time="at", build_time="since", buckets=2
    )
    assert joined.columns == ["id", "offset", "at", "name"]
    with pytest.raises(UsageError, match="without _change_type and _commit_version and _change_number"):
        temporal_join(clicks(streams, topic, **ON_CLOCK), build.select("id", "name", "since"), on="id", probe_time="at",
                      build_time="since")  # fmt: skip
    query = streams.start(joined)
    asked = "SELECT id, name FROM users"
    expected = answers(mysql_streams, asked, range(1, 951))
    wait_until(lambda: len(found(query)) >= len(expected), _SECONDS, "the clicks before the snapshot", poll_seconds=1)
    assert found(query) == expected
    mysql_streams.run_sql(
        "UPDATE users SET name = 'second' WHERE id % 3 = 0", "UPDATE users SET name = 'third' WHERE id % 9 = 0",
        "DELETE FROM users WHERE id % 4 = 0", "UPDATE users SET id = id + 900 WHERE id BETWEEN 1 AND 30",
    )  # fmt: skip
    query.run_on(2)
    again = list(range(1, 951))
    click(streams, topic, again)
    expected += answers(mysql_streams, asked, again, first=950)
    wait_until(lambda: len(found(query)) >= len(expected), _SECONDS, "the clicks after it", poll_seconds=1)
    assert found(query) == expected
    assert "temporal_join[processing time]" in plan(query)


@pytest.mark.long("test_on_event_time_the_result_is_that_of_a_query_over_the_full_history")
def test_on_event_time_each_click_finds_the_row_of_its_time(
    streams: KafkaStreams, mysql_streams: MySqlStreams, new_topic: NewTopic
) -> None:
    """The tables' own history, kept beside them, is what the database is asked."""
    topic = new_topic(1)
    column = "since TIMESTAMP(3) NOT NULL"
    mysql_streams.run_sql(
        f"CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), {column})",
        f"CREATE TABLE history (id INT, name VARCHAR(20), {column}, PRIMARY KEY (id, since))",
        "CREATE TABLE clicks (offset INT PRIMARY KEY, id INT, at TIMESTAMP(3) NOT NULL)",
    )
    chance = np.random.default_rng(5)
    build = users_by_column(mysql_streams)
    joined = temporal_join(
        clicks(streams, topic, maxOutOfOrderness="1 second"), build, on="id", probe_time="at", buckets=4
    )
    # Empty: what a snapshot holds has no history.
    query = streams.start(joined)
    query.settle()
    clicked, clock = 0, 0.0
    for _ in range(2):
        before = clock
        for _ in range(40):
            clock = round(clock + float(chance.choice([0.25, 1.0, 2.0])), 3)
            change(mysql_streams, int(chance.integers(1, 9)), f"name {clock}", clock)
        times = sorted(round(float(t), 3) for t in chance.uniform(before, clock, 30))
        ids = [int(n) for n in chance.integers(1, 10, 30)]
        click(streams, topic, ids, times)
        rows = ", ".join(f"({clicked + n}, {ids[n]}, {moment(times[n])})" for n in range(30))
        mysql_streams.run_sql(f"INSERT INTO clicks VALUES {rows}")
        clicked += 30
        query.settle()
    change(mysql_streams, 100, "the end", clock + 1_000)
    click(streams, topic, [100], [clock + 1_000])
    query.settle()
    expected = mysql_streams.run_sql("""
        SELECT c.id, c.offset, (
            SELECT h.name FROM history h WHERE h.id = c.id AND h.since <= c.at ORDER BY h.since DESC LIMIT 1
        ) FROM clicks c ORDER BY c.offset
    """)
    assert found(query) == list(expected)
    assert len({name for _, _, name in expected}) > 12
    assert "temporal_join[event time]" in plan(query)


@pytest.mark.long("test_a_delete_at_the_time_of_the_deleted_row_is_refused_where_the_source_dates_it_so")
def test_a_deleted_row_with_a_time_of_its_own_ends_the_query_or_is_gone_from_its_commit_on(
    streams: KafkaStreams, mysql_streams: MySqlStreams, new_topic: NewTopic
) -> None:
    # Clicks are later than the delete, whose time is that of its commit: a broker takes an hour of the future.
    topic, since = new_topic(1, config={"message.timestamp.after.max.ms": str(2**63 - 1)}), "since TIMESTAMP(3) NULL"
    mysql_streams.run_sql(f"CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), {since})")

    def joined(*, by_commit: bool) -> DataFrame:
        rows = mysql_streams.source("users", eventTimeColumn="since", excludeColumns="_snapshot,_database,_table,since")
        if by_commit:
            ended = "greatest(_commit_timestamp, event_time + INTERVAL 1 MICROSECOND)"
            rows = rows.withColumn("event_time", F.expr(f"IF(_change_type = 'delete', {ended}, event_time)"))
        build = follow_watermark(rows).drop("_commit_timestamp")
        return temporal_join(clicks(streams, topic), build, on="id", probe_time="at", buckets=4)

    running = {by_commit: streams.start(joined(by_commit=by_commit)) for by_commit in (True, False)}
    for query in running.values():
        query.settle()
    # The first has a time, the second that of its commit.
    mysql_streams.run_sql(f"INSERT INTO users VALUES (1, 'first', {moment(10)}), (2, 'second', NULL)")
    for query in running.values():
        query.settle()
    last = 2 * 10**8
    mysql_streams.run_sql("DELETE FROM users WHERE id = 1", f"INSERT INTO users VALUES (3, 'last', {moment(last)})")
    click(streams, topic, [1, 1, 2, 1, 2, 3], [5.0, 20.0, 20.0, last - 1.0, last - 1.0, last + 1.0])
    with pytest.raises(StreamingQueryException, match=r"as if it had never been there\. .*_commit_timestamp"):
        running[False].query.processAllAvailable()
    wait_until(lambda: len(found(running[True])) >= 5, _SECONDS, "the clicks", poll_seconds=1)
    answers_then = [(1, 0, None), (1, 1, "first"), (2, 2, None), (1, 3, None), (2, 4, "second")]
    assert found(running[True])[:5] == answers_then


def test_on_event_time_no_click_is_joined_before_a_topic_is_read_to_its_end_whatever_its_order(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    """The newest users come first: by its own rows the topic's watermark would pass all others."""
    topic, dimension = new_topic(1), new_topic(1)
    ids = np.arange(1, 301)
    texts = np.array([list(b"%06d" % user) for user in ids], dtype=np.uint8)
    since = START + 1_000 * ids[::-1]
    bulk_produce_partitions(streams.bootstrap, dimension, {0: PartitionRecords(since, values=texts)})
    click(streams, topic, [*range(1, 301), 1], [299.9] * 300 + [900.0])
    first: dict[str, Any] = {"startingOffsets": "earliest", "whenCaughtUp": "watermark", "maxOffsetsPerTrigger": 60}
    build = follow_watermark(streams.source(subscribe=dimension, sourceName="users", **first, **TOGETHER, **DRIFT))
    build = build.selectExpr(
        "CAST(CAST(value AS STRING) AS INT) AS id", "CAST(value AS STRING) AS name", "offset", "event_time AS since"
    )
    joined = temporal_join(
        clicks(streams, topic, **TOGETHER, **DRIFT), build, on="id", probe_time="at", build_time="since", deletes=(),
        buckets=4,
    )  # fmt: skip
    query = streams.start(joined)
    wait_until(lambda: len(found(query)) >= 300, _SECONDS, "the clicks", poll_seconds=1)
    # The first user is there from the 300th second on.
    assert found(query) == [(user, user - 1, f"{user:06d}" if user > 1 else None) for user in range(1, 301)]
    offsets = list(zip(*(streams.offsets(query.table, source=n) for n in range(2)), strict=True))
    assert [changed for clicked, changed in offsets if clicked["splits"][topic]["0"][0] and "wm" not in changed] == []


def test_a_tombstone_ends_a_version_at_its_own_timestamp_or_ends_the_query(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    """Where event time is in the values it has none there; a delete at no time would end no version."""
    topic, dimension = new_topic(1), new_topic(1)
    producer = KafkaProducer(bootstrap_servers=streams.bootstrap)
    for user, name, second in ((b"1", "first", 10), (b"1", None, 100), (b"2", "second", 900)):
        value = None if name is None else json.dumps({"name": name, "at": START + 1_000 * second}).encode()
        producer.send(dimension, value, user, timestamp_ms=START + 1_000 * second)
    producer.close()
    click(streams, topic, [1, 1, 2], [50.0, 150.0, 900.0])
    in_value = {"eventTimeColumn": "value:$.at", "eventTimeFormat": "millis"}

    def joined(errors: str) -> DataFrame:
        source = streams.source(subscribe=dimension, sourceName="users", eventTimeErrors=errors, **in_value)
        build = follow_watermark(source).selectExpr(
            "CAST(CAST(key AS STRING) AS INT) AS id", "get_json_object(CAST(value AS STRING), '$.name') AS name",
            "IF(value IS NULL, 'delete', 'upsert') AS _change_type", "event_time AS since",
        )  # fmt: skip
        rows = temporal_join(clicks(streams, topic), build, on="id", probe_time="at", build_time="since", buckets=4)
        return rows.select("id", "offset", "name")

    with pytest.raises(StreamingQueryException, match=r'\.option\("eventTimeErrors", "timestamp"\)'):
        streams.run(joined("null"), "q")
    streams.run(joined("timestamp"), "q")
    assert [tuple(row) for row in streams.result("q").orderBy("offset").collect()] == [(1, 0, "first"), (1, 1, None)]


@pytest.mark.long("test_a_deletion_that_is_dated_by_its_row_has_its_time_in_another_column")
def test_a_deletion_in_a_topic_of_changes_ends_a_version_at_its_own_time_or_ends_the_query(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    """As Debezium writes them."""
    topic, dimension = new_topic(1), new_topic(1)
    producer = KafkaProducer(bootstrap_servers=streams.bootstrap)
    rows = [
        {"id": user, "name": name, "at": START + 1_000 * at} for user, name, at in ((1, "first", 10), (2, "b", 900))
    ]
    changes = [("c", None, rows[0], 10), ("d", rows[0], None, 100), ("c", None, rows[1], 900)]
    for op, before, after, second in changes:
        value = {"op": op, "before": before, "after": after, "ts_ms": START + 1_000 * second}
        producer.send(dimension, json.dumps(value).encode(), timestamp_ms=START + 1_000 * second).get(30)
    producer.close()
    click(streams, topic, [1, 1, 2], [50.0, 150.0, 900.0])
    row = "STRUCT<id: INT, name: STRING>"
    decoded = {"valueFormat": "json", "valueSchema": f"op STRING, before {row}, after {row}"}

    def joined(place: str) -> DataFrame:
        source = streams.source(
            subscribe=dimension, sourceName="users", eventTimeColumn=place, eventTimeFormat="millis", **decoded
        )
        build = follow_watermark(source).selectExpr(
            "coalesce(payload.after.id, payload.before.id) AS id", "payload.after.name AS name", "payload.op AS op",
            "event_time AS since",
        )  # fmt: skip
        of_users: dict[str, Any] = {"build_time": "since", "change_type": "op", "upserts": "c", "deletes": "d"}
        found = temporal_join(clicks(streams, topic), build, on="id", probe_time="at", buckets=4, **of_users)
        return found.select("id", "offset", "name")

    line = r"as if it had never been there\. .*IF\(op IN \('d'\), greatest\(timestamp, event_time"
    with pytest.raises(StreamingQueryException, match=line):
        streams.run(joined("value:$.after.at or value:$.before.at"), "q")
    streams.run(joined("value:$.ts_ms"), "q")
    assert [tuple(row) for row in streams.result("q").orderBy("offset").collect()] == [(1, 0, "first"), (1, 1, None)]


@pytest.mark.usefixtures("built_in_kafka")
def test_clicks_of_sparks_own_kafka_source_find_the_latest_user_and_wait_for_a_topic_if_they_shall(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic, dimension = new_topic(1), new_topic(1)

    def write_users(*names: bytes) -> None:
        producer = KafkaProducer(bootstrap_servers=streams.bootstrap)
        for name in names:
            producer.send(dimension, name, b"1")
        producer.close()

    def joined(*, wait: bool) -> DataFrame:
        probe = follow_clock(streams.source("kafka", subscribe=topic), "at")
        probe = probe.selectExpr("CAST(CAST(value AS STRING) AS INT) AS id", "offset", "at")
        first: dict[str, Any] = {"whenCaughtUp": "watermark", "maxOffsetsPerTrigger": 40} if wait else {}
        source = streams.source(subscribe=dimension, sourceName="users", watermarkStrategy="none", **first)
        build = follow_watermark(source).selectExpr(
            "CAST(CAST(key AS STRING) AS INT) AS id", "CAST(value AS STRING) AS name", "offset", "event_time AS since"
        )
        return temporal_join(
            probe, build, on="id", probe_time="at", build_time="since", sequence="offset", deletes=(), wait=wait,
            buffer=wait, buckets=4,
        )  # fmt: skip

    write_users(*(b"%d" % n for n in range(200)))
    click(streams, topic, [1, 2])
    query = streams.start(joined(wait=True))
    wait_until(lambda: len(found(query)) == 2, _SECONDS, "clicks that waited", poll_seconds=1)
    # Of five batches of users only the last has the name.
    assert found(query) == [(1, 0, "199"), (2, 1, None)]
    query.query.stop()

    at_once = streams.start(joined(wait=False))
    at_once.run_on(2)
    write_users(b"newest")
    at_once.run_on(2)
    click(streams, topic, [1])
    wait_until(lambda: len(found(at_once)) == 3, _SECONDS, "the last click", poll_seconds=1)
    assert found(at_once)[2] == (1, 2, "newest")
    assert "temporal_join[processing time, without waiting]" in plan(at_once)


def users_by_column(streams: MySqlStreams) -> DataFrame:
    left_out = "_snapshot,_commit_timestamp,_database,_table,since"
    rows = streams.source("users", eventTimeColumn="since", excludeColumns=left_out, maxOutOfOrderness="1 second")
    return follow_watermark(rows)


def moment(second: float) -> str:
    return f"FROM_UNIXTIME({(START + round(second * 1_000)) / 1_000:.3f})"


def change(streams: MySqlStreams, user: int, name: str, second: float) -> None:
    since = moment(second)
    streams.run_sql(
        # REPLACE would log a deletion, of the time at which the deleted row began.
        f"INSERT INTO users VALUES ({user}, '{name}', {since}) ON DUPLICATE KEY UPDATE "
        "name = VALUES(name), since = VALUES(since)",
        f"REPLACE INTO history VALUES ({user}, '{name}', {since})",
    )


def answers(streams: MySqlStreams, asked: str, ids: Any, *, first: int = 0) -> list[tuple[Any, ...]]:
    """Return what the database states now about some ids, each with the offset of its click."""
    names = dict(streams.run_sql(asked))
    return [(user, first + n, names.get(user)) for n, user in enumerate(ids)]


def found(query: Running) -> list[tuple[Any, ...]]:
    rows = query.spark.table(query.table).select("id", "offset", "name").collect()
    return sorted((tuple(row) for row in rows), key=lambda row: row[1])


def plan(query: Running) -> str:
    return str(query.query._jsq.explainInternal(False))
