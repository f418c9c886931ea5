"""A MySQL or MariaDB server as a local process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.cache import cached, fingerprinted
from services.errors import ServiceError
from services.local_server import LocalDatabase
from services.mysql_client import answers
from services.mysql_program import Flavour, Program, usable_program

START_SECONDS = 150.0
STOP_SECONDS = 30.0

MYSQL_SETTINGS = {
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "mysqlx": "OFF",
    "innodb_redo_log_capacity": "32M",
}
# Settings with which a data folder is created, and which cannot be changed later.
_OF_A_DATA_FOLDER = frozenset({"innodb_data_file_path", "innodb_page_size", "lower_case_table_names"})
# What MySQL has by default, and an id that no other server has by default.
MARIADB_SETTINGS = {"binlog_format": "ROW", "max_allowed_packet": "64M", "server_id": "101"}


def server_settings(flavour: Flavour) -> dict[str, str]:
    """Settings of every server, wherever it runs: row events that describe themselves, and a small memory."""
    return {
        "server_id": "1",
        "log_bin": "binlog",
        "binlog_row_metadata": "FULL",
        "innodb_buffer_pool_size": "64M",
        **(MYSQL_SETTINGS if flavour is Flavour.MYSQL else MARIADB_SETTINGS),
    }


def normalised(config: Mapping[str, str] | None) -> dict[str, str]:
    """Names of settings as the server shows them: it takes dashes as well."""
    return {name.replace("-", "_"): value for name, value in (config or {}).items()}


class LocalMySql(LocalDatabase):
    """``LocalDatabase`` that is MySQL or MariaDB; user ``root`` has no password."""

    _start_seconds, _stop_seconds = START_SECONDS, STOP_SECONDS

    def __init__(self, *, config: Mapping[str, str] | None = None, flavour: Flavour | None = None) -> None:
        """Find or fetch a server program and make the data folder.

        ``config`` is added to the settings of the server and overrides them. ``flavour`` ``None`` takes
        MySQL, or MariaDB where MySQL cannot be had.

        Raises:
            ServiceError: no program can be had, or none that makes a data folder; the message names each way tried.
        """
        super().__init__(prefix="mysql-")
        self._settings = self._root / "my.cnf"
        try:
            self._program = self._choose(normalised(config), flavour)
        except BaseException:  # also an interrupt: no folder stays behind
            self.close()
            raise

    @property
    def flavour(self) -> Flavour:
        """Which server it is."""
        return self._program.flavour

    @property
    def _kind(self) -> str:
        return self.flavour.value

    def _command(self) -> Sequence[str]:
        return [*self._program.command, f"--defaults-file={self._settings}"]

    def _answers(self) -> bool:
        return answers(self.host, self._port)

    def _choose(self, config: Mapping[str, str], flavour: Flavour | None) -> Program:
        def use(program: Program) -> None:
            try:
                self._make_data(program, config)
            except ServiceError:
                shutil.rmtree(self._root / "data", ignore_errors=True)
                raise

        program, refusals = usable_program(flavour, use)
        if program.flavour is not (flavour or Flavour.MYSQL):
            sys.stderr.write(f"using {program.flavour.value}, because of MySQL:\n" + "\n".join(refusals) + "\n")
        return program

    def _make_data(self, program: Program, config: Mapping[str, str]) -> None:
        # MySQL takes a second of the processor to make a data folder, and MariaDB a tenth of that.
        is_copied = program.flavour is Flavour.MYSQL and not _OF_A_DATA_FOLDER & config.keys()
        made = cached(_data_name(program), lambda folder: self._fill(folder, program)) if is_copied else None
        self._write_settings(program, config)
        if made is None:
            program.initialise(self._settings, self._root)
        else:
            program.validate(self._settings, self._root)
            shutil.copytree(made / "data", self._root / "data")

    def _fill(self, folder: Path, program: Program) -> None:
        """Make a data folder that servers begin with a copy of."""
        self._write_settings(program, {})
        program.initialise(self._settings, self._root)
        # Each server has an identity of its own.
        (self._root / "data" / "auto.cnf").unlink()
        shutil.move(self._root / "data", folder / "data")

    def _write_settings(self, program: Program, config: Mapping[str, str]) -> None:
        # Sockets have names of at most 107 bytes, and temporary folders may have longer ones.
        settings = {
            "datadir": str(self._root / "data"),
            "port": str(self._port),
            "bind_address": self.host,
            "socket": os.path.relpath(self._root / "s", self._root / "data"),
            "pid_file": str(self._root / "server.pid"),
            "tmpdir": str(self._root),
            "secure_file_priv": "",
            **({"user": "root"} if os.geteuid() == 0 else {}),
            **program.settings,
            **server_settings(program.flavour),
            **config,
        }
        if program.flavour is Flavour.MARIADB:
            (self._root / "data").mkdir(exist_ok=True)
        known = {name: value for name, value in settings.items() if name not in program.lacks}
        lines = ["[mysqld]", *(f"{name}={value}" for name, value in known.items())]
        self._settings.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _data_name(program: Program) -> str:
    installed = Path(program.command[-1]).stat().st_mtime_ns
    return fingerprinted("mysql-data", *program.command, installed, *server_settings(program.flavour).items())
