"""Each process of a run imports all files of tests, from its own share of them on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.first_imports import files_of_tests, from_own_share


@pytest.mark.parametrize(("count", "processes"), [(10, 4), (3, 4), (1, 1), (0, 2)])
def test_each_process_imports_every_file_and_begins_with_one_of_its_own(count: int, processes: int) -> None:
    files = [Path(str(number)) for number in range(count)]
    orders = [from_own_share(files, process, processes) for process in range(processes)]
    assert [sorted(order) for order in orders] == [sorted(files)] * processes
    assert len({order[0] for order in orders if order}) == min(count, processes)


def test_files_are_those_of_the_folders_and_those_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("test_b.py", "test_a.py", "conftest.py", "rows.py"):
        (tmp_path / "folder" / name).touch()
    named = tmp_path / "test_c.py"
    found = files_of_tests([tmp_path / "folder", named])
    assert found == [tmp_path / "folder" / "test_a.py", tmp_path / "folder" / "test_b.py", named]
