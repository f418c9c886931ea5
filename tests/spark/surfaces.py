"""Every way to write a stream of this project's sources, and what becomes of it: exact, refused, warned or silent.

The ways are the same for all sources: ``Rows`` is what one of them has to read. docs/surfaces.md shows what is seen.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shlex
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from docs.surface_table import EXACT, REFUSED, SURFACES, USES, WARNED, cells
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark
from watermark_source import data_rows, follow_watermark
from watermark_source.errors import UsageError

ROOT = Path(__file__).parents[2]
Surface: TypeAlias = Mapping[str, Callable[[], DataFrame]]
Numbers: TypeAlias = Sequence[int]
ROWS = {0: [(0, 1), (30, 2), (60, 3)], 1: [(3_600, 4), (3_660, 5), (3_720, 6)]}
"""Of two splits: seconds after ``START``, number. Of two in a batch, one is an hour ahead of all that follow."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is read: rows of two splits, or of a table and its changes, an hour apart."""

    source: str
    """Its name in the table of the docs."""
    format: str
    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Options that no table keeps, so that they are given where it is read."""
    number: str = "value"
    """The number of a row, in SQL."""
    numbers: Numbers = tuple(number for of_split in ROWS.values() for _, number in of_split)
    """Those of all rows."""
    windows: Numbers = (1, 1, 1, 1, 2)
    """How many rows a minute has, of the minutes that close."""

    def written(self) -> Iterator[None]:
        """Write the rows, in steps that a query reads one by one; by default they are there already."""
        yield

    @property
    def given(self) -> Mapping[str, str]:
        return {**self.options, **self.secrets}

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format(self.format).options(**self.given).load()

    def load_table(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.readStream.options(**self.secrets).table(table)

    def in_sql(self, table: str) -> str:
        """A table as SQL reads it."""
        return f"{table} WITH ({_in_sql(self.secrets)})" if self.secrets else table

    @contextmanager
    def table(self, spark: SparkSession) -> Iterator[str]:
        """A table ``USING`` the source."""
        name = f"table_{uuid.uuid4().hex}"
        spark.sql(f"CREATE TABLE {name} USING `{self.format}` OPTIONS ({_in_sql(self.given)})")
        yield name
        spark.sql(f"DROP TABLE {name}")

    def answers(self, surface: str) -> Sequence[Numbers]:
        """Return what is right: the numbers, or how many rows the windows have."""
        if surface.startswith("union"):
            return [sorted([*of, *of]) for of in (self.numbers, self.windows)] + [sorted(2 * n for n in self.windows)]
        if surface.startswith("join"):
            return [sorted(n for n, times in Counter(self.numbers).items() for _ in range(times**2))]
        return [sorted(self.numbers), sorted(self.windows)]


def _in_sql(options: Mapping[str, str]) -> str:
    escaped = {key: value.replace("'", "\\'") for key, value in options.items()}
    return ", ".join(f"'{key}' = '{value}'" for key, value in escaped.items())


# The ways.


def ways(rows: Rows, spark: SparkSession, table: str) -> Mapping[str, Surface]:
    """Return all ways of one session of Classic, by their names in the table of the docs."""

    def load() -> DataFrame:
        return rows.load(spark)

    def load_table() -> DataFrame:
        return rows.load_table(spark, table)

    number = rows.number
    return {
        "DataFrame": by_dataframe(number, load),
        "SQL over a view of the DataFrame": by_sql(number, spark, load),
        "SQL over a table (`CREATE TABLE … USING`)": by_table(number, spark, rows.in_sql(table), load_table),
        "`readStream.table`": by_dataframe(number, load_table),
        "SQL with `WATERMARK` over a view of the DataFrame": with_watermark_in_sql(number, spark, load),
        "union of two sources": by_union(number, load),
        "union of two sources, before the call": by_dataframe(number, lambda: load().union(load())),
        "join of two sources": by_join(number, load),
        "`foreachBatch`": by_dataframe(number, load),
    }


def windows(rows: DataFrame, column: str = "event_time") -> DataFrame:
    return rows.groupBy(F.window(column, "1 minute")).count().select("count")


def own_column(number: str, stream: DataFrame) -> DataFrame:
    return follow_watermark(stream.withColumn("t", F.expr(f"timestamp_seconds({number})")), "t")


def by_dataframe(number: str, load: Callable[[], DataFrame]) -> Surface:
    return {
        "follow_watermark": lambda: windows(follow_watermark(load())),
        "data_rows": lambda: data_rows(load()).selectExpr(f"{number} AS number"),
        "neither": lambda: load().selectExpr(f"{number} AS number"),
        "withWatermark": lambda: windows(load().withWatermark("event_time", "0 seconds")),
        "a column of one's own": lambda: windows(own_column(number, load()), "t"),
    }


COUNTED = "SELECT count(*) AS count FROM {} GROUP BY window({}, '1 minute')"
WATERMARK = "STREAM {} WATERMARK event_time DELAY OF INTERVAL 0 SECONDS"
OF_ONES_OWN = "(SELECT timestamp_seconds({}) AS t FROM STREAM {}) WATERMARK t DELAY OF INTERVAL 0 SECONDS"


def by_sql(number: str, spark: SparkSession, load: Callable[[], DataFrame]) -> Surface:
    def over(view: DataFrame, query: str) -> DataFrame:
        view.createOrReplaceTempView("of_stream")
        return spark.sql(query)

    own = f"SELECT *, timestamp_seconds({number}) AS t FROM of_stream"
    return {
        "follow_watermark": lambda: over(follow_watermark(load()), COUNTED.format("of_stream", "event_time")),
        "data_rows": lambda: over(load(), f"SELECT {number} AS number FROM of_stream WHERE marker IS NULL"),
        "neither": lambda: over(load(), f"SELECT {number} AS number FROM of_stream"),
        "withWatermark": lambda: over(load(), COUNTED.format(WATERMARK.format("of_stream"), "event_time")),
        "a column of one's own": lambda: windows(follow_watermark(over(load(), own), "t"), "t"),
    }


def by_table(number: str, spark: SparkSession, table: str, load: Callable[[], DataFrame]) -> Surface:
    def over_followed() -> DataFrame:
        follow_watermark(load()).createOrReplaceTempView("followed")
        return spark.sql("SELECT window(event_time, '1 minute'), count(*) FROM followed GROUP BY 1").select("count(1)")

    return {
        "follow_watermark": over_followed,
        "data_rows": lambda: spark.sql(f"SELECT {number} AS number FROM STREAM {table} WHERE marker IS NULL"),
        "neither": lambda: spark.sql(f"SELECT {number} AS number FROM STREAM {table}"),
        "withWatermark": lambda: spark.sql(COUNTED.format(WATERMARK.format(table), "event_time")),
        "a column of one's own": lambda: spark.sql(COUNTED.format(OF_ONES_OWN.format(number, table), "t")),
    }


def with_watermark_in_sql(number: str, spark: SparkSession, load: Callable[[], DataFrame]) -> Surface:
    def over(view: DataFrame, column: str = "event_time") -> DataFrame:
        view.createOrReplaceTempView("of_stream")
        return spark.sql(COUNTED.format(WATERMARK.format("of_stream").replace("event_time", column), column))

    own = f"timestamp_seconds({number})"
    return {
        "follow_watermark": lambda: over(follow_watermark(load())),
        "neither": lambda: over(load()),
        "withWatermark": lambda: over(follow_watermark(load()).select("event_time")),
        "a column of one's own": lambda: over(load().withColumn("t", F.expr(own)), "t"),
    }


def by_union(number: str, load: Callable[[], DataFrame]) -> Surface:
    one, other = by_dataframe(number, load), by_dataframe(number, load)

    def united(use: str) -> Callable[[], DataFrame]:
        return lambda: one[use]().union(other[use]())

    return {use: united(use) for use in USES}


def by_join(number: str, load: Callable[[], DataFrame]) -> Surface:
    def joined(change: Callable[[DataFrame], DataFrame]) -> Callable[[], DataFrame]:
        return lambda: change(load()).join(change(load()).select("value"), "value").selectExpr(f"{number} AS number")

    return {
        "follow_watermark": joined(follow_watermark),
        "data_rows": joined(data_rows),
        "neither": joined(lambda df: df),
        "withWatermark": joined(lambda df: df.withWatermark("event_time", "0 seconds")),
        "a column of one's own": joined(lambda df: own_column(number, df)),
    }


# What becomes of them.


def _number(row: Any) -> int:
    """The number or the count of a row; of a marker row, -1."""
    return -1 if row[0] is None else int(row[0])


class Judge:
    """Writes streams, and states what becomes of them."""

    def __init__(self, spark: SparkSession, rows: Rows, folder: Path) -> None:
        self.spark, self.rows, self._folder = spark, rows, folder
        self.logged: list[str] = []
        self._handler = logging.Handler(logging.WARNING)
        self._handler.emit = lambda record: self.logged.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("watermark_source").addHandler(self._handler)

    def stop(self) -> None:
        logging.getLogger("watermark_source").removeHandler(self._handler)

    def surface(self, of: Surface, name: str) -> dict[str, str]:
        """Return the outcome of each use, or why there is none, as the table has it."""
        read = self._in_python if "foreachBatch" in name else self._in_files
        answers = self.rows.answers(name)
        reported = cells(name, self.rows.source)
        return {use: self._outcome(of[use], read, answers) if use in of else reported[use] for use in USES}

    def _outcome(
        self, write: Callable[[], DataFrame], read: Callable[[DataFrame], Numbers], answers: Sequence[Numbers]
    ) -> str:
        self.logged.clear()
        try:
            found = read(write())
        except UsageError as refused:
            return REFUSED if "follow_watermark" in str(refused) else f"refused: {refused}"
        if self.logged:
            assert "follow_watermark(" in self.logged[0] or "use the column event_time" in self.logged[0], self.logged
            return WARNED
        return EXACT if found in answers else f"silent: {found}"

    def _in_files(self, frame: DataFrame) -> Numbers:
        """The rows of a sink of files."""
        sink = self._folder / uuid.uuid4().hex
        self._run(frame.writeStream.format("parquet").option("path", str(sink)))
        # What is warned of may have written nothing.
        return [] if self.logged else sorted(map(_number, self.spark.read.parquet(str(sink)).collect()))

    def _in_python(self, frame: DataFrame) -> Numbers:
        """The rows that a function gets."""
        seen: list[int] = []
        self._run(frame.writeStream.foreachBatch(lambda df, _: seen.extend(map(_number, df.collect()))))
        return sorted(seen)

    def _run(self, writer: Any) -> None:
        writer = writer.option("checkpointLocation", str(self._folder / uuid.uuid4().hex))
        for _ in self.rows.written():
            query = writer.trigger(availableNow=True).start()
            try:
                if self.logged:
                    return
                query.awaitTermination(240)
                assert not query.isActive
            finally:
                query.stop()


@contextmanager
def judged(spark: SparkSession, rows: Rows, folder: Path) -> Iterator[Callable[[str], tuple[Any, Any]]]:
    """Yield what judges a way of Classic by its name: the outcomes seen, and those of the table."""
    judge = Judge(spark, rows, folder)
    try:
        with rows.table(spark) as table:
            of = ways(rows, spark, table)
            yield lambda name: (judge.surface(of[name], name), cells(name, rows.source))
    finally:
        judge.stop()


def surfaces(*of_the_day: str) -> list[Any]:
    """Return the ways of one session, of which these are judged by day."""
    by_night = pytest.mark.long("the surfaces of the day")
    found = [name for name in SURFACES if "Connect" not in name and "pipeline" not in name]
    return [pytest.param(name, marks=() if name in of_the_day else (by_night,)) for name in found]


# Spark Connect, and pipelines, which need it: in a process of its own.


IN_SQL = """
CREATE STREAMING TABLE sql_0 AS
  SELECT count(*) AS count FROM STREAM followed GROUP BY window(event_time, '1 minute');
CREATE STREAMING TABLE sql_1 AS SELECT {number} AS value FROM STREAM {table} WHERE marker IS NULL;
CREATE STREAMING TABLE sql_2 AS SELECT {number} AS value FROM STREAM {table};
CREATE STREAMING TABLE sql_3 AS
  SELECT count(*) AS count FROM STREAM {table} WATERMARK event_time DELAY OF INTERVAL 0 SECONDS
  GROUP BY window(event_time, '1 minute');
CREATE STREAMING TABLE sql_4 AS
  SELECT count(*) AS count
  FROM (SELECT timestamp_seconds({number}) AS t FROM STREAM {table}) WATERMARK t DELAY OF INTERVAL 0 SECONDS
  GROUP BY window(t, '1 minute');
"""


def seen_through_connect(rows: Rows, root: Path) -> None:
    """Write, in a process of its own, what becomes of streams through Connect, and what pipelines write and warn of."""
    from pyspark import pipelines as dp
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run

    spark: Any = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "1")

    def load() -> DataFrame:
        return rows.load(SparkSession.active())

    judge = Judge(spark, rows, root / "connect")
    surfaces = {
        "Spark Connect": by_dataframe(rows.number, load),
        "SQL through Spark Connect": by_sql(rows.number, spark, load),
    }
    seen: dict[str, Any] = {name: judge.surface(surface, name) for name, surface in surfaces.items()}

    of_python = cells("pipeline in Python", rows.source)

    def run_pipeline(table: str) -> list[list[str]]:
        """Run a pipeline once, as its graph can be, and return what the functions of its tables have logged."""
        # What is warned of is registered, and not run.
        run, warned = (create_dataflow_graph(spark, "spark_catalog", "default", {}) for _ in range(2))
        registry = SparkConnectGraphElementRegistry(spark, run)
        logged = []
        for number, (use, write) in enumerate(by_dataframe(rows.number, load).items()):
            of = registry if of_python[use] == EXACT else SparkConnectGraphElementRegistry(spark, warned)
            with graph_element_registration_context(of):
                judge.logged.clear()
                dp.table(name=f"python_{number}")(write)
                logged.append(judge.logged[:1])
        with graph_element_registration_context(registry):
            dp.temporary_view(name="followed")(lambda: follow_watermark(load()))
        registry.register_sql(IN_SQL.format(number=rows.number, table=rows.in_sql(table)), Path("pipeline.sql"))
        storage = f"file://{root}/log"
        handle_pipeline_events(
            start_run(spark, run, full_refresh=[], full_refresh_all=False, refresh=[], dry=False, storage=storage)
        )
        return logged

    with rows.table(spark) as table:
        for _ in rows.written():
            seen["warned"] = run_pipeline(table)
        tables = [of.name for of in spark.catalog.listTables() if of.name.startswith(("python_", "sql_"))]
        seen["rows"] = {name: sorted(map(_number, spark.table(name).collect())) for name in tables}
    (root / "seen.json").write_text(json.dumps(seen))
    spark.stop()


def through_connect(rows: Rows, root: Path, *paths: Path) -> Mapping[str, Mapping[str, str]]:
    """Return what becomes of streams through Connect and in pipelines; ``paths`` are those of the source's package."""
    settings = (
        f"spark.driver.extraJavaOptions={quick_spark()}", "spark.ui.enabled=false", "spark.sql.session.timeZone=UTC",
        *(f"{name}={value}" for name, value in LOCAL_CHECKPOINTS.items()),
        f"spark.sql.warehouse.dir={root / 'warehouse'}",
    )  # fmt: skip
    submit = " ".join(f"--conf {shlex.quote(each)}" for each in settings)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_GATEWAY"))}
    # A pipeline's client looks for the format's package, as Spark does.
    path = os.pathsep.join([str(ROOT), *map(str, paths), *sys.path])
    (root / "rows").write_bytes(pickle.dumps(rows))
    of_rows = "pickle.loads(Path('rows').read_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import *; seen_through_connect({of_rows}, Path.cwd())"],
        env={
            **environment, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
        },
        cwd=root, capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((root / "seen.json").read_text())
    unexamined = [line for line in done.stderr.splitlines() if "nothing has examined how this query uses" in line]
    assert not any("python_" in line for line in unexamined)
    of_sql = cells("pipeline in SQL", rows.source)

    def outcome(name: str, *, is_warned: bool, is_exact: bool = True) -> str:
        found = seen["rows"].get(name)
        if found in rows.answers("pipeline") and is_exact:
            return EXACT
        return WARNED if is_warned else f"silent: {found}"

    return {
        **{name: seen[name] for name in ("Spark Connect", "SQL through Spark Connect")},
        "pipeline in Python": {
            use: outcome(f"python_{number}", is_warned=bool(seen["warned"][number])) for number, use in enumerate(USES)
        },
        "pipeline in SQL": {
            use: outcome(
                f"sql_{number}",
                is_exact=of_sql[use] == EXACT,
                is_warned=any(f"sql_{number}" in line for line in unexamined),
            )
            for number, use in enumerate(USES)
        },
    }
