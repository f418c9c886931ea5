"""A PostgreSQL server as a local process."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from services.cache import first_that_works
from services.debian import DebianRoot, debian_root
from services.errors import ServiceError
from services.local_server import LocalDatabase, run_to_end
from services.postgres_client import USER, answers
from services.wait_until import wait_until

# Where PostgreSQL's programs come from: PATH and the folders where systems keep them, or Debian's packages.


_DEBIAN = "debian-postgresql"
_USUAL = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")
"""Debian, Red Hat, and the project's own build keep the server out of PATH."""
_NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Program:
    """A server's programs, and who runs them."""

    folder: Path
    """Holds ``initdb`` and ``postgres``, each of which finds the other and its own files from there."""
    user: str | None
    """PostgreSQL refuses to be run by root: the user it runs as instead, ``None`` for this process's own."""

    def command(self, name: str) -> tuple[str, ...]:
        """How one of them is run, before its own arguments."""
        program = str(self.folder / name)
        if self.user is None:
            return (program,)
        known = pwd.getpwnam(self.user)
        # The cache folder is in root's home, which others may not enter.
        entering = ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
        return ("setpriv", f"--reuid={known.pw_uid}", f"--regid={known.pw_gid}", "--clear-groups", *entering, program)

    def give_to_user(self, folder: Path) -> None:
        """Give a new folder to the user who runs the programs."""
        if self.user is not None:
            shutil.chown(folder, self.user)


def usable_program(folder: Path, use: Callable[[Program], None]) -> Program:
    """Return a program as ``first_that_works`` does; ``folder`` is the server's own."""
    program, _ = first_that_works((_on_path, lambda: _of_debian(folder)), use, wanted="PostgreSQL")
    return program


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    if shutil.which("setpriv") is None:
        raise ServiceError("PostgreSQL cannot be run by root, and there is no setpriv (util-linux) to be someone else")
    return _NOBODY


def _on_path() -> Program:
    usual = [str(folder) for pattern in _USUAL for folder in sorted(Path("/").glob(pattern[1:]), reverse=True)]
    found = shutil.which("postgres", path=os.pathsep.join((os.environ.get("PATH", ""), *usual)))
    if found is None:
        raise ServiceError("no postgres on PATH")
    folder = Path(found).resolve().parent
    if not (folder / "initdb").is_file():
        raise ServiceError(f"{found} has no initdb beside it")
    return Program(folder, _user())


def _of_debian(folder: Path) -> Program:
    root = debian_root(_DEBIAN, ["postgresql"], size="about 60 MB")
    found = sorted(root.path.glob("usr/lib/postgresql/*/bin"))
    if not found:
        raise ServiceError(f"{root.path} lacks postgres; remove that folder and try again")
    return Program(_make_starters(root, found[-1], folder / "starters"), _user())


def _make_starters(root: DebianRoot, programs: Path, folder: Path) -> Path:
    """Write scripts in place of the programs, which start one another by name and need the packages' own libraries.

    They lie in a tree like the packages', for the server looks for its files beside the place it was started from. And
    not in the cache: the programs ask whether they may run each other, and there only root may.

    Returns:
        The folder that they are in.
    """
    relative = programs.relative_to(root.path)
    made = folder / relative
    made.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        loader, *rest = root.command(str(relative / name))
        words = " ".join(f"'{word}'" for word in rest)
        starter = made / name
        starter.write_text(f'#!/bin/sh\nexec \'{loader}\' --argv0 "$0" {words} "$@"\n', encoding="utf-8")
        starter.chmod(starter.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    library = programs.parent / "lib"
    (made.parent / "lib").symlink_to(library)
    (folder / "usr" / "share").symlink_to(root.path / "usr" / "share")
    return made


START_SECONDS = 150.0
STOP_SECONDS = 30.0
_INITIALISE_SECONDS = 120.0
_GONE_SECONDS = 30.0


def server_settings(config: Mapping[str, str] | None) -> dict[str, str]:
    """Settings of every server, wherever it runs: small, and what is written need not outlive the machine."""
    return {"fsync": "off", "jit": "off", "max_connections": "200", "shared_buffers": "32MB", **(config or {})}


class LocalPostgres(LocalDatabase):
    """``LocalDatabase`` that is PostgreSQL; user ``postgres`` has no password."""

    _start_seconds, _stop_seconds = START_SECONDS, STOP_SECONDS
    _kind = "PostgreSQL"

    def __init__(self, *, config: Mapping[str, str] | None = None) -> None:
        """Find or fetch the programs and make the data folder.

        Raises:
            ServiceError: no program can be had, or none that makes a data folder; the message names each way tried.
        """
        super().__init__(prefix="postgres-")
        self._data = self._root / "data"
        try:
            self._program = self._choose(server_settings(config))
        except BaseException:  # also an interrupt: no folder stays behind
            self.close()
            raise

    def stop(self) -> None:
        """Stop it in an orderly way, also with open connections. Its data stays."""
        if self._process is not None:
            self._process.signal(signal.SIGINT)
            with contextlib.suppress(ServiceError):
                wait_until(lambda: self._process is None or self._process.exit_code is not None, STOP_SECONDS, "an end")
            self.kill()

    def kill(self) -> None:
        """End it with kill -9. What was written stays; ``start`` begins again from it."""
        if self._process is not None:
            # Else it replaces those that are killed before it, and the new ones outlive it.
            self._process.signal(signal.SIGSTOP)
            below = self._below()
            # One that is frozen does not see that the first is gone.
            for process in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.kill()
            psutil.wait_procs(below, timeout=_GONE_SECONDS)

    def pause(self) -> None:
        """Freeze it (SIGSTOP), with the processes that serve connections: sockets stay open and nothing answers."""
        if self._process is not None:
            self._process.freeze()
            for process in self._below():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()

    def resume(self) -> None:
        """Let it go on when it was frozen."""
        if self._process is not None:
            for process in self._below():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
            self._process.signal(signal.SIGCONT)

    def _command(self) -> Sequence[str]:
        return [*self._program.command("postgres"), "-D", str(self._data)]

    def _answers(self) -> bool:
        return answers(self.host, self._port)

    def _below(self) -> list[psutil.Process]:
        """Return the server's own processes: each is the first of its own group."""
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except (ServiceError, psutil.NoSuchProcess):
            return []

    def _choose(self, settings: Mapping[str, str]) -> Program:
        def use(program: Program) -> None:
            try:
                program.give_to_user(self._root)
                self._initialise(program, settings)
            except ServiceError:
                shutil.rmtree(self._data, ignore_errors=True)
                raise

        return usable_program(self._root, use)

    def _initialise(self, program: Program, settings: Mapping[str, str]) -> None:
        run_to_end(
            [*program.command("initdb"), "-D", str(self._data), "--username", USER, "--auth", "trust",
             "--encoding", "UTF8", "--locale", "C", "--no-sync"],
            folder=self._root, seconds=_INITIALISE_SECONDS, what="making the data folder of PostgreSQL",
        )  # fmt: skip
        every = {
            "listen_addresses": self.host,
            "port": str(self._port),
            # Sockets have names of at most 107 bytes, and temporary folders may have longer ones.
            "unix_socket_directories": "",
            **settings,
        }
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in every.items())
