"""The connectors' compiled code as plain Python: coverage can be seen, and every access to memory is checked.

Import this before anything of a connector. Numbers stay of the widths they have in compiled code, so that they
overflow in the same places.
"""

from __future__ import annotations

import importlib
import os
import zlib
from dataclasses import dataclass
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np
import numpy.typing as npt

from tests.unit.kafka.batches import crc32c as plain_crc32c
from watermark_source.machine_code import native

Bytes = npt.NDArray[np.uint8]


class OutOfBoundsError(AssertionError):
    """Compiled code would have read or written memory that is not its own."""


_far: list[Bytes] = []
"""Pieces of memory to which there are distances from others."""


def _pointer(memory: Bytes) -> int:
    return int(memory.ctypes.data)


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """Where in a piece of memory; all that compiled code can do with an address."""

    memory: Bytes
    at: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self.pointer == other.pointer

    def __hash__(self) -> int:
        return hash(self.pointer)

    def __add__(self, distance: int) -> Address:
        moved = Address(self.memory, self.at + int(distance))
        if not 0 <= moved.at <= self.memory.size:
            # Perhaps it is a distance to another piece of memory, as one address less another.
            for other in _far:
                at = moved.pointer - _pointer(other)
                if 0 <= at <= other.size:
                    return Address(other, at)
        return moved

    def __sub__(self, other: Address) -> np.int64:
        if self.memory is not other.memory:
            _far[:] = [*_far[-3:], self.memory]
        return np.int64(self.pointer - other.pointer)

    @property
    def pointer(self) -> int:
        return _pointer(self.memory) + self.at

    def slice(self, size: int) -> slice:
        if self.at < 0 or size < 0 or self.at + size > self.memory.size:
            raise OutOfBoundsError(f"{size} bytes at {self.at} of {self.memory.size}")
        return slice(self.at, self.at + size)


def _byte_at(address: Address, at: int) -> np.int64:
    return np.int64(address.memory[(address + at).slice(1)][0])


def _word_at(address: Address, at: int) -> np.uint64:
    return np.uint64(int.from_bytes(address.memory[(address + at).slice(8)].tobytes(), "little"))


def _element_at(address: Address, index: int) -> Any:
    """Return an element of an array; an address of one counts its elements, whatever their width."""
    return address.memory[(address + index).slice(1)][0]


def _put_element(address: Address, index: int, value: Any) -> None:
    address.memory[(address + index).slice(1)] = value


def _copy_bytes(target: Address, source: Address, size: int) -> None:
    # Where elements are wider than a byte, an address to copy to or from counts bytes all the same.
    bytes_of, into = (Address(each.memory.view(np.uint8), each.at) for each in (source, target))
    into.memory[into.slice(int(size))] = bytes_of.memory[bytes_of.slice(int(size))]


def _address_of(array: Any) -> Address:
    # A view: tables have rows in compiled code, and their addresses count elements.
    return Address(array.reshape(-1))


def _checksum(address: Address, start: int, stop: int) -> np.int64:
    # The real ones have tests of their own, and as plain Python they would take most of the time.
    return np.int64(plain_crc32c(address.memory[(address + start).slice(int(stop - start))].tobytes()))


def _crc32(address: Address, start: int, stop: int) -> np.int64:
    return np.int64(zlib.crc32(address.memory[(address + start).slice(int(stop - start))].tobytes()))


native.address_of, native.byte_at, native.word_at, native.copy_bytes = _address_of, _byte_at, _word_at, _copy_bytes
native.long_at = _element_at
native.put_long = native.put_byte = _put_element
# The processor's instruction has no Python.
native.HAS_CRC32C = False
importlib.import_module("pyspark_aligned_kafka.records.record_batches").checksum = _checksum  # type: ignore[attr-defined]
importlib.import_module("pyspark_mysql_cdc_wm.binlog.wire").checksum = _crc32  # type: ignore[attr-defined]
