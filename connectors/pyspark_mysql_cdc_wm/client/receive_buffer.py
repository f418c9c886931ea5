"""What arrives on a connection's socket, in memory that is used again and grows: packets are decoded where they lie."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import numpy as np

from pyspark_mysql_cdc_wm.binlog.wire import PACKET_HEAD, PADDING, Bytes
from watermark_source.errors import ResponseTimeoutError, UnreachableError

# One read of a socket gives what has arrived; less room than this left, and the rest is moved to the front.
_LEAST_ROOM = 256 * 1024


class ReceiveBuffer:
    """``memory[begin:end]`` has arrived and was not taken; ``PADDING`` bytes behind it are never received into."""

    __slots__ = ("begin", "end", "memory")

    def __init__(self, size: int) -> None:
        self.memory: Bytes = np.empty(size + PADDING, np.uint8)
        self.begin = self.end = 0

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def is_full(self) -> bool:
        """Whether so little room is left that another read is hardly worth its call."""
        return self._room() < _LEAST_ROOM

    def make_room(self) -> None:
        """Move what was not taken to the front, of larger memory if it fills half of this one."""
        left = len(self)
        target = self.memory
        if 2 * left + _LEAST_ROOM > self.memory.size:
            target = np.empty(2 * self.memory.size, np.uint8)
        target[:left] = self.memory[self.begin : self.end]
        self.memory = target
        self.begin, self.end = 0, left

    def receive(self, connected: socket.socket, where: str, *, least: str) -> None:
        """Read once from a socket. ``where`` begins an error, ``least`` is what should have come within its timeout.

        Raises:
            ResponseTimeoutError: nothing arrived in time.
            UnreachableError: the connection is broken or closed.
        """
        try:
            size = connected.recv_into(self.memory.data[self.end : self.memory.size - PADDING])
        except TimeoutError as late:
            raise ResponseTimeoutError(
                f"{where}: nothing arrived within {connected.gettimeout():g} s, not even {least}"
            ) from late
        except OSError as failure:
            raise UnreachableError(f"{where}: {failure}") from failure
        if not size:
            raise UnreachableError(f"{where}: the server closed the connection")
        self.end += size

    def cut(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Take pieces out of what has arrived, each from one place behind ``begin`` to another, in order."""
        memory, first = self.memory, self.begin
        target = self.end if not pieces else first + pieces[0][0]
        ends = [start for start, _ in pieces[1:]] + [len(self)]
        for (_, stop), end in zip(pieces, ends, strict=False):
            size = end - stop
            memory[target : target + size] = memory[first + stop : first + end]
            target += size
        self.end = target

    def hold(self, received: bytes) -> None:
        """Begin anew with bytes that somebody else has received."""
        self.begin = self.end = 0
        while self._room() < len(received):
            self.memory = np.empty(2 * self.memory.size, np.uint8)
        self.memory[: len(received)] = np.frombuffer(received, np.uint8)
        self.end = len(received)

    def error(self) -> tuple[int, str]:
        """Return the number and the text of the error in the packet at ``begin``."""
        start = self.begin + PACKET_HEAD
        size = int.from_bytes(self.memory[self.begin : self.begin + 3].tobytes(), "little")
        content = self.memory[start : start + size].tobytes()
        # A state of SQL, marked with "#", is before the text of all errors but the earliest of a connection.
        text = content[9:] if content[3:4] == b"#" else content[3:]
        return int.from_bytes(content[1:3], "little"), text.decode(errors="replace")

    def _room(self) -> int:
        return self.memory.size - PADDING - self.end
