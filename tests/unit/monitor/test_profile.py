"""What ``profile`` writes where there is nothing to show."""

from __future__ import annotations

import io

import numpy as np
import pytest

from watermark_source.monitor.profile import SplitEventTimes, profile_of, write
from watermark_source.planning.split import Split

NO_TIMES = np.array([], dtype=np.int64)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([], "no partition has rows\n"),
        (
            [SplitEventTimes(Split("orders", 0), NO_TIMES, 1_200), SplitEventTimes(Split("orders", 1), NO_TIMES, 0)],
            "rows read: 1 200; none has an event time where the options look for it\n",
        ),
    ],
)
def test_who_finds_no_event_time_learns_whether_there_are_rows(seen: list[SplitEventTimes], text: str) -> None:
    out = io.StringIO()
    write(profile_of(iter(seen)), out)
    assert out.getvalue() == text
