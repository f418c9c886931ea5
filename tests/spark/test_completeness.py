"""What a query states of its table: never ahead of the rows that are there, at most a batch behind, never back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from tests.spark.queries import START, Rows, Streams, settle
from watermark_source import (
    complete_until,
    completeness_of,
    follow_watermark,
    publish_completeness,
    publish_in,
    why_open,
)
from watermark_source.command_line import main
from watermark_source.errors import UsageError
from watermark_source.publishing.announced_query import AnnouncedQuery

pytestmark = pytest.mark.spark

STEPS: tuple[Rows, ...] = (
    {0: [(3, 1), (14, 2)], 1: [(5, 3)]},
    {0: [(35, 4)], 1: [(29, 5), (31, 6)]},
    {0: [(95, 7)], 1: [(58, 8)]},
)
WATERMARKS = (4.999, 30.999, 57.999)
"""Seconds after ``START``, of the lower of both partitions."""


def windows(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(F.window("event_time", "10 seconds")).count()
    return counted.select(F.unix_millis("window.end").alias("end"), "count")


def published_for(query: StreamingQuery, table: Path) -> AnnouncedQuery:
    return publish_completeness(query, table, "windows")


def seconds(table: str | Path) -> float | None:
    moment = complete_until(table)
    return None if moment is None else round(moment.timestamp() - START / 1_000, 3)


def test_a_folder_is_complete_up_to_the_watermark_of_its_windows_over_runs(
    streams: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    # Spark decodes nothing in a path.
    name = "by%20 window"
    table = streams.sink(name)
    frame = windows(follow_watermark(streams.load()))
    for number, rows in enumerate(STEPS):
        streams.write(rows)
        query = streams.start_file(frame, name)
        published = published_for(query, table)
        settle(query)
        published.flush()
        assert seconds(table) == WATERMARKS[number]
        ends = sorted((row.end - START) // 1_000 for row in streams.result(name).collect())
        assert ends == [end for end in (10, 20, 30, 40, 60) if end <= WATERMARKS[number]]
        query.stop()
        published.stop()
    # The query has ended: who holds it is read from its checkpoint.
    assert main(["complete", str(table), "--until", str(START + 70_000)]) == 2
    said = capsys.readouterr().out
    assert "writer windows is complete until" in said
    assert "and has ended; the window that ends at" in said
    assert str(why_open(streams.checkpoint(name), START + 70_000).sentence) in said
    assert main(["complete", str(table), "--until", str(START + 50_000)]) == 0


def test_a_batch_that_was_committed_before_a_kill_is_stated_after_the_next_one_at_the_latest(streams: Streams) -> None:
    table, frame = streams.sink("killed"), windows(follow_watermark(streams.load()))
    streams.write(STEPS[0])
    query = streams.start_file(frame, "killed")
    published = published_for(query, table)
    settle(query)
    published.flush()
    published.stop()
    # The driver writes a batch, and dies before its mark; then one dies with a batch written and not committed.
    streams.write(STEPS[1])
    settle(query)
    query.stop()
    assert seconds(table) == WATERMARKS[0]
    streams.uncommit("killed")
    query = streams.start_file(frame, "killed")
    published = published_for(query, table)
    settle(query)
    published.flush()
    assert seconds(table) == WATERMARKS[1]
    query.stop()
    published.stop()


def test_a_checkpoint_that_begins_anew_in_a_file_sinks_folder_is_refused_because_its_batches_are_skipped(
    streams: Streams,
) -> None:
    streams.write(STEPS[0])
    frame, table = windows(follow_watermark(streams.load())), streams.sink("first")
    streams.run(frame, "first")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(streams.checkpoint("anew")))
    query = writer.start(str(table))
    streams.started.append(query)
    with pytest.raises(UsageError, match=r"Spark's file sink passes over batches of this query: its log in .* has"):
        published_for(query, table)
    with pytest.raises(UsageError, match=r"the query writes to another folder; write to="):
        published_for(query, streams.sink("other"))
    query.stop()


def test_a_folder_without_a_scheme_is_where_spark_takes_it_to_be(streams: Streams) -> None:
    rows, checkpoint = follow_watermark(streams.load()), f"file:{streams.checkpoint('elsewhere')}"
    table = streams.sink("elsewhere")
    streams.spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:9")
    try:
        writer = rows.writeStream.foreachBatch(lambda batch, number: None)
        query = writer.option("checkpointLocation", checkpoint).start()
        streams.started.append(query)
        with pytest.raises(UsageError, match=rf"hdfs://127\.0\.0\.1:9{table}: expected .* write file:{table}; "):
            publish_completeness(query, table, "windows")
    finally:
        streams.spark.conf.unset("fs.defaultFS")


@pytest.mark.parametrize("shape", ["windows", pytest.param("rows", marks=pytest.mark.long("windows"))])
def test_what_a_batch_states_of_a_database_is_in_the_transaction_of_its_rows(
    streams: Streams, tmp_path: Path, shape: str
) -> None:
    place, looks = f"sqlite:///{tmp_path}/shop.db#counts", list[tuple[float | None, float]]()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE counts (at BIGINT)")
        connection.execute(
            "CREATE TABLE watermark_completeness (table_name VARCHAR(255), writer VARCHAR(255), complete_until BIGINT, "
            "mark VARCHAR(4000), PRIMARY KEY (table_name, writer))"
        )

    def write(batch: DataFrame, number: int) -> None:
        looks.append((seconds(place), number))
        mark = completeness_of(batch, "counts-job")
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            connection.executemany("INSERT INTO counts VALUES (?)", [(row.at,) for row in batch.collect()])
            publish_in(connection, mark, "counts")
            # Until the commit another connection sees neither.
            assert seconds(place) == looks[-1][0]

    rows = follow_watermark(streams.load())
    at = {"windows": windows(rows).select(F.col("end").alias("at")),
          "rows": rows.select(F.unix_millis("event_time").alias("at"))}[shape]  # fmt: skip
    writer = at.writeStream.foreachBatch(write).option("checkpointLocation", str(streams.checkpoint(shape)))
    query = writer.start()
    streams.started.append(query)
    for number, step in enumerate(STEPS):
        streams.write(step)
        settle(query)
        assert seconds(place) == WATERMARKS[number]
    query.stop()
    known = [at for at, _ in looks if at is not None]
    assert known == sorted(known)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        found = sorted((at - START) / 1_000 for (at,) in connection.execute("SELECT at FROM counts"))
    assert found == (
        [10, 20, 30, 40] if shape == "windows" else sorted(s for r in STEPS for v in r.values() for s, _ in v)
    )


def test_outside_of_a_batch_nothing_is_stated(streams: Streams) -> None:
    with pytest.raises(UsageError, match="expected to be called in the function of foreachBatch"):
        completeness_of(streams.spark.range(1), "job")
