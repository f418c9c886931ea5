"""Rows of a SELECT in the text protocol: a compiled pass over blocks of the socket locates each value.

A row is a packet (size 3, number 1) of values, each a length-encoded size and its text; 0xFB is null. A packet that
begins with 0xFE and is shorter than nine bytes ends the rows, and one that begins with 0xFF is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pymysql

from pyspark_mysql_cdc_wm.binlog.wire import LONGEST_PACKET, PACKET_HEAD, Bytes, Ints, lenenc_at, uint_at
from pyspark_mysql_cdc_wm.client.receive_buffer import ReceiveBuffer
from pyspark_mysql_cdc_wm.client.server_errors import server_error
from watermark_source.errors import CorruptDataError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled

_QUERY = 0x03
_FIRST_ROOM = 4 * 1024 * 1024
_LONGEST_ROW = 2**31 - 1
"""The starts of values are stored in 32 bits."""
_SHORT, _FULL, _END, _ERROR, _LONG, _FAULT = range(6)


@compiled("Tuple((int64, int64, int64))(uint8[::1], int64, int64, int64, int64, int32[:, ::1], int32[:, ::1])")
def _walk(  # noqa: PLR0911, PLR0917 - arrays in, arrays out
    array: Word, start: Word, stop: Word, joined: Word, first: Word, starts: Word, sizes: Word
) -> tuple[Word, Word, Word]:
    """Locate the values of complete rows, from row ``first`` on; return why it stopped, the rows, and the offset.

    Unless ``joined`` is 0, the first row has that many bytes, joined from several packets.
    """
    data = address_of(array)
    at, row = start, first
    while stop - at > PACKET_HEAD:
        size = uint_at(data, at, np.int64(3))
        begin = at + PACKET_HEAD
        if joined:
            size = joined
            joined = np.int64(0)
        elif size == LONGEST_PACKET:
            return np.int64(_LONG), row, at
        if size > stop - begin:
            break
        kind = byte_at(data, begin)
        if kind == 0xFF:
            return np.int64(_ERROR), row, at
        if kind == 0xFE and size < 9:
            return np.int64(_END), row, at
        if row == starts.shape[1]:
            return np.int64(_FULL), row, at
        value, end = begin, begin + size
        for column in range(starts.shape[0]):
            if value < end and byte_at(data, value) == 0xFB:
                starts[column, row], sizes[column, row] = -1, 0
                value += 1
                continue
            length, value = lenenc_at(data, value, end)
            if value < 0 or length < 0 or length > end - value:
                return np.int64(_FAULT), row, at
            starts[column, row], sizes[column, row] = value, length
            value += length
        if value != end:
            return np.int64(_FAULT), row, at
        row += 1
        at = end
    return np.int64(_SHORT), row, at


def text_rows(
    connection: Any, where: str, statement: str, *, columns: int, batch_rows: int
) -> Iterator[tuple[Bytes, Ints, Ints]]:
    """Yield the rows of a statement that has ``columns`` columns: a memory, where in it values begin, and their sizes.

    Each row of the two arrays is a column; a value that begins at a negative offset is null. All are valid until the
    next rows are requested. Read all of them before the next statement on the connection, which is PyMySQL's.

    Raises:
        SourceError: the server refuses, or the connection breaks.
        UnsupportedFormatError: a row has 2 GB or more.
    """
    starts = np.empty((columns, batch_rows), np.int32)
    sizes = np.empty_like(starts)
    user, sock = str(connection.user), connection._sock  # noqa: SLF001 - PyMySQL has no public name for it
    buffer = ReceiveBuffer(_FIRST_ROOM, sock, lambda: where, least="a row")
    try:
        connection._execute_command(_QUERY, statement)  # noqa: SLF001 - see above
        first = connection._read_packet()  # noqa: SLF001 - see above
        # One description for each column, and a packet that ends them.
        for _ in range(first.read_length_encoded_integer() + 1):
            connection._read_packet()  # noqa: SLF001 - see above
        buffer.restart(_read_ahead(connection._rfile))  # noqa: SLF001 - see above
    except (pymysql.MySQLError, OSError) as failure:
        raise server_error(failure, where, user) from failure
    row, joined = 0, 0
    while True:
        why, row, buffer.begin = _walk(buffer.memory, buffer.begin, buffer.end, joined, row, starts, sizes)
        joined = 0
        if why == _SHORT and (not row or (row < batch_rows and not buffer.is_full)):
            buffer.receive()
            continue
        if row:
            yield buffer.memory, starts[:, :row], sizes[:, :row]
            row = 0
        if why == _END:
            return
        if why == _ERROR:
            refused = pymysql.err.OperationalError(*buffer.error())
            raise server_error(refused, where, user) from refused
        if why == _LONG:
            joined = buffer.join(_LONGEST_ROW)
        if why == _FAULT:
            raise CorruptDataError(f"{where}: the values of a row do not fit its packet")


def _read_ahead(file: Any) -> bytes:
    """Return the bytes that PyMySQL has read beyond the packets it returned."""
    buffered = file.peek(0) if hasattr(file, "peek") else b""
    unread: bytes = file.read(len(buffered)) if buffered else b""
    return unread
