"""Marks beside the rows of a transaction: in a database, and in the commits of a Delta table."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, text
from sqlalchemy.dialects.sqlite import insert

from watermark_source import complete_until, publish_in
from watermark_source.errors import CorruptDataError, MissingPackageError, SourceError, UsageError
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.publishing import database, delta
from watermark_source.publishing.folder import Folder
from watermark_source.publishing.mark import Mark, moment_of

NOON = 1_764_417_600_000
MARK = Mark(writer="hourly", query="q", batch=3, watermark=Millis(NOON), checkpoint="file:/checkpoints/hourly")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with the table of the marks, by the statement that the error has."""
    found = tmp_path / "shop.db"
    with closing(sqlite3.connect(found)) as connection:
        with pytest.raises(SourceError, match="the time until which counts is complete cannot be written") as refused:
            publish_in(connection, MARK, "counts")
        connection.execute(str(refused.value).partition("create it once: ")[2])
    return found


@pytest.fixture(params=["sqlite3", "sqlalchemy"])
def url(request: pytest.FixtureRequest, file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database as each of the two readers reads it."""
    if request.param == "sqlalchemy":
        monkeypatch.setattr(database, "_SQLITE", "none")
    return f"sqlite:///{file}#counts"


@pytest.fixture
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as made:
        yield made


def test_a_mark_is_in_the_transaction_of_the_rows_and_never_goes_back(connection: sqlite3.Connection, url: str) -> None:
    assert complete_until(url) is None
    publish_in(connection, replace(MARK, watermark=None), "counts")
    connection.commit()
    assert complete_until(url) is None
    for watermark, expected in (
        (NOON, NOON),
        (NOON - 1, NOON),
        (None, NOON),
        (NOON, NOON),
        (NOON + 1, NOON + 1),
        (MAX, MAX),
    ):
        before = complete_until(url)
        publish_in(connection, replace(MARK, watermark=None if watermark is None else Millis(watermark)), "counts")
        assert complete_until(url) == before
        connection.commit()
        assert complete_until(url) == moment_of(expected)
    publish_in(connection, replace(MARK, watermark=None), "counts")
    publish_in(connection, replace(MARK, writer="other"), "counts")
    connection.rollback()
    assert complete_until(url) == moment_of(MAX)
    publish_in(connection, replace(MARK, writer="other"), "counts")
    publish_in(connection, replace(MARK, watermark=Millis(5)), "another")
    connection.commit()
    assert complete_until(url) == moment_of(NOON)
    assert complete_until(url, ["third"]) is None


def test_a_driver_that_cannot_ask_its_server_for_its_mode_is_refused_as_by_the_database(file: Path) -> None:
    class Lost(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            raise sqlite3.OperationalError("server has gone away")

        autocommit = property(cursor)

    with closing(sqlite3.connect(file, factory=Lost)) as lost, pytest.raises(SourceError, match="has gone away"):
        publish_in(lost, MARK, "counts")


def test_a_connection_of_sqlalchemy_writes_in_its_transaction(file: Path) -> None:
    engine, place = create_engine(f"sqlite:///{file}"), f"sqlite:///{file}#counts"
    with engine.connect() as connection:
        publish_in(connection, MARK, "counts")
        connection.rollback()
    assert complete_until(place) is None
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE counts (n BIGINT)"))
        publish_in(connection, MARK, "counts")
    assert complete_until(place) == moment_of(NOON)
    # A batch without rows has no other statement in its transaction.
    with engine.connect() as connection:
        publish_in(connection, replace(MARK, watermark=Millis(NOON + 1)), "counts")
        connection.commit()
    assert complete_until(place) == moment_of(NOON + 1)
    engine.dispose()


def test_a_connection_that_commits_each_statement_is_refused_unless_a_transaction_is_open(file: Path) -> None:
    """Its rows were committed already: the time would not be in their transaction."""
    place, refusal = f"sqlite:///{file}#counts", "in autocommit mode, and no transaction is open"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        with pytest.raises(UsageError, match=refusal):
            publish_in(connection, MARK, "counts")
        connection.execute("BEGIN")
        publish_in(connection, MARK, "counts")
        assert complete_until(place) is None
        connection.execute("COMMIT")
    engine = create_engine(f"sqlite:///{file}", isolation_level="AUTOCOMMIT")
    with engine.begin() as alchemy, pytest.raises(UsageError, match=refusal):
        publish_in(alchemy, replace(MARK, watermark=MAX), "counts")
    engine.dispose()
    assert complete_until(place) == moment_of(NOON)


@pytest.mark.parametrize(
    ("state", "commits"),
    [
        # psycopg, whose connections have an isolation level of None.
        ({"autocommit": False, "isolation_level": None, "info": SimpleNamespace(transaction_status=0)}, False),
        ({"autocommit": True, "info": SimpleNamespace(transaction_status=0)}, True),
        ({"autocommit": True, "info": SimpleNamespace(transaction_status=2)}, False),
        # pymysql, whose autocommit is a method.
        ({"autocommit": print, "get_autocommit": lambda: False, "server_status": 0}, False),
        ({"autocommit": print, "get_autocommit": lambda: True, "server_status": 2}, True),
        ({"autocommit": print, "get_autocommit": lambda: True, "server_status": 3}, False),
        # sqlite3 since Python 3.12, by its default.
        ({"autocommit": -1}, False),
        ({}, False),
    ],
)
def test_each_driver_has_its_own_sign_of_autocommit(state: dict[str, object], commits: bool) -> None:
    assert database._commits_each_statement(SimpleNamespace(**state)) is commits


@pytest.mark.parametrize("module", ["shop_driver", "shop_driver.connection", "shop.driver.connection"])
def test_a_driver_states_its_paramstyle_in_any_package_around_its_connection(
    file: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """As ``mysql.connector`` does, whose connections are of ``mysql.connector.connection``."""
    stating = ModuleType(module.removesuffix(".connection"))
    stating.paramstyle = "qmark"  # type: ignore[attr-defined]
    for name, found in (("shop", ModuleType("shop")), (stating.__name__, stating), (module, stating)):
        monkeypatch.setitem(sys.modules, name, found)
    kind: type[sqlite3.Connection] = type("Connection", (sqlite3.Connection,), {"__module__": module})
    with closing(sqlite3.connect(file, factory=kind)) as connection:
        connection.row_factory = lambda cursor, row: dict(zip((c[0] for c in cursor.description), row, strict=True))
        for watermark in (NOON, NOON + 1):
            publish_in(connection, replace(MARK, watermark=Millis(watermark)), "counts")
            connection.commit()
    assert complete_until(f"sqlite:///{file}#counts") == moment_of(NOON + 1)


def test_two_queries_under_one_name_are_refused_and_a_checkpoint_that_began_anew_is_not(
    connection: sqlite3.Connection, url: str
) -> None:
    first, second = (replace(MARK, query=name, writer=url) for name in ("first", "second"))
    publish_in(connection, first, "counts")
    connection.commit()
    # Its transaction is rolled back, and repeated.
    for finish in (connection.rollback, connection.commit):
        publish_in(connection, second, "counts")
        finish()
    with pytest.raises(UsageError, match=r"another query has stated under this name since .* batch 3 of file:/check"):
        publish_in(connection, replace(first, batch=4, watermark=MAX), "counts")
    publish_in(connection, replace(second, batch=4, watermark=Millis(NOON + 1)), "counts")
    connection.commit()
    assert complete_until(url) == moment_of(NOON + 1)
    # The second was stopped, and the first is started again, in the same driver.
    publish_in(connection, replace(first, batch=4, watermark=Millis(NOON + 2)), "counts")
    connection.commit()
    assert complete_until(url) == moment_of(NOON + 2)


def test_a_query_that_begins_anew_may_write_to_two_databases_that_a_kill_has_left_at_two_batches(
    file: Path, tmp_path: Path
) -> None:
    other = shutil.copy(file, tmp_path / "copy.db")
    with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(other)) as two:
        for connection, batch in ((one, 10), (two, 9)):
            publish_in(connection, replace(MARK, query="killed", batch=batch, writer="both"), "counts")
        for batch in (0, 1):
            anew = replace(MARK, query="anew", batch=batch, writer="both", watermark=Millis(NOON - 1))
            for connection in (one, two):
                publish_in(connection, anew, "counts")
        publish_in(two, replace(MARK, query="killed", batch=11, writer="both"), "counts")
        with pytest.raises(UsageError, match="another query has stated under this name since"):
            publish_in(two, replace(MARK, query="anew", batch=2, writer="both"), "counts")


@pytest.mark.parametrize("name", ["a%41b.db", "a#b.db", "ä b.db"])
def test_a_file_of_a_database_is_named_as_it_is_written(tmp_path: Path, file: Path, name: str) -> None:
    shutil.copy(file, tmp_path / name)
    assert complete_until(f"sqlite:///{tmp_path / name}#counts") is None
    assert complete_until(f"sqlite:///{tmp_path / name}?timeout=5#counts") is None
    (tmp_path / name).unlink()
    with pytest.raises(SourceError, match="cannot be read in"):
        complete_until(f"sqlite:///{tmp_path / name}?timeout=5#counts")
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("place", "as_shown"),
    [
        ("mysql+pymysql://user:pass/word@host/shop?password=x#counts", "mysql+pymysql://host/shop#counts"),
        ("sqlite:////data/shop.db#counts", "sqlite:////data/shop.db#counts"),
        ("s3a://key:secret@lake/a@b/counts", "s3a://lake/a@b/counts"),
        ("/lake/a?b@c#1", "/lake/a?b@c#1"),
    ],
)
def test_no_secret_in_a_place_is_shown(place: str, as_shown: str) -> None:
    assert database.shown(place) == as_shown


def test_after_the_end_no_other_query_states_under_the_name(connection: sqlite3.Connection, url: str) -> None:
    ended = replace(MARK, watermark=MAX, writer=url)
    publish_in(connection, ended, "counts")
    connection.commit()
    publish_in(connection, ended, "counts")
    connection.commit()
    with pytest.raises(UsageError, match=r"it writes no more, .* Give this query another name, or delete its row"):
        publish_in(connection, replace(ended, query="another", watermark=Millis(NOON)), "counts")


def test_the_page_writes_a_batch_without_rows_as_well(file: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/completeness.md").read_text(encoding="utf-8")
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def write(" in each)
    engine = create_engine(f"sqlite:///{file}")
    counts = Table("counts", MetaData(), Column("at", Integer, primary_key=True), Column("n", Integer))
    counts.create(engine)
    statement = insert(counts)
    names: dict[str, Any] = {
        "engine": engine,
        "insert_or_update": statement.on_conflict_do_update(index_elements=["at"], set_={"n": statement.excluded.n}),
    }
    exec(block, names)
    names["completeness_of"] = lambda *_: MARK
    for rows in ([], [Row(at=1, n=5)], [Row(at=1, n=6)]):
        names["write"](SimpleNamespace(collect=partial(list, rows)), 0)
        assert complete_until(f"sqlite:///{file}#counts") == moment_of(NOON)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT at, n FROM counts")).all() == [(1, 6)]
    engine.dispose()


def test_names_that_the_database_takes_for_one_are_refused(tmp_path: Path) -> None:
    """The time of the faster of two writers would be stated for both."""
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "CREATE TABLE watermark_completeness (table_name VARCHAR(255) COLLATE NOCASE, "
            "writer VARCHAR(255) COLLATE NOCASE, complete_until BIGINT, mark VARCHAR(4000), "
            "PRIMARY KEY (table_name, writer))"
        )
        publish_in(connection, MARK, "counts")
        for mark, table in ((replace(MARK, writer="Hourly"), "counts"), (MARK, "Counts")):
            with pytest.raises(UsageError, match="the database takes them for table counts, writer hourly"):
                publish_in(connection, replace(mark, watermark=MAX), table)
        connection.commit()
    assert complete_until(f"sqlite:///{file}#counts") == moment_of(NOON)
    assert complete_until(f"sqlite:///{file}#Counts") is None


def test_what_is_not_a_connection_or_a_database_is_refused_and_named(file: Path, tmp_path: Path) -> None:
    for wrong in (object(), "sqlite:///x", file):
        with pytest.raises(UsageError, match="it takes a connection of SQLAlchemy, or of a driver of PEP 249"):
            publish_in(wrong, MARK, "counts")
    with pytest.raises(SourceError, match=r"cannot be read in sqlite:///.*none\.db"):
        complete_until(f"sqlite:///{tmp_path}/none.db#counts")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(UsageError, match="expected the URL of a database in SQLAlchemy's form"):
        complete_until("carrier-pigeon://host/shop#counts")
    for place in ("user:hunter2@127.0.0.1:1/shop", "127.0.0.1:1/shop?user=a&password=hunter2"):
        with pytest.raises(SourceError) as refused:
            complete_until(f"mysql+pymysql://{place}#counts")
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("scheme", "level"),
    [("mysql+pymysql", "READ COMMITTED"), ("postgresql+psycopg", "READ COMMITTED"), ("sqlite+pysqlite", None)],
)
def test_a_server_whose_default_shows_what_is_not_committed_is_not_asked_by_it(
    monkeypatch: pytest.MonkeyPatch, scheme: str, level: str | None
) -> None:
    """The time of a transaction that is rolled back would be ahead of the rows."""
    asked: list[object] = []

    def connect(engine: Engine) -> None:
        asked.append(engine.get_execution_options().get("isolation_level"))
        raise OSError

    monkeypatch.setattr(Engine, "connect", connect)
    with pytest.raises(SourceError):
        complete_until(f"{scheme}:///shop#counts")
    assert asked == [level]


def test_a_row_that_no_writer_wrote_is_named(connection: sqlite3.Connection, url: str) -> None:
    connection.execute("INSERT INTO watermark_completeness VALUES ('counts', 'by hand', 5, 'soon')")
    connection.commit()
    with pytest.raises(CorruptDataError, match="a row of watermark_completeness"):
        complete_until(url)


def test_another_database_than_sqlite_needs_a_package_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="complete_until needs the package sqlalchemy"):
        complete_until("mysql+pymysql://user@host/shop#counts")


def commit(table: Path, version: int, mark: Mark | str | None, **more: object) -> None:
    """Write a commit as Delta does: a line for each action."""
    log = table / "_delta_log"
    log.mkdir(exist_ok=True)
    info = {"timestamp": NOON, "operation": "WRITE", **({} if mark is None else {"userMetadata": str(mark)}), **more}
    lines = ({"commitInfo": info}, {"add": {"path": "part-0.parquet", "stats": '{"userMetadata":1}'}})
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(line) for line in lines))


def test_the_commits_of_a_delta_table_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an object store each takes some hundredth of a second, and a table may have forty thousand."""
    for version in range(delta._AT_ONCE):
        commit(tmp_path, version, replace(MARK, batch=version, watermark=Millis(NOON + version)))
    all_are_read = threading.Barrier(delta._AT_ONCE, timeout=20)
    read = Folder.read
    monkeypatch.setattr(Folder, "read", lambda *given: (read(*given), all_are_read.wait())[0])
    assert complete_until(tmp_path) == moment_of(NOON + delta._AT_ONCE - 1)


def test_the_newest_time_in_the_commits_of_a_delta_table_counts_over_optimize_and_a_new_checkpoint(
    tmp_path: Path,
) -> None:
    commit(tmp_path, 0, None, operation="CREATE TABLE")
    assert complete_until(tmp_path) is None
    commit(tmp_path, 1, MARK)
    commit(tmp_path, 2, replace(MARK, batch=4, watermark=Millis(NOON + 5)))
    commit(tmp_path, 3, None, operation="OPTIMIZE")
    commit(tmp_path, 4, "loaded by hand", userMetadata={"by": "hand"})
    commit(tmp_path, 4, "[" * 100_000)
    assert complete_until(tmp_path) == moment_of(NOON + 5)
    commit(tmp_path, 4, "loaded by hand")
    assert complete_until(tmp_path) == moment_of(NOON + 5)
    # A checkpoint that began anew is behind what was promised before.
    commit(tmp_path, 5, replace(MARK, query="p", batch=0, watermark=Millis(NOON - 5)))
    assert complete_until(tmp_path) == moment_of(NOON + 5)
    commit(tmp_path, 6, replace(MARK, writer="other", watermark=Millis(NOON + 1)))
    assert complete_until(tmp_path) == moment_of(NOON + 1)
    # Two queries under one name: of neither the other's time counts. The newest keeps the name.
    commit(tmp_path, 7, replace(MARK, query="q", batch=5, watermark=Millis(NOON + 9)))
    commit(tmp_path, 8, replace(MARK, writer="other", query="r", watermark=Millis(NOON + 1)))
    assert complete_until(tmp_path) == moment_of(NOON - 5)
    assert complete_until(tmp_path, ["hourly", "other"]) == moment_of(NOON - 5)
    (tmp_path / "_delta_log" / f"{7:020}.json").unlink()
    # Of Delta's own checkpoints and of what lies beside its log nothing is read.
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text("{}")
    (tmp_path / "_delta_log" / f"{6:020}.checkpoint.parquet").write_bytes(b"PAR1")
    assert complete_until(tmp_path) == moment_of(NOON + 1)


def test_a_table_that_was_deleted_and_created_again_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    commit(tmp_path, 0, MARK)
    assert complete_until(tmp_path) == moment_of(NOON)
    commit(tmp_path, 0, None)
    os.utime(tmp_path / "_delta_log" / f"{0:020}.json", (5, 5))
    assert complete_until(tmp_path) is None


def test_whoever_asks_needs_no_spark(tmp_path: Path) -> None:
    code = "import sys, watermark_source as w; w.complete_until(sys.argv[1]); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
