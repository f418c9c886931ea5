"""Which tables' changes a range of the binlog delivers, by what the user may SELECT."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pytest

from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_tables
from pyspark_mysql_cdc_wm.reading import delivered_tables
from pyspark_mysql_cdc_wm.reading.delivered_tables import EVERYTHING, DeliveredTables, Part
from tests.unit.mysql.recorded_answers import RecordedConnection
from watermark_source.errors import RefusedError, UnknownSplitError

_OPEN, _SECRET, _GONE = (TableName("shop", name) for name in ("open", "secret", "gone"))


class _Begun(Part):
    """The part of a snapshot that has begun some tables."""

    def __init__(self, *tables: TableName) -> None:
        self._tables = tables

    def has(self, table: TableName) -> bool:
        return table in self._tables


def _asked() -> RecordedConnection:
    return RecordedConnection({
        "SELECT COLUMN_NAME": lambda _, name: [("id",)] if name == "open" else [],
        "SELECT 1 FROM `shop`.`secret`": RefusedError("denied"), "SELECT 1 FROM `shop`.`gone`": UnknownSplitError("no"),
    })  # fmt: skip


def _delivers(
    part: Part, readable: Collection[TableName] = (), asked: RecordedConnection | None = None
) -> DeliveredTables:
    return DeliveredTables(parse_tables("shop.*"), part, Rights(asked or _asked()), readable)


def test_without_snapshots_what_may_be_read_is_delivered_and_what_may_not_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delivered_tables.warn_once.cache_clear()
    for _ in range(2):
        delivers = _delivers(EVERYTHING)
        # A table that was dropped since is not one that may not be read.
        assert [delivers(*name) for name in (_OPEN, _SECRET, _GONE)] == [True, False, True]
    (logged,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "the binlog has changes: the user 'cdc' may not read shop.secret: the stream lacks this table" in logged


def test_each_table_is_asked_for_once_and_others_never() -> None:
    asked = _asked()
    delivers = _delivers(EVERYTHING, asked=asked)
    assert [delivers("other", "open"), delivers("mysql", "user")] == [False, False]
    assert not asked.sent
    assert delivers(*_OPEN) is delivers(*_OPEN) is True
    assert len(asked.sent) == 1


@pytest.mark.parametrize(("part", "readable"), [(EVERYTHING, {_SECRET}), (_Begun(_SECRET), set())])
def test_a_table_that_the_stream_has_rows_of_ends_the_query_when_it_may_not_be_read_any_more(
    part: Part, readable: Collection[TableName]
) -> None:
    with pytest.raises(RefusedError, match=r"GRANT SELECT ON `shop`\.`secret` TO 'cdc'@'%'; the query then") as logged:
        _delivers(part, readable)(*_SECRET)
    assert str(logged.value).endswith(r"by the regular expression shop\.(?!secret$).+")
    # What it states leaves out that table alone.
    others = parse_tables(str(logged.value).rpartition(" ")[2])
    assert [others.matches(name) for name in (_OPEN, _SECRET, TableName("shop", "secrets"))] == [True, False, True]


def test_during_a_snapshot_a_table_that_is_not_begun_is_asked_for_only_if_it_is_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delivered_tables.warn_once.cache_clear()
    asked = _asked()
    delivers = _delivers(_Begun(_OPEN), {_GONE}, asked)
    assert [delivers(*name) for name in (_OPEN, _GONE, _SECRET)] == [True, False, False]
    assert not any("gone" in sent for sent in asked.sent)
    assert "may not read shop.secret" in caplog.text
