from __future__ import annotations

import numpy as np
import pytest

from watermark_source.planning.watermark import MAX, MIN, saturating_add


def test_time_begins_and_ends_where_64_bits_do() -> None:
    ends = np.iinfo(np.int64)
    assert (ends.min, ends.max) == (MIN, MAX)


@pytest.mark.parametrize(
    ("a", "b", "total"), [(1, 2, 3), (MAX, 1, MAX), (MAX, MAX, MAX), (MIN, -1, MIN), (MIN, MAX, -1)]
)
def test_addition_saturates_at_both_ends(a: int, b: int, total: int) -> None:
    assert saturating_add(a, b) == total
