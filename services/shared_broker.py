"""One broker for several processes: one of them starts it when another asks for it first.

A broker takes some seconds of a core to start, and a part of one for as long as it lives.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import ExitStack
from multiprocessing.connection import Client, Listener

from services.errors import ServiceError
from services.kafka import kafka_service
from services.kafka_local import Jvm


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
        try:
            # It has the topics of all these processes.
            return self._broker.enter_context(kafka_service(jvm=Jvm(heap="1g", short_lived=True))).bootstrap
        except ServiceError as failure:
            return failure


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
