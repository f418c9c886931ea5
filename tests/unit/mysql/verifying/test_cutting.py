"""How a table is cut into pieces by its primary key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from pyspark_mysql_cdc_wm.verifying.cutting import cut
from tests.unit.mysql.recorded_answers import RecordedConnection
from watermark_source.errors import ResponseTimeoutError


class SlowServer(RecordedConnection):
    def rows(self, statement: str, *values: Any, if_slow: str | None = None) -> Any:
        raise ResponseTimeoutError(f"db1 did not answer. {if_slow}")


def test_a_server_that_takes_too_long_is_no_reason_to_name_options_of_the_stream() -> None:
    key = [KeyColumn("id", ColumnType.LONGLONG, pa.int64())]
    with pytest.raises(ResponseTimeoutError, match=r"10000 rows of shop\.t ends: repeat it") as found:
        cut(SlowServer({}), TableName("shop", "t"), key, None, 20_000)  # type: ignore[arg-type]
    assert "snapshotChunkRows" not in str(found.value)
