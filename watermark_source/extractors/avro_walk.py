"""Compiled code that walks Avro values to one field by a plan of ``avro_plan``. It decodes no other field."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watermark_source.extractors.avro_plan import NO_BYTES, Node, WalkPlan
from watermark_source.extractors.schema_registry import BYTES, EDGES, Framed, scaled
from watermark_source.machine_code.iso_8601 import NO_MOMENT, iso_moment
from watermark_source.machine_code.native import PREFIX, Word, address_of, compiled, inlined, signed_at

DEPTH = 256
"""Limit on the nesting of types in a value; a value with deeper nesting has no event time."""

_STEPS_A_BYTE, _FIRST_STEPS = 64, 4_096
"""A walk may visit 64 nodes for each byte of the value, and 4 096 more. Nested records of one field visit many nodes
for a byte; without a limit a schema could make any value take any time."""

_FIXED, _VARINT, _SIZED, _ARRAY, _MAP, _UNION, _RECORD = (
    int(n)
    for n in (Node.FIXED, Node.VARINT, Node.SIZED, Node.ARRAY, Node.MAP, Node.UNION, Node.RECORD)
)  # fmt: skip
_ON_PATH, _CHOICE, _NUMBER, _TEXT = (int(n) for n in (Node.ON_PATH, Node.CHOICE, Node.NUMBER, Node.TEXT))
_BAD = np.int64(-1)


@inlined
def _sized(data: Word, at: Word, stop: Word) -> Word:
    """Return the end of bytes that follow their size."""
    size, at = signed_at(data, at, stop)
    return at + size if at >= 0 and 0 <= size <= stop - at else _BAD


@inlined
def _branch(data: Word, at: Word, stop: Word, code: Word, node: Word) -> tuple[Word, Word]:
    """Return the node of a union's branch, and where its value begins."""
    index, at = signed_at(data, at, stop)
    if at < 0 or not 0 <= index < code[node + 1]:
        return np.int64(0), _BAD
    return code[node + 2 + index], at


@inlined
def skip(  # noqa: PLR0911, PLR0912, PLR0917
    data: Word, at: Word, stop: Word, code: Word, node: Word, frames: Word, steps: Word
) -> tuple[Word, Word]:
    """Return the end of a value, -1 if it is corrupt or takes too many steps, and the remaining steps.

    ``frames`` is the stack of open nodes, each with its progress.
    """
    depth = 1
    frames[0, 0], frames[0, 1] = node, 0
    while depth > 0:
        steps -= 1
        if steps < 0:
            return _BAD, steps
        place, state = frames[depth - 1, 0], frames[depth - 1, 1]
        kind = code[place]
        if kind == _VARINT:
            _, at = signed_at(data, at, stop)
            depth -= 1
        elif kind == _SIZED:
            at = _sized(data, at, stop)
            depth -= 1
        elif kind == _FIXED:
            at = at + code[place + 1] if code[place + 1] <= stop - at else _BAD
            depth -= 1
        elif kind == _UNION:
            frames[depth - 1, 0], at = _branch(data, at, stop, code, place)
            frames[depth - 1, 1] = 0
        else:
            inner = code[place + 1]
            if kind == _RECORD:
                if state == code[place + 1]:
                    depth -= 1
                    continue
                inner = code[place + 2 + state]
                frames[depth - 1, 1] = state + 1
            elif state == 0:
                # An array or a map, before its next block.
                count, at = signed_at(data, at, stop)
                if at < 0:
                    return _BAD, steps
                if count == 0:
                    depth -= 1
                elif count < 0:
                    # A negative count is followed by the block's size in bytes, to skip it.
                    at = _sized(data, at, stop)
                    if at < 0:
                        return _BAD, steps
                elif kind == _MAP or code[place + 1] != NO_BYTES:
                    # An item takes at least one byte.
                    if count > stop - at:
                        return _BAD, steps
                    frames[depth - 1, 1] = count
                continue
            else:
                frames[depth - 1, 1] = state - 1
                if kind == _MAP:
                    at = _sized(data, at, stop)
                    if at < 0:
                        return _BAD, steps
            if depth == DEPTH:
                return _BAD, steps
            frames[depth, 0], frames[depth, 1] = inner, 0
            depth += 1
        if at < 0:
            return _BAD, steps
    return at, steps


@inlined
def _walk(data: Word, at: Word, stop: Word, code: Word, node: Word, frames: Word) -> Word:  # noqa: PLR0917
    """Return the field's microseconds, ``NO_MOMENT`` without a timestamp."""
    steps = _FIRST_STEPS + _STEPS_A_BYTE * (stop - at)
    while True:
        kind = code[node]
        if kind == _ON_PATH:
            before = code[node + 1]
            for i in range(before):
                at, steps = skip(data, at, stop, code, code[node + 2 + i], frames, steps)
                if at < 0:
                    return NO_MOMENT
            node = code[node + 2 + before]
        elif kind == _CHOICE:
            node, at = _branch(data, at, stop, code, node)
            if at < 0:
                return NO_MOMENT
        elif kind == _NUMBER:
            value, end = signed_at(data, at, stop)
            return scaled(value, code[node + 1], code[node + 2]) if end >= 0 else NO_MOMENT
        elif kind == _TEXT:
            size, at = signed_at(data, at, stop)
            return iso_moment(data, at, at + size) if at >= 0 and 0 < size <= stop - at else NO_MOMENT
        else:
            return NO_MOMENT


@compiled(f"void({BYTES}, {EDGES}, int64[::1], int64, int64[::1], int64, int64[:, ::1], int64[::1])")
def _walk_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, edges: Word, ids: Word, schema: Word, code: Word, entry: Word, frames: Word, micros: Word
) -> None:
    data = address_of(array)
    for row in range(ids.shape[0]):
        if ids[row] == schema:
            start, stop = np.int64(edges[row]) + PREFIX, np.int64(edges[row + 1])
            micros[row] = _walk(data, start, stop, code, entry, frames)


def walk(values: Framed, schema: int, plan: WalkPlan, micros: npt.NDArray[np.int64]) -> None:
    """Set ``micros`` for the values of one schema; ``NO_MOMENT`` for a value without a timestamp in the field."""
    frames = np.empty((DEPTH, 2), np.int64)
    _walk_all(values.data, values.edges, values.ids, schema, plan.code, plan.entry, frames, micros)
