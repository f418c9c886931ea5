"""A broker connection taken over from kafka-python once it is authenticated: one request on its way at a time."""

from __future__ import annotations

import math
import selectors
import socket
import struct
import time

import numpy as np

from pyspark_aligned_kafka.records.record_batches import Bytes

# Memory that responses are received into, again and again: one for all connections of a session.


_FIRST_SIZE = 1 << 20
_LARGEST_KEPT = 16 << 20


class ResponseMemory:
    """Holds one response at a time, that of the connection which received last."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_SIZE, np.uint8)

    def grow(self, wanted: int, have: int) -> None:
        """Make room for so many bytes, and keep those that are there."""
        if self.data.size < wanted:
            larger = np.empty(1 << (wanted - 1).bit_length(), np.uint8)
            larger[:have] = self.data[:have]
            self.data = larger

    def trim(self) -> None:
        """Give back memory that only an unusually large response needed; what was received is not valid any more."""
        if self.data.size > _LARGEST_KEPT:
            self.data = np.empty(_FIRST_SIZE, np.uint8)


_LENGTH = struct.Struct(">i")
_LARGEST_RESPONSE = 1 << 30


class ConnectionLostError(Exception):
    """The connection is gone or useless; the reader makes another one. Never leaves this package."""


class BrokerConnection:
    """Sends requests and receives responses into memory that others may receive into, too. One thread."""

    __slots__ = ("_good_until", "_memory", "_socket", "awaiting", "correlation", "muted_until", "used_at")

    def __init__(self, taken: socket.socket, memory: ResponseMemory, good_until: float = math.inf) -> None:
        self._socket: socket.socket | None = taken
        self._good_until = good_until
        self._memory = memory
        self.correlation = 0
        self.muted_until = 0.0
        """By ``time.monotonic()``: until then the broker reads nothing from it, because of a quota (KIP-219)."""
        self.awaiting = False
        """Whether a response is on its way."""
        self.used_at = time.monotonic()
        """When something was sent or received last: who is on the way may forget a connection that is quiet."""

    def next_correlation(self) -> int:
        """Return the number for the next request to carry; ``correlation`` keeps it."""
        self.correlation = (self.correlation + 1) & 0x7FFFFFFF
        return self.correlation

    @property
    def is_logged_in(self) -> bool:
        """Whether the login on it may still be used; one that is over is replaced together with the connection."""
        return time.monotonic() < self._good_until

    @property
    def reusable(self) -> bool:
        """Whether another read can start on it: open, nothing on its way, nothing unasked-for received."""
        if self._socket is None or self.awaiting or not self.is_logged_in:
            return False
        # Not select.select: a process with many connections has descriptors beyond those it takes.
        with selectors.DefaultSelector() as watched:
            watched.register(self._socket, selectors.EVENT_READ)
            return not watched.select(0)

    def send(self, request: bytes, limit_s: float) -> None:
        """Send a request; a connection that breaks now is reported by ``receive``."""
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
        except OSError as problem:
            self.close()
            raise ConnectionLostError(str(problem) or type(problem).__name__) from problem
        except ConnectionLostError:
            self.close()
            raise
        if size != _LENGTH.size + length:
            self.close()
            raise ConnectionLostError(f"{size - _LENGTH.size - length} bytes more than the response")
        self.awaiting = False
        self.used_at = time.monotonic()
        return self._memory.data[_LENGTH.size : size], length

    def close(self) -> None:
        """Close the connection for good."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _fill(self, have: int, wanted: int, end: float) -> int:
        # Only one response can be on its way, so reading past what is wanted cannot eat another's bytes.
        assert self._socket is not None
        view = self._memory.data.data
        while have < wanted:
            got = self._socket.recv_into(view[have:])
            if got == 0:
                raise ConnectionLostError("the broker closed the connection")
            have += got
            if have < wanted and time.monotonic() > end:
                raise ConnectionLostError(f"{wanted - have} bytes of the response did not come in time")
        return have
