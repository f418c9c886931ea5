"""Memory for what arrives on a connection's socket: it is reused and grows, and packets are decoded in place."""

from __future__ import annotations

import io
import socket
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import CHECKSUM_SIZE, HEADER_SIZE
from pyspark_mysql_cdc_wm.binlog.wire import LONGEST_PACKET, PACKET_HEAD, PADDING, Bytes, Fault, fault_error
from watermark_source.errors import ResponseTimeoutError, UnreachableError, UnsupportedFormatError

# With less room than this the buffer counts as full, and the unread bytes move to the front.
_LEAST_ROOM = 256 * 1024


class ReceiveBuffer:
    """``memory[begin:end]`` was received and not read yet; the last ``PADDING`` bytes of the memory stay unused."""

    __slots__ = ("_least", "_socket", "_where", "begin", "end", "memory")

    def __init__(self, size: int, connected: socket.socket, where: Callable[[], str], *, least: str) -> None:
        """Receive from a socket. ``where`` begins an error; ``least`` names what should arrive within the timeout."""
        self.memory: Bytes = np.empty(size + PADDING, np.uint8)
        self.begin = self.end = 0
        self._socket = connected
        self._where = where
        self._least = least

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def is_full(self) -> bool:
        """Whether too little room is left for another read of the socket."""
        return self._room() < _LEAST_ROOM

    def receive(self) -> None:
        """Read once from the socket; if the buffer is full, its unread bytes move first.

        Raises:
            ResponseTimeoutError: nothing arrived in time.
            UnreachableError: the connection is broken or closed.
        """
        if self.is_full:
            self._make_room()
        try:
            size = self._socket.recv_into(self.memory.data[self.end : self.memory.size - PADDING])
        except TimeoutError as late:
            raise ResponseTimeoutError(
                f"{self._where()}: nothing arrived within {self._socket.gettimeout():g} s, not even {self._least}"
            ) from late
        except OSError as failure:
            raise UnreachableError(f"{self._where()}: {failure}") from failure
        if not size:
            raise UnreachableError(f"{self._where()}: the server closed the connection")
        self.end += size

    def packet_size(self, at: int = 0) -> int:
        """Return the size of the content of the packet that is ``at`` bytes behind ``begin``; raises as ``receive``."""
        self.wait_for(at + PACKET_HEAD)
        head = self.begin + at
        return int.from_bytes(self.memory[head : head + 3].tobytes(), "little")

    def wait_for(self, size: int) -> None:
        """Receive until ``size`` bytes are not read yet; raises as ``receive``."""
        while len(self) < size:
            self.receive()

    def join(self, longest: int | None = None) -> int:
        """Join the contents of the packets at ``begin`` behind the first one's header, and return their bytes.

        What is of 16 MB or more is sent as full packets and a last one that is not full. Raises as ``receive``.

        Raises:
            UnsupportedFormatError: they are more than ``longest`` bytes.
        """
        size = part = self.packet_size()
        while part == LONGEST_PACKET:
            part = self.packet_size(PACKET_HEAD + size)
            self.wait_for(size + 2 * PACKET_HEAD + part)
            content = self.begin + PACKET_HEAD + size
            self.memory[content : self.end - PACKET_HEAD] = self.memory[content + PACKET_HEAD : self.end]
            self.end -= PACKET_HEAD
            size += part
            if longest is not None and size > longest:
                raise UnsupportedFormatError(
                    f"{self._where()}: a row of more than {longest} bytes; at most 2 GB are read"
                )
        self.wait_for(PACKET_HEAD + size)
        return size

    def _make_room(self) -> None:
        """Move the unread bytes to the front, into larger memory if they fill half of this one."""
        left = len(self)
        target = self.memory
        if 2 * left + _LEAST_ROOM > self.memory.size:
            target = np.empty(2 * self.memory.size, np.uint8)
        target[:left] = self.memory[self.begin : self.end]
        self.memory = target
        self.begin, self.end = 0, left

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
        content = self.memory[start : start + self.packet_size()].tobytes()
        # An SQL state, marked with "#", precedes the text, except in errors before the handshake.
        text = content[9:] if content[3:4] == b"#" else content[3:]
        return int.from_bytes(content[1:3], "little"), text.decode(errors="replace")

    def _room(self) -> int:
        return self.memory.size - PADDING - self.end


class LongEvent(io.RawIOBase):
    """An event of several packets at the beginning of the buffer, whose body is read while it arrives.

    The packets' contents, joined, are a zero byte, the event's header, its body, and its checksum.
    """

    def __init__(self, buffer: ReceiveBuffer, where: str, *, checksums: bool) -> None:
        """Read the header. With ``checksums`` events end with one."""
        self._buffer = buffer
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

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, target: Any, /) -> int:
        """Put at least one byte of the body into memory and return how many, none at its end.

        Raises:
            CorruptDataError: the packets end before the body does.
            UnreachableError: the connection broke.
        """
        if self._left <= 0:
            return 0
        content = self._read_content(min(len(target), self._left))
        target[: len(content)] = content
        self._left -= len(content)
        self._crc = zlib.crc32(content, self._crc)
        return len(content)

    def finish(self, *, check: bool) -> None:
        """Read the rest of the packets, and ``check`` the event's checksum if it has one.

        Raises:
            CorruptDataError: the checksum does not match, or the packets are longer than the event.
        """
        self.readall()
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
        buffer = self._buffer
        buffer.wait_for(1)
        stop = buffer.begin + min(size, self._in_packet, len(buffer))
        content = buffer.memory[buffer.begin : stop].tobytes()
        buffer.begin = stop
        self._in_packet -= len(content)
        return content

    def _next_packet(self) -> int:
        """Skip a packet's header and return the size of its content in bytes."""
        self._in_packet = self._buffer.packet_size()
        self._is_last = self._in_packet < LONGEST_PACKET
        self._buffer.begin += PACKET_HEAD
        return self._in_packet
