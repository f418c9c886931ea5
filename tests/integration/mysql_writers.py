"""Writers that keep changing a table: inserts, updates of several rows, deletes, changes of the primary key."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from services.mysql_client import connect
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_columns import version_of
from tests.integration.mysql_keys import INTEGER, Keys

# A row changed since the transaction's view (MariaDB), a duplicate key, a lock wait, a deadlock: what writers that do
# not know of each other run into.
_HARMLESS = frozenset({1020, 1062, 1205, 1213})
_AWAY = frozenset({1053, 2003, 2006, 2013})
"""A server that was killed, and is not there yet."""


@contextmanager
def writers(
    database: Database,
    table: str,
    *,
    count: int = 4,
    keys: int = 4_000,
    kind: Keys = INTEGER,
    pause: float = 0.005,
    seed: int = 1,
) -> Iterator[None]:
    """Change rows of a table, with the first ``keys`` keys of a kind, a name and an amount, until the block is left.

    They pause for so many seconds after each transaction, and continue when the server is killed and comes back.
    """
    stopped = threading.Event()
    problems: list[BaseException] = []
    threads = [
        threading.Thread(
            target=_write, args=(database, table, (kind, keys), pause, random.Random(seed + i), stopped, problems)
        )
        for i in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)
    assert not problems, problems


def _write(
    database: Database,
    table: str,
    keys: tuple[Keys, int],
    pause: float,
    chance: random.Random,
    stopped: threading.Event,
    problems: list[BaseException],
) -> None:
    try:
        while not stopped.is_set():
            try:
                _write_on_one_connection(database, table, keys, pause, chance, stopped)
            except pymysql.MySQLError as refused:
                if refused.args[0] not in _AWAY:
                    raise
                stopped.wait(0.2)
    except BaseException as problem:  # noqa: BLE001 - reported by the test
        problems.append(problem)


def _write_on_one_connection(
    database: Database,
    table: str,
    keys: tuple[Keys, int],
    pause: float,
    chance: random.Random,
    stopped: threading.Event,
) -> None:
    server = database.server
    with connect(server.host, server.port, database=database.name) as connection, connection.cursor() as cursor:
        compresses = server.flavour is Flavour.MYSQL and version_of(server) >= (8, 0, 20)
        if chance.random() < 0.5 and compresses:
            cursor.execute("SET SESSION binlog_transaction_compression = ON")
        while not stopped.is_set():
            try:
                for statement in _transaction(table, *keys, chance):
                    cursor.execute(statement)
            except pymysql.MySQLError as refused:
                if refused.args[0] not in _HARMLESS:
                    raise
                cursor.execute("ROLLBACK")
            if pause:
                stopped.wait(pause)


def _transaction(table: str, kind: Keys, keys: int, chance: random.Random) -> list[str]:
    """The statements of one transaction, in a few words about chance."""
    one, other, number = chance.randrange(keys), chance.randrange(keys), chance.randrange(10_000)
    here, row = kind.equal(one), kind.values(one)
    several = f"id BETWEEN {one} AND {one + 20}" if kind is INTEGER else f"amount BETWEEN {number} AND {number + 20}"
    statements = [
        chance.choice(
            [
                f"INSERT INTO {table} VALUES ({row}, 'i{number}', {number})",
                f"UPDATE {table} SET name = 'u{number}', amount = {number} WHERE {here}",
                f"UPDATE {table} SET amount = amount + 1 WHERE {several}",
                f"DELETE FROM {table} WHERE {here}",
                f"UPDATE {table} SET {kind.equal(other, ', ')} WHERE {here}",
                f"REPLACE INTO {table} VALUES ({row}, 'r{number}', {number})",
            ]
        )
        for _ in range(chance.choice([1, 1, 3]))
    ]
    return ["BEGIN", *statements, chance.choice(["COMMIT"] * 9 + ["ROLLBACK"])]
