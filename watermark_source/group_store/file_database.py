"""FileDatabase: a group's members in a SQLite file, through Python's ``sqlite3``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any

from watermark_source.group_store import failures, statements, store_waits
from watermark_source.group_store.statements import COLUMNS, INDEX, INDEXED, KEY, NULLABLE, TABLE, TEXTS

_REFUSALS = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.IntegrityError)
"""Errors of an open database."""
_COLUMNS = [
    (f"{name} VARCHAR({TEXTS[name]})" if name in TEXTS else f"{name} BIGINT")
    + ("" if name in NULLABLE else " NOT NULL")
    for name in COLUMNS
]
_TABLE = f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(_COLUMNS)}, PRIMARY KEY ({', '.join(KEY)}))"
_INDEX = f"CREATE INDEX IF NOT EXISTS {INDEX} ON {TABLE} ({', '.join(INDEXED)})"


class FileDatabase:
    """Implements ``Database``."""

    dialect = "sqlite"

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._files: tuple[str, list[tuple[int, int] | None]] | None = None
        """Those that the connection holds open."""

    @property
    def location(self) -> str:
        """The form that servers have, ``kind host/name``, without a host."""
        return f"sqlite /{self._path}"

    def exchange(self, row: Mapping[str, Any], *, has_report: bool, takes_over: bool) -> tuple[Any, ...] | None:
        """Implement ``Database.exchange``."""
        statement = statements.write_and_read(self.dialect, has_report=has_report, takes_over=takes_over)
        return next(iter(self.rows(statement, row)), None)

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Implement ``Database.rows``."""
        if self._files is not None and _files_at(self._files[0]) != self._files:
            self.close()
            raise failures.unanswered(self.location, "its file was removed while open")
        try:
            return self._open().execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            self.close()
            named = failures.refused if isinstance(error, _REFUSALS) else failures.unanswered
            raise named(self.location, error) from None

    def close(self) -> None:
        """Implement ``Database.close``."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._files = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            # Threads use a connection one after the other. Without an isolation level each statement commits.
            opened = sqlite3.connect(
                self._path, timeout=store_waits.BUSY_FILE, isolation_level=None, check_same_thread=False
            )
            try:
                failures.create(partial(_set_up, opened), sqlite3.OperationalError)
                _, _, path = opened.execute("PRAGMA database_list").fetchone()
                self._files = _files_at(path)
            except BaseException:
                opened.close()
                raise
            self._connection = opened
        return self._connection


def _set_up(connection: sqlite3.Connection) -> None:
    """Create the table in a file that processes share."""
    connection.execute("PRAGMA journal_mode = WAL")
    # Each member writes its row again within a second, so no content has to survive a crash of the machine.
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(_TABLE)
    connection.execute(_INDEX)


_PARTS = ("", "-wal", "-shm")
"""Suffixes of the files of one SQLite database. A connection whose file was deleted keeps working on the deleted file,
and shares nothing with processes that open the path later."""


def _files_at(path: str) -> tuple[str, list[tuple[int, int] | None]]:
    """Return a database's path, with the identities of the files that it is the path of now."""
    return path, [_identity(path + part) for part in _PARTS]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    # The file system does not reuse an inode number while a process has the file open.
    return status.st_dev, status.st_ino
