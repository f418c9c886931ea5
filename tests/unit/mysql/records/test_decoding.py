"""Recorded rows, from servers with different settings, to the same columns."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import PADDING
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, _WantedTables, as_logged
from pyspark_mysql_cdc_wm.records.decoding import TableDecoder
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, RowLocator
from tests.unit.mysql.recordings import charsets, decoded, rows, surveyed, table_maps
from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError

_AT = datetime.datetime(2024, 5, 7, 12, 30, 15, 123000)  # noqa: DTZ001 - a clock's reading
_ANN = (1, "Ann", Decimal("10.50"), 1999, -3, _AT, "new", ["a", "c"], True, b"ab\0\0", "é漢😀")
_ZOE: tuple[Any, ...] = (4000000000, "Zoë", Decimal("-0.05"), 0, 7, None, "paid", [], False, b"\0\xff\0\xff", None)
_PAID = (*_ANN[:2], Decimal("11.50"), *_ANN[3:10], "changed")
EXPECTED = [(INSERT, _ANN), (INSERT, _ZOE), (UPDATE_BEFORE, _ANN), (UPDATE_AFTER, _PAID), (DELETE, _ZOE)]


@pytest.mark.parametrize("name", ["full", "no_checksum", "compressed", "tagged", "mariadb", "mariadb_compressed"])
@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_rows_are_the_same_however_the_server_logs_them(name: str, batch_rows: int) -> None:
    flavour = "mariadb" if name.startswith("mariadb") else "mysql"
    assert rows(decoded(name, flavour=flavour, batch_rows=batch_rows)) == EXPECTED


def test_columns_are_valid_arrow_of_the_types_announced() -> None:
    kinds = (
        pa.int64(), pa.string(), pa.decimal128(12, 2), pa.int32(), pa.int16(), pa.timestamp("us"), pa.string(),
        pa.list_(pa.string()), pa.bool_(), pa.binary(), pa.string(),
    )  # fmt: skip
    for each in decoded("full"):
        for column, kind in zip(each.columns, kinds, strict=True):
            assert column.type == kind
            column.validate(full=True)


@pytest.mark.parametrize("name", ["full", "tagged", "compressed"])
def test_every_row_has_the_commit_time_of_its_transaction(name: str) -> None:
    found = decoded(name)
    numbers = [number for each in found for number in each.transactions.tolist()]
    assert [number - numbers[0] for number in numbers] == [0, 0, 1, 1, 2]
    # SET timestamp moves a statement's clock, and not that of the commit.
    assert all(micros > 1_750_000_000_000_000 for each in found for micros in each.committed.tolist())


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_images_are_numbered_within_their_transaction_however_they_are_cut(batch_rows: int) -> None:
    found = decoded("full", batch_rows=batch_rows)
    assert [number for each in found for number in each.numbers.tolist()] == [0, 1, 0, 1, 0]


def test_the_latest_commit_of_any_table_is_known() -> None:
    memory, events = surveyed("full")
    decoder = ChangeDecoder(charsets(), lambda table: [str(column.name) for column in table.columns])
    assert decoder.reached == 0
    latest = max(each.committed.max() for each in decoder.decode(memory, events, "full"))
    assert decoder.reached >= latest
    reached = decoder.reached
    assert list(decoder.decode(memory, events[:0], "full")) == []
    assert decoder.reached == reached


def test_events_of_a_table_that_was_altered_and_altered_back_stay_in_order() -> None:
    tables = table_maps("full")
    names = sorted(tables)
    known: Any = _WantedTables(lambda table: [], None, as_logged)  # type: ignore[arg-type]
    # Two shapes of one table, and another table.
    known.found.extend((tables[name], None) for name in (names[0], names[0], names[1]))
    stretches = known.stretches(np.array([0, 0, 1, -1, 1, 0, 2, 2], np.int32))
    assert [each.tolist() for each in stretches] == [[0, 1], [2, 4], [5], [6, 7]]


def test_without_commit_times_the_seconds_of_the_statement_are_taken() -> None:
    times = {micros for each in decoded("mariadb", flavour="mariadb") for micros in each.committed.tolist()}
    assert times == {1715085015_000_000}


def test_wanted_columns_alone_are_built_in_the_tables_order() -> None:
    memory, events = surveyed("full")
    decoder = ChangeDecoder(charsets(), lambda table: ["note", "id"] if table.table == "orders" else None)
    found = list(decoder.decode(memory, events, "full"))
    assert {each.names for each in found} == {("id", "note")}
    assert [row for _, row in rows(found)][:2] == [(1, "é漢😀"), (4000000000, None)]


def test_rows_do_not_change_when_the_received_bytes_are_overwritten() -> None:
    memory, events = surveyed("full")
    decoder = ChangeDecoder(charsets(), lambda table: [str(column.name) for column in table.columns])
    found = [each for each in decoder.decode(memory, events, "full") if each.table.table == "orders"]
    before = rows(found)
    memory[:] = 0xAA
    assert rows(found) == before == EXPECTED


def test_invisible_columns_are_decoded() -> None:
    assert rows(decoded("full", "hidden")) == [(INSERT, (1, 5))]


def test_least_metadata_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"shop\.orders: .* SET PERSIST binlog_row_metadata = 'FULL'"):
        decoded("minimal")


def _row_event(kind: EventType) -> tuple[np.ndarray, np.ndarray]:
    memory, events = surveyed("full")
    (found,) = [i for i, each in enumerate(events) if each[TYPE] == kind][:1]
    return memory, events[found : found + 1].copy()


@pytest.mark.parametrize("kind", [EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS])
def test_rows_cut_anywhere_are_damaged_or_fewer(kind: EventType) -> None:
    memory, event = _row_event(kind)
    decoder = TableDecoder(table_maps("full")["orders"], charsets())
    whole = sum(len(each.kinds) for each in decoder.decode(memory, event))
    first, last = int(event[0, START]) + HEADER_SIZE, int(event[0, STOP])
    for stop in range(first, last):
        event[0, STOP] = stop
        try:
            found = sum(len(each.kinds) for each in decoder.decode(memory, event))
        except CorruptDataError as damage:
            assert "table shop.orders" in str(damage)  # noqa: PT017 - or it is no error
        else:
            assert found < whole


@given(st.data())
def test_any_bytes_are_rows_or_a_declared_error(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([EventType.WRITE_ROWS, EventType.UPDATE_ROWS]))
    memory, event = _row_event(kind)
    first, last = int(event[0, START]) + HEADER_SIZE, int(event[0, STOP])
    changes = data.draw(st.lists(st.tuples(st.integers(first, last - 1), st.integers(0, 255)), max_size=6))
    for at, byte in changes:
        memory[at] = byte
    try:
        for each in TableDecoder(table_maps("full")["orders"], charsets()).decode(memory, event):
            for column in each.columns:
                column.validate()
    except SourceError:
        pass
    assert memory.size >= last + PADDING


def test_more_than_32_bits_of_places_are_refused() -> None:
    _, event = _row_event(EventType.WRITE_ROWS)
    decoder = TableDecoder(table_maps("full")["orders"], charsets())
    # A view of one byte again and again: no memory is needed.
    large = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**31,), (0,))
    with pytest.raises(UnsupportedFormatError, match="2147483648 bytes of events at once"):
        list(decoder.decode(large, event))


def test_a_row_of_which_no_column_was_logged_is_refused() -> None:
    # MySQL 9.7 of INSERT INTO t VALUES (), with binlog_row_image = MINIMAL and two columns that have defaults.
    logged = bytes.fromhex("53e10d6b1e0100000023000000b801000000006a00000000001100020002000af54508")
    memory = np.frombuffer(logged + bytes(PADDING), np.uint8).copy()
    events = np.zeros((1, 6), np.int64)
    events[0, [STOP, TYPE]] = len(logged) - 4, EventType.WRITE_ROWS
    locator = RowLocator(np.array([4, 4]), np.zeros(2, np.bool_), np.array([0, 1]), names=("a", "b"), capacity=10)
    with pytest.raises(UnsupportedFormatError, match=r"a row without any column; set binlog_row_image to FULL"):
        list(locator.located(memory, events, "binlog f"))


def test_another_number_of_columns_is_refused() -> None:
    memory, event = _row_event(EventType.WRITE_ROWS)
    decoder = TableDecoder(table_maps("full")["hidden"], charsets())
    with pytest.raises(CorruptDataError, match="another number of columns"):
        list(decoder.decode(memory, event))
