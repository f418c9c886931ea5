"""LocalMembers: which other sources of one driver name the same group, told by files that their processes hold locked.

It costs a look into a folder, and needs no database: a source that is alone in its driver has nothing to do with one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from pathlib import Path


class LocalMembers:
    """This process's own file in the folder of a group, there until it ends, however it ends."""

    def __init__(self, folder: Path, group: str) -> None:
        self._folder = folder / hashlib.sha256(group.encode()).hexdigest()[:32]
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Sources are processes: one that a process had before is another life of its own.
        self._prefix = f"{os.getpid()}-"
        self._path = self._folder / f"{self._prefix}{secrets.token_hex(4)}"
        hidden = self._folder / f".{self._path.name}"
        self._file: int | None = os.open(hidden, os.O_CREAT | os.O_RDWR, 0o600)
        # Nobody sees it before it is locked, and takes it for what a dead process left.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        hidden.rename(self._path)

    @property
    def is_seen(self) -> bool:
        """Whether the file is still where others look for it."""
        try:
            return self._file is not None and os.path.samestat(self._path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def others(self) -> int:
        """Return how many other processes are there; what dead ones have left goes."""
        names = [name for name in os.listdir(self._folder) if not name.startswith((".", self._prefix))]
        return sum(_is_held(self._folder / name) for name in names)

    def close(self) -> None:
        """Be gone. Takes no lock, so that a signal's handler may call it."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(file)


def _is_held(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return False
    finally:
        os.close(file)
