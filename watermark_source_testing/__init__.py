"""A conformance kit for connectors: checks that a connector's own tests run, with pytest or without.

::

    @pytest.mark.parametrize("check", checks_for(MyHarness), ids=str)
    def test_the_connector_conforms(check, tmp_path):
        with MyHarness(tmp_path) as harness:
            check(harness)

A ``Harness`` shows the kit how to write to the system, and which abilities it has; docs/writing-a-source.md has one.
``check_generator`` checks a watermark strategy of a user's own.
"""

from __future__ import annotations

from watermark_source_testing import definition_checks, position_checks, reading_checks, time_checks
from watermark_source_testing.harness import Ability, Check, Harness, NonConformanceError, Row
from watermark_source_testing.time_checks import check_generator

__all__ = ["ALL_CHECKS", "Ability", "Check", "Harness", "NonConformanceError", "Row", "check_generator", "checks_for"]

_MODULES = (definition_checks, reading_checks, position_checks, time_checks)
ALL_CHECKS: tuple[Check, ...] = tuple(
    each for module in _MODULES for each in vars(module).values() if isinstance(each, Check)
)
"""All checks, in the order in which a new connector comes to pass them."""


def checks_for(harness: type[Harness]) -> tuple[Check, ...]:
    """Return the checks whose abilities a harness has (``Harness.abilities``)."""
    return tuple(each for each in ALL_CHECKS if each.needs <= harness.abilities)
