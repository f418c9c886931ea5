"""Members that come back to their group: after they were out of it, and after their file was removed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit.group_store.clients import Make, at, stay_away, told, two, until
from watermark_source.errors import UsageError
from watermark_source.group_store import store_waits


def test_a_member_that_returns_with_another_drift_is_refused_and_not_the_running_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has come while it was away for so long that nobody knew of it, and comes after it by name."""
    monkeypatch.setattr(store_waits, "LATE_SETTLING", 0.2)
    away = stay_away(monkeypatch)
    back = make("a", drift=5, time_to_live=300)
    told(back, at(10))
    until(lambda: back.others(None).ceiling is None)
    away.add("a-id")
    time.sleep(0.5)
    runs = make("b", drift=1_000)
    told(runs, at(20))
    until(lambda: runs.others(None).ceiling is None)
    away.discard("a-id")

    def refused() -> bool:
        runs.others(None)
        try:
            back.others(None)
        except UsageError:
            return True
        return False

    until(refused)
    # It answers for whoever asks it next, and has seen nobody.
    before = runs._known.last_answer
    until(lambda: runs.others(None).ceiling is None and runs._known.last_answer is not before)
    assert runs.others(None).members == 0


def test_of_two_drifts_the_earlier_one_stays_though_a_newcomer_reached_the_store_first(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away from all of them for so long that nobody seems to be there, and comes before the other by name."""
    monkeypatch.setattr(store_waits, "LATE_SETTLING", 2.0)
    away = stay_away(monkeypatch)
    was_there = make("b", drift=5, time_to_live=1_500)
    told(was_there, at(10))
    was_there.publish(at(10), waits=True)
    until(lambda: was_there.others(None).ceiling is None)
    away.add("b-id")
    until(lambda: was_there.trouble is not None)
    time.sleep(1.6)
    newcomer = make("a", drift=1_000)
    away.discard("b-id")
    with pytest.raises(UsageError, match="one group has one drift"):
        newcomer.others(None)
    until(lambda: was_there.others(None).ceiling is None)
    assert was_there.others(None).members == 0


@pytest.mark.parametrize("parts", [["", "-wal", "-shm"], ["-shm"]])
def test_members_whose_file_was_removed_share_the_new_file_with_later_members(
    make: Make, tmp_path: Path, parts: list[str]
) -> None:
    """As what cleans temporary folders does: who has it open sees nothing of that."""
    a, b = two(make)
    until(lambda: b.others(None).minimum == 10)
    for part in parts:
        (tmp_path / f"alignment.sqlite{part}").unlink()
    # Each has seen it by its next statement, a second later.
    until(lambda: all((tmp_path / f"alignment.sqlite{part}").exists() for part in parts))
    c = make("c")
    told(c, at(900))
    until(lambda: c.others(None).members == 2)
    assert c.others(None).minimum == 10
    until(lambda: (a.others(None).members, b.others(None).members) == (2, 2))
