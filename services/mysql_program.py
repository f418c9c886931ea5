"""Where the server program comes from: PATH, or Debian's packages; MySQL before MariaDB."""

from __future__ import annotations

import enum
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.cache import first_that_works
from services.debian import debian_root
from services.errors import ServiceError
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
    """What ``WATERMARK_SOURCE_MYSQL`` (``mysql`` or ``mariadb``) says; ``None`` without it.

    Raises:
        ServiceError: it has another value.
    """
    value = os.environ.get(FLAVOUR_VARIABLE)
    if value is None:
        return None
    flavours = {each.value.lower(): each for each in Flavour}
    if value.lower() not in flavours:
        raise ServiceError(f"{FLAVOUR_VARIABLE}={value}: accepted are {', '.join(flavours)}")
    return flavours[value.lower()]


@dataclass(frozen=True, slots=True)
class Program:
    """A server program: how it is run and where it finds its own files."""

    flavour: Flavour
    command: tuple[str, ...]
    settings: dict[str, str]
    """Settings for a server that is not installed in its usual folder."""
    system_tables: Path | None = None
    """Folder of MariaDB's scripts that make the system tables; MySQL makes them by itself."""

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
        """Look at a file of MySQL's settings as its server does when it starts.

        Raises:
            ServiceError: the server would refuse them; the message holds its output.
        """
        command = [*self.command, f"--defaults-file={settings}", "--validate-config"]
        run_to_end(
            command, folder=folder, seconds=INITIALISE_SECONDS, what=f"reading the settings of {self.flavour.value}"
        )

    def _mariadb_script(self) -> str:
        folder = self.system_tables
        names = ("mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql")
        if folder is None or not all((folder / name).is_file() for name in names):
            raise ServiceError(f"MariaDB's scripts {', '.join(names)} are not in {folder}")
        # The data script asks for these, as MariaDB's own installer sets them.
        head = "create database if not exists mysql;\nuse mysql;\nSET @auth_root_socket=NULL;\n"
        return head + "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def usable_program(
    flavour: Flavour | None, use: Callable[[Program], None] = lambda _: None
) -> tuple[Program, Sequence[str]]:
    """Return a program as ``first_that_works`` does."""
    return first_that_works(_ways(flavour), use, wanted=flavour.value if flavour else "MySQL or MariaDB")


def _ways(flavour: Flavour | None) -> Iterator[Callable[[], Program]]:
    """Yield the ways to a program, the cheapest first; MySQL's before MariaDB's if any flavour will do."""
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


def _mariadb_of_debian() -> Program:
    root = debian_root(_DEBIAN_MARIADB, ["mariadb-server-core"], size="about 40 MB")
    share = root.path / "usr" / "share" / "mariadb"
    settings = {
        "lc_messages_dir": str(share),
        "character_sets_dir": str(share / "charsets"),
    }
    return Program(Flavour.MARIADB, root.command("usr/sbin/mariadbd"), settings, share)
