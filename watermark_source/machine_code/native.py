"""Functions that are machine code when a query runs, and what decoders compile into their own functions.

That is ``instructions``, variable-length integers of Avro and Protobuf, fields of Protobuf, the ids of schema
registries; and tables of a CRC. numba is imported only where a function must be compiled (``compiler``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from watermark_source.errors import MissingPackageError
from watermark_source.installation import to_install
from watermark_source.machine_code import built_library
from watermark_source.machine_code.instructions import (
    AS_PYTHON,
    HAS_CRC32C,
    Word,
    address_of,
    byte_at,
    copy_bytes,
    crc32c_u64,
    inlined,
    long_at,
    put_byte,
    put_long,
    word_at,
)

# What decoders import beside this module's own.
__all__ = [
    "HAS_CRC32C", "Word", "address_of", "byte_at", "copy_bytes", "crc32c_u64", "inlined", "long_at", "put_byte",
    "put_long", "word_at",
]  # fmt: skip

_BITS = 64
_REST = 0x7FFF_FFFF_FFFF_FFFF
"""The bits of an int64 that a logical shift to the right by one keeps."""


class CompiledFunction:
    """A function that is machine code when it is called: built with its package, or compiled.

    It is loaded or compiled when it is called first: a query so compiles what it calls, and nothing else of the modules
    that it imports. Calls run without the GIL.
    """

    __slots__ = ("_run", "function", "signature")

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.function = function
        self.signature = signature
        self._run: Callable[..., Any] = function if AS_PYTHON else self._first

    def __call__(self, *arguments: Any) -> Any:
        """Call it with arguments of its signature's types."""
        return self._run(*arguments)

    def _first(self, *arguments: Any) -> Any:
        self.make()
        return self._run(*arguments)

    def make(self) -> None:
        """Load the machine code, or compile the function and keep it.

        Raises:
            MissingPackageError: it must be compiled, and numba is not installed.
        """
        with _compiling:
            if self._run == self._first:
                self._run = self._built() or _compiler().made(self.function, self.signature)

    def load(self) -> None:
        """Load the machine code if it was built, or an earlier process has kept it."""
        with _compiling:
            if self._run == self._first:
                self._run = self._built() or _compiler().kept(self.function, self.signature) or self._run

    def _built(self) -> Callable[..., Any] | None:
        return built_library.function(self.function, self.signature)


def _compiler() -> Any:
    try:
        from watermark_source.machine_code import compiler  # noqa: PLC0415 - built code needs no numba
    except ModuleNotFoundError as missing:
        raise MissingPackageError(
            f"no machine code was built for this processor, and {missing.name}, which compiles it, is not installed; "
            f"install it with: {to_install('compiler')}",
            name=missing.name,
        ) from None
    return compiler


_compiling = threading.Lock()
_functions: Final[list[CompiledFunction]] = []


def compiled(signature: str) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Make a function machine code for one signature when it is called first; see ``CompiledFunction``.

    It allocates nothing and raises nothing: what is built with a package calls neither numba nor Python.
    """

    def decorate(function: Callable[..., Any]) -> CompiledFunction:
        _functions.append(CompiledFunction(function, signature))
        return _functions[-1]

    return decorate


def functions_of(package: str) -> list[CompiledFunction]:
    """Return the compiled functions of a package's modules that have been imported."""
    return [each for each in _functions if built_library.package_of(each.function) == package]


def load_kept() -> None:
    """Load the machine code of all imported modules that is there, so that forked processes share it.

    Nothing is compiled. Where numba is missing, too, the task that needs it reports that.
    """
    for each in _functions:
        with contextlib.suppress(MissingPackageError):
            each.load()


@inlined
def same_bytes(data: Word, at: Word, other: Word, place: Word, size: Word) -> Word:
    """Return whether ``size`` bytes at ``data + at`` and at ``other + place`` are equal."""
    done = 0
    while size - done >= 8:
        if word_at(data, at + done) != word_at(other, place + done):
            return False
        done += 8
    while done < size:
        if byte_at(data, at + done) != byte_at(other, place + done):
            return False
        done += 1
    return True


@inlined
def varint_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return the 64 bits of a number and its end, -1 if it does not end within ten bytes."""
    value, shift = np.int64(0), np.int64(0)
    while at < stop and shift < _BITS:
        byte = byte_at(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return np.int64(0), np.int64(-1)


@inlined
def power_of_ten(exponent: Word) -> Word:
    """Return ten to the power of a number from 0 to 18."""
    value = np.int64(1)
    for _ in range(exponent):
        value *= 10
    return value


@inlined
def unfolded(value: Word) -> Word:
    """Return the signed number of a zigzag-encoded one."""
    return ((value >> 1) & _REST) ^ -(value & 1)


@inlined
def signed_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a zigzag-encoded number and its end, as ``varint_at``."""
    value, at = varint_at(data, at, stop)
    return unfolded(value), at


def by_byte(keys: bytes, values: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return a table for compiled code: by byte what it stands for, -1 for one that is not among ``keys``."""
    found = np.full(256, -1, np.int64)
    found[list(keys)] = list(values)
    return found


def byte_tables(polynomial: int, bytes_a_step: int) -> npt.NDArray[np.uint32]:
    """Return tables of a 32-bit CRC that processes several bytes a step (slicing, by Michael Kounavis and Frank Berry).

    Row k has the CRC of each byte followed by k zero bytes. The polynomial is reflected.
    """
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(polynomial), row >> 1).astype(np.uint32)
    rows = [row]
    for _ in range(bytes_a_step - 1):
        rows.append((rows[-1] >> 8) ^ row[rows[-1] & 0xFF])
    return np.stack(rows)
