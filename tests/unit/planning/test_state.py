"""What a plan changes of a split, and what it leaves as it was."""

from __future__ import annotations

from dataclasses import fields, replace

from watermark_source.planning.state import Epoch, Returning, SplitState, SplitStatus
from watermark_source.planning.watermark import Millis

KNOWN = SplitState(
    position=9,
    observed=5,
    watermark=Millis(100),
    status=SplitStatus.IDLE,
    since=Millis(2_000),
    highest=Millis(150),
    step=700,
    returning=Returning.READ,
    kept='{"n":1}',
    epoch=Epoch(3, 2),
)


def test_a_split_keeps_what_a_plan_does_not_change() -> None:
    assert [each.name for each in fields(SplitState) if getattr(KNOWN, each.name) == each.default] == []
    observed = KNOWN.observed_to_its_end(Millis(120), Millis(160), '{"n":2}')
    assert observed == replace(KNOWN, observed=9, watermark=Millis(120), highest=Millis(160), kept='{"n":2}')
    planned = KNOWN.planned_to(12, SplitStatus.PAUSED, Millis(3_000))
    assert planned == replace(KNOWN, position=12, status=SplitStatus.PAUSED, since=Millis(3_000))
