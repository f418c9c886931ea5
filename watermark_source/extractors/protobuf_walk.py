"""Compiled code that walks Protobuf values to one field. It builds no message, and skips fields off the path.

It follows Protobuf's parsers: the last occurrence of a field counts, occurrences of a message are merged, a field with
another wire type is unknown, and another field of a ``oneof`` replaces an earlier one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watermark_source.extractors.protobuf_path import FieldType, ProtobufPath
from watermark_source.extractors.schema_registry import BYTES, EDGES, Framed, scaled
from watermark_source.machine_code.iso_8601 import NO_MOMENT, iso_moment
from watermark_source.machine_code.native import (
    GROUPS,
    NOT_FRAMED,
    Word,
    address_of,
    compiled,
    field_end,
    fixed_at,
    inlined,
    signed_at,
    sized_at,
    tag_at,
    unfolded,
    varint_at,
)

_LOW_32 = 0xFFFF_FFFF
_SECONDS, _NANOS = 1 << 3, 2 << 3
"""Tags within a Timestamp."""
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_STRING, _TIMESTAMP = int(FieldType.STRING), int(FieldType.TIMESTAMP)
_UINT64, _FIXED64, _SINT64 = int(FieldType.UINT64), int(FieldType.FIXED64), int(FieldType.SINT64)
_INT32, _SFIXED32, _UINT32, _SINT32 = (
    int(FieldType.INT32),
    int(FieldType.SFIXED32),
    int(FieldType.UINT32),
    int(FieldType.SINT32),
)
_BAD, _OTHER = np.int64(-1), np.int64(-2)
NO_INDEX, OTHER_MESSAGE = int(_BAD), int(_OTHER)
"""In place of where a message begins: the index before it is invalid, or that of another message."""


@inlined
def _number_of(kind: Word, bits: Word) -> Word:
    """Return the number that bits encode; ``NO_MOMENT`` for a number beyond an int64."""
    if kind == _SINT64:
        return unfolded(bits)
    if kind in (_UINT64, _FIXED64):
        return bits if bits >= 0 else NO_MOMENT
    if kind in (_INT32, _SFIXED32):
        return ((bits & _LOW_32) ^ 0x8000_0000) - 0x8000_0000
    if kind == _UINT32:
        return bits & _LOW_32
    return unfolded(bits & _LOW_32) if kind == _SINT32 else bits


@inlined
def _moment_of(data: Word, kind: Word, first: Word, second: Word, multiplier: Word, divisor: Word) -> Word:  # noqa: PLR0917
    """Return the microseconds of a field: of its bits, of a text's begin and end, or of seconds and nanoseconds."""
    if kind == _STRING:
        return iso_moment(data, first, second) if first < second else NO_MOMENT
    if kind == _TIMESTAMP:
        nanos = _number_of(np.int64(_INT32), second)
        if not _FIRST_SECOND <= first <= _LAST_SECOND or not 0 <= nanos <= 999_999_999:
            return NO_MOMENT
        return first * 1_000_000 + nanos // 1_000
    number = _number_of(kind, first)
    return NO_MOMENT if number == NO_MOMENT else scaled(number, multiplier, divisor)


@inlined
def _walk(  # noqa: PLR0912, PLR0917
    data: Word,
    at: Word,
    stop: Word,
    tags: Word,
    clearing: Word,
    kind: Word,
    multiplier: Word,
    divisor: Word,
    ends: Word,
    groups: Word,
) -> Word:
    """Return the field's microseconds, ``NO_MOMENT`` without a timestamp. ``ends``: the ends of open messages."""
    last, level = tags.shape[0] - 1, 0
    ends[0] = stop
    found, first, second = False, np.int64(0), np.int64(0)
    while True:
        if at == ends[level]:
            if level == 0:
                return _moment_of(data, kind, first, second, multiplier, divisor) if found else NO_MOMENT
            level -= 1
            continue
        end = ends[level]
        tag, at = tag_at(data, at, end)
        if at < 0:
            return NO_MOMENT
        wire = tag & 7
        if level > last:
            # Within the Timestamp.
            if tag == _SECONDS:
                first, at = varint_at(data, at, end)
            elif tag == _NANOS:
                second, at = varint_at(data, at, end)
            else:
                at = field_end(data, at, end, tag, groups)
        elif tag != tags[level]:
            for i in range(clearing.shape[0]):
                if clearing[i, 0] == level and clearing[i, 1] == tag:
                    found, first, second = False, np.int64(0), np.int64(0)
            at = field_end(data, at, end, tag, groups)
        elif wire == 2:
            at, inner = sized_at(data, at, end)
            if kind == _STRING and level == last:
                found, first, second, at = True, at, inner, inner
            else:
                found = found or level == last
                level += 1
                ends[level] = inner
        else:
            found = True
            if wire == 0:
                first, at = varint_at(data, at, end)
            else:
                first, at = fixed_at(data, at, end, 8 if wire == 1 else 4)
        if at < 0:
            return NO_MOMENT


@inlined
def _after_index(data: Word, at: Word, stop: Word, index: Word) -> Word:
    """Return where the message begins after its index; -1 for an invalid index, -2 for that of another message."""
    count, at = signed_at(data, at, stop)
    if at < 0 or not 0 <= count <= stop - at:
        return _BAD
    wanted = index.shape[0]
    if count == 0:
        # An empty index means the single number 0.
        return at if wanted == 0 or (wanted == 1 and index[0] == 0) else _OTHER
    same = wanted in (0, count)
    for i in range(count):
        number, at = signed_at(data, at, stop)
        if at < 0 or number < 0:
            return _BAD
        same = same and (wanted == 0 or index[i] == number)
    return at if same else _OTHER


@compiled("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1])")
def index_ends(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, stops: Word, entries: Word, spans: Word, numbers: Word, ends: Word
) -> None:
    """Write the ends of the indexes that begin at ``starts``, or ``NO_INDEX`` or ``OTHER_MESSAGE``.

    The wanted index of a row is ``numbers`` from ``spans[entry, 0]`` to ``spans[entry, 1]``; an entry below zero is
    left out.
    """
    data = address_of(array)
    for row in range(starts.shape[0]):
        entry = entries[row]
        if entry >= 0:
            wanted = numbers[spans[entry, 0] : spans[entry, 1]]
            ends[row] = _after_index(data, starts[row], stops[row], wanted)


@compiled(
    f"int64({BYTES}, {EDGES}, int64[::1], int64, int64[::1], int64[::1], int64[:, ::1], int64, int64, int64, "
    "int64[::1], int64[::1], int64[::1])"
)
def _walk_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word,
    edges: Word,
    ids: Word,
    prefix: Word,
    index: Word,
    tags: Word,
    clearing: Word,
    kind: Word,
    multiplier: Word,
    divisor: Word,
    ends: Word,
    groups: Word,
    micros: Word,
) -> Word:
    data, other = address_of(array), np.int64(-1)
    for row in range(ids.shape[0]):
        micros[row] = NO_MOMENT
        if ids[row] == NOT_FRAMED:
            continue
        at, stop = np.int64(edges[row]) + prefix, np.int64(edges[row + 1])
        if prefix > 0:
            at = _after_index(data, at, stop, index)
        if at >= 0:
            micros[row] = _walk(data, at, stop, tags, clearing, kind, multiplier, divisor, ends, address_of(groups))
        elif at == _OTHER and other < 0:
            other = np.int64(row)
    return other


def walk(
    values: Framed, prefix: int, index: tuple[int, ...], path: ProtobufPath, unit: tuple[int, int]
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the microseconds of each value (``NO_MOMENT`` without a timestamp), and the first row of another message
    (-1 without one).

    Args:
        values: the values of a batch.
        prefix: bytes before the message's index; with 0 there is no index either.
        index: the message's index in its file; empty to accept any message.
        path: the path of the field.
        unit: multiplier and divisor of a number.
    """
    micros = np.empty(len(values.ids), np.int64)
    ends, groups = np.empty(len(path.tags) + 1, np.int64), np.empty(GROUPS, np.int64)
    other = _walk_all(
        values.data, values.edges, values.ids, prefix, np.array(index, np.int64), path.tags, path.clearing,
        int(path.kind), *unit, ends, groups, micros,
    )  # fmt: skip
    return micros, int(other)
