"""Contents of records: few keys, so that compaction finds some to drop, and nulls wherever Kafka allows them."""

from __future__ import annotations

import random

from tests.unit.kafka.batches import Rec

_LAST_MILLIS = 4_102_444_800_000
"""The year 2100."""
_KEYS = (None, b"", *(b"key %d" % n for n in range(6)))
_HEADER_KEYS = (b"", b"h", b"trace", "é".encode())


def random_records(rng: random.Random, count: int) -> list[Rec]:
    """Return records numbered from 0, with timestamps in no order."""
    base = rng.choice((0, 1_700_000_000_000, rng.randrange(_LAST_MILLIS)))
    return [
        Rec(
            number,
            value=_value(rng),
            key=rng.choice(_KEYS),
            millis=min(max(base + rng.randint(-5_000, 5_000), 0), _LAST_MILLIS),
            headers=[(rng.choice(_HEADER_KEYS), _value(rng)) for _ in range(rng.choice((0, 0, 0, 1, 3)))],
        )
        for number in range(count)
    ]


def _value(rng: random.Random) -> bytes | None:
    match rng.randrange(4):
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return rng.randbytes(rng.randint(1, 60))
        case _:
            return b"the same words again " * rng.randint(1, 9)
