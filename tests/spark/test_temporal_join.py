"""``temporal_join`` over file logs: results equal those of a batch query over the full history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from services.wait_until import wait_until
from tests.spark.queries import START, Rows, Streams, at
from watermark_source import follow_clock, follow_watermark, temporal_join
from watermark_source.operators.temporal_join import _spread

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.usefixtures("rocksdb")]

KEYS = 7
DELETED = 100_000
"""Values from here on are deletions."""
ON_CLOCK = {"watermarkStrategy": "none"}


def clicks(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(f"value % {KEYS} AS key", "value AS click", "event_time AS at")


def users(rows: DataFrame) -> DataFrame:
    kind = f"IF(value >= {DELETED}, 'delete', 'insert') AS _change_type"
    return rows.selectExpr(f"value % {KEYS} AS key", "value AS user", "event_time AS since", kind)


def history(frames: tuple[DataFrame, DataFrame]) -> list[tuple[Any, ...]]:
    """Return the join as a database computes it from all clicks and all changes of users."""
    frames[0].createOrReplaceTempView("clicks")
    frames[1].createOrReplaceTempView("users")
    found = frames[0].sparkSession.sql("""
        SELECT key, click, at, CASE WHEN kind <> 'delete' THEN user END AS user FROM (
            SELECT c.*, max_by(u.user, u.since) AS user, max_by(u._change_type, u.since) AS kind
            FROM clicks c LEFT JOIN users u ON c.key = u.key AND u.since <= c.at
            GROUP BY c.key, c.click, c.at
        )
    """)
    return sorted((tuple(row) for row in found.collect()), key=str)


def of_log(spark: SparkSession, rows: list[Rows]) -> DataFrame:
    values = [
        (float(START / 1_000 + second), value) for part in rows for each in part.values() for second, value in each
    ]
    return spark.createDataFrame(values, "second double, value long").selectExpr(
        "value", "timestamp_micros(CAST(round(second * 1000) AS LONG) * 1000) AS event_time"
    )


def random_parts(chance: random.Random, parts: int, rows: int, values: Iterator[int]) -> list[Rows]:
    """Return rows of two splits in parts; times of a split grow, and no two are equal."""
    clocks = {split: chance.randrange(5) + split * 0.001 for split in range(2)}
    made: list[Rows] = []
    for _ in range(parts):
        part: dict[int, list[tuple[float, int]]] = {0: [], 1: []}
        for split, each in part.items():
            for _ in range(rows):
                clocks[split] += chance.choice((0.1, 1, 3))
                each.append((round(clocks[split], 3), next(values)))
        made.append(part)
    return made


@pytest.fixture
def zone_unknown_to_arrow(spark: SparkSession) -> Iterator[None]:
    """What Spark treats as a time zone, and Arrow does not."""
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name) or "UTC"
    spark.conf.set(name, "GMT+03:00")
    yield
    spark.conf.set(name, before)


@pytest.fixture
def logged_about_state(spark: SparkSession) -> Iterator[Any]:
    """What Spark's server of states logs, as Java's writer of strings."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    writer = spark.sparkContext._jvm.java.io.StringWriter()  # type: ignore[union-attr]
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, writer, "seen", False, True)
    appender.start()
    name = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkStateServer"
    logger = log4j.LogManager.getContext(False).getLogger(name)
    logger.addAppender(appender)
    # The session of the tests logs errors alone.
    logger.setLevel(log4j.Level.WARN)
    yield writer
    logger.setLevel(log4j.Level.ERROR)
    logger.removeAppender(appender)


@pytest.mark.usefixtures("zone_unknown_to_arrow")
def test_on_event_time_the_result_is_that_of_a_query_over_the_full_history(
    streams: Streams, logged_about_state: Any
) -> None:
    chance = random.Random(3)
    numbers = iter(range(10_000))
    changes = (n + DELETED * (chance.random() < 0.2) * 7 for n in range(10_000))
    probe, build = random_parts(chance, 2, 40, numbers), random_parts(chance, 2, 30, changes)
    for name in ("clicks", "users"):
        streams.write({0: [], 1: []}, name=name)
    joined = temporal_join(
        clicks(follow_watermark(streams.load(name="clicks"))),
        users(follow_watermark(streams.load(name="users"))),
        on="key", probe_time="at", build_time="since", buckets=3,
    )  # fmt: skip
    assert joined.columns == ["key", "click", "at", "user"]
    # Several runs: state outlives each.
    end = [{}, {0: [(10_000, 1)], 1: [(10_001, 2)]}]
    for clicked, changed, last in zip(probe, build, end, strict=True):
        for name, rows in (("clicks", clicked), ("users", changed)):
            streams.write(rows, name=name)
            streams.write(last, name=name)
        streams.run(joined, "joined")
    found = sorted((tuple(row) for row in streams.result("joined").collect()), key=str)
    expected = history((clicks(of_log(streams.spark, probe)), users(of_log(streams.spark, build))))
    assert found == expected
    nothing = sum(row[3] is None for row in found)
    assert 0 < nothing < len(found) == 160
    # A warning for each key without a version had been most of a job's log.
    assert "doesn't contain key" not in logged_about_state.toString()

    # The same query, of which a column has another type.
    of_texts = users(follow_watermark(streams.load(name="users"))).withColumn("user", F.col("user").cast("string"))
    other = temporal_join(
        clicks(follow_watermark(streams.load(name="clicks"))), of_texts, on="key", probe_time="at", build_time="since",
        buckets=3,
    )  # fmt: skip
    streams.write({0: [(10_002, 1)]}, name="clicks")
    with pytest.raises(StreamingQueryException, match="the state in the checkpoint is of another join"):
        streams.run(other, "joined")


@pytest.mark.long("test_on_event_time_the_result_is_that_of_a_query_over_the_full_history")
def test_a_join_above_a_join_and_rows_of_1970_find_the_versions_of_their_time(streams: Streams) -> None:
    chance = random.Random(7)
    first = -START / 1_000
    parts = {}
    for name in ("clicks", "users", "accounts"):
        numbers = iter(range(7 * KEYS, 10_000))
        (parts[name],) = random_parts(chance, 1, 6, numbers)
        # As a snapshot has them, too many for the first batch; the click asks for one that it has not.
        reported = [(first, KEYS - 1)] if name == "clicks" else [(first, key) for key in range(KEYS)]
        parts[name] = {0: [*reported, *parts[name][0], (10_000, 1)], 1: [*parts[name][1], (10_001, 2)]}
        streams.write(parts[name], name=name)

    def load(name: str) -> DataFrame:
        return follow_watermark(streams.load(name=name, maxRowsPerTrigger=KEYS - 1))

    times: dict[str, Any] = {"on": "key", "probe_time": "at", "build_time": "since", "buckets": 2}
    once = temporal_join(clicks(load("clicks")), users(load("users")), **times)
    twice = temporal_join(once, users(load("accounts")).withColumnRenamed("user", "account"), **times)
    streams.run(twice, "joined")
    logs = {name: of_log(streams.spark, [part]) for name, part in parts.items()}
    expected: dict[tuple[int, Any], list[Any]] = {}
    for build in ("users", "accounts"):
        for _, click, at_time, found in history((clicks(logs["clicks"]), users(logs[build]))):
            expected.setdefault((click, at_time), []).append(found)
    rows = {(row.click, row["at"]): [row.user, row.account] for row in streams.result("joined").collect()}
    ends = {key for key in expected if key[1] >= at(10_000)}
    assert rows == {key: found for key, found in expected.items() if key not in ends}
    assert len(rows) == 13
    assert len(streams.committed("joined")) > 5


def test_rows_without_a_key_are_in_all_buckets(spark: SparkSession) -> None:
    rows = spark.range(200).selectExpr("CAST(NULL AS STRING) AS key", "id", "MAP(id, id) AS map")
    hashes = {row[0] % 64 for row in rows.select(_spread(rows, F.col("key"))).collect()}
    assert len(hashes) > 32


def test_rows_that_waited_are_on_time_for_the_windows_behind_the_join(streams: Streams) -> None:
    for name in ("clicks", "users"):
        streams.write({0: []}, name=name)
    joined = temporal_join(
        clicks(follow_watermark(streams.load(name="clicks"))),
        users(follow_watermark(streams.load(name="users"))),
        on="key", probe_time="at", build_time="since", how="inner", buckets=2,
    )  # fmt: skip
    query = streams.start(joined.groupBy(F.window("at", "1 minute")).count().select("window.start", "count"))
    for click_rows, user_rows in (
        ([(1, 1), (2, 2), (61, 8)], [(0, 1), (1.5, 1 + KEYS * DELETED), (30, 8)]),
        ([(62, 15), (130, 1)], [(131, 2)]),
        ([(600, 1)], [(600, 1)]),
    ):
        streams.write({0: click_rows}, name="clicks")
        streams.write({0: user_rows}, name="users")
        query.settle()
    # Of key 1 there is a user from 0 s to 1.5 s, and again from 30 s on; of key 2 from 131 s on.
    assert query.rows() == [(at(0), 1), (at(60), 2), (at(120), 1)]
    assert query.dropped == 0


def test_on_processing_time_all_types_come_out_as_they_went_in(streams: Streams) -> None:
    streams.write({0: [(0, 1), (1, 2)]}, name="clicks")
    streams.write({0: [(0, 1)]}, name="users")
    values = """
        TIMESTAMP'2024-02-03 04:05:06.789012' AS a, TIMESTAMP_NTZ'0001-01-01 00:00:00.000001' AS b,
        DATE'9999-12-31' AS c, INTERVAL '1 02:03:04.000005' DAY TO SECOND AS d,
        CAST(12345678901234567890.12 AS DECIMAL(38, 2)) AS e, X'00FF' AS f, ARRAY(1, NULL) AS g,
        NAMED_STRUCT('x', NULL, 'y', TIMESTAMP'2024-02-03 04:05:06.789012') AS h, MAP('k', 1.5D) AS i,
        CAST('NaN' AS DOUBLE) AS j, TRUE AS k, CAST(NULL AS BIGINT) AS l, 9007199254740993 AS m,
        CAST(X'61FF' AS STRING) AS n, ARRAY(CAST(X'FF62' AS STRING)) AS o, MAP('k', DATE'2024-02-03') AS p
    """
    # A text that is none: of a topic's values anything can come.
    name = "CAST(concat(X'FF', CAST(CAST(value AS STRING) AS BINARY)) AS STRING) AS name"
    probe = follow_watermark(streams.load(name="clicks", **ON_CLOCK)).selectExpr(
        "value", "event_time", name, f"STRUCT({values}) AS _values"
    )
    probe = probe.select("value", "event_time", "name", "_values.*")
    frame = follow_watermark(streams.load(name="users", snapshot="true", **ON_CLOCK))
    build = frame.selectExpr("value", "event_time AS since", name, f"STRUCT({values}) AS _values")
    build = build.select("value", "since", "name", *(F.col(f"_values.{c}").alias(c * 2) for c in "abcdefghijklmnop"))
    joined = temporal_join(probe, build, on=["value", "name"], build_time="since", buffer=True)
    query = streams.start(joined.drop("event_time", "name"))
    wait_until(lambda: len(query.rows()) == 2, 240, "both clicks", poll_seconds=0.5)
    one = streams.spark.sql(f"SELECT {values}").first()
    assert one is not None
    rows = {row[0]: row[1:] for row in query.rows()}
    assert repr(rows) == repr({1: tuple(one) * 2, 2: tuple(one) + (None,) * len(one)})


@pytest.mark.long("test_clicks_of_sparks_own_kafka_source_find_the_latest_user_and_wait_for_a_topic_if_they_shall")
def test_without_waiting_each_row_of_any_stream_finds_the_latest_version_of_its_batch(streams: Streams) -> None:
    folder = streams.directory("files")
    streams.write({0: []}, name="users")

    def click(number: int, key: int) -> None:
        written = folder / f".{number}"
        written.write_text(f'{{"click": {number}, "key": {key}}}')
        written.rename(folder / f"{number}.json")

    probe = follow_clock(streams.spark.readStream.schema("click long, key long").json(str(folder)), "at")
    build = users(follow_watermark(streams.load(name="users", **ON_CLOCK)))
    joined = temporal_join(
        probe, build, on="key", probe_time="at", build_time="since", wait=False, sequence=(), buckets=2
    )
    query = streams.start(joined.select("click", "user"))
    answers: list[tuple[int, int | None]] = []
    for number, (change, latest) in enumerate([(None, None), (1, 1), (8, 8), (DELETED * 7 + 1, None)]):
        if change is not None:
            streams.write({0: [(number, change)]}, name="users")
            query.run_on(2)
        click(number, 1)
        answers.append((number, latest))
        # Before any user has been read, too.
        wait_until(lambda n=number: len(query.rows()) > n, 240, "the click", poll_seconds=0.5)  # type: ignore[misc]
        assert query.rows() == answers
    assert "temporal_join[processing time, without waiting]" in str(query.query._jsq.explainInternal(False))
