"""Bytes with a page behind them that no one may touch: compiled code that reads too far dies, and is seen."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from pyspark_aligned_kafka.records.record_batches import Bytes

_PROT_NONE = 0
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(data: bytes) -> Bytes:
    """Return a copy of the bytes that ends where forbidden memory begins."""
    size = -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    if _libc.mprotect(ctypes.c_void_p(memory.ctypes.data + size), ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    found: Bytes = memory[size - len(data) : size]
    found[:] = np.frombuffer(data, np.uint8)
    return found
