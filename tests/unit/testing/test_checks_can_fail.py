"""Every check of the kit fails for a connector that is broken, and states what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.testing.faults import FAULTS, Fault
from tests.unit.testing.file_log_harness import CutHarness, FullHarness
from watermark_source.errors import DataLossError
from watermark_source_testing import ALL_CHECKS, NonConformanceError, checks_for

CHECKS = {check.name: check for check in ALL_CHECKS}


def test_there_is_a_fault_for_every_check() -> None:
    assert {fault.check for fault in FAULTS} == CHECKS.keys()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.check)
def test_a_check_finds_the_fault(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = CHECKS[fault.check]
    kind = FullHarness if check in checks_for(FullHarness) else CutHarness
    monkeypatch.setattr(kind, "patience", 2.0)
    with kind(tmp_path) as harness:
        fault.break_it(monkeypatch)
        with pytest.raises(Exception, match=re.escape(fault.message)) as found:
            check(harness)
    reported = isinstance(found.value, NonConformanceError | DataLossError)
    assert reported or "pickle" in fault.message
