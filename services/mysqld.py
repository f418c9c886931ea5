"""A MySQL or MariaDB server as a local process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from services.errors import ServiceError
from services.mysql_client import answers
from services.mysql_program import Flavour, Program, programs
from services.ports import free_ports
from services.process import ChildProcess

START_SECONDS = 90.0
STOP_SECONDS = 30.0

MYSQL_SETTINGS = {
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "mysqlx": "OFF",
    "innodb_redo_log_capacity": "32M",
}
# What MySQL has by default.
MARIADB_SETTINGS = {"binlog_format": "ROW", "max_allowed_packet": "64M"}


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


class LocalMySql:
    """One server on a loopback port; user ``root`` has no password.

    Data outlives ``stop`` and ``kill``; ``close`` removes it. If this process dies first, however it dies, the server
    dies with it and its folder goes.
    """

    def __init__(self, *, config: Mapping[str, str] | None = None, flavour: Flavour | None = None) -> None:
        """Find or fetch a server program and make the data folder.

        ``config`` is added to the settings of the server and overrides what is there. ``flavour`` ``None`` takes
        MySQL, or MariaDB where MySQL cannot be had.

        Raises:
            ServiceError: no program can be had, or none that makes a data folder; the message tells each way tried.
        """
        (self._port,) = free_ports(1)
        self._root = Path(tempfile.mkdtemp(prefix="mysql-"))
        self._settings = self._root / "my.cnf"
        self._process: ChildProcess | None = None
        try:
            self._program = self._first_that_works(normalised(config), flavour)
        except BaseException:  # also an interrupt: no folder stays behind
            self.close()
            raise

    @property
    def host(self) -> str:
        """Always loopback."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The same after every restart."""
        return self._port

    @property
    def flavour(self) -> Flavour:
        """Which server it is."""
        return self._program.flavour

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None or self._process.exit_code is not None:
            raise ServiceError(f"the server at port {self._port} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it unless it runs, and return when it answers.

        Raises:
            ServiceError: it ended or did not answer in time; the message holds the end of its log.
        """
        if self._process is None or self._process.exit_code is not None:
            self._process = ChildProcess(
                [*self._program.command, f"--defaults-file={self._settings}"],
                folder=self._root,
                log=self._root / "server.log",
            )
        self._wait_until_it_answers(self._process)

    def stop(self) -> None:
        """Stop it in an orderly way. Its data stays."""
        if self._process is not None:
            self._process.stop(seconds=STOP_SECONDS)

    def kill(self) -> None:
        """End it with kill -9. What was written stays; ``start`` begins again from it."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """``stop``, then ``start``: same port, same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its sockets stay open and nothing answers."""
        if self._process is not None:
            self._process.freeze()

    def resume(self) -> None:
        """Let it go on when it was frozen."""
        if self._process is not None:
            self._process.signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it at once and remove its data. Idempotent."""
        with contextlib.suppress(OSError):
            self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def _first_that_works(self, config: Mapping[str, str], flavour: Flavour | None) -> Program:
        refusals = []
        for get in programs(flavour):
            try:
                program = get()
                self._write_settings(program, config)
                program.initialise(self._settings, self._root)
            except ServiceError as refused:  # noqa: PERF203 - a handful of ways
                refusals.append(str(refused))
                shutil.rmtree(self._root / "data", ignore_errors=True)
            else:
                if program.flavour is not (flavour or Flavour.MYSQL):
                    sys.stderr.write(f"using {program.flavour.value}, because of MySQL:\n" + "\n".join(refusals) + "\n")
                return program
        wanted = flavour.value if flavour else "MySQL or MariaDB"
        raise ServiceError(
            f"{wanted} cannot be had: install it so that its server is on PATH, or start a container engine. Tried:\n"
            + "\n".join(refusals)
        )

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
        lines = ["[mysqld]", *(f"{name}={value}" for name, value in settings.items())]
        self._settings.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _wait_until_it_answers(self, process: ChildProcess) -> None:
        end = time.monotonic() + START_SECONDS
        while not answers(self.host, self._port):
            if process.exit_code is not None:
                raise ServiceError(
                    f"{self.flavour.value} ended with exit code {process.exit_code} while it started. "
                    f"The end of its log:\n{process.last_lines()}"
                )
            if time.monotonic() >= end:
                raise ServiceError(
                    f"{self.flavour.value} at {self.host}:{self._port} did not answer within {START_SECONDS:g} s. "
                    f"The end of its log:\n{process.last_lines()}"
                )
            time.sleep(0.05)
