"""A table of marks in a database: written with the rows in one transaction, read by the URL of the database."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from importlib.util import find_spec
from multiprocessing import TimeoutError as NoAnswer
from multiprocessing.pool import ThreadPool
from typing import Any, Final, cast
from urllib.parse import quote

from watermark_source.errors import CorruptDataError, ResponseTimeoutError, SourceError, UsageError, shortened
from watermark_source.installation import lacking
from watermark_source.publishing.folder import SCHEMES
from watermark_source.publishing.mark import Mark, decoded, refusal_after_end

_TABLE: Final = "watermark_completeness"
_CREATE: Final = (
    "CREATE TABLE watermark_completeness (table_name VARCHAR(255) NOT NULL, writer VARCHAR(255) NOT NULL, "
    "complete_until BIGINT, mark VARCHAR(4000) NOT NULL, PRIMARY KEY (table_name, writer))"
)
_UPDATE: Final = (
    "UPDATE watermark_completeness SET complete_until = ?, mark = ? WHERE table_name = ? AND writer = ? "
    "AND (complete_until IS NULL OR complete_until <= ?)"
)
_FIND: Final = "SELECT table_name, writer, mark FROM watermark_completeness WHERE table_name = ? AND writer = ?"
_INSERT: Final = "INSERT INTO watermark_completeness (complete_until, mark, table_name, writer) VALUES (?, ?, ?, ?)"
_ALL: Final = "SELECT table_name, mark FROM watermark_completeness WHERE table_name = ?"
_SIGNS: Final = {"qmark": "?", "format": "%s", "pyformat": "%s"}
"""How a driver of PEP 249 marks a parameter in a statement, by its ``paramstyle``."""
_SQLITE: Final = "sqlite:///"
_ANSWER_S: Final = 120.0
"""Seconds in which a database has to answer: its driver may wait for ever for a server that is frozen."""
_COMMITTED: Final = "READ COMMITTED"
"""A server may have another level as its default, and show a time whose rows are rolled back."""
_found_by: Final[dict[tuple[str, str, str], tuple[int | None, set[str]]]] = {}
"""By table, writer and query, the first batch of which this process stated, and the marks that it has found in it: of
several databases each has its own."""


def publish_in(connection: Any, mark: Mark, table: str) -> None:
    """State in a database up to when a table is complete, in the transaction that writes its rows.

        def write(batch, number):
            with engine.begin() as connection:
                if rows := [row.asDict() for row in batch.collect()]:
                    connection.execute(insert(counts), rows)
                publish_in(connection, completeness_of(batch, "hourly-counts"), table="counts")

    The caller commits. What was stated before is never taken back: a lower time changes nothing.

    Args:
        connection: of SQLAlchemy, or of a driver of PEP 249, such as ``sqlite3``, ``psycopg`` and ``pymysql``.
        mark: what ``completeness_of`` returned for the batch.
        table: name of the table, by which ``complete_until`` finds it.

    Raises:
        UsageError: the connection is of another kind, or commits each statement by itself; the database takes the
            names for those of another writer; another query has stated under the same name since this one did in
            this process, or one has stated that it writes no more.
        SourceError: the database refuses; the message has the statement that creates the table of the marks.
    """
    driver = getattr(getattr(connection, "connection", None), "driver_connection", None) or connection
    sign = _SIGNS.get(_paramstyle_of(driver))
    if sign is None or not hasattr(driver, "cursor"):
        raise UsageError(
            f"publish_in was given a {type(connection).__module__}.{type(connection).__name__}; it takes a connection "
            "of SQLAlchemy, or of a driver of PEP 249 with the paramstyle qmark, format or pyformat"
        )
    if driver is not connection and not connection.in_transaction():
        # SQLAlchemy knows of no statement of the driver's: it would commit nothing after a batch without rows.
        connection.begin()
    if _commits_each_statement(driver):
        raise UsageError(
            "publish_in was given a connection in autocommit mode, and no transaction is open: each statement is "
            f"committed by itself, so that the time is not in the transaction of the rows of {table}. Turn autocommit "
            "off (in SQLAlchemy: another isolation level than AUTOCOMMIT), or begin a transaction before the rows are "
            "written, and commit it after publish_in"
        )
    key, until, text = (table, mark.writer), mark.watermark, str(mark)
    try:
        with closing(driver.cursor()) as cursor:
            cursor.execute(_FIND.replace("?", sign), key)
            row = cursor.fetchone() or (*key, None)
            # A user's connection may have it as a mapping.
            *found, stands = row.values() if isinstance(row, Mapping) else row
            refusal = _refusal(mark, table, stands)
            if stands is None:
                cursor.execute(_INSERT.replace("?", sign), (until, text, *key))
            elif found == list(key) and refusal is None:
                cursor.execute(_UPDATE.replace("?", sign), (until, text, *key, until))
    except Exception as error:
        raise SourceError(
            f"the time until which {table} is complete cannot be written: {error}. If its table is not there, create "
            f"it once: {_CREATE}"
        ) from error
    if found != list(key):
        raise UsageError(
            f"table {table}, writer {mark.writer}: the database takes them for table {found[0]}, writer {found[1]}, so "
            "that the time of one would be stated for both; choose names that differ by more than case, accents and "
            f"spaces at their ends, or give the columns of {_TABLE} a binary collation"
        )
    if refusal is not None:
        raise UsageError(refusal)


def _refusal(mark: Mark, table: str, stands: str | None) -> str | None:
    """Return why a mark must not be stated because of another query under its name, by the text that stands.

    A new checkpoint finds that of the query before, which stands still, also where its own transaction
    is rolled back.
    """
    key, found = (table, mark.writer, mark.query), stands or ""
    other = decoded(found, f"a row of {_TABLE}")
    first, stood = _found_by.setdefault(key, (mark.batch, set()))
    if mark.batch == first:
        stood.add(found)
    if other is None or other.query == mark.query:
        return None
    if (ended := refusal_after_end(mark.query, other)) is not None:
        return f"table {table}, {ended}, or delete its row of {_TABLE}"
    if found in stood:
        return None
    # It may be started again, once the other is stopped.
    del _found_by[key]
    return (
        f"table {table}, writer {mark.writer}: another query has stated under this name since this one did, batch "
        f"{other.batch} of {other.checkpoint}. A name belongs to one query, since the later of their times would "
        "count for both: stop one of them, or give it a name of its own, and start the other again"
    )


def _commits_each_statement(driver: Any) -> bool:
    """Return whether a connection is in autocommit mode, and has no transaction open."""
    if (asked := getattr(driver, "get_autocommit", None)) is not None:
        # pymysql and mysqlclient, whose autocommit is a method, too.
        commits = bool(asked())
    elif isinstance(driver, sqlite3.Connection) and driver.isolation_level is None:
        commits = True
    else:
        commits = False
        # mysql.connector asks its server: where that fails, the next statement does, too.
        with suppress(Exception):
            # sqlite3 has -1 for "by isolation_level", and others no isolation level for the server's own.
            commits = getattr(driver, "autocommit", False) is True
    # Of sqlite3, of pymysql (SERVER_STATUS_IN_TRANS), and of psycopg (0: idle).
    signs = getattr(driver, "in_transaction", False), getattr(driver, "server_status", 0) & 1
    is_open = any(signs) or bool(getattr(getattr(driver, "info", None), "transaction_status", 0))
    return commits and not is_open


def _paramstyle_of(driver: Any) -> str:
    """Return how a driver marks a parameter, as the outermost package of its class, or a base class, that states it."""
    for kind in type(driver).__mro__:
        names = kind.__module__.split(".")
        packages = (sys.modules.get(".".join(names[:length])) for length in range(1, len(names) + 1))
        for package in packages:
            if (style := getattr(package, "paramstyle", None)) is not None:
                return str(style)
    return ""


def is_url(place: str) -> bool:
    """Return whether a place is the URL of a database with the name of a table, and not that of a folder."""
    return "://" in place and "#" in place and place.partition(":")[0] not in {"file", *SCHEMES}


def shown(place: str) -> str:
    """Return a place without what may be secret in a URL, as it may stand in a log: a password, and parameters."""
    return re.sub(r"(?<=://).*@|\?[^#]*" if is_url(place) else "(?<=://)[^/]*@", "", place)


def marks_in_database(place: str) -> Iterable[Mark]:
    """Return the marks of a table's writers, by ``URL#table``.

    Raises:
        UsageError: the URL is not accepted.
        MissingPackageError: SQLAlchemy is not installed, which other databases than SQLite need.
        SourceError: the database refuses, does not answer, or is not there.
    """
    url, _, table = place.rpartition("#")
    where = shown(place)
    try:
        # A thread that gets no answer ends with the process.
        with ThreadPool(1) as threads:
            found = threads.apply_async(_rows, (url, table)).get(_ANSWER_S)
    except NoAnswer:
        raise ResponseTimeoutError(f"{where} has not answered for {_ANSWER_S:g} s") from None
    except (UsageError, SourceError):
        raise
    except Exception as error:  # noqa: BLE001 - of whichever driver
        raise SourceError(f"what is complete cannot be read in {where}: {shortened(error)}") from None
    for name, text in found:
        if name != table:
            # A database may take the names of two tables for one.
            continue
        if (mark := decoded(text, f"a row of {_TABLE} in {where}")) is None:
            raise CorruptDataError(f"a row of {_TABLE} in {where} is not a mark: seen {shortened(text)}; delete it")
        yield mark


def _rows(url: str, table: str) -> Sequence[Sequence[Any]]:
    if url.startswith(_SQLITE):
        path = url[len(_SQLITE) :].partition("?")[0]
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True)) as connection:
            return connection.execute(_ALL, (table,)).fetchall()
    if find_spec("sqlalchemy") is None:
        raise lacking("complete_until", "sqlalchemy", "alignment")
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - an optional dependency, slow to import
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        engine = create_engine(url)
    except (ArgumentError, ImportError):
        # A text that cannot be parsed may hold a password anywhere, so the error does not quote it.
        raise UsageError(
            "a place with #: expected the URL of a database in SQLAlchemy's form, whose driver is installed, and the "
            "name of a table, for example postgresql+psycopg://user@host/shop#counts"
        ) from None
    with suppress(NotImplementedError):
        if _COMMITTED in engine.dialect.get_isolation_level_values(cast("Any", None)):
            engine = engine.execution_options(isolation_level=_COMMITTED)
    try:
        with engine.connect() as opened:
            return [tuple(row) for row in opened.execute(text(_ALL.replace("?", ":table")), {"table": table})]
    finally:
        engine.dispose()
