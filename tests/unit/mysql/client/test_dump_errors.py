"""What a server states when it ends a dump: which error that is, and what is to be done."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.client.server_errors import dump_error
from watermark_source.errors import RefusedError, SourceError, UnskippableLossError, WatermarkSourceError

AT = "binlog binlog.000003 position 157"


@pytest.mark.parametrize(
    ("code", "text", "kind", "message"),
    [
        pytest.param(
            1236, "Could not find first log file name in binary log index file", UnskippableLossError,
            f"{AT}: the server does not have this file of the binlog: it was purged before it was read, or never",
            id="the file is gone",
        ),
        pytest.param(
            1236, "the source is out of memory", SourceError, "the dump: 1236 the source is out", id="other words"
        ),
        pytest.param(
            1236, "the source purged required binary logs", UnskippableLossError, "binlog_expire_logs_seconds",
            id="GTIDs are gone",
        ),
        pytest.param(
            1236, "Client requested source to start replication from position > file size", SourceError,
            "Was the binlog reset", id="a position behind the end",
        ),
        pytest.param(
            1236, "when @@GLOBAL.GTID_MODE = ON, at file", SourceError,
            "SET GLOBAL gtid_mode = ON_PERMISSIVE, start the query again, and set it to ON", id="another GTID mode",
        ),
        pytest.param(1227, "you need REPLICATION SLAVE", RefusedError, "refuses the user 'cdc'", id="no privilege"),
        pytest.param(1105, "purged required", SourceError, f"{AT}: the server ended the dump: 1105", id="another code"),
    ],
)  # fmt: skip
def test_what_a_server_says_is_an_error_that_names_the_place_and_what_to_do(
    code: int, text: str, kind: type[WatermarkSourceError], message: str
) -> None:
    error = dump_error(code, text, AT, "MySQL at db1:3306", "cdc")
    assert type(error) is kind
    assert message in str(error)
