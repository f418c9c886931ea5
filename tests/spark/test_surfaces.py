"""Every way to write a stream of this project's sources, and what becomes of it: exact, refused or warned, none silent.

docs/surfaces.md shows what is seen here. One log of two splits, an hour apart, is read by all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from docs.surface_table import EXACT, REFUSED, SURFACES, USES, WARNED
from examples.file_log.pyspark_file_log import DefaultSource
from tests.spark.file_log import append
from tests.spark.queries import START
from watermark_source import data_rows, follow_watermark
from watermark_source.errors import UsageError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = {0: [(0, 1), (30, 2), (60, 3)], 1: [(3_600, 4), (3_660, 5)]}
VALUES = sorted(value for rows in ROWS.values() for _, value in rows)
WINDOWS = [1, 1, 1, 2]
"""How many rows a minute has."""
Surface = Mapping[str, Callable[[], DataFrame]]


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
        return lambda: one[use]().union(other[use]())

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

    def outcome(self, write: Callable[[], DataFrame], answers: Sequence[Sequence[int]]) -> str:
        self.logged.clear()
        try:
            rows = self._rows(write())
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
            return sorted(int(row[0]) for row in self.spark.table("out").collect())
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
                "union of two sources, before the call", "join of two sources",
            )
        ),
    ],
)  # fmt: skip
def test_a_stream_is_exact_or_refused_or_warned_of(judge: tuple[Judge, dict[str, Surface]], surface: str) -> None:
    judging, surfaces = judge
    twice = surface.startswith("union")
    assert judging.surface(surfaces[surface], surface, twice=twice) == SURFACES[surface]
