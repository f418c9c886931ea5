"""Events cut anywhere, and keys of a checkpoint that no server wrote, are declared errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.binlog.ddl_statements import check_statements
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.lookup.binlog_search import gtids_of
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from tests.unit.mysql.recordings import surveyed
from watermark_source.errors import CorruptDataError, OffsetError, UnsupportedFormatError


def _cut(name: str, kind: EventType) -> list[Any]:
    """Return the first event of a kind, cut to every shorter length, each with nothing but padding behind it."""
    memory, events = surveyed(name)
    event = events[events[:, TYPE] == kind][:1].copy()
    whole = memory[event[0, START] : event[0, STOP]].tobytes()
    found = []
    for size in range(HEADER_SIZE, len(whole)):
        row = event.copy()
        row[0, START], row[0, STOP] = 0, size
        found.append((padded(whole[:size]), row))
    return found


def _is_refused(look: Callable[..., object], *given: Any) -> bool:
    try:
        look(*given)
    except (CorruptDataError, UnsupportedFormatError):
        return True
    return False


@pytest.mark.parametrize(("name", "kind"), [("full", EventType.GTID), ("tagged", EventType.GTID_TAGGED)])
def test_an_identifier_cut_anywhere_is_refused_or_read(name: str, kind: EventType) -> None:
    refused = [_is_refused(gtids_of, *cut, "f") for cut in _cut(name, kind)]
    assert sum(refused) > 20


def test_a_statement_cut_anywhere_is_refused_or_read() -> None:
    cuts = _cut("full", EventType.QUERY)
    refused = [_is_refused(check_statements, *cut, "f", lambda *_: False) for cut in cuts]
    assert sum(refused) > 20


@pytest.mark.parametrize(
    ("kind", "arrow", "value"),
    [
        (ColumnType.NEWDECIMAL, pa.decimal128(12, 2), "1e999999999"),
        (ColumnType.NEWDECIMAL, pa.decimal128(12, 2), "-1e-999999999"),
        (ColumnType.VARCHAR, pa.string(), "\ud800"),
        (ColumnType.DATETIME2, pa.timestamp("us"), "2024-05-07 12:30:15.1234567"),
    ],
)
def test_a_key_that_no_server_wrote_is_refused(kind: ColumnType, arrow: pa.DataType, value: str) -> None:
    collated = ("utf8mb4", "utf8mb4_bin") if pa.types.is_string(arrow) else ()
    with pytest.raises(OffsetError, match="the checkpoint has"):
        KeyColumn("k", kind, arrow, *collated).literal(value)
