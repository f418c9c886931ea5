from __future__ import annotations

from watermark_source.planning.split import Split, SplitRange


def test_a_split_is_identified_by_log_and_number() -> None:
    assert str(Split("orders", 3)) == "orders-3"


def test_a_range_counts_the_positions_it_reads() -> None:
    wanted = SplitRange(Split("orders", 3), 10, 25)
    assert wanted.size == 15
    assert str(wanted) == "orders-3[10,25)"
