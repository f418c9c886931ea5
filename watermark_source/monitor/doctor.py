"""The doctor: runs a connector's checks with options of the command line, and prints a line for each check."""

from __future__ import annotations

import contextlib
import getpass
import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Protocol, TextIO, cast

from watermark_source.checks import CheckVerdict, Finding
from watermark_source.durations import count_text
from watermark_source.errors import UsageError
from watermark_source.installation import format_packages, lacking
from watermark_source.option_table import OptionTable
from watermark_source.supported_spark import need_supported_spark

_VARIABLES = "WATERMARK_SOURCE_"
_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NAME_WIDTH = 24


class Doctor(Protocol):
    """The module ``doctor`` of a connector, whose package names its flag in ``DOCTOR_FLAG``."""

    @property
    def OPTIONS(self) -> OptionTable:  # noqa: N802 - a constant of a module
        """The source's options."""

    @property
    def ASKED_FOR(self) -> str | None:  # noqa: N802 - see above
        """The secret option to prompt for on a terminal; ``None`` if not every user needs one."""

    def findings(self, given: Mapping[str, str]) -> Iterator[Finding]:
        """Yield the finding of each check; raises ``OptionError`` for invalid options."""


def doctor_of(package: str) -> Doctor:
    """Return the doctor of a package; raises as ``module_of``."""
    return cast("Doctor", module_of(package, "doctor"))


def flags(constant: str) -> dict[str, str]:
    """Return the packages whose module has a flag in ``constant``, such as ``DOCTOR_FLAG``, by their flags.

    Raises:
        MissingPackageError, UsageError: there is none, since there is no Spark, or one of another version.
    """
    found = dict(sorted((flag, package) for package, flag in _constants(constant)))
    if not found:
        need_supported_spark()
    return found


def help_of(constant: str) -> str:
    """Return what the packages add to the help of a command, such as ``PROFILE_HELP``."""
    return "".join(f" {text}" for _, text in _constants(constant))


def _constants(name: str) -> Iterator[tuple[str, str]]:
    for package in format_packages():
        # Another project's package with this prefix may fail to import.
        with contextlib.suppress(Exception):
            yield package, getattr(importlib.import_module(package), name)


def module_of(package: str, name: str) -> ModuleType:
    """Return a module of a connector's package.

    Raises:
        MissingPackageError: a package that the module imports is not installed.
    """
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
        requirement: str = importlib.import_module(package).DefaultSource.requirement
        raise lacking(package, missing.name, requirement.rstrip("]").partition("[")[2] or "all") from missing


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Parse options of the form ``--name value`` or ``--name=value``.

    Raises:
        UsageError: a word has another form, or an option is given twice.
    """
    given: dict[str, str] = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("--") or name == "--":
            raise UsageError(f"{name!r} is not an option; write options as for the source, each as --name value")
        if not equals:
            if not left or left[0].startswith("--"):
                raise UsageError(f"{name} needs a value: {name} …")
            value = left.pop(0)
        if name[2:] in given:
            raise UsageError(f"{name} was given twice; write it once")
        given[name[2:]] = value
    return given


def with_secrets(given: Mapping[str, str], table: OptionTable, *, asked_for: str | None = None) -> dict[str, str]:
    """Add secret options from environment variables, and prompt for ``asked_for`` on a terminal.

    Raises:
        UsageError: a secret is on the command line, where other users of the machine can see it.
    """
    whole = dict(given)
    for option in table.options:
        if not option.secret:
            continue
        variable = variable_of(option.name)
        if option.name.lower() in {name.lower() for name in given}:
            raise UsageError(
                f"--{option.name}: other users could see it on the command line; set the environment variable "
                f"{variable}" + (", or leave it out to be prompted for it" if option.name == asked_for else "")
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
    """Write a line for each finding, then the totals; return whether no check failed."""
    counts: Counter[CheckVerdict] = Counter()
    for finding in findings:
        counts[finding.verdict] += 1
        out.write(f"{finding.verdict.value:8} {finding.name:{_NAME_WIDTH}} {finding.text}\n")
        out.flush()
    texts = {
        CheckVerdict.OK: "ok", CheckVerdict.WARNING: "with a warning", CheckVerdict.FAILED: "failed",
        CheckVerdict.SKIPPED: "skipped",
    }  # fmt: skip
    parts = (f"{counts[verdict]} {text}" for verdict, text in texts.items() if counts[verdict])
    out.write(f"{count_text(counts.total(), 'check')}: {', '.join(parts)}\n")
    return not counts[CheckVerdict.FAILED]
