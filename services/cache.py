"""The user's cache folder: entries that are either complete or absent."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from services.errors import ServiceError

_WAIT_NOTICE_SECONDS = 1.0
_WAIT_SECONDS = 7_200.0
"""Longer than the downloads of an entry may take: who holds the lock then hangs, or is frozen."""


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/watermark-source``, by default ``~/.cache/watermark-source``."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "watermark-source"


def fingerprinted(kind: str, *parts: object) -> str:
    """Return the name of an entry that is made of these parts: made of others, it is another entry."""
    return f"{kind}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache, made by ``fill(empty_folder)`` when it is not there yet.

    ``fill`` works in a folder of its own that gets its final name only after ``fill`` has returned. A process killed
    half-way leaves nothing that a later call would treat as complete; its remains are removed by the next one.
    Processes that want the same entry wait for the one that makes it.

    Raises:
        ServiceError: another process has been at it for two hours.
    """
    root = cache_folder()
    entry = root / name
    if entry.is_dir():
        return entry
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{name}.lock"):
        if entry.is_dir():
            return entry
        prefix = f"{name}.part-"
        for remains in root.glob(f"{prefix}*"):
            shutil.rmtree(remains, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        try:
            fill(part)
            part.rename(entry)
        except BaseException:  # also an interrupt: the half-made folder goes in any case
            shutil.rmtree(part, ignore_errors=True)
            raise
    return entry


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the system releases when this process ends, however it ends."""
    with path.open("a") as handle:
        since = time.monotonic()
        warned = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - since
                if waited > _WAIT_SECONDS:
                    raise ServiceError(
                        f"another process holds {path} and has not made {path.stem} within {waited:.0f} s; "
                        f"end that process (fuser {path} names it)"
                    ) from None
                if not warned and waited > _WAIT_NOTICE_SECONDS:
                    sys.stderr.write(f"waiting for another process that fills {path.with_suffix('')}\n")
                    warned = True
                time.sleep(0.1)
        yield


# The ways to find a server's program: PATH, or a distribution's packages.


_Program = TypeVar("_Program")


def first_that_works(
    ways: Iterable[Callable[[], _Program]], use: Callable[[_Program], None], *, wanted: str
) -> tuple[_Program, Sequence[str]]:
    """Return the first program that is there and can be used, and why those before it could not.

    ``wanted`` names the server in the error.

    Raises:
        ServiceError: there is none; a way raises it too, and ``use``, of a program that does not work.
    """
    refusals: list[str] = []
    for get in ways:
        try:
            program = get()
            use(program)
        except ServiceError as refused:
            refusals.append(str(refused))
        else:
            return program, refusals
    raise ServiceError(
        f"{wanted} cannot be had: install it so that its server is on PATH, or start a container engine. Tried:\n"
        + "\n".join(refusals)
    )
