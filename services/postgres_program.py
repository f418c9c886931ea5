"""Where PostgreSQL's programs come from: PATH and the folders where systems keep them, or Debian's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.debian import DebianRoot, debian_root
from services.errors import ServiceError
from services.program_choice import first_that_works

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

    def own(self, folder: Path) -> None:
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
