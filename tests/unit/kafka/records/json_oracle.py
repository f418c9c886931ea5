"""What the standard library finds at a path, and what the scan finds, in one form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyspark_aligned_kafka.records.json_path import JsonPath
from pyspark_aligned_kafka.records.json_scan import JsonKind, JsonScan

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Number:
    text: str


@dataclass(frozen=True)
class Nothing:
    why: JsonKind


class Other:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Other)

    def __hash__(self) -> int:
        return 0


def by_the_library(document: bytes | None, path: JsonPath) -> Any:
    """Return the string, the text of the number, or why there is neither."""
    if document is None:
        return Nothing(JsonKind.NO_DOCUMENT)
    try:
        text = document.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "surrogatepass")
        found = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=lambda _: Other())
    except (ValueError, RecursionError):
        return Nothing(JsonKind.NO_JSON)
    for step in path.steps:
        of_right_kind = isinstance(found, dict if isinstance(step, str) else list)
        if not of_right_kind or not (step in found if isinstance(step, str) else step < len(found)):
            return Nothing(JsonKind.NOTHING)
        found = found[step]
    return found if isinstance(found, str | Number) else Other()


def by_the_scan(documents: Sequence[bytes | None], path: JsonPath) -> list[Any]:
    data = np.frombuffer(bytearray(b"".join(d or b"" for d in documents) or b"\0"), np.uint8)
    sizes = np.array([-1 if d is None else len(d) for d in documents], np.int64)
    lengths = np.maximum(sizes, 0)
    kinds, at, found = JsonScan(path).find(data, np.cumsum(lengths) - lengths, sizes)
    return [
        _value(JsonKind(int(kind)), data[start : start + size].tobytes())
        for kind, start, size in zip(kinds, at, found, strict=True)
    ]


def _value(kind: JsonKind, raw: bytes) -> Any:
    if kind is JsonKind.NUMBER:
        return Number(raw.decode())
    if kind is JsonKind.TEXT:
        return raw.decode("utf-8", "surrogatepass")
    if kind is JsonKind.ESCAPED:
        return json.loads('"' + raw.decode("utf-8", "surrogatepass") + '"')
    return Other() if kind is JsonKind.OTHER else Nothing(kind)
