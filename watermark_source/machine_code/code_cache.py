"""The cache of compiled code on disk, whose key is the content of the source and not its path.

numba's own key is the path of the source. Spark unpacks archives into a new folder for every application and executor,
so each would compile again (seconds of a core); and for source in a zip file numba has no folder but the home
folder, and fails without one.

The cache holds pickles, and loading a pickle runs code. So a folder is used only if it belongs to this user, and no
other user can write to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import caching, registry

from watermark_source.machine_code.built_library import digest, package_of

_log = logging.getLogger(__name__)

_CHOSEN = "NUMBA_CACHE_DIR"


class _Locator(caching._CacheLocator):  # noqa: SLF001 - what numba's own locators derive from
    """Gives numba the folder and the key of cached code."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno
        self._package = package_of(function)

    def get_cache_path(self) -> str:
        return str(folder(self._package))

    def get_source_stamp(self) -> str:
        return _digest(self._package)

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], _py_file: str) -> _Locator | None:
        return None if folder(package_of(py_func)) is None else cls(py_func)


class _Serializer(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)  # type: ignore[assignment]


class KeptCode(caching.FunctionCache):
    """The cached code of one function. An error of its files makes it compile again, and fails no query."""

    _impl_class = _Serializer

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]

    def has(self, signature: str) -> bool:
        """Return whether an earlier process has kept the function for a signature."""
        key = self._index_key(signature, registry.cpu_target.target_context.codegen())  # type: ignore[no-untyped-call]
        try:
            return key in self._cache_file._load_index()  # type: ignore[no-untyped-call]  # noqa: SLF001
        except Exception:  # noqa: BLE001 - a damaged pickle raises anything, and is reported by what loads it
            return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, or ``None`` if it must be compiled."""
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as problem:  # noqa: BLE001 - a damaged pickle raises anything
            _log.warning("compiled code in %s cannot be read, compiling it again: %r", self.cache_path, problem)
            with contextlib.suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            found = None
        if found is None:
            _note_compilation(str(self.cache_path))
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled function to the cache."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as problem:
            _log.warning("compiled code cannot be written, the next process compiles it again: %s", problem)


@cache
def _note_wait() -> None:
    _log.warning("another process of this machine compiles; waiting for what it keeps")


@cache
def _note_compilation(path: str) -> None:
    # Up to half a minute of a core, in which the first batch has no other sign of life.
    _log.warning(
        "compiling what this query decodes with, once on this machine: later processes read it from %s. No process "
        'compiles where the machine code was built: "make decoders" in a checkout of the project', path,
    )  # fmt: skip


def kept(function: Callable[..., Any]) -> KeptCode | None:
    """Return the cached code of a function, or ``None`` if no folder for it can be written."""
    return None if folder(package_of(function)) is None else KeptCode(function)


@contextlib.contextmanager
def one_compiler(code: KeptCode | None, signature: str) -> Iterator[None]:
    """Let no other process compile meanwhile, unless the code is there: who waits finds what that process has kept."""
    if code is None or code.has(signature):
        yield
        return
    with contextlib.ExitStack() as held:
        # A file system may have no locks. Then several compile.
        with contextlib.suppress(OSError):
            lock = held.enter_context((Path(code.cache_path) / "compiling.lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _note_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def folder(package: str) -> Path | None:
    """Return the folder for this version of ``package`` on this kind of processor; ``None`` if none can be written."""
    for root in _roots():
        found = root / f"{package}-{_digest(package)}"
        try:
            with contextlib.suppress(FileExistsError):
                found.mkdir(mode=0o700, parents=True)
            if not os.access(found, os.W_OK | os.X_OK):
                raise PermissionError("this user may not write to it")
            foreign = _foreign(found)
        except OSError as problem:
            _log.log(
                logging.WARNING if str(root) == os.environ.get(_CHOSEN) else logging.INFO,
                "no compiled code is kept in %s: %s", found, problem,
            )  # fmt: skip
            continue
        if foreign is None:
            return found
        _log.warning(
            "compiled code in %s is not used, as another user may have put it there: %s. Remove that folder, or set "
            "NUMBA_CACHE_DIR to one of this user's own",
            found, foreign,
        )  # fmt: skip
    _log.warning(
        "no folder for compiled code can be written, so every process compiles it itself (seconds): "
        "set NUMBA_CACHE_DIR to a folder that can be written"
    )
    return None


def _foreign(folder: Path) -> str | None:
    """Return what in a folder, itself included, another user may have written; ``None`` if there is nothing."""
    own, closed = os.geteuid(), False
    for each in (folder, *folder.iterdir()):
        try:
            # The link itself is checked, not its target.
            found = each.lstat()
        except FileNotFoundError:
            if each == folder:
                raise
            # A temporary file of another process, which has its name or is deleted by now.
            continue
        mode = stat.S_IMODE(found.st_mode)
        if each == folder:
            closed = not mode & 0o011
            if not stat.S_ISDIR(found.st_mode):
                return f"{each} is not a folder"
        if found.st_uid != own:
            return f"{each} belongs to the user {found.st_uid}, and this is {own}"
        # Other users who cannot enter a folder reach no file in it.
        if mode & 0o022 and (each == folder or not closed):
            return f"others may write to {each} (mode {mode:04o})"
    return None


def _roots() -> Iterator[Path]:
    if chosen := os.environ.get(_CHOSEN):
        yield Path(chosen)
    if cache_home := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache_home, "numba")
    # A container's user may have no home; expanduser then changes nothing.
    if (home := Path("~/.cache/numba").expanduser()).is_absolute():
        yield home
    # The Python processes of this application on this executor share its local folders.
    yield from (Path(local, "numba") for local in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if local)


@cache
def _digest(package: str) -> str:
    """Return a digest of numba's version, the processor, and all sources."""
    # Machines with different processors may share a home folder.
    host = (numba.__version__, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), digest(package))
    return hashlib.sha256(repr(host).encode()).hexdigest()[:20]
