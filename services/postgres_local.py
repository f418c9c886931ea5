"""A PostgreSQL server as a local process."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Mapping, Sequence

import psutil

from services.errors import ServiceError
from services.local_database import LocalDatabase
from services.postgres_client import USER, answers
from services.postgres_program import Program, usable_program
from services.process import run_to_end
from services.wait_until import wait_until

START_SECONDS = 60.0
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
            ServiceError: no program can be had, or none that makes a data folder; the message tells each way tried.
        """
        super().__init__(prefix="postgres-")
        self._data = self._root / "data"
        try:
            self._program = self._choose(server_settings(config))
        except BaseException:  # also an interrupt: no folder stays behind
            self.close()
            raise

    def stop(self) -> None:
        """Stop it in an orderly way, whoever is connected. Its data stays."""
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
                program.own(self._root)
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
