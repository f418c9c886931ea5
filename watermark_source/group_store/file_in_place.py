"""Open file: whether the database that a connection has open is still the one that others find under its name."""

from __future__ import annotations

import os

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
