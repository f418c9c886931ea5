"""One broker for several processes: one of them starts it when another asks for it first.

A broker takes some seconds of a core to start, and a part of one for as long as it lives.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import ExitStack
from multiprocessing.connection import Client, Listener
from typing import Final

from services.errors import ServiceError
from services.kafka import kafka_service
from services.kafka_local import Jvm

_TRIES: Final = 2


class SharedBroker:
    """Starts a broker for who asks at ``address``; it lives until ``close``, or as long as this process."""

    def __init__(self) -> None:
        """Listen in a thread of its own."""
        self._broker = ExitStack()
        self._listening = Listener()
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="shared broker", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where processes of the same user ask for it."""
        return str(self._listening.address)

    def close(self) -> None:
        """End the broker."""
        self._is_closing = True
        Client(self.address).close()
        self._thread.join()
        self._listening.close()
        self._broker.close()

    def _serve(self) -> None:
        answer: str | ServiceError = ""
        while True:
            with self._listening.accept() as asked:
                if self._is_closing:
                    return
                answer = answer or self._start()
                # Who asked may have ended meanwhile.
                with contextlib.suppress(OSError):
                    asked.send(answer)

    def _start(self) -> str | ServiceError:
        """Start it, and once more with other ports: those who share it start servers of their own meanwhile."""
        # It has the topics of all these processes.
        jvm, failed = Jvm(heap="1g", short_lived=True), ServiceError("the shared broker was not started")
        for _ in range(_TRIES):
            try:
                return self._broker.enter_context(kafka_service(jvm=jvm)).bootstrap
            except ServiceError as failure:
                failed = failure
            except Exception as failure:  # noqa: BLE001 - who asks waits for an answer
                failed = ServiceError(f"the shared broker cannot start: {failure!r}")
        return failed


def shared_bootstrap(address: str) -> str:
    """Return ``bootstrap.servers`` of the broker that is shared at this address.

    Raises:
        ServiceError: it could not start, for whichever process asked first.
    """
    with Client(address) as asked:
        answer: str | ServiceError = asked.recv()
    if isinstance(answer, ServiceError):
        raise answer
    return answer
