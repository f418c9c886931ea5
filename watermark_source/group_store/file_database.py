"""FileDatabase: a group's members in a SQLite file, through Python's ``sqlite3``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any

from watermark_source.group_store import failures, statements, store_waits
from watermark_source.planning.group import LONGEST_NAME

_REFUSALS = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.IntegrityError)
"""Errors of an open database."""
_NAME = f"VARCHAR({LONGEST_NAME}) NOT NULL"
_TABLE = f"""
CREATE TABLE IF NOT EXISTS {statements.TABLE} (
    group_name {_NAME}, member {_NAME}, writer VARCHAR(32) NOT NULL, source {_NAME}, max_drift BIGINT,
    status VARCHAR(16) NOT NULL, watermark BIGINT, counts_with BIGINT, time_to_live BIGINT NOT NULL,
    seen BIGINT NOT NULL, PRIMARY KEY (group_name, member)
)"""
_INDEX = f"CREATE INDEX IF NOT EXISTS {statements.INDEX} ON {statements.TABLE} (group_name, counts_with, source)"


class FileDatabase:
    """Implements ``Database``."""

    dialect = "sqlite"

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: OpenFile | None = None

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
        if self._file is not None and not self._file.is_in_place:
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
            self._connection = self._file = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            # Threads use a connection one after the other. Without an isolation level each statement commits.
            opened = sqlite3.connect(
                self._path, timeout=store_waits.BUSY_FILE, isolation_level=None, check_same_thread=False
            )
            try:
                failures.create(partial(_set_up, opened), sqlite3.OperationalError)
                _, _, path = opened.execute("PRAGMA database_list").fetchone()
                self._file = OpenFile(path)
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


class OpenFile:
    """Identities of a database's files, taken while a connection holds them open."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identities = _identities(path)

    @property
    def is_in_place(self) -> bool:
        """Whether the path is still that of the same files."""
        return _identities(self._path) == self._identities


def _identities(path: str) -> list[tuple[int, int] | None]:
    return [_identity(path + part) for part in _PARTS]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    # The file system does not reuse an inode number while a process has the file open.
    return status.st_dev, status.st_ino
