"""In which order the outside is asked for a plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.queries import START, write
from tests.unit.spark.runner_process import TWO, wm
from watermark_source.planning.group import NO_OTHERS, OtherMembers
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.group_membership import Membership

FOLLOWS = {
    "idleFollows": "group",
    "alignmentGroup": "g",
    "alignmentMaxDrift": "1 hour",
    "idleTimeout": "20 ms",
    "watermarkInterval": "20 ms",
}


def test_a_row_written_before_the_others_were_asked_is_not_passed_over(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, TWO)
    found = NO_OTHERS
    monkeypatch.setattr(Membership, "others", lambda *_: found)
    process = live(**FOLLOWS)
    end = process.run(process.runner.initial_offset())
    deadline = time.monotonic() + 30
    while any(fields[3:4] != ["i"] for fields in end["splits"]["log"].values()):
        assert time.monotonic() < deadline
        end = process.run(end)
    for _ in range(2):
        time.sleep(0.1)
        assert process.plan(end) == end

    def others(*_: object) -> OtherMembers:
        write(log, {0: [(200, 4)]})
        return OtherMembers(Millis(START + 300_000))

    monkeypatch.setattr(Membership, "others", others)
    batch = process.plan(end)
    assert process.read(end, batch)[0] == [4]
    assert wm(batch) == wm(end)
    monkeypatch.setattr(Membership, "others", lambda *_: OtherMembers(Millis(START + 300_000)))
    deadline = time.monotonic() + 30
    while wm(end) != 300_000:
        assert time.monotonic() < deadline
        end = process.run(batch)
        batch = end
