"""All checks of the kit, and those that apply to a connector."""

from __future__ import annotations

from watermark_source.testing import definition_checks, position_checks, reading_checks, time_checks
from watermark_source.testing.harness import Check, Harness

_MODULES = (definition_checks, reading_checks, position_checks, time_checks)
ALL_CHECKS: tuple[Check, ...] = tuple(
    each for module in _MODULES for each in vars(module).values() if isinstance(each, Check)
)
"""All checks, in the order in which a new connector comes to pass them."""


def checks_for(harness: type[Harness]) -> tuple[Check, ...]:
    """Return the checks whose abilities a harness has (``Harness.abilities``)."""
    return tuple(each for each in ALL_CHECKS if each.needs <= harness.abilities)
