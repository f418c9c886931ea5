"""What a statement is read to do is what the server did: random statements on real servers."""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest

from pyspark_mysql_cdc_wm.binlog.event_headers import SECONDS, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.query_events import Statement, statements
from pyspark_mysql_cdc_wm.client.dump import BinlogDump
from services.containers import Where
from services.mysql import MySql, mysql_service
from services.mysql_client import connect
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import end_of_binlog, root
from tests.integration.mysql_flavours import each_flavour
from tests.integration.mysql_random_statements import BARE, NAMES, OTHER, Made, Session, Statements, session

pytestmark = pytest.mark.service
_log = logging.getLogger(__name__)

_QUICK = {"innodb_flush_log_at_trx_commit": "0", "sync_binlog": "0"}
_MOST_DATABASES = 100
_ENGINE = re.compile(r"\bengine\b", re.IGNORECASE)
_WHILE = 250
"""So many statements have a session, a table's name and a look into the binlog in common."""
_FIRST_SECOND = 1_000_000
_QUERY = 3
_ROWS = (
    EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1,
)  # fmt: skip
_COLUMNS = "(a INT, b VARCHAR(20), c INT)"
_PARTITIONS = " PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 VALUES LESS THAN (100))"

_HELD = ((1, "one", 1), (2, "one", 2), (9, "one", 9))

Tables = Mapping[str, object]
"""What each table holds."""


@dataclass(frozen=True, slots=True)
class Done:
    """A statement that the server accepted."""

    made: Made
    before: Tables
    after: Tables


@pytest.fixture(scope="module", params=each_flavour(), ids=lambda flavour: flavour.value)
def server(request: pytest.FixtureRequest) -> Iterator[MySql]:
    with mysql_service(flavour=request.param, where=Where.LOCAL, config=_QUICK) as started:
        yield started


class Sessions:
    """Sends statements, and sees what the tables hold before and after each."""

    def __init__(self, server: MySql, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._held: Tables = {}
        self._databases = 0
        self._begin_database()

    def _begin_database(self) -> None:
        """Continue in a new database: in the last one a statement left files that no table has, and none can get."""
        self._databases += 1
        assert self._databases <= _MOST_DATABASES
        self._database, self._held = f"s{self._databases}", {}
        with connect(self._server.host, self._server.port) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {self._database}")
            cursor.execute(f"CREATE DATABASE {self._database} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {self._database}")
            cursor.execute("CREATE TABLE mysql_written (n INT)")
            cursor.execute(
                "CREATE FUNCTION writes() RETURNS INT DETERMINISTIC "
                "BEGIN INSERT INTO mysql_written VALUES (1); RETURN 1; END"
            )

    def some(self, count: int) -> Iterator[tuple[Session, Done, list[Statement], bool]]:
        """Yield what was accepted of so many statements: how it is read, and whether rows were logged of it."""
        chosen = session(self._chance)
        name = self._chance.choice(NAMES)
        with closing(self._connected()) as watching:
            self._restore_or_begin(watching, name)
        make = Statements(self._chance, chosen, self._server.flavour, name, self._database)
        begin = end_of_binlog(self._server)
        with closing(self._connected()) as watching, closing(self._connected()) as sending:
            for setting in (
                f"SET sql_mode = '{chosen.sql_mode}'", f"SET binlog_format = '{chosen.binlog_format}'",
                f"SET NAMES {chosen.charset}",
            ):  # fmt: skip
                sending.query(setting)
            # Names of columns in answers are of the session's character set.
            sending.encoding = "latin1"
            done = {}
            for i in range(count):
                made, before = make.next(), self._held
                sending.query(f"SET timestamp = {_FIRST_SECOND + i}")
                try:
                    accepted = _sent(sending, made.content)
                except pymysql.MySQLError as refused:
                    if refused.args[0] in (2006, 2013):
                        refused.add_note(f"the server ended at {made.content!r} in {chosen}")
                        raise
                    # Some are refused when half of them is done.
                    accepted = refused.args[0] not in (1064,)
                self._held = self._seen(watching)
                if accepted or self._held != before:
                    done[_FIRST_SECOND + i] = Done(made, before, self._held)
                if self._held != before and not self._restore_or_begin(watching, name):
                    # The rest would be sent to the database of before.
                    break
        yield from ((chosen, *each) for each in self._logged(begin, done))

    def _connected(self) -> pymysql.Connection[Any]:
        return connect(self._server.host, self._server.port, database=self._database, read_timeout=60)

    def _restore_or_begin(self, connection: pymysql.Connection[Any], name: str) -> bool:
        """Make the tables as they were, or return False and make them in a new database if this one refuses that."""
        try:
            self._restore(connection, name)
        except pymysql.MySQLError as refused:
            if refused.args[0] in (2006, 2013):
                raise
            _log.warning("%s: the tables cannot be made again: %s", self._database, refused)
        else:
            return True
        self._begin_database()
        with closing(self._connected()) as connection:
            self._restore(connection, name)
        return False

    def _restore(self, connection: pymysql.Connection[Any], name: str) -> None:
        """Make the tables again that are not as they were."""
        with connection.cursor() as cursor:
            held = self._seen(connection)
            for table in held.keys() - {"mysql_written"}:
                if table not in (name, OTHER) or held[table] not in (_HELD, ()):
                    cursor.execute(f"DROP TABLE {_quoted(table)}")
            partitions = _PARTITIONS if self._chance.random() < 0.3 else ""
            if self._server.flavour is Flavour.MARIADB and name not in BARE:
                # MariaDB loses such a table as a whole, and logs nothing, where it cannot change a file's name.
                partitions = ""
            for table in (name, OTHER):
                if held.get(table) == _HELD:
                    continue
                if held.get(table) != ():
                    cursor.execute(f"CREATE TABLE {_quoted(table)} {_COLUMNS}{partitions}")
                cursor.execute(f"INSERT INTO {_quoted(table)} VALUES {', '.join(map(str, _HELD))}")
        self._held = self._seen(connection)

    def _seen(self, connection: pymysql.Connection[Any]) -> Tables:
        with connection.cursor() as cursor:
            cursor.execute("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
            names = [each[0] for each in cursor.fetchall()]
            held = {}
            for table in names:
                cursor.execute(f"SELECT * FROM {_quoted(table)}")
                held[table] = tuple(cursor.fetchall())
            return held

    def _logged(self, begin: Any, done: Mapping[int, Done]) -> Iterator[tuple[Done, list[Statement], bool]]:
        found: dict[int, list[Statement]] = {each: [] for each in done}
        rows: set[Any] = set()
        with closing(BinlogDump(root(self._server), begin)) as dump:
            for block in dump.blocks():
                seconds = block.events[:, SECONDS].tolist()
                rows.update(s for s, kind in zip(seconds, block.events[:, TYPE].tolist(), strict=True) if kind in _ROWS)
                for each in statements(block.memory, block.events):
                    if seconds[each.number] in found:
                        found[seconds[each.number]].append(each)
        yield from ((done[each], found[each], each in rows) for each in done)


def _quoted(table: str) -> str:
    return f"`{table.replace('`', '``')}`"


def _sent(connection: pymysql.Connection[Any], content: bytes) -> bool:
    connection._execute_command(_QUERY, content)
    connection._read_query_result()
    return True


REFUSED = "it ends the query, though it may have done nothing"


def disagreement(chosen: Session, done: Done, read: Sequence[Statement], *, rows_logged: bool) -> str | None:
    """Return what the server did otherwise than the statement is read."""
    effects = []
    for each in read:
        if each.effect is None:
            # Of a comment for a later version that contains /*/ the log has not where it ends.
            return REFUSED if "/*/" in f"{each.problem}" else f"not followed: {each.problem}"
        effects.append((each.database, each.effect))

    def named(kind: str) -> set[str]:
        # A statement may name tables of databases that do not exist, beside those that do.
        return {
            table.table
            for database, effect in effects
            for table in getattr(effect, kind)
            if table.database in (None, database)
        }

    whole, dropped, stands = named("whole"), named("dropped"), any(effect.rows is not None for _, effect in effects)
    moved = set(done.after) - set(done.before)
    for table, held in done.before.items():
        if table not in done.after:
            if table not in (whole if moved else dropped):
                return f"{table} is gone"
        elif table in whole and done.after[table] == held and any(_ENGINE.search(each.text) for each in read):
            # MySQL keeps the engine where there is none by a name; which there are is not known here.
            return REFUSED
        elif table in dropped or (table in whole and done.after[table] == held):
            return f"{table} is there as it was"
        elif _emptied(held, done.after[table]) and not (table in whole or stands or rows_logged):
            return f"{table} lost rows"
    if stands and chosen.binlog_format == "ROW":
        return "rows are logged as rows"
    changed = done.after.get("mysql_written") != done.before.get("mysql_written")
    if changed and not (stands or rows_logged):
        return "a function wrote rows"
    return None


def _emptied(before: Any, after: Any) -> bool:
    return len(after) != len(before)


@pytest.mark.parametrize(
    "long",
    [
        False,
        pytest.param(True, marks=[pytest.mark.long("500 of them"), pytest.mark.timeout(14_000)]),
    ],
)
def test_a_statement_did_what_it_is_read_to_do(server: MySql, long: bool, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--statements") if long else 500
    sessions = Sessions(server, seed=pytestconfig.getoption("--statements-seed") if long else 1)
    wrong, kinds = [], Counter[str]()
    for _ in range(count // _WHILE):
        for chosen, done, read, rows_logged in sessions.some(_WHILE):
            kinds["accepted"] += 1
            kinds["changed tables"] += done.before != done.after
            kinds["logged"] += bool(read)
            what = disagreement(chosen, done, read, rows_logged=rows_logged)
            kinds["refused by rule"] += what == REFUSED
            if what not in (None, REFUSED):
                wrong.append((what, chosen, done.made.content, [each.text for each in read], done.before, done.after))
    _log.warning("%s: of %d statements %s", server.flavour.value, count, dict(kinds))
    assert not wrong, "\n".join(map(repr, wrong[0]))
    assert kinds["changed tables"] > count // 10
