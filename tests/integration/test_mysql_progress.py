"""How far a snapshot is, reported in the source's status, in the run that began it and after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.lookup import table_list
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from tests.unit.monitor.example_status import checkpoint
from watermark_source import why_open
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.window_facts import QueryAt
from watermark_source.status_model.source_status import SnapshotProgress
from watermark_source.status_model.status_json import status_from_json

pytestmark = pytest.mark.service

ROWS, CHUNK, CHUNKS = 1_050, 100, 2
PER_BATCH = CHUNK * CHUNKS


@pytest.fixture
def filled(mysql_database: Database) -> Database:
    """Two tables with equal columns, the second with ten rows."""
    for table, rows in (("t", ROWS), ("u", 10)):
        numbers = ", ".join(f"({i}, 'x', {i})" for i in range(rows))
        mysql_database.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, name VARCHAR(20), amount INT)",
            f"INSERT INTO {table} VALUES {numbers}", f"ANALYZE TABLE {table}",
        )  # fmt: skip
    return mysql_database


@pytest.fixture
def life(mysql_database: Database) -> Iterator[Callable[..., Life]]:
    """``life(**options)`` begins one, of both tables unless asked otherwise."""
    name, begun = mysql_database.name, []

    def begin(**options: Any) -> Life:
        given = {"tables": f"{name}.t,{name}.u", "snapshotChunkRows": CHUNK, "snapshotParallelism": CHUNKS, **options}
        begun.append(Life(mysql_database, **given))
        return begun[-1]

    yield begin
    for one in begun:
        one.reader.stop()


def steps(one: Life, start: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], dict[str, SnapshotProgress]]]:
    """Go from batch to batch as Spark does, with what the status states when a batch is done."""
    while (end := one.reader.latestOffset(start, ALL)) != start:
        one.rows(start, end)
        report = one.reader.reportLatestOffset()
        assert report is not None
        yield end, {each.log.split(".")[1]: each for each in status_from_json(report).snapshots}
        start = end


@pytest.mark.usefixtures("filled")
def test_rows_chunks_and_rate_are_reported_batch_by_batch(life: Callable[..., Life]) -> None:
    one = life()
    seen = [snapshots for _, snapshots in steps(one, one.reader.initialOffset())]
    first, second, third = seen[:3]
    assert (first["t"].rows, first["t"].chunks, first["t"].rate) == (PER_BATCH, CHUNKS, None)
    assert first["t"].expected == pytest.approx(ROWS, rel=0.5)
    assert (first["u"].rows, first["u"].chunks, first["u"].share) == (0, 0, 0)
    assert second["t"].rows == 2 * PER_BATCH
    # The first batch is slow, and reports no rate.
    assert second["t"].rate is None
    assert third["t"].rate is not None
    assert third["t"].rate > 0
    # Five batches of two, the last chunk with the only one of u, then the binlog.
    assert [each["t"].done for each in seen[:6]] == [False] * 5 + [True]
    assert seen[5]["t"].rows <= ROWS * 1.5
    assert seen[5]["u"].done
    assert all(not each for each in seen[6:])


@pytest.mark.usefixtures("filled")
def test_windows_wait_for_the_snapshot_by_the_status_and_by_the_checkpoint(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    one, sentences = life(), []
    for number, (end, _) in enumerate(steps(one, one.reader.initialOffset())):
        report = one.reader.reportLatestOffset()
        assert report is not None
        at = QueryAt(sources=(status_from_json(report),), batch=number, applied=None)
        stored = why_open(checkpoint(tmp_path / str(number), [json.dumps(end)], []))
        sentences.append((open_window(at, None).sentence, stored.sentence))
    waits = [["is read before the changes, and rows of a snapshot" in each for each in both] for both in sentences]
    assert waits[0] == [True, True]
    assert waits[-1] == [False, False]
    assert sorted(waits, reverse=True) == waits


@pytest.mark.usefixtures("filled")
def test_a_restart_continues_from_the_chunks_before(life: Callable[..., Life]) -> None:
    one = life()
    before = [end for end, _ in zip((end for end, _ in steps(one, one.reader.initialOffset())), range(3), strict=False)]
    _, snapshots = next(steps(life(), before[-1]))
    assert snapshots["t"].rows == 4 * PER_BATCH
    assert snapshots["t"].rate is None


@pytest.mark.usefixtures("filled")
def test_a_table_that_is_dropped_is_not_reported_as_done(
    mysql_database: Database, life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    batches = steps(one := life(), one.reader.initialOffset())
    assert next(batches)[1].keys() == {"t", "u"}
    mysql_database.run("DROP TABLE t")
    assert next(batches)[1].keys() == {"u"}


def test_a_table_without_a_key_is_expected_whole(mysql_database: Database, life: Callable[..., Life]) -> None:
    numbers = ", ".join(f"({i}, 'x', {i})" for i in range(ROWS))
    mysql_database.run(
        "CREATE TABLE t (id INT, name VARCHAR(20), amount INT)", f"INSERT INTO t VALUES {numbers}", "ANALYZE TABLE t"
    )
    one = life(tables=f"{mysql_database.name}.t")
    _, snapshots = next(steps(one, one.reader.initialOffset()))
    assert snapshots["t"].done
    assert snapshots["t"].rows == snapshots["t"].expected == pytest.approx(ROWS, rel=0.5)


def test_without_a_snapshot_there_is_none_to_report(filled: Database, life: Callable[..., Life]) -> None:
    one = life(startingOffsets="latest")
    start = one.reader.initialOffset()
    filled.run("UPDATE t SET amount = amount + 1 WHERE id = 1")
    assert next(steps(one, start))[1] == {}
