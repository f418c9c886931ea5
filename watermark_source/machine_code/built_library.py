"""Machine code that was built with a package: a library in its folder, which ctypes calls; no compiler is imported.

``make decoders`` builds it, and wheels of a release have it. Its file is named by a digest of the sources, so code of
other sources is never run, and by the processor. A function takes one array of 64-bit words, for an array argument its
address and its shape, and one for its results.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import operator
import os
import platform
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watermark_source.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_log = logging.getLogger(__name__)

CHOICE = "WATERMARK_SOURCE_DECODERS"
"""``built`` or ``numba``: the only machine code to run, for tests and to compare. By default what was built, if it is
there and right, and numba's else."""
BASELINES = {"x86_64": "x86-64-v2", "aarch64": "generic"}
"""The processors that libraries are built for, by machine, as LLVM names them."""
_NEEDED_FLAGS = {"x86_64": {"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"}}
"""What makes x86-64-v2, as Linux names it."""


@cache
def processor_flags() -> frozenset[str]:
    """Return what an x86 processor can do, as Linux names it; nothing on another."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as lines:
        return frozenset(next((line for line in lines if line.startswith("flags")), "").split())
    return frozenset()


_address, _byte = ctypes.addressof, ctypes.c_char.from_buffer


# Signatures, in numba's spelling.

_SIGNATURE = re.compile(r"(?:Tuple\(\((?P<several>.*?)\)\)|(?P<one>\w+))\((?P<arguments>.*)\)")
_ARGUMENT = re.compile(
    r"Array\((?P<constant>\w+), 1, 'C', readonly=True\)|(?P<kind>\w+)(?:\[(?P<more>(?:\:, )*)::1\])?"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number, or an array in C's order."""

    kind: str
    """NumPy's name of the number, or of an array's elements."""
    dimensions: int | None
    """``None`` for a number."""
    writable: bool = True

    def put(self, argument: Any, words: list[int]) -> None:
        """Add the words of an argument; raises TypeError for one of another type, which would reach other memory."""
        if self.dimensions is None:
            words.append(bool(argument) if self.kind == "bool" else operator.index(argument))
            return
        flags = getattr(argument, "flags", None)
        if flags is None or argument.ndim != self.dimensions or argument.dtype != self.kind:
            raise TypeError(f"expected {self}, not {argument!r:.200}")
        if not (flags.carray if self.writable else flags.c_contiguous and flags.aligned):
            raise TypeError(f"expected {self}, not an array with the flags {flags}")
        # The first way is six times as fast, and has no address of what is constant or empty.
        words.append(_address(_byte(argument)) if self.writable and argument.size else argument.ctypes.data)
        words += argument.shape


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a compiled function."""

    parameters: tuple[Parameter, ...]
    results: tuple[str, ...]
    """NumPy's names of what it returns."""
    is_tuple: bool

    @property
    def words(self) -> int:
        """Of its arguments."""
        return sum(1 + (each.dimensions or 0) for each in self.parameters)


def parsed(signature: str) -> Signature:
    """Parse a signature; raises ValueError for what libraries cannot pass."""
    found = _SIGNATURE.fullmatch(signature.replace("boolean", "bool"))
    if found is None:
        raise ValueError(f"expected result(arguments), not {signature}")
    parameters = []
    # Not at a comma within brackets.
    for text in re.split(r", (?![^\[\]()]*[\])])", found["arguments"]):
        argument = _ARGUMENT.fullmatch(text)
        if argument is None:
            raise ValueError(f"expected a number or an array in C's order, not {text}")
        if argument["constant"]:
            parameters.append(Parameter(argument["constant"], 1, writable=False))
        else:
            dimensions = None if argument["more"] is None else 1 + argument["more"].count(":")
            parameters.append(Parameter(argument["kind"], dimensions))
    results = found["several"].split(", ") if found["several"] else [found["one"]] if found["one"] != "void" else []
    numbers = {*results, *(each.kind for each in parameters if each.dimensions is None)}
    if not numbers <= {"int64", "bool"}:
        raise ValueError(f"expected numbers of int64 and boolean, not {signature}")
    return Signature(tuple(parameters), tuple(results), found["several"] is not None)


# The library of a package.


def package_of(function: Callable[..., Any]) -> str:
    """Return the package of a function, whose sources its machine code is made of."""
    package, dot, _ = function.__module__.partition(".")
    return package if dot else __package__


@cache
def digest(package: str) -> str:
    """Return a digest of all sources of a package and of this one: functions inline helpers of other modules."""
    made = hashlib.sha256()
    for root in (__package__, package):
        for path, source in sorted(_sources(_folder(root), ""), key=itemgetter(0)):
            made.update(path.encode() + b"\0" + source.read_bytes())
    return made.hexdigest()


def _folder(package: str) -> Traversable:
    """Return the folder of a package without importing it: what builds the project has nothing that it needs."""
    spec = find_spec(package)
    if spec is None or spec.loader is None:
        raise ValueError(f"expected a package with sources, not {package}")
    folder: Traversable = spec.loader.get_resource_reader(package).files()  # type: ignore[attr-defined]
    return folder


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the source files of a folder, or of a folder in an archive, and of its subfolders."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield path + entry.name, entry


def file_name(package: str) -> str:
    """Return the name of the library of these sources for this kind of processor.

    Python would list a file that ends in ``.so`` as a module of the package.
    """
    return f"decoders-{digest(package)[:32]}-{platform.machine()}.elf"


def symbol(function: Callable[..., Any]) -> str:
    """Return the name of a function in the library of its package."""
    return f"{function.__module__}.{function.__qualname__}".replace(".", "__")


def is_there(package: str) -> bool:
    """Return whether the functions of a package need no compiler."""
    return not isinstance(_library(package), str)


@cache
def _library(package: str) -> ctypes.CDLL | str:
    """Return the library of a package, or why there is none; a line of the log names the way taken."""
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "built", "numba"):
        raise UsageError(f"{CHOICE} is {choice!r}: expected built, numba, or nothing")
    found = f"{CHOICE} is numba" if choice == "numba" else _loaded(package)
    if not isinstance(found, str):
        _log.info("%s runs the machine code that was built with it, %s", package, file_name(package))
    elif choice == "built":
        raise UsageError(f"{CHOICE} is built, and {package} has no machine code: {found}. Build it: make decoders")
    else:
        _log.info("numba compiles what %s runs: %s", package, found)
    return found


def _loaded(package: str) -> ctypes.CDLL | str:
    machine = platform.machine()
    lacking = _NEEDED_FLAGS.get(machine, set()) - processor_flags()
    if lacking:
        return f"this processor has no {', '.join(sorted(lacking))}"
    root = resources.files(package)
    library = root / file_name(package)
    if not library.is_file():
        if any(each.name.startswith("decoders-") for each in root.iterdir()):
            return f"what was built is of other sources, or for another processor than {machine}"
        return "none was built"
    try:
        # From an archive (--py-files) it is a temporary file, which may be deleted once it is loaded.
        with resources.as_file(library) as path:
            return ctypes.CDLL(str(path.absolute()))
    except OSError as problem:
        return str(problem)


def function(made_of: Callable[..., Any], signature: str) -> Callable[..., Any] | None:
    """Return the machine code of a function that was built with its package, or ``None``."""
    library = _library(package_of(made_of))
    if isinstance(library, str):
        return None
    types, entry = parsed(signature), getattr(library, symbol(made_of))
    entry.argtypes, entry.restype = [ctypes.c_char_p, ctypes.c_void_p], None
    pack, parameters, results = struct.Struct(f"={types.words}q").pack, types.parameters, types.results
    room = ctypes.c_int64 * len(results)

    def call(*arguments: Any) -> Any:
        words: list[int] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            parameter.put(argument, words)
        found = room()
        entry(pack(*words), found)
        if not types.is_tuple:
            return found[0] if results else None
        return tuple(bool(each) if kind == "bool" else each for kind, each in zip(results, found, strict=True))

    return call
