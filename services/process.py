"""A child process with a log file that cannot outlive its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.errors import ServiceError

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
        self._process.wait(timeout=30)
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
