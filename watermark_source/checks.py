"""Checks of what a source needs. ``load()`` and the doctor run the same list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from watermark_source.errors import WatermarkSourceError

Subject = TypeVar("Subject")


class Caution(NamedTuple):
    """A result that works, but may not be what the user expects: its consequence, and what to do."""

    text: str


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject]):
    """One check."""

    name: str
    run: Callable[[Subject], str | Caution]
    """Returns the result as text. A failure is an error that states what was seen, what is needed, and the remedy."""
    after: tuple[str, ...] = ()
    """Names of checks without which this one would fail as well."""
    at_load: bool = True
    """Whether every query needs it. The doctor alone runs the others."""


class CheckVerdict(Enum):
    """How a check ended. The value is its word in reports."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """The result of a check, as one line."""

    name: str
    verdict: CheckVerdict
    text: str


def require(checks: Iterable[Check[Subject]], subject: Subject) -> list[Finding]:
    """Run the checks of ``load()`` and return their cautions; raises the error of the first one that fails."""
    results = [(check.name, check.run(subject)) for check in checks if check.at_load]
    return [Finding(name, CheckVerdict.WARNING, each.text) for name, each in results if isinstance(each, Caution)]


def examine(checks: Iterable[Check[Subject]], subject: Subject) -> Iterator[Finding]:
    """Run all checks and yield their findings. A failure skips only the checks that come after it by ``after``."""
    causes: dict[str, str] = {}
    for check in checks:
        cause = next((causes[name] for name in check.after if name in causes), None)
        if cause is not None:
            finding = Finding(check.name, CheckVerdict.SKIPPED, f"needs {cause}, which failed")
            causes[check.name] = cause
        else:
            finding = _finding(check, subject)
            if finding.verdict is CheckVerdict.FAILED:
                causes[check.name] = check.name
        yield finding


def _finding(check: Check[Subject], subject: Subject) -> Finding:
    try:
        result = check.run(subject)
    except WatermarkSourceError as error:
        return Finding(check.name, CheckVerdict.FAILED, str(error))
    if isinstance(result, Caution):
        return Finding(check.name, CheckVerdict.WARNING, result.text)
    return Finding(check.name, CheckVerdict.OK, result)
