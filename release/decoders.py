"""Builds the machine code of the connectors' decoders into their folders: ``python -m release.decoders`` (a minute).

numba compiles each function for a baseline of this kind of processor, and the C compiler (``cc``) links them. Two runs
with the same tools give the same bytes. Packages, and functions of them, can be named: ``pyspark_aligned_kafka``.
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from watermark_source.machine_code import built_library, native
from watermark_source.machine_code.native import CompiledFunction

PACKAGES = ("watermark_source", "pyspark_aligned_kafka", "pyspark_mysql_cdc_wm")
LIBC = {"memcpy", "memmove", "memset", "memcmp"}
"""All that a library imports: it runs in any process, with any C library."""
_C_TYPES = {"int64": "int64_t", "bool": "int8_t"}
_LINKING = (
    "-shared", "-fPIC", "-O2", "-nostdlib", "-s", "-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,-z,relro,-z,now",
)  # fmt: skip


def main(packages: Sequence[str]) -> None:
    """Build the libraries of packages, in a process that numba compiles for the baseline in."""
    baseline = built_library.BASELINES.get(platform.machine())
    if baseline is None:
        raise SystemExit(f"expected a processor of {', '.join(built_library.BASELINES)}, not {platform.machine()}")
    # Hashes of strings order what numba generates, and it reads its settings when it is imported.
    needed = {"PYTHONHASHSEED": "0", "NUMBA_CPU_NAME": baseline, "NUMBA_CPU_FEATURES": ""}
    if any(os.environ.get(name) != text for name, text in needed.items()):
        os.execve(sys.executable, [sys.executable, "-m", "release.decoders", *packages], {**os.environ, **needed})
    if platform.machine() == "x86_64" and not native.HAS_CRC32C:
        raise SystemExit(f"{baseline} is built on a processor that has it: this one has no SSE 4.2")
    for package in packages or PACKAGES:
        began = time.monotonic()
        # Read before they are imported: what is changed meanwhile is not what was built.
        built_library.digest(package)
        if not (functions := all_functions(package)):
            continue
        file = build(package, functions, package_folder(package))
        sys.stdout.write(f"{file}: {file.stat().st_size} bytes in {time.monotonic() - began:.0f} s\n")


def package_folder(package: str) -> Path:
    """Return the folder of a package."""
    return Path(importlib.import_module(package).__path__[0])


def all_functions(package: str) -> Sequence[CompiledFunction]:
    """Return the compiled functions of all modules of a package."""
    folder = package_folder(package)
    for source in sorted(folder.rglob("*.py")):
        if "\n@compiled(" in source.read_text(encoding="utf-8"):
            importlib.import_module(".".join((package, *source.relative_to(folder).with_suffix("").parts)))
    return native.functions_of(package)


def build(package: str, functions: Iterable[CompiledFunction], folder: Path) -> Path:
    """Build the library of a package from some of its functions, in place of an older one in a folder."""
    with tempfile.TemporaryDirectory() as work:
        made = _linked(sorted(functions, key=lambda each: built_library.symbol(each.function)), Path(work))
        foreign = set(_imported(made)) - LIBC
        if foreign:
            raise SystemExit(f"{package}: expected imports from {', '.join(sorted(LIBC))} alone, not {sorted(foreign)}")
        content = made.read_bytes()
    for older in folder.glob(f"decoders-*-{platform.machine()}.elf"):
        older.unlink()
    file = folder / built_library.file_name(package)
    file.write_bytes(content)
    return file


def _linked(functions: Sequence[CompiledFunction], work: Path) -> Path:
    import llvmlite.binding as llvm  # noqa: PLC0415 - both read the environment that main sets

    from watermark_source.machine_code import compiler  # noqa: PLC0415

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=built_library.BASELINES[platform.machine()], opt=3, reloc="pic", codemodel="default"
    )
    # Its arguments belong to Python, so compiled code has nothing to release.
    source = ["#include <stdint.h>", "void NRT_MemInfo_call_dtor(void *memory) { __builtin_trap(); }"]
    for number, function in enumerate(functions):
        made = compiler.dispatcher(
            function.function, function.signature, no_cpython_wrapper=True, no_cfunc_wrapper=True
        )
        (compiled,) = made.overloads.values()
        module = llvm.parse_bitcode(compiled.library._final_module.as_bitcode())
        (work / f"{number:03}.o").write_bytes(target.emit_object(module))
        source.append(_wrapper(function, compiled.fndesc.llvm_func_name))
    (work / "wrappers.c").write_text("\n".join(source))
    names = "".join(f"{built_library.symbol(each.function)}; " for each in functions)
    (work / "exported").write_text(f"{{ global: {names}local: *; }};\n")
    objects = sorted(each.name for each in work.glob("*.o"))
    command = ("cc", *_LINKING, "-Wl,--version-script=exported", "-o", "decoders.so", "wrappers.c", *objects)
    subprocess.run(command, cwd=work, check=True)
    return work / "decoders.so"


def _wrapper(function: CompiledFunction, compiled: str) -> str:
    """Return the C function that passes words by numba's calling convention (``numba.core.callconv``)."""
    types = built_library.parsed(function.signature)
    results = "".join(f" {_C_TYPES[kind]} r{i};" for i, kind in enumerate(types.results))
    stored = "".join(f" results[{i}] = found.r{i};" for i in range(len(types.results)))
    passed = list(_passed(types))
    declared = ", ".join(("void *", "void **", *(kind for kind, _ in passed)))
    given = ", ".join(("&found", "&error", *(f"({kind}) {value}" for kind, value in passed)))
    return (
        f'extern int32_t f_{built_library.symbol(function.function)}({declared}) __asm__("{compiled}");\n'
        f"void {built_library.symbol(function.function)}(const int64_t *words, int64_t *results) {{\n"
        f"    struct {{{results or ' int64_t none;'} }} found; void *error;\n"
        f"    f_{built_library.symbol(function.function)}({given});\n   {stored}\n}}"
    )


def _passed(types: built_library.Signature) -> Iterator[tuple[str, str]]:
    """Yield the C type and the value of each argument that compiled code takes for the words it is given."""
    at = 0
    for each in types.parameters:
        if each.dimensions is None:
            yield _C_TYPES[each.kind], f"words[{at}]"
            at += 1
            continue
        size = "sizeof(char)" if each.kind == "bool" else f"sizeof({each.kind.removesuffix('_t')}_t)"
        size = size.replace("float32_t", "float").replace("float64_t", "double")
        shape = [f"words[{at + 1 + i}]" for i in range(each.dimensions)]
        # Its owner, twice: none. Then how many elements, and of how many bytes.
        yield "void *", "0"
        yield "void *", "0"
        yield "int64_t", " * ".join(shape)
        yield "int64_t", size
        yield "void *", f"words[{at}]"
        for extent in shape:
            yield "int64_t", extent
        for i in range(each.dimensions):
            yield "int64_t", " * ".join((size, *shape[i + 1 :]))
        at += 1 + each.dimensions


def _imported(library: Path) -> Iterator[str]:
    command = ("nm", "--dynamic", "--undefined-only", "--format=posix", library)
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return (line.split()[0] for line in listed.splitlines())


if __name__ == "__main__":
    main(sys.argv[1:])
