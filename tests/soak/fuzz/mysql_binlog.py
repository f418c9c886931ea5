"""Any bytes as events of MySQL's binlog: changes that are what the bytes say, or a declared error.

An input: a head of four bytes that chooses how to read, then events one after another, as in a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import zstandard

from pyspark_mysql_cdc_wm.binlog.compressed_transactions import uncompressed
from pyspark_mysql_cdc_wm.binlog.ddl_statements import check_statements, effects
from pyspark_mysql_cdc_wm.binlog.dump_packets import PacketWalk
from pyspark_mysql_cdc_wm.binlog.event_headers import CHECKSUM_SIZE, EVENT_FIELDS, HEADER_SIZE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Longs
from pyspark_mysql_cdc_wm.lookup.binlog_search import gtids_of
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from tests.soak.fuzz.memory import guarded
from tests.unit.mysql.recordings import charsets
from watermark_source.errors import SourceError

HEAD = struct.Struct("4B")
SEALED, CHECKED, PACKED, FIRST_COLUMN, GAPS = 1, 2, 4, 8, 16
_FIRST_POSITION = 4
_FILE = "f"
_CHARSETS = charsets()
_ALONE = (EventType.FORMAT_DESCRIPTION, EventType.GTID, EventType.GTID_TAGGED, EventType.ANONYMOUS_GTID)
"""Never within a compressed transaction."""


def check(data: bytes) -> str:
    """Decode an input; return what came out of it. Anything but changes and declared errors is raised."""
    flags, rows, *_ = HEAD.unpack(data[: HEAD.size].ljust(HEAD.size, b"\0"))
    reported: list[object] = []
    try:
        reported += _told(data[HEAD.size :], flags, rows)
    except SourceError as error:
        reported.append(f"{type(error).__name__}: {error}")
    return repr(reported)


def _told(body: bytes, flags: int, rows: int) -> Iterator[object]:
    events = list(_events(body))
    if flags & PACKED:
        events = list(_packed(events))
    checksums = bool(flags & CHECKED)
    packets = b"".join(_packets(events, sealed=bool(flags & SEALED), checksums=checksums))
    memory = guarded(packets + bytes(PADDING))
    walk = PacketWalk(position=_FIRST_POSITION, checksums=checksums, gaps=bool(flags & GAPS), capacity=1_000)
    why, table, at = walk.walk(memory, 0, len(packets), _FILE)
    assert table.shape[1] == EVENT_FIELDS
    yield why, int(at), table.tolist()
    decoder = ChangeDecoder(_CHARSETS, partial(_wanted, flags), batch_rows=1 + rows)
    for plain, its_events in uncompressed(memory, table, _FILE, piece_bytes=500, largest_event=1 << 20):
        yield from _decoded(decoder, guarded(plain.tobytes()), its_events, rows)
    yield decoder.reached


def _decoded(decoder: ChangeDecoder, memory: Bytes, table: Longs, rows: int) -> Iterator[object]:
    yield _statements_and_sets(partial(check_statements, memory, table, _FILE, lambda *_: True))
    yield _statements_and_sets(partial(_listed, partial(effects, memory, table)))
    yield _statements_and_sets(partial(gtids_of, memory, table, _FILE))
    for changes in decoder.decode(memory, table, _FILE):
        count = len(changes.images.kinds)
        yield changes.table, changes.names, changes.images.kinds.tolist(), changes.numbers.tolist()
        yield changes.committed.tolist(), changes.transactions.tolist(), changes.versions.tolist()
        assert count <= max(2, 1 + rows)
        for column in changes.columns:
            assert len(column) == count
            yield _values(column)


def _statements_and_sets(look: Callable[[], object]) -> object:
    try:
        return str(look())
    except SourceError as error:
        return f"{type(error).__name__}: {error}"


def _listed(each: Callable[[], Iterator[object]]) -> object:
    return list(each())


def _values(column: pa.Array) -> object:
    column.validate()
    # UTF-8 is handed on as the server has it. Not every moment that a column can hold is one of Python's.
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        column = column.cast(pa.list_(pa.binary()))
    column.validate(full=True)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) or pa.types.is_duration(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.to_pylist()


def _wanted(flags: int, table: TableMap) -> list[str] | None:
    names = [str(column.name) for column in table.columns]
    return names[:1] if flags & FIRST_COLUMN else names


def _events(body: bytes) -> Iterator[bytes]:
    """Cut what lies one after another by the sizes that the headers show."""
    while len(body) >= HEADER_SIZE:
        size = max(HEADER_SIZE, int.from_bytes(body[9:13], "little"))
        yield body[:size]
        body = body[size:]


def _packed(events: list[bytes]) -> Iterator[bytes]:
    """Pack what may be packed into one compressed transaction, after the rest."""
    inner = b""
    for event in events:
        if event[4] in _ALONE:
            yield event
        else:
            content = event[HEADER_SIZE:-CHECKSUM_SIZE]
            inner += event[:9] + (HEADER_SIZE + len(content)).to_bytes(4, "little") + event[13:19] + content
    packed = zstandard.ZstdCompressor().compress(inner)
    head = b"\x02\x01\x00\x03\x09\xfe" + len(inner).to_bytes(8, "little") + b"\x00"
    yield bytes(4) + bytes([EventType.TRANSACTION_PAYLOAD]) + bytes(14) + head + packed + bytes(CHECKSUM_SIZE)


def _packets(events: list[bytes], *, sealed: bool, checksums: bool) -> Iterator[bytes]:
    """Put events into packets; ``sealed`` gives them the right size, position and checksum."""
    position = _FIRST_POSITION
    for number, event in enumerate(events):
        content = event
        if sealed:
            position += len(event)
            content = event[:9] + struct.pack("<II", len(event), position) + event[17:]
            if checksums or event[4] == EventType.FORMAT_DESCRIPTION:
                content = content[:-CHECKSUM_SIZE]
                content += struct.pack("<I", zlib.crc32(content))
        yield (len(content) + 1).to_bytes(3, "little") + bytes([number & 255]) + b"\0" + content
