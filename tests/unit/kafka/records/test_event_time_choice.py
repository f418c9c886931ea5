"""What of a record has to be there for its event time and its watermark to be found."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.records.event_time_choice import (
    ByFunction,
    EventTimeChoice,
    InHeader,
    InJson,
    MarkChoice,
    Place,
    parse_path,
)


@pytest.mark.parametrize(
    ("place", "text", "fields"),
    [
        (InJson("key", parse_path("$.a")), "key:$.a", {"key"}),
        (InJson("value", parse_path("$.a")), "value:$.a", {"value"}),
        (InHeader("t"), "header:t", {"headers"}),
        (ByFunction("times", "of"), "times:of", {"key", "value", "headers"}),
    ],
)
def test_only_the_fields_that_a_place_is_in_are_looked_at(place: Place, text: str, fields: set[str]) -> None:
    assert str(place) == text
    assert EventTimeChoice(place).fields == MarkChoice(place).fields == fields
    assert MarkChoice(None).fields == set()
