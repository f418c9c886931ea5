"""Durations as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.durations import format_duration, parse_duration


@pytest.mark.parametrize(("text", "millis"), [
    ("500 ms", 500),
    ("1 millisecond", 1),
    ("0 ms", 0),
    ("5 seconds", 5_000),
    ("5s", 5_000),
    ("1.5 minutes", 90_000),
    ("2 HOURS", 7_200_000),
    ("1 day", 86_400_000),
    (" 1 minute 30 seconds ", 90_000),
    ("1h30m", 5_400_000),
])  # fmt: skip
def test_a_number_and_a_unit(text: str, millis: int) -> None:
    assert parse_duration(text) == millis


@pytest.mark.parametrize(
    "text",
    ["", " ", "5", "seconds", "5 min utes", "-5 s", "1e3 s", "5 weeks", "5m 3", "1,5 s", "5 s;", "0x5 s", "٣ s"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["99999999 days", f"{'9' * 400} s", f"{'9' * 5_000} s"])
def test_no_duration_is_endless(text: str) -> None:
    with pytest.raises(ValueError, match="longer than any stream"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_whole_milliseconds_are_kept(millis: int) -> None:
    assert parse_duration(f"{millis} ms") == millis


@pytest.mark.parametrize(("millis", "text"), [
    (0, "0 ms"),
    (999, "999 ms"),
    (1_000, "1 s"),
    (1_500, "1.5 s"),
    (59_999, "59 s"),
    (302_000, "5 min 02 s"),
    (3_660_000, "1 h 01 min"),
    (172_800_000, "2 d"),
    (-5_000, "-5 s"),
])  # fmt: skip
def test_people_read_the_two_largest_units(millis: int, text: str) -> None:
    assert format_duration(millis) == text
