"""BrokerConnection: an authenticated connection taken over from kafka-python, with one open request at a time."""

from __future__ import annotations

import math
import selectors
import socket
import struct
import time
from collections.abc import Mapping

import numpy as np

from pyspark_aligned_kafka.records.record_batches import Bytes

_FIRST_SIZE = 1 << 20
_LARGEST_KEPT = 16 << 20


class ResponseMemory:
    """The memory that all connections of a session receive into. It holds the last received response."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_SIZE, np.uint8)

    def grow(self, wanted: int, have: int) -> None:
        """Enlarge the memory to ``wanted`` bytes, and keep the first ``have``."""
        if self.data.size < wanted:
            larger = np.empty(1 << (wanted - 1).bit_length(), np.uint8)
            larger[:have] = self.data[:have]
            self.data = larger

    def trim(self) -> None:
        """Release the memory of an unusually large response; the received bytes are no longer valid."""
        if self.data.size > _LARGEST_KEPT:
            self.data = np.empty(_FIRST_SIZE, np.uint8)


_LENGTH = struct.Struct(">i")
_LARGEST_RESPONSE = 1 << 30


class ConnectionLostError(Exception):
    """The connection is closed or unusable; the reader opens another one. It never leaves this package."""


class BrokerConnection:
    """Sends requests, and receives responses into shared memory. For use by one thread."""

    __slots__ = (
        "_good_until", "_memory", "_socket", "awaiting", "correlation", "ids", "knows_ids", "muted_until", "used_at",
    )  # fmt: skip

    def __init__(
        self,
        detached: socket.socket,
        memory: ResponseMemory,
        good_until: float = math.inf,
        *,
        knows_ids: bool = False,
    ) -> None:
        self._socket: socket.socket | None = detached
        self._good_until = good_until
        """By ``time.monotonic()``: the broker closes one that is used after its login has expired (KIP-368)."""
        self._memory = memory
        self.knows_ids = knows_ids
        """Whether the broker takes the ids of topics in place of their names."""
        self.ids: Mapping[str, bytes] | None = None
        """The ids in the last request; ``None`` if it has names."""
        self.correlation = 0
        self.muted_until = 0.0
        """By ``time.monotonic()``: until then the broker reads no request, because of a quota (KIP-219)."""
        self.awaiting = False
        """Whether a response is outstanding."""
        self.used_at = time.monotonic()
        """When bytes were last sent or received: the network may drop an idle connection."""

    def next_correlation(self) -> int:
        """Set ``correlation`` to the number of the next request, and return it."""
        self.correlation = (self.correlation + 1) & 0x7FFFFFFF
        return self.correlation

    @property
    def is_logged_in(self) -> bool:
        """Whether its login is still valid. An expired login is replaced together with the connection."""
        return time.monotonic() < self._good_until

    @property
    def reusable(self) -> bool:
        """Whether another read can use it: open, no response outstanding, and no unexpected bytes received."""
        if self._socket is None or self.awaiting or not self.is_logged_in:
            return False
        # select.select fails for descriptors above 1023, which a process with many connections has.
        with selectors.DefaultSelector() as watched:
            watched.register(self._socket, selectors.EVENT_READ)
            return not watched.select(0)

    def send(self, request: bytes, limit_s: float) -> None:
        """Send a request. ``receive`` reports a failure."""
        self.awaiting = True
        self.used_at = time.monotonic()
        if self._socket is None:
            return
        try:
            self._socket.settimeout(max(limit_s, 0.001))
            self._socket.sendall(_LENGTH.pack(len(request)) + request)
        except OSError:
            self.close()

    def receive(self, silence_s: float, total_s: float) -> tuple[Bytes, int]:
        """Return the response and its size; valid until the next ``receive`` into the same memory.

        Raises:
            ConnectionLostError: closed, broken, silent for ``silence_s``, not complete after ``total_s``, or not
                speaking Kafka's protocol.
        """
        if self._socket is None:
            raise ConnectionLostError("the connection is closed")
        self._socket.settimeout(max(silence_s, 0.001))
        end = time.monotonic() + total_s
        try:
            size = self._fill(0, _LENGTH.size, end)
            (length,) = _LENGTH.unpack_from(self._memory.data.data, 0)
            if not 0 < length <= _LARGEST_RESPONSE:
                raise ConnectionLostError(f"a response of {length} bytes")
            self._memory.grow(_LENGTH.size + length, size)
            size = self._fill(size, _LENGTH.size + length, end)
            if size != _LENGTH.size + length:
                raise ConnectionLostError(f"{size - _LENGTH.size - length} bytes more than the response")
        except OSError as problem:
            self.close()
            raise ConnectionLostError(str(problem) or type(problem).__name__) from problem
        except ConnectionLostError:
            self.close()
            raise
        self.awaiting = False
        self.used_at = time.monotonic()
        return self._memory.data[_LENGTH.size : size], length

    def close(self) -> None:
        """Close the connection for good."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _fill(self, have: int, wanted: int, end: float) -> int:
        # Only one response is outstanding, so reading beyond ``wanted`` consumes no other response.
        assert self._socket is not None
        view = self._memory.data.data
        while have < wanted:
            got = self._socket.recv_into(view[have:])
            if got == 0:
                raise ConnectionLostError("the broker closed the connection")
            have += got
            if have < wanted and time.monotonic() > end:
                raise ConnectionLostError(f"{wanted - have} bytes of the response did not arrive in time")
        return have
