"""What decoded columns come to, for the targets that decode a value to one."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.records.payload import PayloadReader, Values
from pyspark_aligned_kafka.records.payload_schema import CORRUPT_MEMBER
from tests.payload_documents import values_of
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.memory import guarded
from watermark_source.errors import PayloadError
from watermark_source.planning.split import Split

# A line for each bad value would be most of the work.
logging.getLogger("pyspark_aligned_kafka.records.payload").setLevel(logging.ERROR)
_SPLIT = Split("orders", 0)


def outcome(reader: PayloadReader, bits: Bits) -> str:
    """Decode what is left of an input, a header with an id in front of it; return the column, or the error."""
    header = bits.some()
    return decoded(reader, bits.rest(), header)


def decoded(reader: PayloadReader, value: bytes, header: bytes = b"") -> str:
    """Decode a value; return the column, or the error."""
    array = guarded(header + value)
    begins, sizes = np.array([len(header)], np.int64), np.array([len(value)], np.int64)
    ids = np.zeros(1, np.int64), np.array([len(header) or -1], np.int64)
    try:
        found = reader.read(Values(_SPLIT, array, begins, sizes, np.zeros(1, np.int64)), ids)
    except PayloadError as error:
        return f"PayloadError: {error}"
    found.column.validate()
    kind = found.column.type
    members = kind.names if pa.types.is_struct(kind) else []
    for place, name in enumerate(members):
        # It has the bytes of a bad document as they are, as from_json has them.
        found.column.field(place).validate(full=name != CORRUPT_MEMBER)
    if not members:
        found.column.validate(full=True)
    return repr((int(found.malformed), values_of(found.column)))
