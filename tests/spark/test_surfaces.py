"""Every way to write a stream of this project's sources, and what becomes of it: exact, refused or warned, none silent.

docs/surfaces.md shows what is seen here. One log of two splits, an hour apart, is read by all.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from docs.surface_table import EXACT, REFUSED, SURFACES, USES, WARNED
from examples.file_log.pyspark_file_log import DefaultSource
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark
from tests.spark.file_log import append
from tests.spark.queries import START
from watermark_source import data_rows, follow_watermark
from watermark_source.errors import UsageError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
ROWS = {0: [(0, 1), (30, 2), (60, 3)], 1: [(3_600, 4), (3_660, 5)]}
VALUES = sorted(value for rows in ROWS.values() for _, value in rows)
WINDOWS = [1, 1, 1, 2]
"""How many rows a minute has."""
Written = DataFrame | Callable[[], Sequence[int]]
Surface = Mapping[str, Callable[[], Written]]


def write_rows(folder: Path) -> None:
    for split, rows in ROWS.items():
        append(folder, split, [(START + second * 1_000, value) for second, value in rows])


def options(folder: Path) -> dict[str, str]:
    # The last windows close as well.
    return {"folder": str(folder), "columns": "value long", "startingOffsets": "earliest", "finalWatermark": "true"}


def windows(rows: DataFrame, column: str = "event_time") -> DataFrame:
    return rows.groupBy(F.window(column, "1 minute")).count().select("count")


def own_column(stream: DataFrame) -> DataFrame:
    return follow_watermark(stream.withColumn("t", F.timestamp_seconds("value")), "t")


def by_dataframe(load: Callable[[], DataFrame]) -> Surface:
    return {
        "follow_watermark": lambda: windows(follow_watermark(load())),
        "data_rows": lambda: data_rows(load()).select("value"),
        "neither": lambda: load().select("value"),
        "withWatermark": lambda: windows(load().withWatermark("event_time", "0 seconds")),
        "a column of one's own": lambda: windows(own_column(load()), "t"),
    }


COUNTED = "SELECT count(*) AS count FROM {} GROUP BY window({}, '1 minute')"
WATERMARK = "STREAM {} WATERMARK event_time DELAY OF INTERVAL 0 SECONDS"


def by_sql(spark: SparkSession, load: Callable[[], DataFrame]) -> Surface:
    """SQL over views; where it reads a table, ``load`` is not used."""

    def over(view: DataFrame, query: str) -> DataFrame:
        view.createOrReplaceTempView("of_stream")
        return spark.sql(query)

    return {
        "follow_watermark": lambda: over(follow_watermark(load()), COUNTED.format("of_stream", "event_time")),
        "data_rows": lambda: over(load(), "SELECT value FROM of_stream WHERE marker IS NULL"),
        "neither": lambda: over(load(), "SELECT value FROM of_stream"),
        "withWatermark": lambda: over(load(), COUNTED.format(WATERMARK.format("of_stream"), "event_time")),
        "a column of one's own": lambda: windows(
            follow_watermark(over(load(), "SELECT *, timestamp_seconds(value) AS t FROM of_stream"), "t"), "t"
        ),
    }


def by_table(spark: SparkSession, table: str) -> Surface:
    own = f"(SELECT timestamp_seconds(value) AS t FROM STREAM {table}) WATERMARK t DELAY OF INTERVAL 0 SECONDS"
    return {
        "data_rows": lambda: spark.sql(f"SELECT value FROM STREAM {table} WHERE marker IS NULL"),
        "neither": lambda: spark.sql(f"SELECT value FROM STREAM {table}"),
        "withWatermark": lambda: spark.sql(COUNTED.format(WATERMARK.format(table), "event_time")),
        "a column of one's own": lambda: spark.sql(COUNTED.format(own, "t")),
    }


def with_watermark_in_sql(spark: SparkSession, load: Callable[[], DataFrame]) -> Surface:
    def over(view: DataFrame, column: str = "event_time") -> DataFrame:
        view.createOrReplaceTempView("of_stream")
        return spark.sql(COUNTED.format(WATERMARK.format("of_stream").replace("event_time", column), column))

    return {
        "follow_watermark": lambda: over(follow_watermark(load())),
        "neither": lambda: over(load()),
        "withWatermark": lambda: over(follow_watermark(load()).select("event_time")),
        "a column of one's own": lambda: over(load().withColumn("t", F.timestamp_seconds("value")), "t"),
    }


def by_union(load: Callable[[], DataFrame]) -> Surface:
    one, other = by_dataframe(load), by_dataframe(load)

    def united(use: str) -> Callable[[], DataFrame]:
        return lambda: one[use]().union(other[use]())  # type: ignore[union-attr, arg-type]

    return {use: united(use) for use in USES}


def by_join(load: Callable[[], DataFrame]) -> Surface:
    def joined(change: Callable[[DataFrame], DataFrame]) -> Callable[[], DataFrame]:
        return lambda: change(load()).join(change(load()).select("value"), "value").select("value")

    return {
        "follow_watermark": joined(follow_watermark),
        "data_rows": joined(data_rows),
        "neither": joined(lambda df: df),
        "withWatermark": joined(lambda df: df.withWatermark("event_time", "0 seconds")),
        "a column of one's own": joined(own_column),
    }


def _number(row: Any) -> int:
    """The value or the count of a row; of a marker row, -1."""
    return -1 if row[0] is None else int(row[0])


def in_python(of: Surface) -> Surface:
    """The rows that a function gets."""

    def given(use: str) -> Callable[[], Written]:
        def start() -> Sequence[int]:
            seen: list[int] = []
            frame: Any = of[use]()
            writer = frame.writeStream.foreachBatch(lambda df, _: seen.extend(map(_number, df.collect())))
            writer.trigger(availableNow=True).start().awaitTermination(240)
            return sorted(seen)

        return lambda: start

    return {use: given(use) for use in of}


class Judge:
    """Writes streams, and says what becomes of them."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.logged: list[str] = []
        self._handler = logging.Handler(logging.WARNING)
        self._handler.emit = lambda record: self.logged.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("watermark_source").addHandler(self._handler)

    def stop(self) -> None:
        logging.getLogger("watermark_source").removeHandler(self._handler)

    def outcome(self, write: Callable[[], Written], answers: Sequence[Sequence[int]]) -> str:
        self.logged.clear()
        try:
            written = write()
            rows = self._rows(written) if isinstance(written, DataFrame) else written()
        except UsageError as refused:
            return REFUSED if "follow_watermark" in str(refused) else f"refused: {refused}"
        if self.logged:
            assert "follow_watermark(" in self.logged[0] or "eventTimeColumn" in self.logged[0]
            return WARNED
        return EXACT if rows in answers else f"silent: {rows}"

    def _rows(self, frame: DataFrame) -> Sequence[int]:
        query = frame.writeStream.format("memory").queryName("out").trigger(availableNow=True).start()
        try:
            if self.logged:
                return []
            query.awaitTermination(240)
            return sorted(map(_number, self.spark.table("out").collect()))
        finally:
            query.stop()

    def surface(self, of: Surface, name: str, *, twice: bool = False) -> dict[str, str]:
        """Return the outcome of each use, or why there is none, as the table has it."""
        answers = [VALUES, WINDOWS] if not twice else [sorted(VALUES * 2), sorted(WINDOWS * 2), [2, 2, 2, 4]]
        return {use: self.outcome(of[use], answers) if use in of else SURFACES[name][use] for use in USES}


@pytest.fixture(scope="module")
def judge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Judge, dict[str, Surface]]]:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(folder)
    spark.dataSource.register(DefaultSource)

    def load() -> DataFrame:
        return spark.readStream.format("file-log").options(**options(folder)).load()

    texts = ", ".join(f"{name} '{value}'" for name, value in options(folder).items())
    spark.sql(f"CREATE TABLE surfaces USING `file-log` OPTIONS ({texts})")
    judging = Judge(spark)
    yield (
        judging,
        {
            "DataFrame": by_dataframe(load),
            "SQL over a view of the DataFrame": by_sql(spark, load),
            "SQL over a table (`CREATE TABLE … USING`)": by_table(spark, "surfaces"),
            "`readStream.table`": by_dataframe(lambda: spark.readStream.table("surfaces")),
            "SQL with `WATERMARK` over a view of the DataFrame": with_watermark_in_sql(spark, load),
            "union of two sources": by_union(load),
            "union of two sources, before the call": by_dataframe(lambda: load().union(load())),
            "join of two sources": by_join(load),
            "`foreachBatch`": in_python(by_dataframe(load)),
        },
    )
    judging.stop()
    spark.sql("DROP TABLE surfaces")


_BY_NIGHT = pytest.mark.long("the surfaces of the day")


@pytest.mark.parametrize(
    "surface",
    [
        "DataFrame",
        "SQL over a table (`CREATE TABLE … USING`)",
        "SQL with `WATERMARK` over a view of the DataFrame",
        *(
            pytest.param(name, marks=_BY_NIGHT)
            for name in (
                "SQL over a view of the DataFrame", "`readStream.table`", "union of two sources",
                "union of two sources, before the call", "join of two sources", "`foreachBatch`",
            )
        ),
    ],
)  # fmt: skip
def test_a_stream_is_exact_or_refused_or_warned_of(judge: tuple[Judge, dict[str, Surface]], surface: str) -> None:
    judging, surfaces = judge
    twice = surface.startswith("union")
    assert judging.surface(surfaces[surface], surface, twice=twice) == SURFACES[surface]


# Spark Connect, and pipelines, which need it: in a process of its own.


IN_SQL = """
CREATE STREAMING TABLE sql_0 AS
  SELECT count(*) AS count FROM STREAM followed GROUP BY window(event_time, '1 minute');
CREATE STREAMING TABLE sql_1 AS SELECT value FROM STREAM pipelined WHERE marker IS NULL;
CREATE STREAMING TABLE sql_2 AS SELECT value FROM STREAM pipelined;
CREATE STREAMING TABLE sql_3 AS
  SELECT count(*) AS count FROM STREAM pipelined WATERMARK event_time DELAY OF INTERVAL 0 SECONDS
  GROUP BY window(event_time, '1 minute');
CREATE STREAMING TABLE sql_4 AS
  SELECT count(*) AS count
  FROM (SELECT timestamp_seconds(value) AS t FROM STREAM pipelined) WATERMARK t DELAY OF INTERVAL 0 SECONDS
  GROUP BY window(t, '1 minute');
"""


def through_connect(root: Path) -> None:
    """Write, in a process of its own, what becomes of streams through Connect, and what pipelines write and warn of."""
    from pyspark import pipelines as dp
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run

    write_rows(root / "rows")
    spark: Any = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "1")

    def load() -> DataFrame:
        return SparkSession.active().readStream.format("file-log").options(**options(root / "rows")).load()

    judging = Judge(spark)
    surfaces = {"Spark Connect": by_dataframe(load), "SQL through Spark Connect": by_sql(spark, load)}
    seen: dict[str, Any] = {name: judging.surface(surface, name) for name, surface in surfaces.items()}

    texts = ", ".join(f"{name} '{value}'" for name, value in options(root / "rows").items())
    spark.sql(f"CREATE TABLE pipelined USING `file-log` OPTIONS ({texts})")
    # What is warned of is registered, and not run.
    run, warned = (create_dataflow_graph(spark, "spark_catalog", "default", {}) for _ in range(2))
    registry = SparkConnectGraphElementRegistry(spark, run)
    seen["warned"] = []
    for number, write in enumerate(by_dataframe(load).values()):
        is_run = SURFACES["pipeline in Python"][USES[number]] == EXACT
        of = registry if is_run else SparkConnectGraphElementRegistry(spark, warned)
        with graph_element_registration_context(of):
            judging.logged.clear()
            dp.table(name=f"python_{number}")(write)  # type: ignore[arg-type]
            seen["warned"].append(judging.logged[:1])
    with graph_element_registration_context(registry):
        dp.temporary_view(name="followed")(lambda: follow_watermark(load()))
    registry.register_sql(IN_SQL, Path("pipeline.sql"))
    handle_pipeline_events(
        start_run(
            spark, run, full_refresh=[], full_refresh_all=False, refresh=[], dry=False, storage=f"file://{root}/log"
        )
    )
    tables = [table.name for table in spark.catalog.listTables() if table.name.startswith(("python_", "sql_"))]
    seen["rows"] = {name: sorted(map(_number, spark.table(name).collect())) for name in tables}
    (root / "seen.json").write_text(json.dumps(seen))
    spark.stop()


@pytest.mark.long("test_windows_through_connect_are_the_same")
@pytest.mark.usefixtures("connect_port")
def test_connect_and_pipelines_are_exact_or_refused_or_warned_of(tmp_path: Path) -> None:
    settings = (
        f"spark.driver.extraJavaOptions={quick_spark()}", "spark.ui.enabled=false", "spark.sql.session.timeZone=UTC",
        *(f"{name}={value}" for name, value in LOCAL_CHECKPOINTS.items()),
        f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}",
    )  # fmt: skip
    submit = " ".join(f"--conf {shlex.quote(each)}" for each in settings)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
    # A pipeline's client looks for the format's package, as Spark does.
    path = os.pathsep.join([str(ROOT), str(ROOT / "examples" / "file_log"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import *; through_connect(Path(sys.argv[1]))", str(tmp_path)],
        env={
            **environment, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    unexamined = [line for line in done.stderr.splitlines() if "nothing has examined how this query uses" in line]

    def of_python(number: int) -> str:
        rows = seen["rows"].get(f"python_{number}")
        return WARNED if seen["warned"][number] else EXACT if rows in (VALUES, WINDOWS) else f"silent: {rows}"

    def of_sql(number: int) -> str:
        rows = seen["rows"][f"sql_{number}"]
        if rows in (VALUES, WINDOWS) and SURFACES["pipeline in SQL"][USES[number]] == EXACT:
            return EXACT
        return WARNED if any(f"sql_{number}" in line for line in unexamined) else f"silent: {rows}"

    found = {
        **{name: seen[name] for name in ("Spark Connect", "SQL through Spark Connect")},
        "pipeline in Python": {use: of_python(number) for number, use in enumerate(USES)},
        "pipeline in SQL": {use: of_sql(number) for number, use in enumerate(USES)},
    }
    assert found == {name: SURFACES[name] for name in found}
    assert not any("python_" in line for line in unexamined)
