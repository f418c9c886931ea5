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

# A duplicate key, a lock wait, a deadlock: what writers that do not know of each other run into.
_HARMLESS = frozenset({1062, 1205, 1213})


@contextmanager
def writers(database: Database, table: str, *, count: int = 4, keys: int = 4_000, seed: int = 1) -> Iterator[None]:
    """Change rows of ``table (id, name, amount)`` with keys below ``keys`` until the block is left."""
    stopped = threading.Event()
    problems: list[BaseException] = []
    threads = [
        threading.Thread(target=_write, args=(database, table, keys, random.Random(seed + i), stopped, problems))
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
    keys: int,
    chance: random.Random,
    stopped: threading.Event,
    problems: list[BaseException],
) -> None:
    server = database.server
    try:
        with connect(server.host, server.port, database=database.name) as connection, connection.cursor() as cursor:
            if chance.random() < 0.5 and server.flavour is Flavour.MYSQL:
                cursor.execute("SET SESSION binlog_transaction_compression = ON")
            while not stopped.is_set():
                try:
                    for statement in _transaction(table, keys, chance):
                        cursor.execute(statement)
                except pymysql.MySQLError as refused:  # noqa: PERF203 - a test
                    if refused.args[0] not in _HARMLESS:
                        raise
                    cursor.execute("ROLLBACK")
    except BaseException as problem:  # noqa: BLE001 - told by the test
        problems.append(problem)


def _transaction(table: str, keys: int, chance: random.Random) -> list[str]:
    """The statements of one transaction, in a few words about chance."""
    one, other, number = chance.randrange(keys), chance.randrange(keys), chance.randrange(10_000)
    statements = [
        chance.choice(
            [
                f"INSERT INTO {table} VALUES ({one}, 'i{number}', {number})",
                f"UPDATE {table} SET name = 'u{number}', amount = {number} WHERE id = {one}",
                f"UPDATE {table} SET amount = amount + 1 WHERE id BETWEEN {one} AND {one + 20}",
                f"DELETE FROM {table} WHERE id = {one}",
                f"UPDATE {table} SET id = {other} WHERE id = {one}",
                f"REPLACE INTO {table} VALUES ({one}, 'r{number}', {number})",
            ]
        )
        for _ in range(chance.choice([1, 1, 3]))
    ]
    return ["BEGIN", *statements, chance.choice(["COMMIT"] * 9 + ["ROLLBACK"])]
