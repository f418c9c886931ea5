"""What errors say of many things."""

from __future__ import annotations

from watermark_source.errors import listed
from watermark_source.planning.split import Split


def test_a_long_list_of_splits_is_cut() -> None:
    assert listed(Split("t", n) for n in range(12)) == ", ".join(f"t-{n}" for n in range(10)) + " and 2 more"
