"""ZooKeeper as a local process, for the brokers that keep their cluster in it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from services.errors import ServiceError
from services.local_server import ChildProcess, free_ports
from services.wait_until import wait_until

_START_SECONDS = 150.0
SESSION_SECONDS = 3.0
"""A broker that sends nothing for this long loses its session, and others lead its partitions."""


class ZooKeeper:
    """One server on a loopback port, which runs from ``start`` to ``close`` and dies with this process."""

    def __init__(self, folder: Path, java: Callable[..., Sequence[str]]) -> None:
        """Write its settings into ``folder``; ``java`` makes a command of a main class and its arguments."""
        (self._port,) = free_ports(1)
        self._folder, self._java = folder, java
        self._process: ChildProcess | None = None
        folder.mkdir()
        settings = {
            "dataDir": str(folder / "data"),
            "clientPort": str(self._port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            # Sessions last from two to twenty ticks.
            "tickTime": "500",
            "4lw.commands.whitelist": "dump",
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "zoo.cfg").write_text(lines, encoding="utf-8")

    @property
    def address(self) -> str:
        """``zookeeper.connect`` of the brokers."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it unless it runs, and return when it answers.

        Raises:
            ServiceError: it ended or did not answer in time; the message holds the end of its log.
        """
        if self._process is None:
            main = ("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._folder / "zoo.cfg"))
            log = self._folder / "server.log"
            self._process = ChildProcess(self._java("-Xmx256m", *main), folder=self._folder, log=log)
        try:
            wait_until(self._answers, _START_SECONDS, "ZooKeeper that answers")
        except ServiceError as late:
            raise ServiceError(f"{late}. The end of its log:\n{self._process.last_lines()}") from late

    def wait_until_gone(self, node: int) -> None:
        """Return when the session of a broker that was killed is over: before, it cannot register again."""
        seconds = 10 * SESSION_SECONDS
        own = f"/brokers/ids/{node}\n"
        wait_until(
            lambda: self._answers() and own not in self._dump(), seconds, f"the end of the session of broker {node}"
        )

    def close(self) -> None:
        """End it at once. Idempotent."""
        if self._process is not None:
            self._process.kill()

    def _answers(self) -> bool:
        return "SessionTracker" in self._dump()

    def _dump(self) -> str:
        """Return the sessions and what each of them holds, or nothing while there is no answer."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(b"dump")
                return connection.makefile("rb").read().decode()
        except OSError:
            return ""
