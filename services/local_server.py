"""A database server as a local process: what all of them do alike."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.errors import ServiceError
from services.server import Server

# A child process with a log file that cannot outlive its parent.


# The child is exec'ed by a shell that leaves a watcher behind in the same process group. The watcher waits for the
# end of a pipe that only this Python process holds open; the kernel closes it however this process ends, kill -9
# included. Then the watcher kills the child ($$ is its pid after exec) and removes its files ($0), twice, because a
# sibling that is dying too may still be writing there.
_WATCHED = """exec 3<&0 </dev/null
(cat <&3 >/dev/null; kill -KILL $$; rm -rf "$0" || { sleep 1; rm -rf "$0"; }) &
exec 3<&-
exec "$@"
"""


class ChildProcess:
    """One child: from its start to its end."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        files: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``command`` in ``folder``, both its streams into ``log``.

        ``files`` (``folder`` by default) is removed if this process dies without having stopped the child.
        ``environment`` is all of the child's environment; by default it has this process's own.
        """
        self._log = log
        self._gone = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, str(files or folder), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self, *, seconds: float) -> None:
        """Ask it to end (SIGTERM); kill it when it has not ended after ``seconds``. Idempotent."""
        if self.exit_code is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=seconds)
        self.kill()

    def kill(self) -> None:
        """End it and its watcher at once (SIGKILL) and wait until it is gone. Idempotent."""
        if self._gone:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=90)
        self._gone = True
        if self._process.stdin is not None:
            self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child alone, for example SIGSTOP; one that has ended ignores it."""
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop the child alone (SIGSTOP), and return when all its threads have stopped, which a busy machine delays."""
        self._process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def last_lines(self, count: int = 30) -> str:
        """The end of its log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-count:]) or "(the log is empty)"


def run_to_end(command: Sequence[str], *, folder: Path, seconds: float, what: str) -> None:
    """Run a short command in ``folder``.

    Raises:
        ServiceError: it failed or took longer than ``seconds``; the message holds its output.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ServiceError(f"{what} did not end within {seconds:g} s") from late
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ServiceError(f"{what} failed with exit code {done.returncode}:\n{output}")


# Free loopback ports.


# Below the range from which systems draw the ports of outgoing connections (Linux: 32768 and up): a port chosen here
# is still free when a stopped server comes back to it.
_LOWEST = 20_000
_HIGHEST = 32_767
_ATTEMPTS = 500


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different ports of 127.0.0.1 on which no process listens at this moment."""
    # A server listens a second later: of the processes of one run of tests each has ports of its own.
    own, of = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    ports = range(_LOWEST + int(own.removeprefix("gw")), _HIGHEST + 1, int(of))
    # Not seeded: two processes that start at the same time must not try the same ports in the same order.
    candidates = random.SystemRandom().sample(ports, min(_ATTEMPTS, len(ports)))
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise ServiceError(f"{len(found)} of {count} needed ports are free after {_ATTEMPTS} tries on 127.0.0.1")
    return tuple(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # A port whose last connections are in TIME_WAIT is free for a server, as it is for Kafka.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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
