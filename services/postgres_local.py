"""A PostgreSQL server as a local process."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from services.deadline import wait_until
from services.errors import ServiceError
from services.ports import free_ports
from services.postgres_client import USER, answers
from services.postgres_program import Program, programs
from services.process import ChildProcess, run_to_end

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_INITIALISE_SECONDS = 120.0
_GONE_SECONDS = 30.0


def server_settings(config: Mapping[str, str] | None) -> dict[str, str]:
    """Settings of every server, wherever it runs: small, and what is written need not outlive the machine."""
    return {"fsync": "off", "jit": "off", "max_connections": "200", "shared_buffers": "32MB", **(config or {})}


class LocalPostgres:
    """One server on a loopback port; user ``postgres`` has no password.

    Data outlives ``stop`` and ``kill``; ``close`` removes it. If this process dies first, however it dies, the server
    dies with it and its folder goes.
    """

    def __init__(self, *, config: Mapping[str, str] | None = None) -> None:
        """Find or fetch the programs and make the data folder.

        Raises:
            ServiceError: no program can be had, or none that makes a data folder; the message tells each way tried.
        """
        (self._port,) = free_ports(1)
        self._root = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._data = self._root / "data"
        self._process: ChildProcess | None = None
        try:
            self._program = self._first_that_works(server_settings(config))
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
                [*self._program.command("postgres"), "-D", str(self._data)],
                folder=self._root,
                log=self._root / "server.log",
            )
        self._wait_until_it_answers(self._process)

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
            below = self._below()
            # One that is frozen does not see that the first is gone.
            for process in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.kill()
            psutil.wait_procs(below, timeout=_GONE_SECONDS)

    def restart(self) -> None:
        """``stop``, then ``start``: same port, same data."""
        self.stop()
        self.start()

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

    def close(self) -> None:
        """Stop it at once and remove its data. Idempotent."""
        with contextlib.suppress(OSError):
            self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def _below(self) -> list[psutil.Process]:
        """Return the server's own processes: each is the first of its own group."""
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except (ServiceError, psutil.NoSuchProcess):
            return []

    def _first_that_works(self, settings: Mapping[str, str]) -> Program:
        refusals = []
        for get in programs():
            try:
                program = get(self._root)
                program.own(self._root)
                self._initialise(program, settings)
            except ServiceError as refused:  # noqa: PERF203 - two ways
                refusals.append(str(refused))
                shutil.rmtree(self._data, ignore_errors=True)
            else:
                return program
        raise ServiceError(
            "PostgreSQL cannot be had: install it so that its server is on PATH, or start a container engine. Tried:\n"
            + "\n".join(refusals)
        )

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

    def _wait_until_it_answers(self, process: ChildProcess) -> None:
        end = time.monotonic() + START_SECONDS
        while not answers(self.host, self._port):
            if process.exit_code is not None:
                raise ServiceError(
                    f"PostgreSQL ended with exit code {process.exit_code} while it started. "
                    f"The end of its log:\n{process.last_lines()}"
                )
            if time.monotonic() >= end:
                raise ServiceError(
                    f"PostgreSQL at {self.host}:{self._port} did not answer within {START_SECONDS:g} s. "
                    f"The end of its log:\n{process.last_lines()}"
                )
            time.sleep(0.05)
