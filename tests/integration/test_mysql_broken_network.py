"""A query over a table whose server is reached through a network that breaks: each change once, each error declared."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from pyspark_mysql_cdc_wm import DefaultSource
from pyspark_mysql_cdc_wm.binlog.log_position import file_number, position_number
from pyspark_mysql_cdc_wm.client import dump, login_settings
from pyspark_mysql_cdc_wm.client.connection import connected
from pyspark_mysql_cdc_wm.client.dump import FilePosition
from pyspark_mysql_cdc_wm.client.dump_range import dumped
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from services.mysql import MySql
from services.tcp_proxy import CALM, Break, Fate, TcpProxy
from tests.integration.broken_network import Driven, Figures, History, leaves_nothing, run_histories
from tests.integration.mysql_binlog import Database, end_of_binlog, new_database, shorten
from tests.integration.mysql_copy import copy_of
from tests.integration.mysql_delivered import fill, held
from tests.integration.mysql_streams import PASSWORD, RIGHTS, USER, make_user

pytestmark = pytest.mark.service

_ROWS = 300
_SECONDS = 1.0
"""The limits of this test: those of the product are ten times as long and more."""


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_settings, "PATIENCE_SECONDS", _SECONDS)
    shorten(monkeypatch, answer_seconds=_SECONDS, connect_seconds=_SECONDS)
    monkeypatch.setattr(dump, "TIMEOUT_SECONDS", _SECONDS / 2)


@pytest.fixture(scope="module")
def broken(mysql: MySql) -> Iterator[TcpProxy]:
    """A proxy in front of the run's server."""
    make_user(mysql, USER, *RIGHTS)
    # MySQL takes a password without TLS from then on.
    connected(LoginSettings(mysql.host, mysql.port, USER, PASSWORD)).close()
    with closing(TcpProxy((mysql.host, mysql.port))) as proxy:
        yield proxy


def _change(database: Database, chance: random.Random) -> None:
    """Some transactions of each kind."""
    statements: list[str] = []
    for _ in range(6):
        key, number = chance.randrange(2 * _ROWS), chance.randrange(2 * _ROWS)
        statements += [
            "BEGIN",
            f"REPLACE INTO t VALUES ({key}, 'r{number}', {number})",
            f"UPDATE t SET amount = amount + 1 WHERE id BETWEEN {number} AND {number + 30}",
            f"DELETE FROM t WHERE id = {number + 7}",
            "COMMIT",
        ]
    database.run(*statements)


def _copy(query: Driven) -> tuple[dict[int, tuple[object, ...]], int, int]:
    if not query.batches:
        return {}, 0, 0
    names = ("_commit_version", "_change_number", "_change_type", "id", "name", "amount")
    rows = query.rows.select(names).sort_by([(name, "ascending") for name in names[:2]])
    return copy_of(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _history(proxy: TcpProxy, database: Database, seed: int) -> tuple[History, Callable[[], Figures]]:
    """Return a query over a table of its own, and what counts its changes."""
    chance = random.Random(seed)
    fill(database, rows=_ROWS)
    options = {
        "hostname": proxy.host, "port": str(proxy.port), "username": USER, "password": PASSWORD,
        "tables": f"{database.name}.t", "snapshotChunkRows": "60", "maxRowsPerTrigger": "150", "includeLate": "true",
        "sslMode": chance.choice(("preferred", "disabled")),
    }  # fmt: skip
    place = re.compile(rf"{re.escape(proxy.address)}|binlog \S+ position \d+")
    query = Driven(lambda: DefaultSource(options), place)

    def figures() -> Figures:
        table, lost, twice = _copy(query)
        lost += len(held(database).items() ^ table.items())
        return Figures(1, len(query.errors), lost, twice, sum(query.rows["late"].to_pylist()), tuple(query.wrong))

    return History(query, lambda: _change(database, chance), lambda q: _copy(q)[0] == held(database)), figures


def _run(proxy: TcpProxy, mysql: MySql, seed: int, count: int) -> Figures:
    with leaves_nothing(proxy), ExitStack() as databases:
        histories = [
            _history(proxy, databases.enter_context(new_database(mysql)), seed * 1_000 + i) for i in range(count)
        ]
        run_histories([history for history, _ in histories], proxy, seed, broken_seconds=3)
        total = sum((figures() for _, figures in histories), Figures())
        del histories
    return total


def _places(proxy: TcpProxy, start: FilePosition, end: FilePosition) -> list[int]:
    """Return the place after each event between two of them, read through the proxy."""
    base = start.file.rpartition(".")[0]
    first, last = (position_number(file_number(each.file), each.position) for each in (start, end))
    settings = LoginSettings(proxy.host, proxy.port, "root", "")
    return [int(place) for block in dumped(settings, base, first, last) for place in block.places]


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("how", Break)
def test_a_dump_that_breaks_off_or_falls_silent_is_continued_where_it_was(
    broken: TcpProxy, mysql: MySql, how: Break
) -> None:
    with new_database(mysql) as database:
        fill(database, rows=3_000)
        for _ in range(10):
            database.run("UPDATE t SET amount = amount + 1")
        end = end_of_binlog(mysql)
        whole = _places(broken, database.since, end)
        first = broken.accepted
        broken.fates = lambda number: Fate(breaks=how, after_bytes=300_000) if number == first else CALM
        try:
            with leaves_nothing(broken):
                assert _places(broken, database.since, end) == whole
        finally:
            broken.fates = lambda _: CALM
        # A server that does not hear its reader may still send all of the rest.
        assert broken.accepted == first + 2 or (how is Break.CLIENT_UNHEARD and broken.accepted == first + 1)


@pytest.mark.usefixtures("short_limits")
def test_a_broken_network_costs_a_query_over_a_table_no_change(broken: TcpProxy, mysql: MySql) -> None:
    figures = _run(broken, mysql, seed=1, count=6)
    figures.check()
    assert figures.errors > 0


@pytest.mark.usefixtures("short_limits")
@pytest.mark.long("test_a_broken_network_costs_a_query_over_a_table_no_change")
def test_however_often_the_network_breaks_no_change_of_a_table_is_lost(
    broken: TcpProxy, mysql: MySql, request: pytest.FixtureRequest
) -> None:
    count, first = (request.config.getoption(f"--{name}") for name in ("broken-networks", "networks-seed"))
    total = sum((_run(broken, mysql, seed, count=10) for seed in range(first, first + count // 10)), Figures())
    sys.stdout.write(f"{total}\n")
    total.check()
