"""Avro values into the cells of columns: one compiled pass over the bytes, by a plan of ``avro_resolver``.

A plan is an array of nodes; a node is a code with its arguments, and other nodes refer to it by its index. A value that
the reader's schema has no column for is skipped: the column's node of its nodes is ``SKIPPED``.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from pyspark_aligned_kafka.records.json_strings import is_utf8
from pyspark_aligned_kafka.records.payload_cells import (
    BASE,
    CELL_ARRAYS,
    CLOSURE,
    CLOSURE_END,
    FIRST,
    NODE_KIND,
    Cell,
    CellKind,
    bits_of,
    forget_value,
    keep_counts,
    no_cells,
    node_value,
    put,
    put_null,
)
from watermark_source.machine_code.native import (
    Word,
    address_of,
    byte_at,
    compiled,
    inlined,
    long_at,
    put_long,
    signed_at,
    word_at,
)
from watermark_source.machine_code.worded import Worded

SKIPPED, NO_BYTES = -1, 0
"""In place of a column's node; the node of every type that is skipped and whose values take no bytes."""
DEPTH = 320
"""Limit on the nesting of types in a value; a value with deeper nesting is bad."""


class Read(IntEnum):
    """Codes of nodes. The first argument is the column's node, except where the text has others."""

    INT = 0
    LONG = 1
    SCALED = 2
    """A moment. Arguments: the column's node, multiplier and divisor to microseconds."""
    NUMBER = 3
    """An integer as DOUBLE, or as FLOAT. Arguments: the column's node, whether it is FLOAT, whether it is an int."""
    FLOAT = 4
    DOUBLE = 5
    BOOLEAN = 6
    BYTES = 7
    """Arguments: the column's node, whether it is text."""
    FIXED = 8
    """Arguments: the column's node, the bytes."""
    DECIMAL = 9
    """Arguments: the column's node, the bytes (-1: their number is before them), and the first numbers with too many
    digits, above and below zero, in two words each."""
    ENUM = 10
    """Arguments: the column's node, the number of symbols, and for each where its text is and its size; -1: the reader
    does not have it."""
    RECORD = 11
    """Arguments: the column's node, the number of nodes, and these."""
    LIST = 12
    """Arguments: the column's node, the items' node."""
    MAP = 13
    """Arguments: the column's node, the column's node of keys, the values' node."""
    UNION = 14
    """Arguments: the number of branches, their nodes."""
    NULL = 15
    MEMBER = 16
    """A value of a union that has a struct. Arguments: the column's node, the value's node, the number of the other
    members, their columns' nodes."""
    DEFAULT = 17
    """A constant. Arguments: where it begins and ends among the constants, its node."""
    REFUSED = 18
    """A value that the reader's schema does not take. Argument: the number of the reason."""
    REST = 19
    """All bytes that are left, of whatever they are."""


class Fault(Worded):
    """Why a value is bad, or what else a walk returns below zero."""

    CORRUPT = -1, "it is cut short, or no value of its schema"
    NO_ROOM = -2
    NOT_TEXT = -3, "a string in it is not UTF-8"
    SYMBOL = -4, "a symbol of an enum in it is not among the reader's, which has no default"
    TOO_LARGE = -5, "a decimal or a moment in it has too many digits"
    LEFT_OVER = -6, "there are bytes left behind it"
    TOO_DEEP = -7, "it has too many items without bytes, or types within each other"
    REFUSED = -100
    """This, and from here on the reasons of a plan."""


_STEPS_A_BYTE, _FIRST_STEPS = 64, 16_384
"""A walk may visit 64 nodes for each byte of a value, and 16 384 more, constants aside: items of a list may have no
bytes."""
_INT, _LONG, _SCALED, _NUMBER, _FLOAT, _DOUBLE, _BOOLEAN, _BYTES, _FIXED, _DECIMAL = map(int, list(Read)[:10])
_ENUM, _RECORD, _LIST, _MAP, _UNION, _NULL, _MEMBER, _DEFAULT, _REFUSED, _REST = map(int, list(Read)[10:])
_CORRUPT, _NO_ROOM, _NOT_TEXT, _SYMBOL, _TOO_LARGE, _LEFT_OVER, _TOO_DEEP, _WHY = (int(each) for each in Fault)
_A_VALUE, _STRUCT = int(Cell.VALUE), int(CellKind.STRUCT)
_LOWEST = np.int64(-(2**63))
_LARGEST = np.int64(2**63 - 1)


@inlined
def _is_less(high: Word, low: Word, other: Word, other_low: Word) -> Word:
    """Compare two numbers of 128 bits."""
    return high < other or (high == other and low ^ _LOWEST < other_low ^ _LOWEST)


@inlined
def _wide(data: Word, at: Word, size: Word) -> tuple[Word, Word, Word]:
    """Return whether big-endian bytes fit 128 bits, and the words of the number, the upper one first."""
    high = np.int64(-1) if byte_at(data, at) & 0x80 else np.int64(0)
    low, sign = high, high
    for place in range(at, at + size):
        byte = byte_at(data, place)
        if at + size - place > 16 and byte != sign & 0xFF:
            return False, high, low
        high = high << 8 | (low >> 56 & 0xFF)
        low = low << 8 | byte
    return (high < 0) == (sign < 0), high, low


@inlined
def _read(  # noqa: PLR0911, PLR0912, PLR0915, PLR0917 - one pass over the value is the point of it
    to: Word, data: Word, at: Word, stop: Word, code: Word, op: Word, constants: Word, frames: Word
) -> Word:
    """Append the cells of a value; return its end, or a ``Fault``.

    ``constants`` is their address. ``frames`` is the stack of open nodes: each with its progress, and where the value
    continues behind a constant.
    """
    steps = _FIRST_STEPS + _STEPS_A_BYTE * (stop - at)
    depth = 0
    # Cells hold places in the block; those of constants are outside of it.
    block = data
    while True:
        if op < 0:
            # The value of the last node is complete.
            if depth == 0:
                return at
            top = 4 * depth - 4
            place, state = long_at(frames, top), long_at(frames, top + 1)
            kind = long_at(code, place)
            if kind == _RECORD:
                if state == long_at(code, place + 2):
                    depth -= 1
                    continue
                put_long(frames, top + 1, state + 1)
                op = long_at(code, place + 3 + state)
            elif kind == _DEFAULT:
                data, at, stop = block, long_at(frames, top + 2), long_at(frames, top + 3)
                depth -= 1
                continue
            elif state == 0:
                # A list or a map, before its next block.
                node = long_at(code, place + 1)
                count, at = signed_at(data, at, stop)
                if at < 0:
                    return np.int64(_CORRUPT)
                if count == 0:
                    if node >= 0:
                        end = long_at(to.counts, node_value(to, node, FIRST))
                        if not put(to, node, _A_VALUE, end, np.int64(0)):
                            return np.int64(_NO_ROOM)
                    depth -= 1
                    continue
                if count < 0:
                    # A negative count is followed by the block's size in bytes, to skip it.
                    size, at = signed_at(data, at, stop)
                    if at < 0 or not 0 <= size <= stop - at:
                        return np.int64(_CORRUPT)
                    count = -count
                    if node < 0:
                        at += size
                        continue
                elif node < 0 and long_at(code, place + 2) == NO_BYTES:
                    continue
                if not 0 < count <= steps or (node < 0 and count > stop - at):
                    return np.int64(_CORRUPT)
                if kind == _LIST and count > stop - at:
                    # Items without bytes, each of which has all the cells of the reader's type.
                    item = node_value(to, long_at(code, place + 1), FIRST)
                    width = node_value(to, item, CLOSURE_END) - node_value(to, item, CLOSURE)
                    if count * width > _FIRST_STEPS:
                        return np.int64(_TOO_DEEP)
                put_long(frames, top + 1, count)
                continue
            else:
                put_long(frames, top + 1, state - 1)
                op = long_at(code, place + 2)
                if kind == _MAP:
                    size, at = signed_at(data, at, stop)
                    if at < 0 or not 0 <= size <= stop - at:
                        return np.int64(_CORRUPT)
                    if op >= 0:
                        if not is_utf8(data, at, at + size):
                            return np.int64(_NOT_TEXT)
                        if not put(to, op, _A_VALUE, data - block + at, size):
                            return np.int64(_NO_ROOM)
                    at += size
                    op = long_at(code, place + 3)
        kind = long_at(code, op)
        # Constants are the reader's, and there are no more of them than its schema has.
        steps -= np.int64(data == block and kind != _DEFAULT)
        if steps < 0:
            return np.int64(_TOO_DEEP)
        if kind == _UNION:
            index, at = signed_at(data, at, stop)
            if at < 0 or not 0 <= index < long_at(code, op + 1):
                return np.int64(_CORRUPT)
            op = long_at(code, op + 2 + index)
            continue
        if kind in (_RECORD, _LIST, _MAP, _DEFAULT):
            if depth == DEPTH:
                return np.int64(_TOO_DEEP)
            top = 4 * depth
            put_long(frames, top, op)
            put_long(frames, top + 1, np.int64(0))
            put_long(frames, top + 2, at)
            put_long(frames, top + 3, stop)
            depth += 1
            if kind == _DEFAULT:
                data, at, stop = constants, long_at(code, op + 1), long_at(code, op + 2)
                op = long_at(code, op + 3)
                continue
            node = long_at(code, op + 1)
            if kind == _RECORD and node >= 0 and not put(to, node, _A_VALUE, np.int64(0), np.int64(0)):
                return np.int64(_NO_ROOM)
            op = np.int64(-1)
            continue
        if kind == _REST:
            at, op = stop, np.int64(-1)
            continue
        if kind == _REFUSED:
            return _WHY - long_at(code, op + 1)
        node = long_at(code, op + 1)
        if kind == _NULL:
            if not put_null(to, node):
                return np.int64(_NO_ROOM)
            op = np.int64(-1)
            continue
        if kind == _MEMBER:
            if not put(to, node, _A_VALUE, np.int64(0), np.int64(0)):
                return np.int64(_NO_ROOM)
            for i in range(long_at(code, op + 3)):
                if not put_null(to, long_at(code, op + 4 + i)):
                    return np.int64(_NO_ROOM)
            op = long_at(code, op + 2)
            continue
        # A value of one cell.
        cell, size = np.int64(0), np.int64(0)
        if kind in (_INT, _LONG, _SCALED, _NUMBER):
            cell, at = signed_at(data, at, stop)
            if at < 0 or (kind == _INT and not -(2**31) <= cell < 2**31):
                return np.int64(_CORRUPT)
            if kind == _SCALED:
                most = _LARGEST // long_at(code, op + 2)
                if not -most <= cell <= most:
                    return np.int64(_TOO_LARGE)
                cell = cell * long_at(code, op + 2) // long_at(code, op + 3)
            elif kind == _NUMBER:
                if long_at(code, op + 3) and not -(2**31) <= cell < 2**31:
                    return np.int64(_CORRUPT)
                cell = bits_of(np.float64(np.float32(cell)) if long_at(code, op + 2) else np.float64(cell))
        elif kind == _BYTES:
            size, at = signed_at(data, at, stop)
            if at < 0 or not 0 <= size <= stop - at:
                return np.int64(_CORRUPT)
            if long_at(code, op + 2) and not is_utf8(data, at, at + size):
                return np.int64(_NOT_TEXT)
            cell = data - block + at
            at += size
        elif kind in (_FIXED, _DECIMAL):
            size = long_at(code, op + 2)
            if size < 0:
                size, at = signed_at(data, at, stop)
            if at < 0 or not 0 <= size <= stop - at:
                return np.int64(_CORRUPT)
            cell = data - block + at
            if kind == _DECIMAL:
                if size == 0:
                    return np.int64(_CORRUPT)
                fits, high, low = _wide(data, at, size)
                if (
                    not fits or not _is_less(high, low, long_at(code, op + 3), long_at(code, op + 4))
                    or not _is_less(long_at(code, op + 5), long_at(code, op + 6), high, low)
                ):  # fmt: skip
                    return np.int64(_TOO_LARGE)
                cell, at, size = low, at + size, high
            else:
                at += size
        elif kind == _ENUM:
            index, at = signed_at(data, at, stop)
            if at < 0 or not 0 <= index < long_at(code, op + 2):
                return np.int64(_CORRUPT)
            cell, size = constants - block + long_at(code, op + 3 + 2 * index), long_at(code, op + 4 + 2 * index)
            if size < 0:
                return np.int64(_SYMBOL)
        else:
            width = 1 if kind == _BOOLEAN else 4 if kind == _FLOAT else 8
            if stop - at < width:
                return np.int64(_CORRUPT)
            if kind == _BOOLEAN:
                cell = byte_at(data, at)
                if cell > 1:
                    return np.int64(_CORRUPT)
            elif kind == _FLOAT:
                for i in range(4):
                    cell |= byte_at(data, at + i) << 8 * i
                cell = bits_of(np.int32(cell).view(np.float32))
            else:
                cell = np.int64(word_at(data, at))
            at += width
        if node >= 0 and not put(to, node, _A_VALUE, cell, size):
            return np.int64(_NO_ROOM)
        op = np.int64(-1)


@compiled(
    f"int64(uint8[::1], int64[::1], int64[::1], {CELL_ARRAYS}, int64[::1], int64[::1], uint8[::1], int64[:, ::1],"
    " int64[::1])"
)
def read_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, lengths: Word,
    nodes: Word, closures: Word, before: Word, counts: Word, states: Word, cells: Word, sizes: Word,
    entries: Word, code: Word, constants: Word, frames: Word, faults: Word,
) -> Word:  # fmt: skip
    """Append the cells of all values; return whether there was room for the cells.

    A value of negative length is null. ``entries`` are the nodes of the values' schemas; of a bad value, which
    ``faults`` states, or one with an entry below zero, all members are null.
    """
    to = no_cells(nodes, closures, before, counts, states, cells, sizes)
    data, at_constants, plan, stack = address_of(array), address_of(constants), address_of(code), address_of(frames)
    for row in range(starts.shape[0]):
        faults[row] = 0
        if lengths[row] >= 0:
            if entries[row] >= 0:
                keep_counts(to)
                stop = starts[row] + lengths[row]
                end = _read(to, data, starts[row], stop, plan, entries[row], at_constants, stack)
                if end == stop:
                    continue
                if end == _NO_ROOM:
                    return np.int64(0)
                forget_value(to)
                faults[row] = end if end < 0 else _LEFT_OVER
            else:
                faults[row] = entries[row]
        if not put_null(to, np.int64(0)):
            return np.int64(0)
        if lengths[row] >= 0:
            # All members are null, and not the struct, as in from_avro.
            states[nodes[0, BASE] + counts[0] - 1] = nodes[0, NODE_KIND] == _STRUCT
    return np.int64(1)
