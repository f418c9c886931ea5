"""The moments of a column that is event time."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records.layout import MOMENT, EventTimeColumn

WITHOUT_ZONE = pa.timestamp("us")


def at(*moment: int) -> datetime:
    return datetime(*moment)  # type: ignore[arg-type]  # noqa: DTZ001


@pytest.mark.parametrize(
    ("zone", "shown", "hour"),
    [
        ("UTC", at(2024, 7, 1, 12), 12),
        ("+05:00", at(2024, 7, 1, 12), 7),
        ("Europe/Berlin", at(2024, 7, 1, 12), 10),
        ("Europe/Berlin", at(2024, 1, 1, 12), 11),
        # Shown twice: the first is meant.
        ("Europe/Berlin", at(2024, 10, 27, 2), 0),
        # Left out, from two to three.
        ("Europe/Berlin", at(2024, 3, 31, 2, 30), 1),
    ],
)
def test_a_datetime_is_of_the_clocks_of_its_zone(zone: str, shown: datetime, hour: int) -> None:
    found = EventTimeColumn("at", zone).moments(pa.array([shown, None], WITHOUT_ZONE))
    assert found.type == MOMENT
    day = shown.replace(hour=hour, minute=0, tzinfo=UTC)
    assert found.to_pylist() == [day, None]


def test_a_timestamp_is_a_moment_whatever_the_zone() -> None:
    values = pa.array([0, None], MOMENT)
    assert EventTimeColumn("at", "Europe/Berlin").moments(values).equals(values)


def test_a_column_is_found_in_any_case() -> None:
    assert EventTimeColumn("AT").among(["id", "At"]) == "At"
    assert EventTimeColumn("at").among(["id"]) is None


def test_it_is_identified_by_its_name_in_any_case_and_a_zone_that_is_not_utc() -> None:
    assert str(EventTimeColumn("At")) == str(EventTimeColumn("at")) == "eventTimeColumn = at"
    assert str(EventTimeColumn("at", "+05:00")) == "eventTimeColumn = at (+05:00)"
