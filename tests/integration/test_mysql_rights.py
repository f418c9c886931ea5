"""Tables that the user may not SELECT: no row of them comes, from a snapshot or from the binlog, and each is named."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from pyspark_mysql_cdc_wm import doctor
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup import rights, table_list
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.reading import delivered_tables
from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, new_database, root
from tests.integration.mysql_flavours import each_flavour
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import PASSWORD, RIGHTS, make_user
from tests.integration.mysql_tables import fill
from watermark_source.checks import CheckVerdict
from watermark_source.errors import RefusedError

pytestmark = pytest.mark.service

_DUMPS = tuple(right for right in RIGHTS if not right.startswith("SELECT"))
STARTS = ("initial", "latest")


@pytest.fixture(scope="module", params=each_flavour(), ids=lambda flavour: flavour.value)
def either(request: pytest.FixtureRequest, mysql: MySql) -> Iterator[MySql]:
    if mysql.flavour is request.param:
        yield mysql
    else:
        with mysql_service(flavour=request.param, where=Where.LOCAL) as other:
            yield other


@pytest.fixture
def database(either: MySql, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(table_list, "REFRESH_SECONDS", 0.0)
    # What is warned of once in a process.
    delivered_tables.warn_once.cache_clear()
    with new_database(either) as made:
        fill(made, "t", 3)
        fill(made, "secret", 3)
        yield made


class Query:
    """A query over all tables of a database, batch by batch, with the warnings that it logs."""

    def __init__(self, database: Database, log: pytest.LogCaptureFixture, **options: Any) -> None:
        self._log = log
        self._life = Life(database, username="some", **{"tables": f"{database.name}.*", **options})
        self._end: Mapping[str, Any] = self._life.reader.initialOffset()

    def delivered(self) -> list[tuple[str, int]]:
        """Return table and key of all rows until nothing is left; each batch is read twice, as by a retry."""
        rows: list[dict[str, Any]] = []
        while (start := self._end) != (end := self._life.reader.latestOffset(start, ALL)):
            rows += (once := self._life.rows(start, end))
            assert sorted(map(repr, once)) == sorted(map(repr, self._life.rows(start, end)))
            self._end = end
        return sorted((row["_table"], (json.loads(row["_row"]) if "_row" in row else row)["id"]) for row in rows)

    def warned(self) -> list[str]:
        """Return the warnings about rights since the last call."""
        logged = [each.getMessage() for each in self._log.records if each.levelno == logging.WARNING]
        self._log.clear()
        return [each for each in logged if "may not read" in each or "shows it no others" in each]

    def stop(self) -> None:
        self._life.reader.stop()


def granted(database: Database, *more: str) -> None:
    make_user(database.server, "some", *_DUMPS, f"SELECT ON {database.name}.t", *more)


def grant_of(database: Database, table: str) -> str:
    return f"GRANT SELECT ON `{database.name}`.`{table}` TO 'some'@'%'"


@pytest.mark.parametrize("form", ["columns", pytest.param("json", marks=pytest.mark.long("the form columns"))])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seen", [True, False])
def test_a_table_that_may_not_be_read_comes_in_neither_phase_and_is_named(
    database: Database, caplog: pytest.LogCaptureFixture, seen: bool, start: str, form: str
) -> None:
    """A user that may write to a table sees it listed; one without any privilege for it does not."""
    granted(database, *([f"INSERT, UPDATE ON {database.name}.secret"] if seen else []))
    query = Query(database, caplog, startingOffsets=start, rowFormat=form)
    at_load = query.warned()
    assert any("the server shows it no others" in each for each in at_load)
    assert any(f"may not read {database.name}.secret" in each for each in at_load) == seen
    first = [("t", 0), ("t", 2), ("t", 4)] if start == "initial" else []
    assert query.delivered() == first
    query.warned()
    database.run(
        "INSERT INTO t VALUES (9, 'n', 9)", "INSERT INTO secret VALUES (9, 'n', 9)", "UPDATE secret SET amount = 0"
    )
    # It empties no table of the stream.
    database.run("TRUNCATE secret")
    assert query.delivered() == [("t", 9)]
    (named,) = query.warned()
    assert f"may not read {database.name}.secret: the stream lacks this table. On the server: " in named
    assert named.endswith(grant_of(database, "secret"))
    database.run("INSERT INTO secret VALUES (11, 'n', 11)")
    assert (query.delivered(), query.warned()) == ([], [])
    query.stop()


@pytest.mark.parametrize("start", STARTS)
def test_a_new_table_without_the_privilege_is_named_and_read_once_it_is_granted(
    database: Database, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    granted(database)
    query = Query(database, caplog, startingOffsets=start)
    query.delivered()
    query.warned()
    fill(database, "new", 2)
    assert query.delivered() == []
    assert [grant_of(database, "new") in each for each in query.warned()] == [True]
    database.run(grant_of(database, "new"), "INSERT INTO new VALUES (9, 'n', 9)")
    # Its snapshot, or without snapshots its changes from the privilege on.
    assert query.delivered() == [("new", 0), ("new", 2), ("new", 9)][0 if start == "initial" else 2 :]
    query.stop()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kept", ["", pytest.param("INSERT", marks=pytest.mark.long("without another privilege"))])
def test_a_table_whose_privilege_is_revoked_ends_the_query_which_resumes_where_it_ended(
    database: Database, caplog: pytest.LogCaptureFixture, kept: str, start: str
) -> None:
    granted(database, f"SELECT ON {database.name}.secret", *([f"{kept} ON {database.name}.secret"] if kept else []))
    query = Query(database, caplog, startingOffsets=start)
    query.delivered()
    database.run("INSERT INTO secret VALUES (9, 'n', 9)", f"REVOKE SELECT ON {database.name}.secret FROM 'some'@'%'")
    with pytest.raises(RefusedError, match=r"may not read .*\.secret\. On the server: GRANT SELECT ON") as logged:
        query.delivered()
    assert rf"for example by the regular expression {database.name}\.(?!secret$).+" in str(logged.value)
    database.run(grant_of(database, "secret"))
    assert query.delivered() == [("secret", 9)]
    query.stop()


def test_a_table_whose_privilege_is_revoked_within_its_snapshot_ends_the_query(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    granted(database, f"SELECT ON {database.name}.secret")
    life = Life(database, username="some", tables=f"{database.name}.*", snapshotChunkRows=2, snapshotParallelism=1)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run(f"REVOKE SELECT ON {database.name}.secret FROM 'some'@'%'")

    def read_on() -> None:
        at, end_of_batch = start, end
        while at != end_of_batch:
            life.rows(at, end_of_batch)
            at, end_of_batch = end_of_batch, life.reader.latestOffset(end_of_batch, ALL)

    with pytest.raises(RefusedError, match=r"GRANT SELECT ON `.*`\.`secret` TO 'some'@'%'|SELECT command denied"):
        read_on()
    life.reader.stop()


@pytest.mark.parametrize("start", STARTS)
def test_a_column_whose_privilege_is_revoked_ends_the_query_and_a_stream_that_is_loaded_again_lacks_it(
    database: Database, caplog: pytest.LogCaptureFixture, start: str
) -> None:
    columns = "id, name, amount"
    make_user(database.server, "some", *_DUMPS, f"SELECT ({columns}) ON {database.name}.t")
    query = Query(database, caplog, startingOffsets=start, tables=f"{database.name}.t")
    query.delivered()
    database.run("INSERT INTO t VALUES (9, 'hidden', 9)", f"REVOKE SELECT (name) ON {database.name}.t FROM 'some'@'%'")
    with pytest.raises(RefusedError, match=r"The stream has the columns name, which were granted when it was loaded"):
        query.delivered()
    life = Life(database, username="some", tables=f"{database.name}.t", startingOffsets=start)
    end = life.reader.latestOffset(query._end, ALL)
    assert [(row["id"], row.get("name", "no such column")) for row in life.rows(query._end, end)] == [
        (9, "no such column")
    ]
    life.reader.stop()
    query.stop()


def test_a_table_that_is_named_and_may_not_be_read_is_refused(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    granted(database, f"INSERT ON {database.name}.secret")
    with pytest.raises(RefusedError, match=r"may not read .*\.secret\. On the server: GRANT SELECT ON"):
        Query(database, caplog, tables=f"{database.name}.t,{database.name}.secret")


def test_the_doctor_names_what_may_not_be_read_and_what_matches_nothing(database: Database) -> None:
    granted(database, f"INSERT ON {database.name}.secret")
    given = {
        "hostname": database.server.host, "port": str(database.server.port), "username": "some", "password": PASSWORD,
        "tables": f"{database.name}.*,{database.name}_none.*",
    }  # fmt: skip
    found = {each.name: each for each in doctor.findings(given)}
    assert found["SELECT"].verdict is CheckVerdict.OK
    logged = found["tables left out"]
    assert logged.verdict is CheckVerdict.WARNING
    assert f"may not read {database.name}.secret: the stream lacks this table" in logged.text
    assert f"no table is like {database.name}_none.* now" in logged.text
    assert f"GRANT SELECT ON `{database.name}`.*" in logged.text


_GRANTS: Mapping[str, tuple[str, ...]] = {
    "none": (), "all": ("SELECT ON *.*",), "database": ("SELECT ON {}.*",), "pattern": ("SELECT ON `{}%`.*",),
    "table": ("SELECT ON {}.t",), "columns": ("SELECT (id) ON {}.t",), "another": ("INSERT ON {}.*",),
    "another of columns": ("INSERT (id) ON {}.t",), "role": ("reader",), "show": ("SHOW DATABASES ON *.*",),
}  # fmt: skip


@pytest.mark.parametrize("grants", _GRANTS.values(), ids=_GRANTS)
def test_what_the_server_describes_is_what_it_lets_the_user_select(database: Database, grants: tuple[str, ...]) -> None:
    database.run("DROP ROLE IF EXISTS reader", "CREATE ROLE reader", f"GRANT SELECT ON {database.name}.t TO reader")
    make_user(database.server, "some", *(grant.format(database.name) for grant in grants))
    if "reader" in grants:
        word = "TO" if database.server.flavour is Flavour.MYSQL else "FOR"
        database.run(f"SET DEFAULT ROLE reader {word} 'some'@'%'")
    settings = root(database.server)
    with closing(MySqlConnection(replace(settings, username="some", password=PASSWORD))) as connection:
        tables = {TableName(database.name, name) for name in ("t", "secret")}
        may = {table for table in tables if rights._may_select(connection, table)}
        assert rights.readable_tables(connection, tables) == may
        assert {table for table in tables if not rights.Rights(connection).are_refused(table)} == may
        whole = {table for table in may if rights._may_select(connection, table, "*")}
        assert set(filter(rights.Rights(connection).are_in_part, may)) == may - whole
