"""Decorators for functions that numba compiles, and what decoders compile into their own functions.

That is a few instructions that numba lacks, variable-length integers of Avro and Protobuf, fields of Protobuf, the ids
of schema registries; and tables of a CRC.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import llvmlite.binding as llvm
import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from watermark_source.machine_code import code_cache

Word: TypeAlias = Any
"""An integer or an address in compiled code. numba infers its width, and mypy cannot."""

HAS_CRC32C: bool = bool(llvm.get_host_cpu_features().get("sse4.2", False))
"""Whether the processor has an instruction for CRC-32C. The cache is per processor, so it can be a constant."""
_BITS = 64
_REST = 0x7FFF_FFFF_FFFF_FFFF
"""The bits of an int64 that a logical shift to the right by one keeps."""


class CompiledFunction:
    """A function that is compiled, or loaded from the cache (``code_cache``), when it is called first.

    A query so compiles what it calls, and nothing else of the modules that it imports. Calls run without the GIL.
    """

    __slots__ = ("_function", "_run", "_signature")

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self._function = function
        self._signature = signature
        self._run: Callable[..., Any] = self._first

    def __call__(self, *arguments: Any) -> Any:
        """Call it with arguments of its signature's types."""
        return self._run(*arguments)

    def load(self) -> None:
        """Load the machine code if an earlier process has kept it, so that forked processes share it."""
        if (kept := code_cache.kept(self._function)) is not None and kept.has(self._signature):
            self._take(kept)

    def _first(self, *arguments: Any) -> Any:
        with _compiling:
            if self._run == self._first:
                self.make()
        return self._run(*arguments)

    def make(self) -> None:
        """Load the machine code, or compile the function and keep it."""
        kept = code_cache.kept(self._function)
        with code_cache.one_compiler(kept, self._signature):
            self._take(kept)

    def _take(self, kept: code_cache.KeptCode | None) -> None:
        made: Any = numba.njit(nogil=True, error_model="numpy")(self._function)
        # With NUMBA_DISABLE_JIT, for debugging, the function runs as Python.
        if made is not self._function:
            if kept is not None:
                # Like numba's cache=True, with our folder.
                made._cache = kept  # noqa: SLF001
            made.compile(self._signature)
            made.disable_compile()
        self._run = made


_compiling = threading.Lock()
_functions: Final[list[CompiledFunction]] = []


def compiled(signature: str) -> Callable[[Callable[..., Any]], CompiledFunction]:
    """Compile a function for one signature when it is called first; see ``CompiledFunction``."""

    def decorate(function: Callable[..., Any]) -> CompiledFunction:
        _functions.append(CompiledFunction(function, signature))
        return _functions[-1]

    return decorate


def compile_all() -> None:
    """Compile all functions of the imported modules that no earlier process has kept."""
    for each in _functions:
        each.make()


def load_kept() -> None:
    """Load the machine code of all imported modules that earlier processes have kept; nothing is compiled."""
    for each in _functions:
        each.load()


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper into the compiled functions that call it; it cannot be called from Python."""
    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)


_memcpy: Any = cgutils.raw_memcpy
_declare: Any = cgutils.get_or_insert_function


def _instruction(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _pointer(builder: Any, address: Any, at: Any) -> Any:
    return builder.inttoptr(builder.add(address, at), ir.IntType(8).as_pointer())


def _element(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


def _storing(kind: Any) -> Callable[..., Any]:
    """Return what generates the store of a value to an element of a kind; of a wider integer the lowest bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        address, index, value = args
        stored = value if value.type == kind else builder.trunc(value, kind)
        builder.store(stored, _element(builder, address, index, kind))
        return context.get_dummy_value()

    return generate


@_instruction
def address_of(typing: Any, array: Any) -> Any:
    """Return the address of an array's bytes.

    Helpers take the address instead of the array: numba counts the references of an array argument at each call, which
    was most of the time of decoding a record.
    """
    signature = types.int64(array)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return signature, generate


@_instruction
def byte_at(typing: Any, address: Any, at: Any) -> Any:
    """Return the byte at ``address + at``. The caller checks the bounds, as for all functions below."""
    signature = types.int64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, *args)), ir.IntType(64))

    return signature, generate


@_instruction
def word_at(typing: Any, address: Any, at: Any) -> Any:
    """Return eight bytes at ``address + at``, in native order, aligned or not."""
    signature = types.uint64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.load(builder.bitcast(_pointer(builder, *args), ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return signature, generate


@_instruction
def long_at(typing: Any, address: Any, index: Any) -> Any:
    """Return the number ``index`` of the 64-bit integers at ``address``."""
    signature = types.int64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_element(builder, args[0], args[1], ir.IntType(64)))

    return signature, generate


@_instruction
def put_long(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write a 64-bit integer to the place ``index`` of those at ``address``."""
    return types.void(types.int64, types.int64, types.int64), _storing(ir.IntType(64))


@_instruction
def put_real(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write a double to the place ``index`` of those at ``address``."""
    return types.void(types.int64, types.int64, types.float64), _storing(ir.DoubleType())


@_instruction
def put_byte(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write the lowest eight bits of a number to ``address + index``."""
    return types.void(types.int64, types.int64, types.int64), _storing(ir.IntType(8))


@_instruction
def copy_bytes(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy ``size`` bytes from one address to another with the C library's ``memcpy``."""
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        _memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return signature, generate


@_instruction
def crc32c_u64(typing: Any, crc: Any, word: Any) -> Any:
    """Add eight bytes to a CRC-32C with the processor's instruction (SSE 4.2)."""
    signature = types.uint64(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = ir.IntType(64)
        name = "llvm.x86.sse42.crc32.64.64"
        function = _declare(builder.module, ir.FunctionType(wide, [wide, wide]), name)
        return builder.call(function, args)

    return signature, generate


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


# Confluent's wire format: a zero byte, the schema's id in four bytes, then the value.


PREFIX = 5
"""Bytes before the value."""
NOT_FRAMED = -1
"""Stands for the id of a null, or of bytes in another format."""


@inlined
def framed_id(data: Word, at: Word, stop: Word) -> Word:
    """Return the id before a value, ``NOT_FRAMED`` for other bytes, and if ``stop`` is before ``at``, as of a null."""
    if stop - at < PREFIX or byte_at(data, at) != 0:
        return np.int64(NOT_FRAMED)
    number = np.int64(0)
    for i in range(1, PREFIX):
        number = number << 8 | byte_at(data, at + i)
    return number


# Protobuf's wire format.


GROUPS = 100
"""Limit on the nesting of groups, that of Protobuf's own parsers; deeper nesting is invalid."""
_SHORT = 5
"""Most bytes of a tag or a size."""
_LOW_32 = 0xFFFF_FFFF
_INVALID = np.int64(-1)


@inlined
def _short_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a number of 32 bits and its end, -1 if it is invalid."""
    value, at = varint_at(data, at, min(stop, at + _SHORT))
    return (value, at) if value <= _LOW_32 else (np.int64(0), _INVALID)


@inlined
def tag_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return a tag and its end, -1 if it is invalid: field number 0 does not exist."""
    tag, at = _short_at(data, at, stop)
    return (tag, at) if tag >= 8 else (np.int64(0), _INVALID)


@inlined
def sized_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Return where bytes that follow their size begin and end; -1 if they are truncated."""
    size, at = _short_at(data, at, stop)
    return (at, at + size) if at >= 0 and size <= stop - at else (_INVALID, _INVALID)


@inlined
def fixed_at(data: Word, at: Word, stop: Word, size: Word) -> tuple[Word, Word]:
    """Return a little-endian number of ``size`` bytes and its end; -1 if it is truncated."""
    if stop - at < size:
        return np.int64(0), _INVALID
    value = np.int64(0)
    for i in range(size):
        value |= byte_at(data, at + i) << (8 * i)
    return value, at + size


@inlined
def field_end(data: Word, at: Word, stop: Word, tag: Word, groups: Word) -> Word:
    """Return the end of a field whose tag was read, -1 if it is corrupt.

    ``groups`` is the address of ``GROUPS`` 64-bit integers, for the groups that are open.
    """
    depth = 0
    while True:
        wire = tag & 7
        if wire == 0:
            _, at = varint_at(data, at, stop)
        elif wire == 2:
            _, at = sized_at(data, at, stop)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            at = at + size if size <= stop - at else _INVALID
        elif wire == 3:
            if depth == GROUPS:
                return _INVALID
            put_long(groups, depth, tag >> 3)
            depth += 1
        elif wire == 4:
            if depth == 0 or long_at(groups, depth - 1) != tag >> 3:
                return _INVALID
            depth -= 1
        else:
            return _INVALID
        if at < 0 or depth == 0:
            return at
        # Protobuf's library checks only wire types within a group.
        tag, at = _short_at(data, at, stop)
        if at < 0:
            return _INVALID


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
