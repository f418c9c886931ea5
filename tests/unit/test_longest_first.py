"""The order in which test files begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.longest_first import FILES, in_order

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("file", FILES)
def test_every_file_that_begins_early_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_long_files_begin_first_and_the_others_stay_in_their_order() -> None:
    last, first = (ROOT / FILES[-1], ROOT / FILES[0])
    others = [ROOT / "tests/b.py", ROOT / "tests/a.py"]
    assert in_order([others[0], last, others[1], first, first], ROOT) == [3, 4, 1, 0, 2]
