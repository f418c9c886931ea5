"""What decoders are made of beside Python's operators: helpers to inline, and instructions that numba lacks.

They are declared here, without numba; ``compiler`` teaches it them. Nothing of this is called from Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from watermark_source.machine_code import built_library

Word: TypeAlias = Any
"""An integer or an address in compiled code. numba infers its width, and mypy cannot."""

HAS_CRC32C: bool = "sse4_2" in built_library.processor_flags()
"""Whether the processor has an instruction for CRC-32C. The cache is per processor, so it can be a constant."""
AS_PYTHON = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
"""Functions run as Python, for debugging, and where fuzz tests check each access to memory."""


class Inlined:
    """A helper that numba compiles into the functions that call it."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper into the compiled functions that call it; it cannot be called from Python."""
    return function if AS_PYTHON else Inlined(function)


class Instruction:
    """An instruction that numba lacks. ``compiler`` generates it, by its name."""

    __slots__ = ("name",)

    def __init__(self, declared: Callable[..., Any]) -> None:
        self.name = declared.__name__


def _instruction(declared: Callable[..., Any]) -> Any:
    return Instruction(declared)


@_instruction
def address_of(array: Word) -> Word:
    """Return the address of an array's bytes.

    Helpers take the address instead of the array: numba counts the references of an array argument at each call, which
    was most of the time of decoding a record.
    """


@_instruction
def byte_at(address: Word, at: Word) -> Word:
    """Return the byte at ``address + at``. The caller checks the bounds, as for all functions below."""


@_instruction
def word_at(address: Word, at: Word) -> Word:
    """Return eight bytes at ``address + at``, in native order, aligned or not."""


@_instruction
def long_at(address: Word, index: Word) -> Word:
    """Return the number ``index`` of the 64-bit integers at ``address``."""


@_instruction
def put_long(address: Word, index: Word, value: Word) -> None:
    """Write a 64-bit integer to the place ``index`` of those at ``address``."""


@_instruction
def put_byte(address: Word, index: Word, value: Word) -> None:
    """Write the lowest eight bits of a number to ``address + index``."""


@_instruction
def copy_bytes(target: Word, source: Word, size: Word) -> None:
    """Copy ``size`` bytes from one address to another with the C library's ``memcpy``."""


@_instruction
def crc32c_u64(crc: Word, word: Word) -> Word:
    """Add eight bytes to a CRC-32C with the processor's instruction (SSE 4.2)."""
