"""What of a range is gone, whatever the log's bounds are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.reading.range_progress import Pending
from pyspark_aligned_kafka.reading.recovery import behind_loss, loss_text
from watermark_source.planning.split import Split, SplitRange

HALFWAY = Pending(SplitRange(Split("orders", 3), 100, 200), 150)


@pytest.mark.parametrize(
    ("earliest", "latest", "behind"),
    [
        (0, 300, None),
        (150, 151, None),
        (151, 300, 151),
        (180, 190, 180),
        (500, 900, 200),
        (0, 150, 200),
        (0, 10, 200),
        (0, 170, None),
    ],
)
def test_where_reading_goes_on(earliest: int, latest: int, behind: int | None) -> None:
    assert behind_loss(HALFWAY, earliest, latest) == behind


@given(st.integers(0, 400), st.integers(0, 400))
def test_reading_never_goes_back_never_leaves_the_range_and_skips_only_what_is_not_in_the_log(a: int, b: int) -> None:
    earliest, latest = min(a, b), max(a, b)
    behind = behind_loss(HALFWAY, earliest, latest)
    position = HALFWAY.position if behind is None else behind
    assert HALFWAY.position <= position <= HALFWAY.range.end
    assert not any(earliest <= offset < latest for offset in range(HALFWAY.position, position))


def test_the_text_names_split_offsets_and_cause() -> None:
    begins_later = loss_text(HALFWAY, 180, 180, 900)
    assert begins_later == (
        "topic orders partition 3: offsets 150 to 180 (exclusive) of the range 100 to 200 are gone; "
        "the log now begins at 180 and ends at 900: they have been deleted by retention or by hand"
    )
    assert loss_text(HALFWAY, 200, 0, 10).endswith("the log was truncated, or the topic was deleted and recreated")
    assert loss_text(HALFWAY, 200, 500, 900).endswith("by retention or by hand")
