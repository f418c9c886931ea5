"""A server whose responses have no end, though no byte is late."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

ENDLESS: Mapping[str, tuple[bytes, bytes]] = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "a status that is to come": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body by the byte": (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"["),
    "lines behind the chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
}
"""How a response begins, and how it continues."""


@contextmanager
def endless_responses(start: bytes, more: bytes) -> Iterator[int]:
    """Serve connections at a port, all at once, with responses that continue until the end of the block."""
    done = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(start)
            while not done.wait(0.01):
                connection.sendall(more)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept).start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
