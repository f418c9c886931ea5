"""A database server as a local process: what all of them do alike."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from services.errors import ServiceError
from services.ports import free_ports
from services.process import ChildProcess
from services.server import Server


class LocalDatabase(Server):
    """One server on a loopback port.

    Data outlives ``stop`` and ``kill``; ``close`` removes it. If this process dies first, however it dies, the server
    dies with it and its folder goes.
    """

    def __init__(self, *, prefix: str) -> None:
        """Take a port, and make the server's folder."""
        (self._port,) = free_ports(1)
        self._root = Path(tempfile.mkdtemp(prefix=prefix))
        self._process: ChildProcess | None = None

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
            self._process = ChildProcess(self._command(), folder=self._root, log=self._root / "server.log")
        self._wait_until_it_answers(self._process)

    def stop(self) -> None:
        """Stop it in an orderly way. Its data stays."""
        if self._process is not None:
            self._process.stop(seconds=self._stop_seconds)

    def kill(self) -> None:
        """End it with kill -9. What was written stays; ``start`` begins again from it."""
        if self._process is not None:
            self._process.kill()

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

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return how it is run."""

    def _wait_until_it_answers(self, process: ChildProcess) -> None:
        end = time.monotonic() + self._start_seconds
        while not self._answers():
            if process.exit_code is not None:
                raise ServiceError(
                    f"{self._kind} ended with exit code {process.exit_code} while it started. "
                    f"The end of its log:\n{process.last_lines()}"
                )
            if time.monotonic() >= end:
                raise ServiceError(
                    f"{self._kind} at {self.host}:{self._port} did not answer within {self._start_seconds:g} s. "
                    f"The end of its log:\n{process.last_lines()}"
                )
            time.sleep(0.05)
