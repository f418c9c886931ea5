"""XA transactions: what was prepared comes where it is committed, whatever lies between, and never if it is not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm.client import dump_range
from pyspark_mysql_cdc_wm.lookup import xa_transactions
from pyspark_mysql_cdc_wm.lookup import xa_transactions as prepared_module
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import DEEP_RECURSION, Database, purge_before_end
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_tables import Tables, applied, batch, fill, on_server
from watermark_source.errors import DataLossError, UnsupportedFormatError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
Offset = Mapping[str, Any]


@pytest.fixture
def database(mysql_database: Database) -> Iterator[Database]:
    database = mysql_database
    yield database
    # What is prepared keeps its table for ever.
    for kind, size, _, name in database.run("XA RECOVER"):
        shown = name if isinstance(name, str) else name.decode()
        if database.name in shown and kind == 1:
            database.run(f"XA ROLLBACK '{shown[:size]}'")


def name_of(database: Database, what: str) -> str:
    """A name that no other test has."""
    return f"'{database.name}-{what}'"


def prepare(database: Database, what: str, *statements: str, session: tuple[str, ...] = ()) -> None:
    name = name_of(database, what)
    database.run(*session, f"XA START {name}", *statements, f"XA END {name}", f"XA PREPARE {name}")


def commit(database: Database, what: str) -> None:
    database.run(f"XA COMMIT {name_of(database, what)}")


@contextmanager
def life_of(database: Database, **options: Any) -> Iterator[Life]:
    life = Life(database, **options)
    try:
        yield life
    finally:
        life.reader.stop()


def shown(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    ordered = sorted(rows, key=lambda row: (row["_commit_version"], row["_change_number"]))
    return [(row["_change_type"], row["id"]) for row in ordered]


@pytest.mark.parametrize("between", ["nothing", "a batch", "a file", "a batch and two files"])
@pytest.mark.parametrize("session", [(), ("SET SESSION binlog_transaction_compression = ON",)], ids=["plain", "packed"])
def test_what_was_prepared_comes_with_its_commit_in_its_place_and_at_its_time(
    database: Database, between: str, session: tuple[str, ...]
) -> None:
    if database.server.flavour is Flavour.MARIADB and session:
        session = ("SET @none = 1",)
    database.run(_TABLE, "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)")
    values = ", ".join(f"({number}, 'many alike', 0)" for number in range(100, 120))
    with life_of(database, startingOffsets="latest") as life:
        start: Offset = life.reader.initialOffset()
        prepare(
            database, "a", f"INSERT INTO t VALUES {values}", "UPDATE t SET amount = 9 WHERE id = 1", session=session
        )
        prepare(database, "b", "DELETE FROM t WHERE id = 2", session=session)
        database.run("INSERT INTO t VALUES (3, 'three', 3)")
        first = []
        if "batch" in between:
            middle = life.reader.latestOffset(start, ALL)
            first, start = batch(life, start, middle), middle
        if "file" in between:
            database.run("FLUSH BINARY LOGS")
        if "two" in between:
            database.run("INSERT INTO t VALUES (4, 'four', 4)", "FLUSH BINARY LOGS")
        time.sleep(1.1)
        commit(database, "a")
        database.run(f"XA ROLLBACK {name_of(database, 'b')}", "INSERT INTO t VALUES (5, 'five', 5)")
        end = life.reader.latestOffset(start, ALL)
        rows = first + batch(life, start, end)
    four = [("insert", 4)] if "two" in between else []
    added = [("insert", number) for number in range(100, 120)]
    changed = [*added, ("update_preimage", 1), ("update_postimage", 1)]
    assert shown(rows) == [("insert", 3), *four, *changed, ("insert", 5)]
    versions = {row["id"]: row["_commit_version"] for row in rows}
    assert versions[3] < versions[1] == versions[100] < versions[5]
    times = {row["id"]: row["_commit_timestamp"] for row in rows}
    assert times[1] == times[100]
    assert 1.0 <= (times[100] - times[3]).total_seconds() < 60.0
    assert sorted(row["_change_number"] for row in rows if row["_commit_version"] == versions[1]) == list(range(22))


def test_a_name_is_used_again_and_each_commit_brings_its_own_rows(database: Database) -> None:
    database.run(_TABLE)
    with life_of(database, startingOffsets="latest") as life:
        start = life.reader.initialOffset()
        for number in range(4):
            prepare(database, "a", f"INSERT INTO t VALUES ({number}, 'n', 0)")
            if number % 2:
                database.run(f"XA ROLLBACK {name_of(database, 'a')}")
            else:
                commit(database, "a")
        prepare(database, "a", "INSERT INTO t VALUES (4, 'n', 0)")
        middle = life.reader.latestOffset(start, ALL)
        assert shown(batch(life, start, middle)) == [("insert", 0), ("insert", 2)]
        commit(database, "a")
        end = life.reader.latestOffset(middle, ALL)
        assert shown(batch(life, middle, end)) == [("insert", 4)]


@pytest.mark.needs_mysql("has formats of XA names up to 2147483647 alone")
def test_a_name_may_have_any_format(database: Database) -> None:
    database.run(_TABLE)
    formats = (2**31, 2**32, 2**63 - 1)
    with life_of(database, startingOffsets="latest") as life:
        start: Offset = life.reader.initialOffset()
        for number, kind in enumerate(formats):
            name = f"{name_of(database, str(number))}, 'b', {kind}"
            changes = (f"XA START {name}", f"INSERT INTO t VALUES ({number}, 'n', 0)", f"XA END {name}")
            database.run(*changes, f"XA PREPARE {name}")
            database.run(f"XA COMMIT {name}")
        end = life.reader.latestOffset(start, ALL)
        assert shown(batch(life, start, end)) == [("insert", number) for number in range(len(formats))]


def test_a_limit_of_rows_and_tasks_that_share_a_range_count_them_where_they_are_committed(database: Database) -> None:
    database.run(_TABLE)
    options = {"startingOffsets": "latest", "maxRowsPerTrigger": 6, "minPartitions": 3}
    with life_of(database, **options) as life:
        end: Offset = life.reader.initialOffset()
        values = ", ".join(f"({number}, 'n', 0)" for number in range(100, 105))
        prepare(database, "a", f"INSERT INTO t VALUES {values}")
        for number in range(8):
            database.run(f"INSERT INTO t VALUES ({number}, 'n', 0)")
        commit(database, "a")
        for number in range(8, 12):
            database.run(f"INSERT INTO t VALUES ({number}, 'n', 0)")
        found, sizes = [], []
        while (start := end) != (end := life.reader.latestOffset(end, ReadMaxRows(6))):
            rows = batch(life, start, end)
            found += rows
            sizes.append(len(rows))
    order = [*range(8), *range(100, 105), *range(8, 12)]
    assert shown(found) == [("insert", number) for number in order]
    assert max(sizes) <= 6


def test_one_that_is_too_long_to_be_left_out_is_refused_and_not_delivered_by_halves(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_range, "_WHOLE_BYTES", 64 * 1024)
    database.run("CREATE TABLE t (id INT PRIMARY KEY, text TEXT)")
    many = (
        "INSERT INTO t WITH RECURSIVE n AS (SELECT {0} i UNION ALL SELECT i + 1 FROM n WHERE i < {0} + 19999) "
        "SELECT i, REPEAT('x', 400) FROM n"
    )
    with life_of(database, startingOffsets="latest") as life:
        start = life.reader.initialOffset()
        one = name_of(database, "one")
        database.run(DEEP_RECURSION, f"XA START {one}", many.format(0), f"XA END {one}", f"XA COMMIT {one} ONE PHASE")
        middle = life.reader.latestOffset(start, ALL)
        assert len(life.rows(start, middle)) == 20_000
        prepare(database, "a", many.format(100_000), session=(DEEP_RECURSION,))
        commit(database, "a")
        end = life.reader.latestOffset(middle, ALL)
        with pytest.raises(UnsupportedFormatError, match="XA transaction was prepared, and is too long to be left out"):
            life.rows(middle, end)


def test_what_was_prepared_in_a_file_that_is_gone_is_data_loss(database: Database) -> None:
    database.run(_TABLE)
    prepare(database, "a", "INSERT INTO t VALUES (1, 'one', 1)")
    database.run("FLUSH BINARY LOGS")
    with life_of(database, startingOffsets="latest") as life:
        start = life.reader.initialOffset()
        purge_before_end(database)
        commit(database, "a")
        database.run("INSERT INTO t VALUES (2, 'two', 2)")
        end = life.reader.latestOffset(start, ALL)
        with pytest.raises(DataLossError, match=r"XA COMMIT x'.*commits what was prepared in a file .* was purged"):
            life.rows(start, end)
    with life_of(database, startingOffsets="latest", failOnDataLoss="false") as life:
        assert shown(life.rows(start, end)) == [("insert", 2)]


def test_beside_a_snapshot_what_was_prepared_in_a_file_that_is_gone_is_data_loss(database: Database) -> None:
    fill(database, "t", 10)
    prepare(database, "a", "UPDATE t SET amount = -1 WHERE id = 2")
    database.run("FLUSH BINARY LOGS")
    with life_of(database) as life:
        start: Offset = life.reader.initialOffset()
        end = life.reader.latestOffset(start, ALL)
        purge_before_end(database)
        commit(database, "a")
        with pytest.raises(DataLossError, match=r"XA COMMIT x'.*commits what was prepared in a file .* was purged"):
            life.rows(start, end)
    with life_of(database, failOnDataLoss="false") as life:
        tables: Tables = {}
        applied(batch(life, start, end), tables)
        while (start := end) != (end := life.reader.latestOffset(end, ALL)):
            applied(batch(life, start, end), tables)
    assert tables == on_server(database, "t")


@pytest.mark.parametrize("prepared", ["in the batch", "before the query", "in the batch, packed"])
def test_many_that_are_committed_in_a_batch_are_read_in_few_passes(
    database: Database, prepared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: tuple[str, ...] = ()
    if "packed" in prepared and database.server.flavour is not Flavour.MARIADB:
        session = ("SET SESSION binlog_transaction_compression = ON",)
    passes = 0
    dumped = dump_range.dumped

    def counted(*given: Any, **named: Any) -> Iterator[dump_range.PlacedBlock]:
        nonlocal passes
        passes += 1
        return dumped(*given, **named)

    monkeypatch.setattr(prepared_module, "dumped", counted)
    database.run(_TABLE)

    def prepare_each() -> None:
        for number in range(12):
            # Alike, so that they are worth packing.
            values = ", ".join(f"({20 * number + row}, 'many alike', 0)" for row in range(20))
            prepare(database, str(number), f"INSERT INTO t VALUES {values}", session=session)

    if prepared == "before the query":
        prepare_each()
    with life_of(database, startingOffsets="latest") as life:
        start: Offset = life.reader.initialOffset()
        if "in the batch" in prepared:
            prepare_each()
        for number in reversed(range(12)):
            commit(database, str(number))
        end = life.reader.latestOffset(start, ALL)
        passes = 0
        rows = life.rows(start, end)
        assert shown(rows) == [("insert", 20 * n + row) for n in reversed(range(12)) for row in range(20)]
        assert passes <= 2
        # What does not fit is read again, as often as needed.
        monkeypatch.setattr(xa_transactions, "KEPT_BYTES", 200)
        passes = 0
        assert life.rows(start, end) == rows
        assert passes >= 10


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("prepared", ["before the query", "in the snapshot"])
@pytest.mark.parametrize("ended", ["before the first read", "between two chunks", "after the snapshot"])
def test_beside_a_snapshot_nothing_that_was_prepared_is_lost_or_doubled(
    database: Database, ends: str, prepared: str, ended: str
) -> None:
    fill(database, "t", 60)
    changes = (
        "UPDATE t SET amount = -1 WHERE id IN (2, 62, 118)", "DELETE FROM t WHERE id IN (4, 64, 116)",
        "INSERT INTO t VALUES (5, 'new', 5), (65, 'new', 65), (115, 'new', 115)", "UPDATE t SET id = 117 WHERE id = 6",
    )  # fmt: skip
    over = f"XA {ends} {name_of(database, 'a')}"
    if prepared == "before the query":
        prepare(database, "a", *changes)
    with life_of(database, snapshotChunkRows=20, snapshotParallelism=1) as life:
        tables: Tables = {}
        end: Offset = life.reader.initialOffset()
        start, end = end, life.reader.latestOffset(end, ALL)
        if prepared == "in the snapshot":
            prepare(database, "a", *changes)
        if ended == "before the first read":
            database.run(over)
        applied(batch(life, start, end), tables)
        start, end = end, life.reader.latestOffset(end, ALL)
        if ended == "between two chunks":
            database.run(over)
        applied(batch(life, start, end), tables)
        while (start := end) != (end := life.reader.latestOffset(end, ALL)):
            applied(batch(life, start, end), tables)
        if ended == "after the snapshot":
            database.run(over)
            database.run("INSERT INTO t VALUES (999, 'last', 0)")
        while (start := end) != (end := life.reader.latestOffset(end, ALL)):
            applied(batch(life, start, end), tables)
    assert tables == on_server(database, "t")
    assert (5 in tables["t"]) == (ends == "COMMIT")
