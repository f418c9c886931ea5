"""Microseconds since 1970 of numbers in some unit, and of a whole batch as an Arrow array."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watermark_source.machine_code.calendar import NO_MOMENT
from watermark_source.machine_code.native import Word, inlined

MOMENTS = pa.timestamp("us", tz="UTC")
UNITS: Final = {
    "seconds": (1_000_000, 1), "millis": (1_000, 1), "micros": (1, 1), "nanos": (1, 1_000), "days": (86_400_000_000, 1),
}  # fmt: skip
"""What a number is multiplied and divided by to be microseconds."""
_MOST = 2**62


@inlined
def scaled(value: Word, multiplier: Word, divisor: Word) -> Word:
    """Return ``value * multiplier / divisor``, rounded down; ``NO_MOMENT`` for what lies beyond all moments."""
    most = _MOST // multiplier
    if divisor == 1 and not -most <= value <= most:
        return NO_MOMENT
    return value * multiplier // divisor


def moments_array(micros: npt.NDArray[np.int64]) -> pa.Array:
    """Return the moments; null in place of ``NO_MOMENT``."""
    return pa.array(micros, MOMENTS, mask=micros == NO_MOMENT)
