"""Tables of a 32-bit CRC that processes several bytes a step (slicing, by Michael Kounavis and Frank Berry)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def byte_tables(polynomial: int, bytes_a_step: int) -> npt.NDArray[np.uint32]:
    """Return tables whose row k has the CRC of each byte followed by k zero bytes. The polynomial is reflected."""
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(polynomial), row >> 1).astype(np.uint32)
    rows = [row]
    for _ in range(bytes_a_step - 1):
        rows.append((rows[-1] >> 8) ^ row[rows[-1] & 0xFF])
    return np.stack(rows)
