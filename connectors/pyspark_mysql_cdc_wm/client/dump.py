"""A connection that dumps the binlog: PyMySQL logs in, then large blocks of its socket are read into reused memory.

Commands (little-endian): COM_BINLOG_DUMP 0x12: position 4, flags 2, server id 4, file name. COM_BINLOG_DUMP_GTID 0x1E:
flags 2, server id 4, size 4 and file name, position 8, size 4 and the GTID set not to send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pymysql

from pyspark_mysql_cdc_wm.binlog.compressed_transactions import Unpacker, uncompressed
from pyspark_mysql_cdc_wm.binlog.dump_packets import PacketWalk, Stopped
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, TYPE, EventType, next_file
from pyspark_mysql_cdc_wm.binlog.wire import PACKET_HEAD, Bytes, Longs, padded
from pyspark_mysql_cdc_wm.client.connection import NOT_UNDERSTOOD, connected
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.client.receive_buffer import LongEvent, ReceiveBuffer
from pyspark_mysql_cdc_wm.client.server_errors import dump_error, server_error
from watermark_source.errors import (
    UnsupportedFormatError,
)

_DUMP, _DUMP_GTID = 0x12, 0x1E
_LARGEST_POSITION = 2**32 - 1
_NON_BLOCKING = 1
_MARIADB_ANNOTATIONS = 2
_FIRST_POSITION = 4
_FIRST_ROOM = 8 * 1024 * 1024
_BLOCK_BYTES = 2 * 1024 * 1024
_HEARTBEAT_NANOSECONDS = 5_000_000_000
TIMEOUT_SECONDS = 30.0
"""Limit in seconds for each wait for bytes of a dump."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A place between two events of a binlog file."""

    file: str
    position: int = _FIRST_POSITION


class PayloadPart(NamedTuple):
    """Which events of a compressed transaction are in a block, where the transaction fills several blocks."""

    before: int
    """Number of its events in previous blocks."""
    is_last: bool


class Block(NamedTuple):
    """Events received together; ``memory`` and ``events`` are valid until the next block is requested."""

    memory: Bytes
    events: Longs
    file: str
    """The file of the first event; a ROTATE event names the file of the events after it."""
    part: PayloadPart | None = None
    """Set for a compressed transaction that is too long for one block. Its events are unpacked, all with the position
    after the transaction, because no dump can begin between them."""


class BinlogDump:
    """The events of a server's binlog from a position on.

    It ends at the end of the binlog, and has the server id 0: the server ends a dump with another id when another
    client requests one with the same id.
    """

    def __init__(self, settings: LoginSettings, start: FilePosition | bytes, *, check: bool = True) -> None:
        """Connect and request all events from ``start``, a position or an encoded GTID set, on.

        Raises:
            UnreachableError: the server cannot be reached.
            RefusedError: the server refuses the login.
            UnsupportedFormatError: the command cannot carry the position.
        """
        if isinstance(start, FilePosition) and start.position > _LARGEST_POSITION:
            raise UnsupportedFormatError(
                f"binlog {start.file} position {start.position}: a dump cannot begin above 4 GB of a file. A "
                "transaction larger than 3 GB ends there, or max_binlog_size allows more than 1 GB. Begin a new query, "
                "and keep transactions smaller"
            )
        self._settings = settings
        self._connection: Any = connected(settings)
        try:
            checksums = self._prepare()
            self._request(start)
        except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
            self.close()
            raise server_error(failure, settings.where, settings.username) from failure
        connected_socket = self._connection._sock  # noqa: SLF001 - PyMySQL has no public name for it
        connected_socket.settimeout(TIMEOUT_SECONDS)
        # The server leaves out the transactions of a GTID set, so positions have gaps.
        gaps = not isinstance(start, FilePosition)
        self._walk = PacketWalk(position=self._first_position, checksums=checksums, check=check, gaps=gaps)
        self._buffer = ReceiveBuffer(_FIRST_ROOM, connected_socket, self._where, least="a heartbeat")

    @property
    def position(self) -> int:
        """The position in ``file`` after the last event of the last block."""
        return self._walk.position

    def close(self) -> None:
        """Close the socket without COM_QUIT, because the server is still sending."""
        self._connection._force_close()  # noqa: SLF001 - close() would wait for a response

    def _request(self, start: FilePosition | bytes) -> None:
        if isinstance(start, FilePosition):
            self.file, self._first_position = start.file, start.position
            mariadb = "mariadb" in self._connection.get_server_info().lower()
            # MariaDB leaves out the statements' texts unless asked; a gap could then also be a missing event.
            flags = _NON_BLOCKING | (_MARIADB_ANNOTATIONS if mariadb else 0)
            request = struct.pack("<IHI", start.position, flags, 0) + start.file.encode()
            command = _DUMP
        else:
            self.file, self._first_position = "", _FIRST_POSITION
            # Heartbeats of the first version have in their headers the position up to which events were left out.
            request = struct.pack("<HIIQI", _NON_BLOCKING, 0, 0, _FIRST_POSITION, len(start)) + start
            command = _DUMP_GTID
        self._connection._execute_command(command, request)  # noqa: SLF001 - PyMySQL has no public name for it

    def blocks(self) -> Iterator[Block]:
        """Yield events as they arrive, until the end of the binlog.

        Raises:
            SourceError: the server ended the dump with an error; ``RefusedError`` if the user lacks a privilege.
            DataLossError: the server no longer has the file.
            ResponseTimeoutError: nothing arrived in time, not even a heartbeat.
            CorruptDataError: a checksum or a size does not match.
        """
        waiting = 0
        file = self.file
        buffer = self._buffer
        while True:
            stopped, events, buffer.begin = self._walk.walk(
                buffer.memory, buffer.begin, buffer.end, self.file, held=waiting
            )
            self._update_file(events[waiting:])
            waiting = len(events)
            if stopped is Stopped.SHORT and self._may_wait(events):
                buffer.receive()
                continue
            if waiting:
                yield from _uncompressed(Block(buffer.memory, events, file))
            waiting, file = 0, self.file
            if stopped is Stopped.END:
                return
            if stopped is Stopped.ERROR:
                settings = self._settings
                raise dump_error(*self._buffer.error(), self._where(), settings.where, settings.username)
            if stopped is Stopped.LONG:
                yield from self._long_payload() if self._is_payload() else _uncompressed(self._long_event())
                file = self.file
            elif stopped is Stopped.SHORT:
                buffer.receive()

    def _may_wait(self, events: Longs) -> bool:
        """Return whether to receive more before yielding these events, since each block costs its reader fixed work.

        It waits only while the server sends without a pause and the buffer has room behind the events.
        """
        if not len(events) or self._buffer.is_full:
            return False
        return bool(self._buffer.begin - events[0, START] < _BLOCK_BYTES)

    def _prepare(self) -> bool:
        with self._connection.cursor() as cursor:
            for spelling in ("source", "master"):
                cursor.execute(f"SET @{spelling}_binlog_checksum = @@global.binlog_checksum")
                cursor.execute(f"SET @{spelling}_heartbeat_period = {_HEARTBEAT_NANOSECONDS}")
            # Without it MariaDB leaves out GTIDs, and replaces events that an old replica does not know.
            cursor.execute("SET @mariadb_slave_capability = 4")
            cursor.execute("SELECT @@global.binlog_checksum")
            return bool(cursor.fetchone()[0] == "CRC32")

    def _update_file(self, events: Longs) -> None:
        for event in events[events[:, TYPE] == EventType.ROTATE]:
            self.file = next_file(self._buffer.memory, event)

    def _where(self) -> str:
        return f"binlog {self.file} position {self.position}"

    def _is_payload(self) -> bool:
        self._buffer.wait_for(PACKET_HEAD + 1 + HEADER_SIZE)
        return bool(self._buffer.memory[self._buffer.begin + PACKET_HEAD + 1 + 4] == EventType.TRANSACTION_PAYLOAD)

    def _long_payload(self) -> Iterator[Block]:
        """Unpack a compressed transaction of several packets while it arrives."""
        event = LongEvent(self._buffer, self._where(), checksums=self._walk.checksums)
        (row,) = self._walk.one_event(padded(event.header), 0, event.size, self.file, body_follows=True)
        before = 0
        for memory, events, is_last in Unpacker().of_one(event, int(row[POSITION]), self.file):
            if is_last:
                event.finish(check=self._walk.checks)
            yield Block(memory, events, self.file, PayloadPart(before, is_last))
            before += len(events)

    def _long_event(self) -> Block:
        """Receive all packets of one event."""
        buffer = self._buffer
        size = buffer.join()
        start = buffer.begin + PACKET_HEAD + 1
        events = self._walk.one_event(buffer.memory, start, start + size - 1, self.file)
        buffer.begin += PACKET_HEAD + size
        return Block(buffer.memory, events, self.file)


def _uncompressed(block: Block) -> Iterator[Block]:
    """Yield a block with the events that MariaDB compressed uncompressed, as several blocks if there are any."""
    file = block.file
    for memory, events in uncompressed(block.memory, block.events, file):
        yield Block(memory, events, file)
        for event in events[events[:, TYPE] == EventType.ROTATE]:
            file = next_file(memory, event)
