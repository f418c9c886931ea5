"""A conformance kit for connectors: checks that a connector's own tests run, with pytest or without.

::

    @pytest.mark.parametrize("check", checks_for(MyHarness), ids=str)
    def test_the_connector_conforms(check, tmp_path):
        with MyHarness(tmp_path) as harness:
            check(harness)

A ``Harness`` shows the kit how to write to the system, and which abilities it has; docs/writing-a-source.md has one.

Imports ``contract``, ``errors``, ``planning``, ``spark``.
"""

from __future__ import annotations

from watermark_source.testing.conformance import ALL_CHECKS, checks_for
from watermark_source.testing.harness import Ability, Check, Harness, NonConformanceError, Row

__all__ = ["ALL_CHECKS", "Ability", "Check", "Harness", "NonConformanceError", "Row", "checks_for"]
