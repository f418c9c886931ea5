"""Members that come back to their group after their file was removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.group_store.clients import Make, at, publish_first, two, until


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
    publish_first(c, at(900))
    until(lambda: c.others(None).members == 2)
    assert c.others(None).minimum == 10
    until(lambda: (a.others(None).members, b.others(None).members) == (2, 2))
