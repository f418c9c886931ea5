"""The windows of a query are read from the text of its plan, as Spark 4 prints it."""

from __future__ import annotations

import pytest

from watermark_source.spark.query_windows import Windows, windows_in

SECOND, MINUTE = 1_000, 60_000


def plan(size: int, slide: int, start: int = 0, *, number: int = 0) -> str:
    """Return the plan of an aggregation by windows; times in microseconds, ``number``: of an overlapping window."""
    at = "precisetimestampconversion(event_time#7, TimestampType, LongType)"
    rest = f"(({at} - {start}) % {slide})"
    last = f"({at} - CASE WHEN ({rest} < cast(0 as bigint)) THEN ({rest} + {slide}) ELSE {rest} END)"
    begin = f"({last} - {number})"
    window = (
        f"named_struct(start, knownnullable(precisetimestampconversion({begin}, LongType, TimestampType)), end, "
        f"knownnullable(precisetimestampconversion(({begin} + {size}), LongType, TimestampType)))"
    )
    return (
        "Aggregate [window#12], [window#12 AS w#8, count(1) AS count#13L]\n"
        f"+- Project [{window} AS window#12, event_time#7, (value#1 + 300) AS other#3]\n"
        "   +- Filter isnotnull(event_time#7)\n"
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (plan(60_000_000, 60_000_000), Windows(MINUTE, MINUTE)),
        (plan(300_000_000, 60_000_000), Windows(5 * MINUTE, MINUTE)),
        (plan(3_600_000_000, 3_600_000_000, 900_000_000), Windows(60 * MINUTE, 60 * MINUTE, 15 * MINUTE)),
        (plan(30_000_000, 30_000_000) + plan(10_000_000, 10_000_000), Windows(30 * SECOND, 30 * SECOND)),
        ("Project [(value#1 - 5) % 7) AS x#3, (y#2 + 60), LongType]", None),
        ("SessionWindow [session_window(event_time#7, 5 seconds)]", None),
        (plan(500, 500), None),
    ],
)
def test_windows_have_the_length_the_distance_and_the_start_of_the_plan(given: str, found: Windows | None) -> None:
    assert windows_in(given) == found


@pytest.mark.parametrize(
    ("windows", "watermark", "end"),
    [
        (Windows(MINUTE, MINUTE), 0, MINUTE),
        (Windows(MINUTE, MINUTE), MINUTE - 1, MINUTE),
        (Windows(MINUTE, MINUTE), MINUTE, 2 * MINUTE),
        (Windows(5 * MINUTE, MINUTE), 10 * MINUTE, 11 * MINUTE),
        (Windows(60 * MINUTE, 60 * MINUTE, 15 * MINUTE), 60 * MINUTE, 75 * MINUTE),
        (Windows(MINUTE, MINUTE), -1, 0),
    ],
)
def test_the_next_window_to_close_is_the_first_that_the_watermark_has_not_passed(
    windows: Windows, watermark: int, end: int
) -> None:
    assert windows.next_end(watermark) == end
