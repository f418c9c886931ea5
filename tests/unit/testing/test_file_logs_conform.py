"""The example of a connector passes the kit, and so does one with all that a connector may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.testing.file_log_harness import CutHarness, DeletedFileHarness, ExampleHarness, FullHarness
from watermark_source_testing import ALL_CHECKS, Ability, Check, Harness, checks_for

CASES = [
    *((ExampleHarness, check) for check in checks_for(ExampleHarness)),
    *((DeletedFileHarness, check) for check in checks_for(DeletedFileHarness) if Ability.LOSS in check.needs),
    *((FullHarness, check) for check in checks_for(FullHarness) if check not in checks_for(ExampleHarness)),
    *((CutHarness, check) for check in checks_for(CutHarness)),
]


@pytest.mark.parametrize(("harness", "check"), CASES, ids=lambda case: getattr(case, "__name__", str(case)))
def test_a_file_log_conforms(harness: type[ExampleHarness], check: Check, tmp_path: Path) -> None:
    with harness(tmp_path) as made:
        check(made)


def test_a_connector_with_everything_has_every_check_and_a_small_one_those_that_mean_something() -> None:
    assert checks_for(CutHarness) == ALL_CHECKS
    kinds: set[type[Harness]] = {ExampleHarness, FullHarness}
    assert all(each.needs <= kind.abilities for kind in kinds for each in checks_for(kind))
    assert 40 <= len(checks_for(ExampleHarness)) < len(checks_for(FullHarness)) < len(ALL_CHECKS)


def test_every_check_says_what_it_expects() -> None:
    assert len({each.name for each in ALL_CHECKS}) == len(ALL_CHECKS)
    assert all(each.contract.endswith(".") for each in ALL_CHECKS)
