"""An event of several packets, of which the body is read as it arrives.

The content of its packets is one after another: a zero byte, the event's header, its body, and its checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from pyspark_mysql_cdc_wm.binlog.event_headers import CHECKSUM_SIZE, HEADER_SIZE
from pyspark_mysql_cdc_wm.binlog.wire import LONGEST_PACKET, PACKET_HEAD
from pyspark_mysql_cdc_wm.client.receive_buffer import ReceiveBuffer
from pyspark_mysql_cdc_wm.errors.corrupt_binlog import Fault, fault_error


class LongEvent:
    """One such event at the beginning of what was received; a ``Source`` of its body."""

    __slots__ = ("_buffer", "_checksum", "_crc", "_in_packet", "_is_last", "_left", "_receive", "_where", "header")

    def __init__(self, buffer: ReceiveBuffer, receive: Callable[[], None], where: str, *, checksums: bool) -> None:
        """Read its header; ``receive`` lets more arrive in ``buffer``. With ``checksums`` it has one."""
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
        """Bytes of the event."""
        return int.from_bytes(self.header[9:13], "little")

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes of the body, none at its end.

        Raises:
            CorruptDataError: the packets end before it.
            UnreachableError: the connection broke.
        """
        if self._left <= 0:
            return b""
        found = self._some(min(size, self._left))
        self._left -= len(found)
        self._crc = zlib.crc32(found, self._crc)
        return found

    def finish(self, *, check: bool) -> None:
        """Read what is left of the packets, and ``check`` the event's checksum if it has one.

        Raises:
            CorruptDataError: it does not fit, or the packets are longer than the event.
        """
        while self.read(LONGEST_PACKET):
            pass
        told = self._exactly(self._checksum)
        if self._in_packet or (not self._is_last and self._next_packet()):
            raise fault_error(Fault.EVENT_SIZE, self._where)
        if check and told and int.from_bytes(told, "little") != self._crc:
            raise fault_error(Fault.CHECKSUM, self._where)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._some(size - len(found))
        return found

    def _some(self, size: int) -> bytes:
        """Return some of the packets' content, at most so much of it."""
        if not self._in_packet and (self._is_last or not self._next_packet()):
            raise fault_error(Fault.EVENT_SIZE, self._where)
        self._wait_for(1)
        buffer = self._buffer
        stop = buffer.begin + min(size, self._in_packet, len(buffer))
        found = buffer.memory[buffer.begin : stop].tobytes()
        buffer.begin = stop
        self._in_packet -= len(found)
        return found

    def _next_packet(self) -> int:
        """Pass over a packet's head and return the size of its content."""
        self._wait_for(PACKET_HEAD)
        buffer = self._buffer
        self._in_packet = int.from_bytes(buffer.memory[buffer.begin : buffer.begin + 3].tobytes(), "little")
        self._is_last = self._in_packet < LONGEST_PACKET
        buffer.begin += PACKET_HEAD
        return self._in_packet

    def _wait_for(self, size: int) -> None:
        while len(self._buffer) < size:
            self._receive()
