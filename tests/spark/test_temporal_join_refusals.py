"""What ``temporal_join`` refuses, and that each error states what was seen and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from watermark_source import data_rows, follow_clock, follow_watermark, order_by_event_time, temporal_join
from watermark_source.errors import UsageError
from watermark_source.operators.changes import KindsOfChange, row_paths
from watermark_source.operators.followed_time import STATE_STORE
from watermark_source.spark.plan_text import PlanText
from watermark_source.spark.query_plan import steps_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("rocksdb")]

Load = Callable[..., DataFrame]

ON_CLOCK = {"watermarkStrategy": "none"}
TABLE = {**ON_CLOCK, "snapshot": "true"}
COLLATED = "CAST(value AS STRING) COLLATE UTF8_LCASE"
GROUP = {"alignmentGroup": "together"}
COLUMN = object()
"""In place of a column: without a session there is none."""


def renamed(rows: DataFrame) -> DataFrame:
    return rows.withColumnRenamed("event_time", "since")


def clocked(rows: DataFrame) -> DataFrame:
    """Return Spark's own source on the clock of its batches."""
    return follow_clock(rows.sparkSession.readStream.format("rate").load().select("value"))


@dataclass(frozen=True)
class Case:
    """One call: options of both sources, what is done to the streams, and arguments."""

    message: tuple[str, ...]
    probe_options: dict[str, Any] = field(default_factory=dict)
    build_options: dict[str, Any] = field(default_factory=dict)
    probe: Callable[[DataFrame], DataFrame] = lambda rows: follow_watermark(rows).drop("split")
    build: Callable[[DataFrame], DataFrame] = lambda rows: follow_watermark(rows).withColumnRenamed(
        "event_time", "since"
    )
    arguments: dict[str, Any] = field(default_factory=dict)


CASES = {
    "another kind of join": Case(("how = 'outer'", '"left" or "inner"'), arguments={"how": "outer"}),
    "no buckets": Case(("buckets = 0", "as in 64"), arguments={"buckets": 0}),
    "a probe side that follows nothing": Case(
        ("probe: column 'event_time' (timestamp) follows no watermark", 'follow_watermark(stream, "event_time")'),
        probe=lambda rows: data_rows(rows).drop("split"),
    ),
    "a watermark of Spark's own": Case(
        ("probe: column 'event_time' has a watermark of Spark's own", "use follow_watermark"),
        probe=lambda rows: data_rows(rows).drop("split").withWatermark("event_time", "1 minute"),
    ),
    "a time that was computed": Case(
        ("build: column 'since' (timestamp) follows no watermark",),
        build=lambda rows: follow_watermark(rows).selectExpr("value", "event_time + INTERVAL 1 SECOND AS since"),
    ),
    "a build side that is no stream": Case(
        ("build", "'since' is a batch, and not a stream", "join()"),
        build=lambda rows: rows.sparkSession.sql("SELECT 1L AS value, current_timestamp() AS since"),
    ),
    "no such time": Case(("no column 'then'", "'since'"), arguments={"build_time": "then"}),
    "a clock and event times": Case(
        ("probe (file-log) is on processing time", "build (file-log) on event time", "watermarkStrategy none"),
        probe_options=ON_CLOCK,
    ),
    "clocks of no group": Case(
        ("probe (file-log) has none and build (file-log) is in 'together'", "alignmentGroup", "buffer=True"),
        probe_options=ON_CLOCK, build_options={**TABLE, **GROUP},
    ),
    "a clock without a snapshot": Case(
        ("build (file-log) begins with neither", "before its rows were read", "whenCaughtUp", "watermark"),
        probe_options={**ON_CLOCK, **GROUP}, build_options={**ON_CLOCK, **GROUP},
    ),
    "a clock without a snapshot, and a buffer": Case(
        ("build (file-log) begins with neither", "whatever the values of buffer"),
        probe_options=ON_CLOCK, build_options=ON_CLOCK, arguments={"buffer": True},
    ),
    "the clock of batches, without a group or a buffer": Case(
        ("probe has its time from follow_clock", "undefined", "buffer=True", "wait=False"),
        probe=clocked, build_options=TABLE,
    ),
    "the clock of batches as build side": Case(
        ("build (follow_clock) begins with neither", "wait=False"),
        probe_options=ON_CLOCK, build=lambda rows: renamed(clocked(rows)), arguments={"buffer": True},
    ),
    "the clock of batches and event times": Case(
        ("probe (follow_clock) is on processing time", "build (file-log) on event time", "watermarkStrategy none"),
        probe=clocked, arguments={"wait": False},
    ),
    "no waiting on event time": Case(("wait=False, and both sides are on event time",), arguments={"wait": False}),
    "no waiting in a group that waits": Case(
        ("would wait in its source", "'together'", '.option("alignmentHold", "nothing")'),
        probe_options={**ON_CLOCK, **GROUP}, build_options={**TABLE, **GROUP}, arguments={"wait": False},
    ),
    "a group that build does not hold back": Case(
        ("build has alignmentHold nothing", "Leave alignmentHold out of the options of build"),
        probe_options={**ON_CLOCK, **GROUP}, build_options={**TABLE, **GROUP, "alignmentHold": "nothing"},
    ),
    "no waiting, with a buffer to wait in": Case(
        ("wait=False and buffer=True", "leave one of them out"),
        probe_options=ON_CLOCK, build_options=TABLE, arguments={"wait": False, "buffer": True},
    ),
    "no waiting, and no order": Case(
        ("wait=False, and no column orders the rows of a key in build (file-log)", 'sequence="offset"', "sequence=()"),
        probe=clocked, build_options=ON_CLOCK, arguments={"wait": False},
    ),
    "no column to compare": Case(("on names no column", 'on="user_id"'), arguments={"on": []}),
    "pairs of names": Case(
        ("on={'value': 'split'} pairs names", 'withColumnRenamed("id", "user_id")'),
        arguments={"on": {"value": "split"}},
    ),
    "a column of one side": Case(("build: there is no column 'user'",), arguments={"on": "user"},
        probe=lambda rows: follow_watermark(rows).selectExpr("value AS user", "event_time")),
    "types that differ": Case(
        ("'value' is bigint in probe and int in build", '.cast("int")'),
        build=lambda rows: follow_watermark(rows).selectExpr("CAST(value AS INT) AS value", "event_time AS since"),
    ),
    "a floating key": Case(
        ("'value' is double", "cast it on both sides"),
        probe=lambda rows: follow_watermark(rows).selectExpr("CAST(value AS DOUBLE) AS value", "event_time"),
        build=lambda rows: follow_watermark(rows).selectExpr("CAST(value AS DOUBLE) AS value", "event_time AS since"),
    ),
    "a key of many types": Case(
        ("'value' is variant", "cast it on both sides"),
        probe=lambda rows: follow_watermark(rows).selectExpr("to_variant_object(array(value)) AS value", "event_time"),
        build=lambda rows: follow_watermark(rows).selectExpr(
            "to_variant_object(array(value)) AS value", "event_time AS since"
        ),
    ),
    "a collated key": Case(
        ("'value' is string collate UTF8_LCASE",),
        probe=lambda rows: follow_watermark(rows).selectExpr(f"{COLLATED} AS value", "event_time"),
        build=lambda rows: follow_watermark(rows).selectExpr(f"{COLLATED} AS value", "event_time AS since"),
    ),
    "a name on both sides": Case(
        ("two columns of these names: Split, split", 'withColumnRenamed("Split", "user_Split")'),
        probe=follow_watermark,
        build=lambda rows: follow_watermark(rows).selectExpr("value", "split AS Split", "event_time AS since"),
    ),
    "a type that Python is not given": Case(
        ("'months' is interval year, which Spark cannot pass to Python", "drop or cast it"),
        probe=lambda rows: follow_watermark(rows).selectExpr("value", "event_time", "INTERVAL '1' YEAR AS months"),
    ),
    "kinds of change without their column": Case(
        ("deletes=('d',), and build has no column '_change_type'", 'change_type="op"'), arguments={"deletes": "d"},
    ),
    "a kind of change with two meanings": Case(
        ("'update_preimage' is more than once", "ignored=()"),
        arguments={"deletes": ("delete", "update_preimage")},
    ),
    "a text for a boolean": Case(("wait = 'false'; it must be True or False",), arguments={"wait": "false"}),
    "a column in place of its name": Case(
        ("on = Column<", "it must be a text, or a tuple or list of texts", 'on="name"'),
        arguments={"on": COLUMN},
    ),
    "names without an order": Case(("sequence = {'value'}; it must be a text, or",), arguments={"sequence": {"value"}}),
    "a kind of change that is no text": Case(("deletes = 3; it must be a text, or",), arguments={"deletes": 3}),
    "nothing for no kinds": Case(("deletes = None; it must be a text, or",), arguments={"deletes": None}),
    "a column of kinds in place of its name": Case(
        ("change_type = Column<", "it must be a text, as in"), arguments={"change_type": COLUMN}
    ),
    "a column of times in place of its name": Case(
        ("build_time = Column<",), arguments={"build_time": COLUMN}
    ),
    "a part of a bucket": Case(("buckets = 2.5; it must be an integer",), arguments={"buckets": 2.5}),
    "an order of many types": Case(("column 'many' is variant, which has no order",), arguments={"sequence": "many"},
        build=lambda rows: renamed(follow_watermark(rows)).withColumn("many", F.expr("parse_json('1')"))),
    "an order by a collation": Case(("'text' is string collate UTF8_LCASE, which",), arguments={"sequence": "text"},
        build=lambda rows: renamed(follow_watermark(rows)).withColumn("text", F.expr(COLLATED))),
    "no such order": Case(("no column 'offset'",), arguments={"sequence": "offset"}),
    "no order": Case(("column 'split' is array<bigint>, which has no order",), arguments={"sequence": "split"},
        build=lambda rows: renamed(follow_watermark(rows).withColumn("split", F.array("split")))),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_is_refused(loaded: Load, case: Case) -> None:
    probe = case.probe(loaded(name="probe", **case.probe_options))
    build = case.build(loaded(name="build", **case.build_options))
    arguments: dict[str, Any] = {
        name: F.col("value") if each is COLUMN else each for name, each in case.arguments.items()
    }
    with pytest.raises(UsageError) as refused:
        temporal_join(probe, build, **{"on": "value", "build_time": "since", **arguments})
    assert [text for text in case.message if text not in str(refused.value)] == [], str(refused.value)
    assert str(refused.value).startswith("temporal_join")


@pytest.mark.parametrize(("clicks", "users"), [(False, True), (True, False), (True, True), (False, False)])
def test_a_source_that_declares_nothing_of_its_watermarks_is_refused_on_processing_time(
    loaded: Load, clicks: bool, users: bool
) -> None:
    given = {"clicks": clicks, "users": users}
    probe, build = (
        follow_watermark(loaded(sourceName=name, undeclared=str(undeclared).lower(), **TABLE))
        for name, undeclared in given.items()
    )
    silent = " and ".join(name for name, undeclared in given.items() if undeclared)
    build = renamed(build.drop("split"))
    if not silent:
        temporal_join(probe, build, on="value", build_time="since", buffer=True)
        return
    with pytest.raises(UsageError, match=f"that marks the clock's time, and {silent} does not declare to send one"):
        temporal_join(probe, build, on="value", build_time="since", buffer=True)


@pytest.mark.parametrize("first", ["clock", "event times"])
def test_a_side_with_one_source_on_the_clock_goes_by_the_event_times_of_the_other(loaded: Load, first: str) -> None:
    sources = [follow_watermark(loaded(sourceName=n, **o)) for n, o in (("clicks", ON_CLOCK), ("orders", {}))]
    probe, other = sources if first == "clock" else sources[::-1]
    both = probe.union(other)
    on_clock = renamed(follow_watermark(loaded(sourceName="users", **TABLE)).drop("split"))
    with pytest.raises(UsageError, match=r"probe \(orders\) is on event time and build \(users\) on processing time"):
        temporal_join(both, on_clock, on="value", build_time="since", buffer=True)
    by_event_times = renamed(follow_watermark(loaded(sourceName="users")).drop("split"))
    joined = temporal_join(both, by_event_times, on="value", build_time="since")
    assert joined.columns == ["split", "value", "event_time"]


@pytest.mark.parametrize("first", [True, False])
def test_of_a_union_as_build_side_each_source_is_waited_for(loaded: Load, first: bool) -> None:
    """Spark's metadata has the declaration of the first one alone."""
    read = {"sourceName": "users", **TABLE, **GROUP}
    users, guests = (follow_watermark(loaded(**{**read, **o})) for o in ({}, {"sourceName": "guests", **ON_CLOCK}))
    unread = follow_watermark(loaded(sourceName="new", **ON_CLOCK, **GROUP))
    apart = follow_watermark(loaded(sourceName="apart", **TABLE))
    probe = follow_watermark(loaded(**ON_CLOCK, **GROUP)).drop("split")

    def joined(other: DataFrame, **arguments: Any) -> DataFrame:
        both = users.union(other) if first else other.union(users)
        return temporal_join(probe, renamed(both.drop("split")), on="value", build_time="since", **arguments)

    joined(guests)
    for buffer in (False, True):
        with pytest.raises(UsageError, match=r"build \(new\) begins with neither"):
            joined(unread, buffer=buffer)
        with pytest.raises(UsageError, match=r"build \(follow_clock\) begins with neither"):
            joined(clocked(users).selectExpr("value AS split", "value", "event_time"), buffer=buffer)
    with pytest.raises(UsageError, match=r"build \(apart\) has none"):
        joined(apart)
    joined(apart, buffer=True)
    with pytest.raises(UsageError, match=r"wait=False, and probe \(file-log\) would wait in its source"):
        joined(unread, wait=False)


def test_spark_s_highest_watermark_is_refused_where_rows_wait_for_the_snapshot(loaded: Load) -> None:
    build = renamed(follow_watermark(loaded(**TABLE)).drop("split"))
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    build.sparkSession.conf.set(policy, "max")
    try:
        with pytest.raises(UsageError, match=f"{policy} is max.*conf.set.*min"):
            temporal_join(clocked(build), build, on="value", build_time="since", buffer=True)
        temporal_join(clocked(build), build, on="value", build_time="since", wait=False, sequence=())
    finally:
        build.sparkSession.conf.unset(policy)


def test_state_in_another_store_is_refused(loaded: Load) -> None:
    rows = follow_watermark(loaded())
    rows.sparkSession.conf.unset(STATE_STORE)
    with pytest.raises(UsageError, match=r'is not set, .* spark\.conf\.set\("spark'):
        temporal_join(rows, rows.selectExpr("split", "event_time AS since"), on="split", build_time="since")


def test_a_group_whose_snapshots_hold_it_is_enough_on_the_clock(loaded: Load) -> None:
    rows = follow_watermark(loaded(**TABLE, **GROUP))
    build = rows.selectExpr("split", "value AS user", "event_time AS since")
    joined = temporal_join(rows, build, on="split", build_time="SINCE", how="inner")
    assert joined.columns == ["split", "value", "event_time", "user"]


# A topic as build side. No broker is needed: an options check and a schema take none.


def topic(df: DataFrame, **options: Any) -> DataFrame:
    """Return the stream of a topic; nothing connects before a query starts."""
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "users", "startingOffsets": "earliest"}
    reader = df.sparkSession.readStream.format("aligned-kafka")
    return follow_watermark(reader.options(**given, **options).load())


FIRST = {"whenCaughtUp": "watermark"}
KEY = "CAST(CAST(key AS STRING) AS BIGINT) AS value"
KIND = "IF(value IS NULL, 'delete', 'upsert') AS _change_type"


@pytest.mark.parametrize("on_clock", [True, False])
def test_a_topic_that_is_read_to_its_end_first_is_a_build_side(loaded: Load, on_clock: bool) -> None:
    given = {**ON_CLOCK, **GROUP} if on_clock else {}
    probe = follow_watermark(loaded(**given)).drop("split")
    build = topic(probe, **FIRST, **given).selectExpr(
        KEY, KIND, "timestampType AS kind", "offset", "event_time AS since"
    )
    assert temporal_join(probe, build, on="value", build_time="since").columns == ["value", "event_time", "kind"]
    numbered = build.withColumnRenamed("offset", "n")
    joined = temporal_join(probe, numbered, on="value", build_time="since", sequence="n")
    assert joined.columns == ["value", "event_time", "kind"]


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ([KEY, KIND, "event_time AS since"], {}, "Keep the topic's column 'offset' in build"),
        ([KEY, "offset", "event_time AS since"], {}, "IF(value IS NULL, 'delete', 'upsert') AS _change_type"),
        ([KEY, KIND, "offset", "event_time AS since"], {"wait": False}, "Leave whenCaughtUp out of build's options"),
    ],
)
def test_what_a_topic_needs_as_build_side_is_named(
    loaded: Load, columns: list[str], arguments: dict[str, Any], message: str
) -> None:
    given = {**ON_CLOCK, **GROUP}
    probe = follow_watermark(loaded(**given)).drop("split")
    build = topic(probe, **FIRST, **given, sourceName="users").selectExpr(*columns)
    with pytest.raises(UsageError) as refused:
        temporal_join(probe, build, on="value", build_time="since", **arguments)
    assert message in str(refused.value)


def test_a_topic_that_nothing_waits_for_is_refused_with_the_line_to_write(loaded: Load) -> None:
    given = {**ON_CLOCK, **GROUP}
    probe = follow_watermark(loaded(**given)).drop("split")
    build = topic(probe, **given).selectExpr(KEY, KIND, "offset", "event_time AS since")
    with pytest.raises(UsageError, match=r'\.option\("whenCaughtUp", "watermark"\)'):
        temporal_join(probe, build, on="value", build_time="since")


def test_a_topic_that_changes_to_the_clock_is_no_build_side_of_event_times(loaded: Load) -> None:
    then_clock = {"whenCaughtUp": "clock"}
    probe = follow_watermark(loaded()).drop("split")
    columns = [KEY, KIND, "offset", "event_time AS since"]
    build = topic(probe, **then_clock, sourceName="users").selectExpr(*columns)
    with pytest.raises(UsageError, match=r"build \(users\) has whenCaughtUp clock, .* Give both sources"):
        temporal_join(probe, build, on="value", build_time="since")
    changing = topic(probe, **then_clock).selectExpr(KEY, "event_time")
    for side in (build, topic(probe).selectExpr(*columns)):
        temporal_join(changing, side, on="value", build_time="since", sequence="offset")


def test_the_clock_of_batches_waits_in_state_for_a_topic(loaded: Load) -> None:
    probe = clocked(loaded())
    build = topic(probe, **FIRST, **ON_CLOCK).selectExpr(KEY, KIND, "offset", "event_time AS since")
    assert temporal_join(probe, build, on="value", build_time="since", buffer=True).columns == ["value", "event_time"]
    with pytest.raises(UsageError, match=r"its topic has been read to its end.*buffer=True"):
        temporal_join(probe, build, on="value", build_time="since")


def test_a_topic_without_tombstones_needs_no_column_for_them(loaded: Load) -> None:
    probe = follow_watermark(loaded()).drop("split")
    build = topic(probe, **FIRST).selectExpr(KEY, "timestampType AS kind", "offset", "event_time AS since")
    joined = temporal_join(probe, build, on="value", build_time="since", deletes=())
    assert joined.columns == ["value", "event_time", "kind"]


# Changes of a table as build side: of their kinds, their order and of a key's changes nothing may be lost.


def changes(rows: DataFrame) -> DataFrame:
    """Return the columns that a source of changes has."""
    return rows.selectExpr(
        "value", "split AS name", "'insert' AS _change_type", "1L AS _commit_version", "2L AS _change_number",
        "'users' AS _table", "event_time AS since",
    )  # fmt: skip


Change = Callable[[DataFrame], DataFrame]


def in_sql(rows: DataFrame, query: str) -> DataFrame:
    rows.createOrReplaceTempView("rows_of_users")
    return rows.sparkSession.sql(query.replace("{rows}", "rows_of_users"))


def joined_itself(rows: DataFrame, where: str = "true", **arguments: Any) -> DataFrame:
    """Return changes, or some of them, joined with a version of their own key."""
    versions = rows.withColumnRenamed("name", "previous").withColumnRenamed("_table", "of")
    some = rows.where(where)
    joined = temporal_join(some, versions, on="value", probe_time="since", build_time="since", **arguments)
    return joined.drop("previous", "of")


def of_plain_topic(rows: DataFrame) -> DataFrame:
    """Return rows of a source that declares no changes."""
    of_topic = topic(rows, sourceName="plain")
    return changes(of_topic.selectExpr(KEY, "CAST(partition AS BIGINT) AS split", "event_time"))


def ordered(rows: DataFrame) -> DataFrame:
    return order_by_event_time(rows, "value", "since").drop("late")


def need_the_same_paths(build: DataFrame) -> None:
    """A client of Spark Connect, which has the text of the plan alone, sees the same sources lose the same rows."""
    of_nodes, of_text = (
        [(path.source, path.lost and path.lost.operator[: len("the filter")]) for path in row_paths(plan, KEY_AND_KIND)]
        for plan in (steps_of(build), PlanText.of(build._jdf.queryExecution().toString()).steps())
    )
    assert of_text == of_nodes
    assert of_nodes


KEY_AND_KIND = ("value", "_change_type")


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda rows: rows.select("value", "name", "since"), {},
         ("without _change_type and _commit_version and _change_number:", "deletes=(), ignored=()")),
        (lambda rows: rows.drop("_change_number"), {}, ("without _change_number:", "Have the source deliver")),
        (lambda rows: rows.drop("_change_type"), {"deletes": ()}, ("without _change_type:",)),
        (lambda rows: rows.where("name > 1"), {},
         ("the filter (name > CAST(1 AS BIGINT))", "IF((name > CAST(1 AS BIGINT)), _change_type, 'delete')")),
        (lambda rows: rows.where("value > 1 AND name IS NOT NULL"), {}, ("the filter ", "Filter the result")),
        (lambda rows: rows.where("rand() < 0.5"), {}, ("the filter (rand(",)),
        (lambda rows: rows.union(rows.where("name > 1")), {}, ("the filter (name > CAST(1 AS BIGINT))",)),
        (lambda rows: rows.where("value > unix_timestamp()"), {}, ("the filter (value > unix_timestamp(",)),
        (lambda rows: rows.where("value IN (SELECT id FROM range(9))"), {}, ("the filter (value IN ",)),
        (lambda rows: rows.where("EXISTS (SELECT id FROM range(9))"), {}, ("the filter exists(",)),
        (lambda rows: rows.withColumn("partition", F.col("name")).where("partition > 1").drop("partition"), {},
         ("the filter (partition > ",)),
        (lambda rows: in_sql(rows, "WITH some AS (SELECT * FROM {rows} WHERE name > 1) SELECT * FROM some"), {},
         ("the filter (rows_of_users.name > ",)),
        (lambda rows: rows.dropDuplicates(["value"]), {}, ("dropDuplicates may leave out", "Leave it out")),
        (lambda rows: rows.dropDuplicatesWithinWatermark(["value"]), {}, ("dropDuplicatesWithinWatermark may ",)),
        (lambda rows: in_sql(rows, "SELECT DISTINCT * FROM {rows}"), {}, ("distinct may leave out",)),
        (lambda rows: rows.limit(5), {}, ("limit may leave out",)),
        (lambda rows: rows.sample(0.5), {}, ("sample may leave out",)),
        (lambda rows: rows.join(rows.sparkSession.range(9).toDF("name"), "name"), {}, ("a join that leaves out rows",)),
        (lambda rows: rows.join(rows.selectExpr("value", "since AS then"), "value", "left").drop("then"), {},
         ("a join of two streams may ",)),
        (lambda rows: rows.withColumn("name", F.explode(F.array("name"))), {}, ("explode, or another generator",)),
        (lambda rows: rows.withColumn("name", F.explode_outer(F.array("name"))), {}, ("explode, or another",)),
        (lambda rows: rows.selectExpr("*", "inline(array(struct(1 AS n)))").drop("n"), {}, ("explode, or another",)),
        (lambda rows: in_sql(rows, "SELECT r.* FROM {rows} r LATERAL VIEW explode(array(name)) AS n"), {},
         ("explode, or another",)),
        (lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema), {}, ("mapInArrow may ", "pandas UDFs")),
        (lambda rows: rows.mapInPandas(lambda frames: frames, rows.schema), {}, ("mapInPandas may ",)),
        (lambda rows: rows.groupBy("value").applyInPandas(lambda frame: frame, rows.schema), {},
         ("applyInPandas may ",)),
        (lambda rows: rows.groupBy("value").applyInArrow(lambda table: table, rows.schema), {}, ("applyInArrow may ",)),
        (lambda rows: rows.groupBy(*rows.columns).count().drop("count"), {}, ("an aggregation may ",)),
        (lambda rows: rows.unpivot([c for c in rows.columns if c != "name"], ["name"], "of", "name").drop("of"), {},
         ("the operator Expand may ",)),
        (lambda rows: joined_itself(rows, how="inner"), {}, ("an inner temporal_join may ",)),
        (lambda rows: joined_itself(rows, "name > 1"), {}, ("the filter (name > ",)),
        (lambda rows: ordered(rows.where("name > 1")), {}, ("the filter (name > ",)),
        (lambda rows: of_plain_topic(rows).union(rows.where("name > 1")), {}, ("the filter (name > ",)),
        (lambda rows: of_plain_topic(rows).union(rows).drop("_change_number"), {}, ("without _change_number:",)),
    ],
)  # fmt: skip
def test_changes_of_a_table_that_have_lost_some_are_no_build_side(
    loaded: Load, change: Change, arguments: dict[str, Any], message: tuple[str, ...]
) -> None:
    """Otherwise a row that was deleted or changed would count on, without a word."""
    probe = follow_watermark(loaded()).drop("split")
    build = change(changes(follow_watermark(loaded(changes="true", sourceName="users"))))
    need_the_same_paths(build)
    with pytest.raises(UsageError) as refused:
        temporal_join(probe, build, on="value", build_time="since", **arguments)
    assert [text for text in ("build (users)", *message) if text not in str(refused.value)] == [], str(refused.value)
    # A source whose rows are no changes of keys may be filtered, and has no such columns.
    rows = change(changes(follow_watermark(loaded(sourceName="users"))))
    temporal_join(probe, rows.drop("_table"), on="value", build_time="since", **arguments)


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        (lambda rows: rows, {}),
        (lambda rows: rows.where("value > 1 AND _table = 'users' AND _change_type <> 'update_preimage'"), {}),
        (lambda rows: rows.withColumn("value", F.expr("CAST(CAST(value AS STRING) AS BIGINT)")), {}),
        (lambda rows: rows.union(rows.where("value > 1 AND _table = 'users'")), {}),
        (lambda rows: rows.withColumnRenamed("_change_number", "n"), {"sequence": ("_commit_version", "n")}),
        (lambda rows: rows.select("value", "name", "since"), {"deletes": (), "ignored": (), "sequence": ()}),
        (lambda rows: rows.join(rows.sparkSession.range(9).toDF("name"), "name", "left"), {}),
        (lambda rows: in_sql(rows, "WITH some AS (SELECT * FROM {rows} WHERE value > 1) SELECT * FROM some"), {}),
        (lambda rows: in_sql(rows, "WITH r AS (SELECT * FROM {rows}) SELECT * FROM r UNION ALL SELECT * FROM r"), {}),
        (lambda rows: rows.withColumnRenamed("_table", "from").where("from = 'users'").drop("from"), {}),
        (lambda rows: rows.repartition(2).observe("seen", F.count(F.lit(1))).hint("rebalance"), {}),
        (lambda rows: joined_itself(rows, "value > 1").where("value > 1"), {}),
        (lambda rows: ordered(rows.where("value > 1")).where("value > 1"), {}),
        (lambda rows: of_plain_topic(rows).where("name > 1").union(rows), {}),
    ],
)
def test_changes_of_a_table_may_lose_whole_keys_and_columns(
    loaded: Load, change: Change, arguments: dict[str, Any]
) -> None:
    rows = follow_watermark(loaded(changes="true").where("marker IS NOT NULL OR value > 0"))
    build = change(changes(rows)).drop("_table")
    need_the_same_paths(build)
    probe = follow_watermark(loaded()).drop("split")
    joined = temporal_join(probe, build, on="value", build_time="since", **arguments)
    assert [name for name in joined.columns if name != "n"] == ["value", "event_time", "name"]


def test_rows_that_no_watermark_follows_are_no_changes_of_a_build_side(loaded: Load) -> None:
    """Their source declares nothing there, so that nothing would show what they lack."""
    read = loaded(changes="true", sourceName="users")
    build = changes(follow_watermark(read)).union(changes(data_rows(read))).drop("_table")
    with pytest.raises(UsageError, match=r"without follow_watermark.*follow_watermark\(a\)\.union\(follow_watermark"):
        temporal_join(follow_watermark(loaded()).drop("split"), build, on="value", build_time="since")


def test_a_filter_that_leaves_out_tombstones_of_a_topic_is_refused(loaded: Load) -> None:
    probe = follow_watermark(loaded()).drop("split")
    rows = topic(probe, **FIRST, sourceName="users")
    columns = [KEY, KIND, "offset", "event_time AS since"]
    with pytest.raises(UsageError, match=r"the filter \(value IS NOT NULL\) may leave out .*build \(users\)"):
        temporal_join(probe, rows.where("value IS NOT NULL").selectExpr(*columns), on="value", build_time="since")
    temporal_join(probe, rows.where("key IS NOT NULL").selectExpr(*columns), on="value", build_time="since")


@pytest.mark.parametrize(
    ("kind", "is_version"),
    [("'c'", True), ("'d'", True), ("'x'", False), ("'r'", None), ("CAST(NULL AS STRING)", None)],
)
def test_a_row_of_a_kind_that_nothing_names_ends_the_query(
    spark: SparkSession, kind: str, is_version: bool | None
) -> None:
    """A tombstone behind Debezium's row of a delete has none, and would begin a version of nulls."""
    kinds = KindsOfChange(("c", "u"), ("d",), ("x",))
    rows = spark.sql(f"SELECT {kind} AS op").select(kinds.is_version("op"))
    if is_version is not None:
        assert rows.first() == (is_version,)
        return
    seen = kind if kind == "'r'" else "null"
    with pytest.raises(
        SparkRuntimeException, match=rf"has op = {seen}, which is not among upserts=\('c', 'u'\)"
    ) as failed:
        rows.collect()
    assert 'upserts=("c", "r", "u"), deletes="d"' in str(failed.value)


def test_spelling_of_the_columns_of_changes_is_as_free_as_spark_s(loaded: Load) -> None:
    """A kind of change in other letters was a column as any other, and deleted rows versions."""
    probe = follow_watermark(loaded()).drop("split")
    rows = changes(follow_watermark(loaded(changes="true"))).drop("_table")
    upper = rows.toDF(*(name.upper() if name.startswith("_") else name for name in rows.columns))
    assert temporal_join(probe, upper, on="value", build_time="since").columns == ["value", "event_time", "name"]


def test_a_join_examines_the_kind_of_each_row(loaded: Load) -> None:
    rows = follow_watermark(loaded())
    build = rows.selectExpr("value", "event_time AS since", "'r' AS op")
    joined = temporal_join(rows.drop("split"), build, on="value", build_time="since", change_type="op", upserts="r")
    assert "a row of build has op = " in joined._jdf.queryExecution().analyzed().toString()
