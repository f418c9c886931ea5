"""The servers of an example: those whose addresses are given, or some that are started for it.

On a server that was there before, an example makes topics, a database and an account under names of its own, and
removes them when it ends.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from services.kafka import kafka_service
from services.kafka_topics import create_topic, delete_topic
from services.mysql import mysql_service
from services.mysql_client import connect, run

_MYSQL_PORT = 3306
# What the strictest of the usual rules for passwords asks for.
_EACH_KIND = "aA1!"


@dataclass(frozen=True, slots=True)
class Login:
    """An account of a MySQL server."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class MySqlServer:
    """A server, and who may do everything there."""

    host: str
    port: int
    admin: Login = Login("root", "")

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def run(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements and return the rows of the last."""
        return run(self.host, self.port, *statements, user=self.admin.user, password=self.admin.password)

    def connect(self) -> Any:
        """Connect, each statement its own transaction."""
        return connect(self.host, self.port, user=self.admin.user, password=self.admin.password)

    def let_read(self, reader: Login, database: str) -> None:
        """Make an account with no more privileges than the source needs."""
        account = f"'{reader.user}'@'%'"
        self.run(
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{reader.password}'",
            f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}",
            f"GRANT SELECT ON {database}.* TO {account}",
        )


def add_addresses(parser: argparse.ArgumentParser, *, kafka: bool = False, mysql: bool = False) -> None:
    """Let the command line name servers."""
    if kafka:
        parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker that runs (default: one is started)")
    if mysql:
        parser.add_argument(
            "--mysql",
            metavar="mysql://USER:PASSWORD@HOST:PORT",
            type=mysql_server,
            help="a server that runs, and who may make a database and an account there (default: one is started)",
        )


def mysql_server(url: str) -> MySqlServer:
    """Read the URL of a server.

    Raises:
        argparse.ArgumentTypeError: it is none; the message shows what is accepted.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _MYSQL_PORT
    except ValueError:
        parts = None
    if not parts or parts.scheme != "mysql" or not parts.hostname or parts.path.strip("/") or parts.query:
        shown = f"{url.partition('://')[0]}://…" if "@" in url else url
        raise argparse.ArgumentTypeError(
            f"{shown} is no address of a server: accepted is mysql://USER:PASSWORD@HOST:PORT, for example "
            "mysql://root:root@127.0.0.1:3306 (special characters as %XX; without a database)"
        )
    return MySqlServer(parts.hostname, port, Login(unquote(parts.username or "root"), unquote(parts.password or "")))


@contextmanager
def topic_of(kafka: str | None, name: str, partitions: int) -> Iterator[tuple[str, str]]:
    """Yield the address of a broker, the given one or one of its own, and a new topic there."""
    if kafka is None:
        with kafka_service() as started:
            create_topic(started.bootstrap, name, partitions)
            yield started.bootstrap, name
        return
    name = f"{name}-{secrets.token_hex(4)}"
    create_topic(kafka, name, partitions)
    try:
        yield kafka, name
    finally:
        delete_topic(kafka, name)


@contextmanager
def database_of(mysql: MySqlServer | None, name: str, reader: Login) -> Iterator[tuple[MySqlServer, str, Login]]:
    """Yield a server, the given one or one of its own, the name of a new database there, and who may read it."""
    if mysql is None:
        with mysql_service() as started:
            server = MySqlServer(started.host, started.port)
            server.run(f"CREATE DATABASE {name}")
            server.let_read(reader, name)
            yield server, name, reader
        return
    own = secrets.token_hex(4)
    name, reader = f"{name}_{own}", Login(f"{reader.user}_{own}", secrets.token_urlsafe(16) + _EACH_KIND)
    try:
        mysql.run(f"CREATE DATABASE {name}")
        mysql.let_read(reader, name)
        yield mysql, name, reader
    finally:
        mysql.run(f"DROP DATABASE IF EXISTS {name}", f"DROP USER IF EXISTS '{reader.user}'@'%'")
