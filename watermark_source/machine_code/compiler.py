"""numba, where no machine code was built with a package: what it compiles is kept for later processes (``code_cache``).

Importing this teaches numba what ``instructions`` declares: helpers to inline, and instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, registry, types
from numba.extending import intrinsic, typeof_impl

from watermark_source.machine_code import code_cache
from watermark_source.machine_code.instructions import Inlined, Instruction

_njit: Any = numba.njit
_memcpy: Any = cgutils.raw_memcpy
_declare: Any = cgutils.get_or_insert_function


def made(function: Callable[..., Any], signature: str) -> Any:
    """Load a function's machine code, or compile it and keep the code."""
    code = code_cache.kept(function)
    with code_cache.one_compiler(code, signature):
        return dispatcher(function, signature, code)


def kept(function: Callable[..., Any], signature: str) -> Any:
    """Load a function's machine code if an earlier process has kept it; ``None`` if not."""
    code = code_cache.kept(function)
    return None if code is None or not code.has(signature) else dispatcher(function, signature, code)


def dispatcher(
    function: Callable[..., Any], signature: str, code: code_cache.KeptCode | None = None, **flags: bool
) -> Any:
    """Return numba's form of a function, compiled for one signature alone, with more of numba's flags."""
    found = _njit(nogil=True, error_model="numpy", **flags)(function)
    if code is not None:
        # Like numba's cache=True, with our folder.
        found._cache = code  # noqa: SLF001
    found.compile(signature)
    found.disable_compile()
    return found


@cache
def _inlined(function: Callable[..., Any]) -> Any:
    return _njit(nogil=True, error_model="numpy", forceinline=True)(function)


@typeof_impl.register(Inlined)
def _type_of_inlined(helper: Inlined, context: Any) -> Any:
    return typeof_impl(_inlined(helper.function), context)


@typeof_impl.register(Instruction)
def _type_of_instruction(instruction: Instruction, context: Any) -> Any:
    return registry.cpu_target.typing_context.resolve_value_type(globals()[instruction.name])


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


# The instructions, as they are declared.


@intrinsic
def address_of(typing: Any, array: Any) -> Any:
    signature = types.int64(array)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return signature, generate


@intrinsic
def byte_at(typing: Any, address: Any, at: Any) -> Any:
    signature = types.int64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, *args)), ir.IntType(64))

    return signature, generate


@intrinsic
def word_at(typing: Any, address: Any, at: Any) -> Any:
    signature = types.uint64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = builder.load(builder.bitcast(_pointer(builder, *args), ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return signature, generate


@intrinsic
def long_at(typing: Any, address: Any, index: Any) -> Any:
    signature = types.int64(types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_element(builder, args[0], args[1], ir.IntType(64)))

    return signature, generate


@intrinsic
def put_long(typing: Any, address: Any, index: Any, value: Any) -> Any:
    return types.void(types.int64, types.int64, types.int64), _storing(ir.IntType(64))


@intrinsic
def put_byte(typing: Any, address: Any, index: Any, value: Any) -> Any:
    return types.void(types.int64, types.int64, types.int64), _storing(ir.IntType(8))


@intrinsic
def copy_bytes(typing: Any, target: Any, source: Any, size: Any) -> Any:
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        _memcpy(builder, builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], 1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def crc32c_u64(typing: Any, crc: Any, word: Any) -> Any:
    signature = types.uint64(types.uint64, types.uint64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide = ir.IntType(64)
        name = "llvm.x86.sse42.crc32.64.64"
        function = _declare(builder.module, ir.FunctionType(wide, [wide, wide]), name)
        return builder.call(function, args)

    return signature, generate
