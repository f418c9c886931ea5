"""Places in a binlog as numbers, and the names of its files."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_base, file_name, file_number, position_number
from watermark_source.errors import UnsupportedFormatError

FIRST, LAST = LogPosition(0, 0), LogPosition(2**23 - 1, 2**40 - 1)


@pytest.mark.parametrize("place", [FIRST, LogPosition(3), LogPosition(1, 2**40 - 1), LogPosition(2, 0), LAST])
def test_a_number_stands_for_one_place(place: LogPosition) -> None:
    assert LogPosition.of(place.number) == place


def test_numbers_grow_along_the_binlog_and_stay_as_they_are_in_checkpoints() -> None:
    places = [FIRST, LogPosition(0, 5), LogPosition(0, 2**40 - 1), LogPosition(1, 0), LogPosition(1, 4), LAST]
    assert sorted(places, key=lambda place: place.number) == places
    assert (FIRST.number, LAST.number) == (0, 2**63 - 1)
    # The first event is behind the four bytes that each file begins with.
    assert LogPosition(7).number == 7_696_581_394_436


@pytest.mark.parametrize(("file", "offset"), [(-1, 4), (2**23, 4), (1, -1), (1, 2**40)])
def test_a_place_that_has_no_number_is_refused(file: int, offset: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"binlog file {file} position {offset}: .* number 8388607, .*776"):
        position_number(file, offset)


def test_a_place_is_shown_as_the_server_names_it() -> None:
    assert LogPosition(7, 120).shown("binlog") == "binlog.000007 position 120"
    assert str(LogPosition(7, 120)) == "file 7 position 120"


@pytest.mark.parametrize(
    ("name", "base", "number"),
    [("binlog.000042", "binlog", 42), ("my.bin.999999", "my.bin", 999_999), ("b.1000000", "b", 1_000_000)],
)
def test_a_files_name_is_its_servers_and_a_number(name: str, base: str, number: int) -> None:
    assert (file_base(name), file_number(name)) == (base, number)
    assert file_name(base, number) == name


@pytest.mark.parametrize("name", ["binlog", "binlog.", "binlog.00x", "000001"])
def test_a_name_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"'{name}' is not the name of a binlog file"):
        file_number(name)
