"""Any checkpoint at all: an offset of ours, one of Spark's own source, or a declared error.

An input: JSON text if it begins with a brace, otherwise changes to a real offset.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark_aligned_kafka.options.positions import foreign_positions
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.hostile_json import document
from watermark_source.errors import OffsetError
from watermark_source.planning.offset import OffsetCodec

_RECORDED = Path(__file__).parents[2] / "compat"
_ORIGINALS: list[dict[str, Any]] = [
    json.loads(json.loads(file.read_text())["offset"]) for file in sorted(_RECORDED.glob("*/offsets/*.json"))
]
_ORIGINALS.append({"orders": {"0": 23, "1": 0}, "payments": {"0": 7}})
_NAMES = {str(offset["name"]) for offset in _ORIGINALS if "name" in offset}
_CODECS = [OffsetCodec(source="aligned-kafka", name=name) for name in sorted(_NAMES)]
_LONGEST_MESSAGE = 2_000


def check(data: bytes) -> str:
    """Read an input as an offset; return what it states."""
    offset = _offset(data)
    if not isinstance(offset, dict):
        return "Spark gives objects only"
    reported: list[object] = []
    positions = foreign_positions(offset)
    if positions is not None:
        assert all(0 <= each < 2**63 for each in positions.values())
    reported.append(positions)
    for codec in _CODECS:
        try:
            state = codec.decode(offset)
        except OffsetError as error:
            reported.append(_bearable(str(error)))
            continue
        reported.append(state)
        encoded = codec.encode(state)
        assert json.loads(json.dumps(encoded, allow_nan=False)) == encoded
        assert codec.decode(encoded) == state
        assert positions is None, "two sources' offset at once"
    return repr(reported)


def _offset(data: bytes) -> object:
    """Return what Spark would make of an input: it hands on what it has parsed."""
    try:
        return json.loads(data if data.startswith(b"{") else document(_ORIGINALS, Bits(data)))
    except (ValueError, RecursionError):
        return None


def _bearable(message: str) -> str:
    assert len(message) < _LONGEST_MESSAGE
    return message
