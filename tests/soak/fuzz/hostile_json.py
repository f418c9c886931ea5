"""JSON that means harm: real documents with some of their parts replaced."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from tests.soak.fuzz.bits import Bits

_NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 10**4_000, 1.5, 1e300, float("inf"), float("nan"))
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "0",
    "a",
    "v",
    [],
    {},
    [[]],
    {"": {}},
    "\ud800",
    "\0",
    "7" * 5_000,
    ["x"] * 2_000,
)
_KEYS = ("", "0", "00", "-1", "1", "2147483648", "v", "splits", "wm", "pt", "t", "\ud800", "9" * 5_000)
_DEPTHS = (1, 50, 300, 900, 980)


def document(originals: Sequence[Any], bits: Bits) -> str:
    """Return one of the originals after so many changes as the input has bytes for."""
    found = [copy.deepcopy(bits.one_of(originals))]
    while bits:
        _change(found, bits)
    try:
        return json.dumps(found[0])
    except (RecursionError, ValueError):
        # Deeper, or longer, than can be written is what the reader is to meet.
        return bits.one_of(("[" * 100_000, "9" * 100_000))


def _change(root: list[Any], bits: Bits) -> None:
    """Walk to a random place and do something to it."""
    place: Any = root
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = bits.one_of(keys) if keys else None
        if key is None or not isinstance(place[key], (dict, list)) or bits.byte() % 4 == 0:
            break
        place = place[key]
    match bits.byte() % 4:
        case 0 if key is not None:
            place[key] = _value(bits)
        case 1 if key is not None and place is not root:
            del place[key]
        case 2 if isinstance(place, dict):
            place[bits.one_of(_KEYS)] = _value(bits)
        case 3 if isinstance(place, list) and place is not root:
            place.append(_value(bits))


def _value(bits: Bits) -> Any:
    match bits.byte() % 4:
        case 0:
            return int.from_bytes(bits.some(), "big", signed=True)
        case 1:
            return bits.one_of(_NUMBERS)
        case 2:
            return copy.deepcopy(bits.one_of(_OTHERS))
        case _:
            return _nested(bits)


def _nested(bits: Bits) -> Any:
    value: Any = bits.one_of(_NUMBERS)
    as_list = bool(bits.byte() % 2)
    for _ in range(bits.one_of(_DEPTHS)):
        value = [value] if as_list else {"0": value}
    return value
