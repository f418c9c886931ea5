"""Any bytes as a JSON document with an event time in it: a moment, or none; the same whatever lies behind the document.

An input: a byte each that chooses the path, the format, and whether spaces lie behind, then the document.
"""

from __future__ import annotations

import numpy as np

from pyspark_aligned_kafka.records.event_time_choice import Format
from pyspark_aligned_kafka.records.json_path import parse_path
from pyspark_aligned_kafka.records.json_scan import JsonKind, JsonScan
from pyspark_aligned_kafka.records.time_texts import END_MICROS, FIRST_MICROS, MomentReader
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.memory import guarded

_SCANS = tuple(JsonScan(parse_path(path)) for path in ("$", "$.a", "$.a.b", "$['a\"b']", "$.é.a"))
_READERS = {each: MomentReader(each) for each in Format}


def check(data: bytes) -> str:
    """Look for a moment; return it and where it was found."""
    bits = Bits(data)
    scan, written = bits.one_of(_SCANS), bits.one_of(tuple(Format))
    document = b" " * (bits.byte() % 9) + bits.rest()
    array, starts, sizes = guarded(document), np.zeros(1, np.int64), np.full(1, len(document), np.int64)
    kinds, at, found = scan.find(array, starts, sizes)
    kind = JsonKind(int(kinds[0]))
    if kind in (JsonKind.TEXT, JsonKind.ESCAPED, JsonKind.NUMBER, JsonKind.OTHER) and found[0]:
        assert 0 <= at[0] <= at[0] + found[0] <= len(document)
    if kind in (JsonKind.NO_JSON, JsonKind.NOTHING, JsonKind.OTHER):
        found[0] = 0
    micros, wrong = _READERS[written].read(array, at, found, kinds == JsonKind.ESCAPED)
    assert FIRST_MICROS <= micros[0] < END_MICROS
    return repr((kind.name, int(at[0]), int(found[0]), int(micros[0]), int(wrong[0] != 0)))
