"""LocalMembers: the other sources of one driver that name the same group, by files their processes keep locked.

It needs no database: a source that is alone in its driver's group opens no store. What a source writes into its file,
the others can read at once.
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

from watermark_source.errors import InternalError, UsageError

FILE = "alignment.sqlite"
"""The store in a driver's folder."""
_SPARK = "SPARK_LOCAL_DIRS"
"""Spark sets it in its sources' processes to the folders of the driver's block manager, which the driver deletes."""
_FOLDER = "watermark-source"
_LENGTH = 4096
"""Bytes that a process reads and writes of a file, at once."""


class LocalMembers:
    """This process's file in a group's folder. The lock ends with the process, however the process ends."""

    def __init__(self, folder: Path, group: str) -> None:
        self._folder = folder / hashlib.sha256(group.encode()).hexdigest()[:32]
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # One process is one source: an earlier file of this process does not count as another source.
        self._prefix = f"{os.getpid()}-"
        self._path = self._folder / f"{self._prefix}{secrets.token_hex(4)}"
        hidden = self._folder / f".{self._path.name}"
        self._file: int | None = os.open(hidden, os.O_CREAT | os.O_RDWR, 0o600)
        # The file appears under its name once it is locked: an unlocked file counts as left by a dead process.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.write("")
        hidden.rename(self._path)

    @property
    def is_in_place(self) -> bool:
        """Whether the file still exists at its path, where other processes find it."""
        try:
            return self._file is not None and os.path.samestat(self._path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def write(self, text: str) -> None:
        """Replace what the other processes read of this one."""
        written = text.encode(errors="replace").ljust(_LENGTH)
        if len(written) > _LENGTH:
            raise InternalError(f"a source of an alignment group publishes {len(written)} bytes to its query's others")
        if self._file is not None:
            os.pwrite(self._file, written, 0)

    def texts(self) -> list[str]:
        """Return what each other living process has written; one that is written right now may be torn."""
        names = [name for name in os.listdir(self._folder) if not name.startswith((".", self._prefix))]
        return [text for name in sorted(names) if (text := _text_of(self._folder / name)) is not None]

    def close(self) -> None:
        """Delete the file. It takes no lock of this process, so that a signal handler may call it."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(file)


def _text_of(path: Path) -> str | None:
    """Return the text of a file that a living process holds; delete the file of a dead one, and return ``None``."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(file, _LENGTH, 0).decode(errors="replace").rstrip()
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return None
    finally:
        os.close(file)


def driver_folder() -> Path:
    """Return the private folder that the sources of this driver's queries share; it ends with the driver.

    Raises:
        UsageError: the folder belongs to another user, or other users can read it.
    """
    local = os.environ.get(_SPARK, "").split(",")[0]
    own = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}-{os.getppid()}"
    folder = Path(local) / _FOLDER if local else own
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    # lstat, not stat: a link of another user's may lead to a private folder of this user.
    status = folder.lstat()
    is_own_folder = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_own_folder or stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(
            f"the folder {folder}, in which the sources of an alignment group share a store, is not private: it must "
            "be a folder of this user's own, with mode 0700. Remove it, or set alignmentStore to another store"
        )
    return folder
