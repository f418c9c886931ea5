"""Any bytes as a message of Protobuf with columns, or behind an id and an index: columns, or the declared error.

An input: a byte that chooses the message and whether an id is expected, one for a header with it, the message.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from tests.protobuf_pairs import RandomTypes, reader_of
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.column_outcomes import outcome


def _messages() -> list[Any]:
    """Return messages that have columns."""
    found: list[Any] = []
    for seed in itertools.count():
        descriptor = RandomTypes(random.Random(seed)).message()
        try:
            reader_of(descriptor)
        except ValueError:
            continue
        found.append(descriptor)
        if len(found) == 24:
            return found
    raise AssertionError


_READERS = [
    reader_of(descriptor, framed=framed, fail_fast=fail_fast)
    for descriptor, (framed, fail_fast) in itertools.product(
        _messages(), ((False, False), (True, False), (False, True))
    )
]


def check(data: bytes) -> str:
    """Decode the message; return its column."""
    bits = Bits(data)
    return outcome(bits.one_of(_READERS), bits)
