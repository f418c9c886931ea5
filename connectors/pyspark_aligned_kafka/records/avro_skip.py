"""Compiled code that skips an Avro value by a plan of ``avro_plan``."""

from __future__ import annotations

import numpy as np

from pyspark_aligned_kafka.records.avro_plan import NO_BYTES, Node
from watermark_source.machine_code.native import Word, inlined, signed_at

DEPTH = 256
"""Limit on the nesting of types in a value; a value with deeper nesting is bad."""

_FIXED, _VARINT, _SIZED, _, _MAP, _UNION, _RECORD = map(int, Node)
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
