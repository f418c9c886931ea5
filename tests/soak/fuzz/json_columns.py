"""Any bytes as a JSON document with columns: valid columns, or the declared error.

An input: a byte that chooses the schema and the mode, one for whether the id of a schema is expected, the document.
"""

from __future__ import annotations

import itertools

from pyspark_aligned_kafka.records.payload import PayloadChoice
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from pyspark_aligned_kafka.records.payload_schema import parse_schema
from tests.payload_documents import EVERY_TYPE
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.column_outcomes import outcome

_SCHEMAS = (
    EVERY_TYPE,
    "a INT, b STRING",
    "a ARRAY<ARRAY<STRUCT<a: STRING, b: MAP<STRING, DECIMAL(38,10)>>>>, b STRUCT<a: STRUCT<a: TIMESTAMP, b: DATE>>",
    '`"` STRING, `a b` FLOAT, `é` BINARY',
)
_READERS = [
    payload_reader(PayloadChoice(parse_schema(schema), fail_fast=fail_fast, framed=framed))
    for schema, fail_fast, framed in itertools.product(_SCHEMAS, (False, True), (False, True))
]


def check(data: bytes) -> str:
    """Decode the document; return its column."""
    bits = Bits(data)
    return outcome(bits.one_of(_READERS), bits)
