"""Connections for ``http.client`` that end at a deadline: a time limit of each read restarts with every byte."""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
import urllib.request
from typing import Any

_PIECE = 1 << 16


class DeadlineConnection:
    """A connected socket, as ``http.client`` uses it, with a deadline in seconds of the monotonic clock."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection = connection
        self._end = end
        self._is_read = False

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the response, whose end closes the connection."""
        self._is_read = True
        return io.BufferedReader(_Response(self))

    def sendall(self, data: bytes) -> None:
        """Send what fits before the deadline; raises ``TimeoutError``."""
        self._limited().sendall(data)

    def receive(self, buffer: Any) -> int:
        """Receive what comes before the deadline; raises ``TimeoutError``."""
        return self._limited().recv_into(buffer)

    def close(self) -> None:
        """Close it, unless its response is still to be read: ``http.client`` closes it before."""
        if not self._is_read:
            self.end()

    def end(self) -> None:
        """Close it for good."""
        self._connection.close()

    def _limited(self) -> socket.socket:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response has no end")
        self._connection.settimeout(left)
        return self._connection


class _Response(io.RawIOBase):
    def __init__(self, source: DeadlineConnection) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.receive(buffer)

    def close(self) -> None:
        self._source.end()
        super().close()


def body_of(response: http.client.HTTPResponse, most: int) -> bytes:
    """Return the body of a response; of one with more than ``most`` bytes only a beginning, which has more too.

    Raises:
        IncompleteRead: it ends before its stated size.
    """
    size, body = response.length or 0, bytearray()
    while len(body) <= most and (piece := response.read1(_PIECE)):
        body += piece
    if len(body) < min(size, most):
        raise http.client.IncompleteRead(bytes(body), size - len(body))
    return bytes(body)


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a body is; ``None`` for anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class _Deadline(urllib.request.AbstractHTTPHandler):
    """A handler of ``urllib`` whose time limit is for a whole request with its response."""

    def do_open(self, http_class: Any, req: urllib.request.Request, **args: Any) -> http.client.HTTPResponse:
        end = time.monotonic() + (req.timeout or 0)

        def made(*place: Any, **given: Any) -> http.client.HTTPConnection:
            connection: http.client.HTTPConnection = http_class(*place, **given)
            connect = connection.connect

            def connect_until() -> None:
                connect()
                connection.sock = DeadlineConnection(connection.sock, end)

            connection.connect = connect_until  # type: ignore[method-assign]
            return connection

        return super().do_open(made, req, **args)


class HttpUntil(_Deadline, urllib.request.HTTPHandler):
    """``http`` for ``urllib.request.build_opener``."""


class HttpsUntil(_Deadline, urllib.request.HTTPSHandler):
    """``https`` for ``urllib.request.build_opener``."""
