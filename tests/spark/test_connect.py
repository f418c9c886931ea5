"""The same query through Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import Rows, Streams
from watermark_source import follow_watermark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.usefixtures("connect_port")]

FIRST: Rows = {0: [(3_600, 1)], 1: [(0, 2), (30, 3)]}
SECOND: Rows = {0: [(7_200, 6)], 1: [(60, 4), (90, 5), (7_200, 7)]}


def minutes(df: DataFrame) -> DataFrame:
    rows = follow_watermark(df).where("value > 0").groupBy(F.window("event_time", "1 minute").alias("w")).count()
    return rows.select("w.start", "count")


GENERATOR = """
from watermark_source import WatermarkGenerator

class AMinuteBehind(WatermarkGenerator):
    def on_range(self, rows, state):
        return rows.highest - 60_000, {"ranges": (state or {"ranges": 0})["ranges"] + 1}
"""

CLIENT = r"""
import json, logging, re, sys
from pathlib import Path
from urllib.request import urlopen
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark
from tests.integration.platform_job import as_on_a_platform
from tests.spark.file_log import FileLogDataSource
from tests.spark.queries import START, Streams
from tests.spark.test_connect import FIRST, GENERATOR, SECOND, minutes
from tests.spark.test_temporal_join_refusals import changes
from watermark_source import StatusPage, data_rows, follow_clock, follow_watermark, markers, temporal_join, why_open
from watermark_source.errors import UsageError
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE

spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config(map=dict(LOCAL_CHECKPOINTS))
    .config("spark.driver.extraJavaOptions", quick_spark()).config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
assert type(spark).__module__.startswith("pyspark.sql.connect")
spark.dataSource.register(FileLogDataSource)
streams = Streams(spark, Path(sys.argv[1]))
df = streams.load(name="connect")
with as_on_a_platform():
    for rows in (FIRST, SECOND):
        streams.write(rows, name="connect")
        streams.run(minutes(df), "connect")
    wide = df.select("*", *(F.col("value").alias(f"c{n}") for n in range(40)))
    assert len(follow_watermark(wide.drop("split")).columns) == len(wide.columns) - 2
    try:
        follow_watermark(wide.where("c39 > 3"))
        raise AssertionError("a filter was accepted")
    except UsageError as error:
        assert "the filter" in str(error), error
assert markers(df).columns[0] == "type"
refused = []
filtered = (df.where("value > 3"), "event_time"), (df.where(F.col("value") > 3).drop("split"), "event_time")
inverted = (df.where("marker IS NULL"), "event_time"), (df.where(F.col("marker").isNull()), "event_time")
spared = (df.where("marker IS NOT NULL AND value > 3"), "event_time"),
others = (df.drop("marker"), "event_time"), (df, "value"), (df.limit(1), "event_time")
df.createOrReplaceTempView("rows_of_a_source")
of_view = spark.sql("SELECT * FROM rows_of_a_source WHERE value > 3")
table = spark.createDataFrame([(1, "one")], "value BIGINT, name STRING")
unseen = [
    df.union(df), of_view, of_view.select("event_time", "marker"), spark.table("rows_of_a_source").where("value > 3"),
    df.groupBy("marker", "event_time").count(), df.mapInArrow(lambda batches: batches, df.schema),
    df.join(table, "value"), df.withColumn("each", F.explode(F.array("value"))),
]
for frame, column in (*filtered, *inverted, *spared, *others, *((each, "event_time") for each in unseen)):
    try:
        follow_watermark(frame, column)
    except UsageError as error:
        refused.append(str(error))
assert len(refused) == 16, refused
assert "made of 2 sources" in refused[8] and "the filter (value > " in refused[9], refused
assert "an aggregation" in refused[12] and "mapInArrow" in refused[13] and "explode" in refused[15], refused
second = []
for followed in (follow_watermark(df), follow_watermark(df).select("event_time").where("event_time > 0::timestamp")):
    try:
        streams.start_file(followed.withWatermark("event_time", "1 minute"), "second")
    except UsageError as error:
        second.append(str(error))
assert ["takes no second one" in each for each in second] == [True, True], second
warned = []
handler = logging.Handler()
handler.emit = lambda record: warned.append(record.getMessage())
for checks in ("started_queries", "follow"):
    logging.getLogger(f"watermark_source.spark.{checks}").addHandler(handler)
follow_watermark(wide.where("marker IS NOT NULL OR c39 > 3"))
follow_watermark(df.withColumn("event_time", F.col("event_time") - F.expr("INTERVAL 1 MINUTE")))
assert warned == [], warned
follow_watermark(df.withColumn("t", F.timestamp_seconds("value")), "t")
assert "column t has times of its own" in warned.pop(), warned
rate = spark.readStream.format("rate").load()
others = rate.withColumnRenamed("timestamp", "event_time")
for n, frame in enumerate((data_rows(df), df.where("marker IS NULL AND value > 3"), others)):
    streams.run(frame.withWatermark("event_time", "1 minute").drop("marker"), f"silent{n}")
assert warned == [], warned
streams.run(df.select("event_time").withWatermark("event_time", "1 minute"), "highest")
streams.run(wide.select("value"), "nulls")
assert ["highest event time of all rows of file-log" in text for text in warned] == [True, False], warned
assert warned[1].startswith("the marker rows of file-log"), warned
clocked = follow_clock(rate, "proctime")
assert clocked.columns == ["timestamp", "value", "proctime"]
assert "watermark_source" in clocked.schema["proctime"].metadata
for frame in (df, clocked, rate.withWatermark("timestamp", "1 minute")):
    try:
        follow_clock(frame)
    except UsageError as error:
        refused.append(str(error))
assert [text.count("watermark already") for text in refused[16:]] == [0, 1, 1], refused
spark.conf.set(STATE_STORE, ROCKSDB)
users = changes(follow_watermark(streams.load(name="connect", changes="true", sourceName="users"))).drop("_table")
probe = follow_watermark(df).drop("split")
users.where("name > 1").createOrReplaceTempView("some_users")
lossy = users.where("name > 1"), users.where("name = 3 OR rand() < 0.5"), users.dropDuplicates(["value"])
lossy = *lossy, spark.table("some_users"), spark.sql("WITH u AS (SELECT * FROM some_users) SELECT * FROM u")
lossy = *lossy, users.union(users.where("name > 1"))
words = [r"the filter \(name > cast\(1 as bigint\)\) may", "the filter .*name", "dropDuplicates may", "the filter"]
words += ["the filter", "the filter"]
for build, text in zip(lossy, words, strict=True):
    try:
        temporal_join(probe, build, on="value", build_time="since")
        raise AssertionError(f"accepted: {text}")
    except UsageError as error:
        assert re.search(text, str(error)), error
spark.conf.unset(STATE_STORE)
with StatusPage(spark, port=0) as page:
    assert json.load(urlopen(page.url + "status.json"))["queries"] == []
    query = streams.run(minutes(df), "explained")
assert "read to the end of this run" in why_open(query).sentence, why_open(query)
streams.run(clocked, "clocked")
assert streams.result("clocked").where("proctime IS NULL").count() == 0
of_markers = F.col("marker").isNotNull()
for kept in ("marker IS NOT NULL OR value > 3", of_markers | (F.col("value") > 3), ~F.col("marker").isNull()):
    assert "marker" not in follow_watermark(df.where(kept)).columns
own = "shop_watermarks:AMinuteBehind"
shipped = Path(sys.argv[1], "shop_watermarks.py")
shipped.write_text(GENERATOR)
try:
    streams.load(name="connect", watermarkStrategy=own).columns
    raise AssertionError("nothing has it yet")
except PySparkException as error:
    assert f'watermarkStrategy = "{own}": cannot be imported (ModuleNotFoundError' in str(error), error
spark.addArtifacts(str(shipped), pyfile=True)
streams.run(streams.load(name="connect", watermarkStrategy=own), "own")
last = streams.offsets("own")[-1]
assert last["own"] == {"class": own, "states": {"log": {"0": {"ranges": 1}, "1": {"ranges": 1}}}}, last
assert last["wm"] == START + 7_140_000, last
print(json.dumps([[str(row.start), row["count"]] for row in streams.result("connect").orderBy("start").collect()]))
spark.stop()
"""


def test_windows_through_connect_are_the_same(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / "connect").mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
    ended = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path)],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    through_connect = json.loads(ended.stdout.splitlines()[-1])

    for rows in (FIRST, SECOND):
        streams.write(rows)
        streams.run(minutes(streams.load()), "classic")
    classic = [[str(r["start"]), r["count"]] for r in streams.result("classic").orderBy("start").collect()]
    assert through_connect == classic
    assert [count for _, count in classic] == [2, 2, 1]
