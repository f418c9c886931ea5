"""What of a record has to be there for its event time and its watermark to be found."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.records.event_time_choice import (
    ByFunction,
    EventTimeChoice,
    FirstOf,
    InHeader,
    InJson,
    InTimestamp,
    Place,
    is_of_row_before,
)
from pyspark_aligned_kafka.records.json_path import parse_path


@pytest.mark.parametrize(
    ("place", "text", "fields"),
    [
        (InJson("key", parse_path("$.a")), "key:$.a", {"key"}),
        (InJson("value", parse_path("$.a")), "value:$.a", {"value"}),
        (InHeader("t"), "header:t", {"headers"}),
        (InTimestamp(), "timestamp", {"timestamp"}),
        (FirstOf((InHeader("t"), InTimestamp())), "header:t or timestamp", {"headers", "timestamp"}),
        (ByFunction("times", "of"), "times:of", {"key", "value", "headers"}),
    ],
)
def test_only_the_fields_that_a_place_is_in_are_looked_at(place: Place, text: str, fields: set[str]) -> None:
    assert str(place) == text
    assert EventTimeChoice(place).fields == fields


@pytest.mark.parametrize(
    ("place", "is_so"),
    [
        (FirstOf((InJson("value", parse_path("$.after.at")), InJson("value", parse_path("$.before.at")))), True),
        (InJson("value", parse_path("$.payload.before.at")), True),
        (InJson("value", parse_path("$.ts_ms")), False),
        (InJson("value", parse_path("$.before")), False),
        (ByFunction("before", "at"), False),
    ],
)
def test_the_time_of_a_row_before_its_change_is_known_by_its_path(place: Place, *, is_so: bool) -> None:
    assert is_of_row_before(place) == is_so
