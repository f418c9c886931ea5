"""A group's members in SQLite: the table in a file, by Python's own module."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from typing import Any

from watermark_source.errors import RefusedError, UnreachableError
from watermark_source.group_store import statements, store_waits
from watermark_source.planning.group import LONGEST_NAME

# Open file: whether the database that a connection has open is still the one that others find under its name.


_PARTS = ("", "-wal", "-shm")
"""Endings of what SQLite keeps a database in: one that has lost a part goes on, and sees nobody who comes later."""


class OpenFile:
    """The files of a database of SQLite, as they are while somebody has it open."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._parts = _found(path)

    @property
    def is_in_place(self) -> bool:
        """Whether each of them is where it was: none is gone, and none is another one."""
        return _found(self._path) == self._parts


def _found(path: str) -> list[tuple[int, int] | None]:
    return [_identity(path + part) for part in _PARTS]


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    # No other file gets this number as long as somebody has it open.
    return status.st_dev, status.st_ino


_TRIES, _ANOTHER_TRY = 3, 0.05
_REFUSALS = (sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.IntegrityError)
"""What says that the table, or what is in it, is not as it should be."""
_NAME = f"VARCHAR({LONGEST_NAME}) NOT NULL"
_TABLE = f"""
CREATE TABLE IF NOT EXISTS {statements.TABLE} (
    group_name {_NAME}, member {_NAME}, writer VARCHAR(32) NOT NULL, source {_NAME}, max_drift BIGINT,
    status VARCHAR(16) NOT NULL, watermark BIGINT, counts_with BIGINT, time_to_live BIGINT NOT NULL,
    seen BIGINT NOT NULL, PRIMARY KEY (group_name, member)
)"""
_INDEX = f"CREATE INDEX IF NOT EXISTS {statements.INDEX} ON {statements.TABLE} (group_name, counts_with, source)"


class FileDatabase:
    """``Database`` by Python's own SQLite."""

    dialect = "sqlite"

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: OpenFile | None = None

    @property
    def shown(self) -> str:
        """As servers are shown: no host, and the path."""
        return f"sqlite /{self._path}"

    def exchange(self, own: Mapping[str, Any], *, tells: bool, takes_over: bool) -> tuple[Any, ...] | None:
        """As ``Database.exchange``."""
        return self._run(statements.write_and_tell(self.dialect, tells=tells, takes_over=takes_over), own)

    def ask(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """As ``Database.ask``."""
        found = self._run(statement, parameters)
        return None if found is None else found[0]

    def close(self) -> None:
        """As ``Database.close``."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._file = None

    def _run(self, statement: str, parameters: Mapping[str, Any]) -> tuple[Any, ...] | None:
        if self._file is not None and not self._file.is_in_place:
            self.close()
            raise UnreachableError(
                f"the store of the alignment group, {self.shown}, does not answer: its file was removed while open"
            )
        with self._naming():
            found = self._opened().execute(statement, parameters).fetchall()
            return found[0] if found else None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            # The thread that keeps a member up is not the one that made it; statements are transactions by themselves.
            made = sqlite3.connect(self._path, store_waits.BUSY_FILE, isolation_level=None, check_same_thread=False)
            try:
                _set_up(made)
                self._file = OpenFile(_path_of(made))
            except BaseException:
                made.close()
                raise
            self._connection = made
        return self._connection

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            if isinstance(error, _REFUSALS):
                raise RefusedError(f"the store of the alignment group, {self.shown}, refuses: {error}") from None
            raise UnreachableError(
                f"the store of the alignment group, {self.shown}, does not answer: {error}"
            ) from None


def _set_up(connection: sqlite3.Connection, tries: int = _TRIES) -> None:
    """Let many processes share the file, and make the table. Several may come at once, and some find it locked."""
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # Members tell everything again within a second: nothing in there has to outlive a crash of the machine.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(_TABLE)
        connection.execute(_INDEX)
    except sqlite3.OperationalError:
        if tries == 1:
            raise
        time.sleep(_ANOTHER_TRY)
        _set_up(connection, tries - 1)


def _path_of(connection: sqlite3.Connection) -> str:
    """Return where a connection's file is: its path may be said in several ways."""
    _, _, path = connection.execute("PRAGMA database_list").fetchone()
    return str(path)
