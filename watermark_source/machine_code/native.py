"""Compiling functions to machine code: numba with a cache on disk, and the few instructions numba has no name for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from watermark_source.machine_code import code_cache

Word: TypeAlias = Any
"""An integer or an address in compiled code, where numba knows the width and mypy cannot."""

HAS_CRC32C: bool = bool(llvm.get_host_cpu_features().get("sse4.2", False))
"""Whether this processor computes CRC-32C itself. The cache is per processor, so the answer may be compiled in."""


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile for one signature now, or load what an earlier process compiled; runs without the GIL.

    Where compiled code is kept is told in code_cache.py. Without a place every process compiles: slower to start, and
    logged.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
        if dispatcher is function:
            # NUMBA_DISABLE_JIT is set, to look into the code: it runs as it is written.
            return function
        if code_cache.folder(code_cache.package_of(function)) is not None:
            # As numba does for cache=True, but with our place.
            dispatcher._cache = code_cache.KeptCode(function)  # noqa: SLF001
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Make a helper usable inside compiled functions; it has no life outside them."""
    return numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)


_memcpy: Any = cgutils.raw_memcpy
_declare: Any = cgutils.get_or_insert_function


def _instruction(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _pointer(builder: Any, address: Any, at: Any) -> Any:
    return builder.inttoptr(builder.add(address, at), ir.IntType(8).as_pointer())


@_instruction
def address_of(typing: Any, array: Any) -> Any:
    """Where an array's bytes begin.

    Helpers of compiled functions take this instead of the array: an array argument costs counting references at each
    call, which was most of the time of decoding a record.
    """
    signature = types.int64(array)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return signature, generate


@_instruction
def byte_at(typing: Any, address: Any, at: Any) -> Any:
    """The byte at ``address + at``; the caller has checked the bounds, here and in all functions below."""
    signature = types.int64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, *args)), ir.IntType(64))

    return signature, generate


@_instruction
def word_at(typing: Any, address: Any, at: Any) -> Any:
    """Eight bytes as they lie at ``address + at``, aligned or not."""
    signature = types.uint64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.load(builder.bitcast(_pointer(builder, *args), ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return signature, generate


@_instruction
def copy_bytes(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy ``size`` bytes from one address to another by the C library's ``memcpy``."""
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        _memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return signature, generate


@_instruction
def crc32c_u64(typing: Any, crc: Any, word: Any) -> Any:
    """Fold eight bytes into a CRC-32C with the processor's own instruction (SSE 4.2)."""
    signature = types.uint64(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = ir.IntType(64)
        name = "llvm.x86.sse42.crc32.64.64"
        function = _declare(builder.module, ir.FunctionType(wide, [wide, wide]), name)
        return builder.call(function, args)

    return signature, generate


# Whether bytes at two places are the same, for compiled functions: eight at a time.


@inlined
def same_bytes(data: Word, at: Word, other: Word, place: Word, size: Word) -> Word:
    """Return whether ``size`` bytes at ``data + at`` are those at ``other + place``."""
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
