"""Any text as a place in MySQL's binlogs: a GTID set, ``startingOffsets``, a key in a checkpoint, or its error.

An input: a byte for what it is, then what to make it from.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet
from pyspark_mysql_cdc_wm.options.start import StartAfter, parse_start
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from pyspark_mysql_cdc_wm.snapshot.key_order import condition, sorted_by
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.hostile_json import document
from watermark_source.errors import OffsetError
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.snapshot_ranges import Chunk
from watermark_source.planning.split import Split
from watermark_source.planning.state import Origin, SnapshotState, SourceState, SplitState

_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_PIECES = (
    _UUID, "8a94f357-aab4-11df-86ab-c80aa9429562", _UUID.replace("-", ""), ":", ",", "-", "1", "7", "5", "0", "tag",
    "9223372036854775806", "9223372036854775807", "1-100", " ", "\n", "é", "\ud800", "9" * 40,
)  # fmt: skip
_STARTS: list[Any] = [{"file": "binlog.000003", "position": 157}, {"gtid": f"{_UUID}:1-100"}]
_CODEC = OffsetCodec(source="mysql-cdc-wm", name="mysql-cdc-wm")
_BINLOG = {Split("binlog", 0): SplitState(3 << 40 | 157, 3 << 40 | 4)}
_TABLE = {Split("shop.orders", 0): SplitState(2, 1)}
_STATES = (
    SourceState(
        _BINLOG,
        snapshots=SnapshotState(complete=frozenset({"shop.orders"})),
        origin=Origin("uuid", 1 << 40, f"{_UUID}:1-5"),
    ),
    SourceState(
        {**_BINLOG, **_TABLE},
        snapshots=SnapshotState(frontiers={"shop.orders": (("n", "d", 5, "1.5"), ("n", "d", 9, "\u00e9"))}),
    ),
    SourceState(
        {**_BINLOG, **_TABLE},
        snapshots=SnapshotState(frontiers={"shop.orders": (("n", 7), None)}, complete=frozenset({"shop.lines"})),
    ),
)
_OFFSETS = [_CODEC.encode(state) for state in _STATES]
_KEY = (
    KeyColumn("n", ColumnType.LONG, pa.int32()),
    KeyColumn("d", ColumnType.NEWDECIMAL, pa.decimal128(12, 2)),
    KeyColumn("t", ColumnType.VARCHAR, pa.string(), "utf8mb4", "utf8mb4_0900_ai_ci"),
    KeyColumn("b", ColumnType.VARCHAR, pa.binary()),
    KeyColumn("day", ColumnType.DATE, pa.date32()),
    KeyColumn("at", ColumnType.DATETIME2, pa.timestamp("us")),
    KeyColumn("then", ColumnType.TIMESTAMP2, pa.timestamp("us", "UTC")),
)
_LONGEST = 5_000


def check(data: bytes) -> str:
    """Read an input; return what it means."""
    bits = Bits(data)
    match bits.byte() % 4:
        case 0:
            return _set(_text(bits))
        case 1:
            return _start(document(_STARTS, bits) if bits.byte() % 2 else _text(bits))
        case 2:
            return _offset(document(_OFFSETS, bits))
        case _:
            return _key(bits)


def _text(bits: Bits) -> str:
    found = ""
    while bits:
        found += bits.text() if bits.byte() % 8 == 0 else bits.one_of(_PIECES)
    return found


def _set(text: str) -> str:
    try:
        found = GtidSet.parse(text)
    except ValueError as error:
        return _bearable(str(error), text)
    assert GtidSet.parse(str(found)) == found
    assert not found - found
    assert found | found == found & found == found
    return f"{found} {found.encoded().hex()}"


def _start(text: str) -> str:
    try:
        found = parse_start(text)
    except ValueError as error:
        return _bearable(str(error), text)
    return _set(str(found.left_out)) if isinstance(found, StartAfter) else repr(found)


def _offset(text: str) -> str:
    try:
        offset = json.loads(text)
        state = _CODEC.decode(offset)
    except (OffsetError, ValueError, RecursionError) as error:
        return str(error)[:_LONGEST]
    assert _CODEC.decode(_CODEC.encode(state)) == state
    reported = [repr(state)]
    for bounds in state.snapshots.frontiers.values():
        reported += [_condition(_KEY[: len(bound) // 2], bound) for bound in bounds if bound is not None]
    if state.origin is not None and state.origin.done is not None:
        reported.append(_set(state.origin.done))
    return " ".join(reported)


def _key(bits: Bits) -> str:
    column = bits.one_of(_KEY)
    text = _text(bits)
    is_number = text.isascii() and text.removeprefix("-").isdigit() and len(text) < 50
    value = int(text) if bits.byte() % 2 == 0 and is_number else text
    try:
        return _condition((column,), (sorted_by(column, value), value))
    except OffsetError as error:
        return str(error)[:_LONGEST]


def _condition(key: tuple[KeyColumn, ...], bound: tuple[int | str, ...]) -> str:
    try:
        values = bound[len(bound) // 2 :]
        scalars = [column.scalar(value) for column, value in zip(key, values, strict=False) if column.collation is None]
        reported = f"{scalars} {condition(key, Chunk(bound, None))}"
    except OffsetError as error:
        return str(error)[:_LONGEST]
    assert len(reported) < 100 * _LONGEST
    return reported


def _bearable(message: str, text: str) -> str:
    assert len(message) < _LONGEST + 10 * len(text)
    return message
