"""LocalMembers: which other sources of one driver name the same group, told by files that their processes hold locked.

It costs a look into a folder, and needs no database: a source that is alone in its driver has nothing to do with one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

from watermark_source.errors import UsageError


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


# A driver's private folder: where its sources find each other when no store is named; it ends with the driver.


_SPARK = "SPARK_LOCAL_DIRS"
"""Spark tells its sources' processes the folders of the driver's block manager, which go when the driver ends."""
_FOLDER = "watermark-source"
FILE = "alignment.sqlite"
"""The database in it."""


def driver_folder() -> Path:
    """Return the folder that all sources of this driver's queries have in common.

    Raises:
        UsageError: somebody else has put a folder there.
    """
    local = os.environ.get(_SPARK, "").split(",")[0]
    own = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}-{os.getppid()}"
    folder = Path(local) / _FOLDER if local else own
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    # Of a link to elsewhere not what it leads to, which may well be a private folder of this user's.
    found = folder.lstat()
    is_own_folder = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own_folder or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"the folder {folder}, in which the sources of an alignment group meet, is not private: it must be a "
            "folder of this user's own, with mode 0700. Remove it, or name a store: alignmentStore"
        )
    return folder
