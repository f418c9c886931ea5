"""A table that has lost the column that is event time, or that did not have it yet."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.reading.schema_changes import Known
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, EventTimeColumn, Layout
from watermark_source.errors import SchemaError


def test_a_table_that_loses_its_event_time_ends_the_query(caplog: pytest.LogCaptureFixture) -> None:
    at, name = EventTimeColumn("At"), TableName("shop", "t")
    choice = ColumnChoice(event_time=at)
    known = Known(frozenset({name}), choice, Layout(("_row",), (pa.string(),), choice, at), False)
    known.compare(name, ["id", "at"], lambda: pytest.fail("not asked"), "here")
    with pytest.raises(SchemaError, match=r"event time is the column At, .* and shop\.t has no such column"):
        known.compare(name, ["id", "renamed"], lambda: frozenset({"id", "renamed"}), "here")
    assert not caplog.messages
    # Rows from before the column was added, and those of a table that is gone.
    for where, now in (("then", {"id", "at"}), ("there", set[str]())):
        known.compare(name, ["id"], lambda now=now: now, where)  # type: ignore[misc]
        assert caplog.messages[-1] == f"shop.t was altered: {where} it lacks At: its rows are dated by their commit"
