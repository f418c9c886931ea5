"""Any bytes as the headers of a record: the last of a name, or a declared error; then its value as a moment.

An input: a byte each that chooses the name and the format, then the headers with their count.
"""

from __future__ import annotations

import numpy as np

from pyspark_aligned_kafka.records.columns import HeaderScan
from pyspark_aligned_kafka.records.event_time_choice import Format
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, RECORD_END, Located
from pyspark_aligned_kafka.records.time_texts import MomentReader
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.memory import guarded
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split

_SCANS = tuple(HeaderScan(name) for name in ("at", "", "a-name-of-more-than-eight-bytes"))
_READERS = {each: MomentReader(each) for each in Format}


def check(data: bytes) -> str:
    """Look for a header; return its place, and the moment in it."""
    bits = Bits(data)
    scan, written = bits.one_of(_SCANS), bits.one_of(tuple(Format))
    headers = bits.rest()
    fields = np.zeros((max(HEADERS_AT, RECORD_END) + 1, 1), np.int64)
    fields[RECORD_END, 0] = len(headers)
    array = guarded(headers)
    located = Located(Split("orders", 3), array, np.zeros(1, np.int64), 1, fields, *[0] * (len(Located._fields) - 5))
    try:
        starts, sizes = scan.find(located)
    except SourceError as error:
        return f"{type(error).__name__}: {error}"
    assert sizes[0] < 0 or 0 <= starts[0] <= starts[0] + sizes[0] <= len(headers)
    micros, wrong = _READERS[written].read(array, starts, sizes)
    return repr((int(starts[0]), int(sizes[0]), int(micros[0]), int(wrong[0] != 0)))
