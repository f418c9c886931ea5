"""Outages: a server is killed and comes back after a while, by itself."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from services.kafka import OwnKafka
from services.mysql import MySql


@dataclass
class Outages:
    """Those of one broker, one after the other."""

    server: OwnKafka | MySql
    seconds: list[float] = field(default_factory=list)
    """How long each one was that is over."""
    _thread: threading.Thread | None = None
    _error: Exception | None = None

    def begin(self, pause: float) -> None:
        """Kill the server, when the last outage is over, and return; it is started after a pause in seconds."""
        self.wait()
        self.server.kill()
        self._thread = threading.Thread(target=self._end, args=(pause, time.monotonic()), name="outage", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server answers again; raises what kept it from that."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _end(self, pause: float, begun: float) -> None:
        time.sleep(pause)
        try:
            self.server.start()
        except Exception as error:  # noqa: BLE001 - raised again in wait
            self._error = error
        self.seconds.append(time.monotonic() - begun)
