"""Checks: what must hold before a source can be read, one thing each. ``load()`` and the doctor go by one list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from watermark_source.errors import WatermarkSourceError

Subject = TypeVar("Subject")


class Caution(NamedTuple):
    """What was found works, and may not be what the user expects: what it means, and what to do."""

    text: str


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject]):
    """One thing that is looked at."""

    name: str
    look: Callable[[Subject], str | Caution]
    """Returns what was found. What does not hold is an error that says what was seen, what is needed, what mends it."""
    after: tuple[str, ...] = ()
    """Checks without which it could only fail as well."""
    at_load: bool = True
    """Whether no query can do without it; the others only tell."""


class Verdict(Enum):
    """How a check ended. The value is its word in reports."""

    OK = "ok"
    DOUBT = "warning"
    FAILED = "FAILED"
    SKIPPED = "skipped"


class Finding(NamedTuple):
    """What a check found, in one line."""

    name: str
    verdict: Verdict
    text: str


def require(checks: Iterable[Check[Subject]], subject: Subject) -> None:
    """Raise what the first check that fails raises."""
    for check in checks:
        if check.at_load:
            check.look(subject)


def examine(checks: Iterable[Check[Subject]], subject: Subject) -> Iterator[Finding]:
    """Yield what each check finds; one that fails stops only those that need it."""
    causes: dict[str, str] = {}
    for check in checks:
        cause = next((causes[name] for name in check.after if name in causes), None)
        if cause is not None:
            finding = Finding(check.name, Verdict.SKIPPED, f"not looked at without: {cause}")
            causes[check.name] = cause
        else:
            finding = _looked(check, subject)
            if finding.verdict is Verdict.FAILED:
                causes[check.name] = check.name
        yield finding


def _looked(check: Check[Subject], subject: Subject) -> Finding:
    try:
        found = check.look(subject)
    except WatermarkSourceError as error:
        return Finding(check.name, Verdict.FAILED, str(error))
    if isinstance(found, Caution):
        return Finding(check.name, Verdict.DOUBT, found.text)
    return Finding(check.name, Verdict.OK, found)
