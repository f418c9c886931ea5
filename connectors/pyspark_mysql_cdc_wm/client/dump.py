"""A connection that dumps the binlog: PyMySQL logs in, then its socket is read in large blocks into reused memory.

Commands (little-endian): COM_BINLOG_DUMP 0x12: position 4, flags 2, server id 4, file name. COM_BINLOG_DUMP_GTID 0x1E:
flags 2, server id 4, size 4 and file name, position 8, size 4 and the set of GTIDs not to send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymysql

from pyspark_mysql_cdc_wm.binlog.events import START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.packets import LONGEST_PACKET, PACKET_HEAD, PacketWalk, Stopped
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Longs
from pyspark_mysql_cdc_wm.errors.server import REFUSALS, server_error
from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnreachableError,
    UnsupportedFormatError,
)

_DUMP, _DUMP_GTID = 0x12, 0x1E
_LARGEST_POSITION = 2**32 - 1
_NON_BLOCKING = 1
_HEARTBEAT_V2 = 2
_MARIADB_ANNOTATIONS = 2
_FIRST_POSITION = 4
_FIRST_ROOM = 8 * 1024 * 1024
# One read of a socket gives what has arrived; less room than this left, and the rest is moved to the front.
_LEAST_ROOM = 256 * 1024
_BLOCK_BYTES = 2 * 1024 * 1024
_ROTATE_NAME = 27


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A place between two events of a binlog file."""

    file: str
    position: int = _FIRST_POSITION


class Block(NamedTuple):
    """Events received together; ``memory`` and ``events`` are valid until the next block is asked for."""

    memory: Bytes
    events: Longs
    file: str
    """The file of the first of these events; a ROTATE among them tells the next one's."""


class BinlogDump:
    """The events of a server's binlog from a place on.

    With ``server_id`` 0 it ends at the end of the binlog and leaves other dumps alone; with another id, which nobody
    else at this server may have, it waits for more.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        start: FilePosition | bytes,
        *,
        server_id: int = 0,
        check: bool = True,
        heartbeat_seconds: float = 5.0,
        timeout_seconds: float = 30.0,
    ) -> None:
        """Connect with PyMySQL's ``settings`` and ask for all from ``start``, a place or an encoded set of GTIDs.

        Raises:
            UnreachableError: no connection.
            RefusedError: not let in.
            UnsupportedFormatError: a position that this command cannot name.
        """
        if isinstance(start, FilePosition) and start.position > _LARGEST_POSITION:
            raise UnsupportedFormatError(
                f"binlog {start.file} position {start.position}: above 4 GB the server takes sets of GTIDs alone; "
                "set gtid_mode = ON, or max_binlog_size to at most 1 GB"
            )
        where = f"MySQL at {settings.get('host')}:{settings.get('port')}"
        try:
            self._connection: Any = pymysql.connect(**{"autocommit": True, **settings})
            checksums = self._prepare(heartbeat_seconds)
        except (pymysql.MySQLError, OSError) as failure:
            raise server_error(failure, where, str(settings.get("user"))) from failure
        flags = _HEARTBEAT_V2 | (0 if server_id else _NON_BLOCKING)
        if isinstance(start, FilePosition):
            self.file, position = start.file, start.position
            mariadb = "mariadb" in self._connection.get_server_info().lower()
            # Without the statements' texts MariaDB's stream has holes, and a missing event would be one more.
            flags = flags & _NON_BLOCKING | (_MARIADB_ANNOTATIONS if mariadb else 0)
            request = struct.pack("<IHI", position, flags, server_id) + start.file.encode()
            command = _DUMP
        else:
            self.file, position = "", _FIRST_POSITION
            request = struct.pack("<HIIQI", flags, server_id, 0, _FIRST_POSITION, len(start)) + start
            command = _DUMP_GTID
        self._connection._execute_command(command, request)  # noqa: SLF001 - PyMySQL has no public name for it
        self._socket = self._connection._sock  # noqa: SLF001 - see above
        self._socket.settimeout(timeout_seconds)
        self._timeout = timeout_seconds
        self._waits = server_id != 0
        # A set of GTIDs leaves out what it holds.
        gaps = not isinstance(start, FilePosition)
        self._walk = PacketWalk(position=position, checksums=checksums, check=check, gaps=gaps)
        self._memory: Bytes = np.empty(_FIRST_ROOM + PADDING, np.uint8)
        self._view = self._memory.data
        self._begin = self._end = 0

    @property
    def position(self) -> int:
        """Where in ``file`` the last event of the last block ends."""
        return self._walk.position

    def close(self) -> None:
        """End the connection without a farewell: the server is still sending."""
        self._connection._force_close()  # noqa: SLF001 - close() would wait for an answer

    def blocks(self) -> Iterator[Block]:
        """Yield what arrives, until the end of a dump that does not wait.

        Raises:
            SourceError: the server ended the dump with an error; ``RefusedError`` for want of a privilege.
            ResponseTimeoutError: nothing arrived in time, not even a heartbeat.
            CorruptDataError: bytes that fail their own checks.
        """
        held = 0
        file = self.file
        while True:
            first = self._begin
            stopped, events, self._begin = self._walk.walk(self._memory, first, self._end, self.file, held=held)
            self._follow(events[held:])
            held = len(events)
            if stopped is Stopped.SHORT and self._may_hold(events):
                self._receive()
                continue
            if held:
                yield Block(self._memory, events, file)
            held, file = 0, self.file
            if stopped is Stopped.END:
                return
            if stopped is Stopped.ERROR:
                raise self._refusal()
            if stopped is Stopped.LONG:
                yield self._long_event()
                file = self.file
            elif stopped is Stopped.SHORT:
                if self._room() < _LEAST_ROOM:
                    self._make_room()
                self._receive()

    def _may_hold(self, events: Longs) -> bool:
        """Whether to wait for more before giving these events away: each block costs its reader some fixed work.

        Only where the server sends without a pause, and what has arrived need not be moved.
        """
        if self._waits or not len(events) or self._room() < _LEAST_ROOM:
            return False
        return bool(self._begin - events[0, START] < _BLOCK_BYTES)

    def _room(self) -> int:
        return self._memory.size - PADDING - self._end

    def _prepare(self, heartbeat_seconds: float) -> bool:
        nanoseconds = int(heartbeat_seconds * 1e9)
        with self._connection.cursor() as cursor:
            for spelling in ("source", "master"):
                cursor.execute(f"SET @{spelling}_binlog_checksum = @@global.binlog_checksum")
                cursor.execute(f"SET @{spelling}_heartbeat_period = {nanoseconds}")
            # Without it MariaDB leaves GTIDs out and turns what we could not know into something older.
            cursor.execute("SET @mariadb_slave_capability = 4")
            cursor.execute("SELECT @@global.binlog_checksum")
            return bool(cursor.fetchone()[0] == "CRC32")

    def _follow(self, events: Longs) -> None:
        for event in events[events[:, TYPE] == EventType.ROTATE]:
            name = self._memory[event[START] + _ROTATE_NAME : event[STOP]]
            self.file = name.tobytes().decode()

    def _receive(self) -> None:
        """Read once from the socket."""
        try:
            size = self._socket.recv_into(self._view[self._end : self._memory.size - PADDING])
        except TimeoutError as late:
            raise ResponseTimeoutError(
                f"binlog {self.file} position {self.position}: nothing arrived within {self._timeout:g} s, "
                "not even a heartbeat"
            ) from late
        except OSError as failure:
            raise UnreachableError(f"binlog {self.file} position {self.position}: {failure}") from failure
        if not size:
            raise UnreachableError(f"binlog {self.file} position {self.position}: the server closed the connection")
        self._end += size

    def _make_room(self) -> None:
        left = self._end - self._begin
        target = self._memory
        if 2 * left + _LEAST_ROOM > self._memory.size:
            target = np.empty(2 * self._memory.size, np.uint8)
        target[:left] = self._memory[self._begin : self._end]
        if target is not self._memory:
            self._memory, self._view = target, target.data
        self._begin, self._end = 0, left

    def _long_event(self) -> Block:
        """Receive all packets of one event and close the gaps that their heads leave."""
        size = done = 0
        while True:
            self._receive_until(done + PACKET_HEAD)
            head = self._begin + done
            part = int.from_bytes(self._memory[head : head + 3].tobytes(), "little")
            self._receive_until(done + PACKET_HEAD + part)
            head = self._begin + done
            target = self._begin + PACKET_HEAD + size
            if done:
                self._memory[target : target + part] = self._memory[head + PACKET_HEAD : head + PACKET_HEAD + part]
            size += part
            done += PACKET_HEAD + part
            if part < LONGEST_PACKET:
                break
        start = self._begin + PACKET_HEAD + 1
        events = self._walk.one_event(self._memory, start, start + size - 1, self.file)
        self._begin += done
        return Block(self._memory, events, self.file)

    def _receive_until(self, size: int) -> None:
        while self._end - self._begin < size:
            if self._room() < _LEAST_ROOM:
                self._make_room()
            self._receive()

    def _refusal(self) -> SourceError:
        start = self._begin + PACKET_HEAD
        size = int.from_bytes(self._memory[self._begin : self._begin + 3].tobytes(), "little")
        content = self._memory[start : start + size].tobytes()
        code = int.from_bytes(content[1:3], "little")
        text = content[9:].decode(errors="replace") if content[3:4] == b"#" else content[3:].decode(errors="replace")
        kind = RefusedError if code in REFUSALS else SourceError
        return kind(f"binlog {self.file} position {self.position}: the server ended the dump: {code} {text}")
