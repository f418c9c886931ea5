"""Doctor: makes the checks that a connector lists, for options of the command line, and prints a line for each."""

from __future__ import annotations

import contextlib
import getpass
import importlib
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Protocol, TextIO, cast

from watermark_source.checks import Finding, Verdict
from watermark_source.errors import UsageError
from watermark_source.option_table import OptionTable, lacking

# What connectors have for the command line: a module for each command, found by a flag that the package names.


_EXTRAS = ("kafka", "mysql")
_PREFIX = "pyspark_"
"""Spark looks for formats in packages with such names; so does this."""


def flags(constant: str) -> dict[str, str]:
    """Return the packages that name a flag in a ``constant``, such as ``DOCTOR_FLAG``, by their flags."""
    names = (found.name for found in pkgutil.iter_modules() if found.name.startswith(_PREFIX))
    found: dict[str, str] = {}
    for name in names:
        # Others of that name are not ours, and may lack what they need.
        with contextlib.suppress(Exception):
            found[getattr(importlib.import_module(name), constant)] = name
    return dict(sorted(found.items()))


def module_of(package: str, name: str) -> ModuleType:
    """Return a module of a connector's package.

    Raises:
        MissingPackageError: something that it needs is not installed.
    """
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
        # Named as its format: aligned-kafka has the extra kafka.
        extra = next((name for name in _EXTRAS if name in package), "all")
        raise lacking(package, missing.name, extra) from missing


_VARIABLES = "WATERMARK_SOURCE_"
_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NAME_WIDTH = 24


class Doctor(Protocol):
    """The module ``doctor`` of a connector, whose package names its flag in ``DOCTOR_FLAG``."""

    @property
    def OPTIONS(self) -> OptionTable:  # noqa: N802 - a constant of a module
        """The source's options."""
        ...

    @property
    def ASKED_FOR(self) -> str | None:  # noqa: N802 - see above
        """The secret option that a user on a terminal is asked for, if there is one that all need."""
        ...

    def findings(self, given: Mapping[str, str]) -> Iterator[Finding]:
        """Yield what each check finds; raises ``OptionError`` for options that cannot work."""
        ...


def doctor_of(package: str) -> Doctor:
    """Return the doctor of a package; raises as ``module_of``."""
    return cast("Doctor", module_of(package, "doctor"))


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Return options given as ``--name value`` or ``--name=value``.

    Raises:
        UsageError: something else.
    """
    given: dict[str, str] = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("--") or name == "--":
            raise UsageError(f"{name!r} is no option; they are given as for the source: --hostname db1 --port 3306")
        if not equals:
            if not left or left[0].startswith("--"):
                raise UsageError(f"{name} needs a value: {name} …")
            value = left.pop(0)
        if name[2:] in given:
            raise UsageError(f"{name} is there twice")
        given[name[2:]] = value
    return given


def with_secrets(given: Mapping[str, str], table: OptionTable, *, asked_for: str | None = None) -> dict[str, str]:
    """Add passwords from environment variables; what is not there a user on a terminal is asked for.

    Raises:
        UsageError: one is on the command line, where others see it.
    """
    whole = dict(given)
    for option in table.options:
        if not option.secret:
            continue
        variable = variable_of(option.name)
        if option.name.lower() in {name.lower() for name in given}:
            raise UsageError(
                f"--{option.name}: others could see it on the command line; set the environment variable {variable}"
                + (", or leave it out to be asked" if option.name == asked_for else "")
            )
        if variable in os.environ:
            whole[option.name] = os.environ[variable]
        elif option.name == asked_for and sys.stdin.isatty():
            whole[option.name] = getpass.getpass(f"{option.name} (not shown; empty for none): ")
    return whole


def variable_of(option: str) -> str:
    """Return the environment variable of a secret option."""
    return _VARIABLES + _WORD_END.sub("_", option).replace(".", "_").upper()


def report(findings: Iterable[Finding], out: TextIO) -> bool:
    """Write a line for each as it comes, then how many there were; return whether all that is needed holds."""
    counts: Counter[Verdict] = Counter()
    for finding in findings:
        counts[finding.verdict] += 1
        out.write(f"{finding.verdict.value:8} {finding.name:{_NAME_WIDTH}} {finding.text}\n")
        out.flush()
    shown = {
        Verdict.OK: "ok", Verdict.DOUBT: "with a warning", Verdict.FAILED: "failed", Verdict.SKIPPED: "not looked at",
    }  # fmt: skip
    parts = (f"{counts[verdict]} {text}" for verdict, text in shown.items() if counts[verdict])
    out.write(f"{counts.total()} checks: {', '.join(parts)}\n")
    return not counts[Verdict.FAILED]
