"""Memory for what arrives on a connection's socket: it is reused and grows, and packets are decoded in place."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import CHECKSUM_SIZE, HEADER_SIZE
from pyspark_mysql_cdc_wm.binlog.wire import LONGEST_PACKET, PACKET_HEAD, PADDING, Bytes, Fault, fault_error
from watermark_source.errors import ResponseTimeoutError, UnreachableError

# With less room than this the buffer counts as full, and the unread bytes move to the front.
_LEAST_ROOM = 256 * 1024


class ReceiveBuffer:
    """``memory[begin:end]`` was received and not read yet; the last ``PADDING`` bytes of the memory stay unused."""

    __slots__ = ("begin", "end", "memory")

    def __init__(self, size: int) -> None:
        self.memory: Bytes = np.empty(size + PADDING, np.uint8)
        self.begin = self.end = 0

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def is_full(self) -> bool:
        """Whether too little room is left for another read of the socket."""
        return self._room() < _LEAST_ROOM

    def make_room(self) -> None:
        """Move the unread bytes to the front, into larger memory if they fill half of this one."""
        left = len(self)
        target = self.memory
        if 2 * left + _LEAST_ROOM > self.memory.size:
            target = np.empty(2 * self.memory.size, np.uint8)
        target[:left] = self.memory[self.begin : self.end]
        self.memory = target
        self.begin, self.end = 0, left

    def receive(self, connected: socket.socket, where: str, *, least: str) -> None:
        """Read once from a socket. ``where`` begins an error; ``least`` names what should arrive within the timeout.

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
        """Remove pieces of the unread bytes, given in order by their starts and stops relative to ``begin``."""
        memory, first = self.memory, self.begin
        target = self.end if not pieces else first + pieces[0][0]
        ends = [start for start, _ in pieces[1:]] + [len(self)]
        for (_, stop), end in zip(pieces, ends, strict=False):
            size = end - stop
            memory[target : target + size] = memory[first + stop : first + end]
            target += size
        self.end = target

    def restart(self, received: bytes) -> None:
        """Replace the content with bytes that PyMySQL has already received."""
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
        # An SQL state, marked with "#", precedes the text, except in errors before the handshake.
        text = content[9:] if content[3:4] == b"#" else content[3:]
        return int.from_bytes(content[1:3], "little"), text.decode(errors="replace")

    def _room(self) -> int:
        return self.memory.size - PADDING - self.end


class LongEvent:
    """An event of several packets at the beginning of the buffer, whose body is read while it arrives.

    The packets' contents, joined, are a zero byte, the event's header, its body, and its checksum. It is a ``Source``
    of ``compressed_transactions.py``.
    """

    __slots__ = ("_buffer", "_checksum", "_crc", "_in_packet", "_is_last", "_left", "_receive", "_where", "header")

    def __init__(self, buffer: ReceiveBuffer, receive: Callable[[], None], where: str, *, checksums: bool) -> None:
        """Read the header; ``receive`` reads more bytes into ``buffer``. With ``checksums`` events end with one."""
        self._buffer = buffer
        self._receive = receive
        self._where = where
        self._in_packet, self._is_last = 0, False
        self._exactly(1)
        self.header = self._exactly(HEADER_SIZE)
        self._crc = zlib.crc32(self.header)
        self._checksum = CHECKSUM_SIZE if checksums else 0
        self._left = self.size - HEADER_SIZE - self._checksum

    @property
    def size(self) -> int:
        """Size of the event in bytes."""
        return int.from_bytes(self.header[9:13], "little")

    def read(self, size: int, /) -> bytes:
        """Return between 1 and ``size`` bytes of the body, none at its end.

        Raises:
            CorruptDataError: the packets end before the body does.
            UnreachableError: the connection broke.
        """
        if self._left <= 0:
            return b""
        content = self._read_content(min(size, self._left))
        self._left -= len(content)
        self._crc = zlib.crc32(content, self._crc)
        return content

    def finish(self, *, check: bool) -> None:
        """Read the rest of the packets, and ``check`` the event's checksum if it has one.

        Raises:
            CorruptDataError: the checksum does not match, or the packets are longer than the event.
        """
        while self.read(LONGEST_PACKET):
            pass
        checksum = self._exactly(self._checksum)
        if self._in_packet or (not self._is_last and self._next_packet()):
            raise fault_error(Fault.EVENT_SIZE, self._where)
        if check and checksum and int.from_bytes(checksum, "little") != self._crc:
            raise fault_error(Fault.CHECKSUM, self._where)

    def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            content += self._read_content(size - len(content))
        return content

    def _read_content(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes of the packets' content."""
        if not self._in_packet and (self._is_last or not self._next_packet()):
            raise fault_error(Fault.EVENT_SIZE, self._where)
        self._wait_for(1)
        buffer = self._buffer
        stop = buffer.begin + min(size, self._in_packet, len(buffer))
        content = buffer.memory[buffer.begin : stop].tobytes()
        buffer.begin = stop
        self._in_packet -= len(content)
        return content

    def _next_packet(self) -> int:
        """Skip a packet's header and return the size of its content in bytes."""
        self._wait_for(PACKET_HEAD)
        buffer = self._buffer
        self._in_packet = int.from_bytes(buffer.memory[buffer.begin : buffer.begin + 3].tobytes(), "little")
        self._is_last = self._in_packet < LONGEST_PACKET
        buffer.begin += PACKET_HEAD
        return self._in_packet

    def _wait_for(self, size: int) -> None:
        while len(self._buffer) < size:
            self._receive()
