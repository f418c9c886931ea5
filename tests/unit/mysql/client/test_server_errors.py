"""What numbers of errors mean."""

from __future__ import annotations

import pymysql
import pytest

from pyspark_mysql_cdc_wm.client.server_errors import ErrorKind, dump_error, kind_of, server_error
from watermark_source.errors import RefusedError, SourceError, UnreachableError, WatermarkSourceError

WHERE = "MySQL at db1:3306"


@pytest.mark.parametrize(
    ("code", "kind", "error", "message"),
    [
        (
            1040,
            ErrorKind.FULL,
            UnreachableError,
            "accepts no more for now: Too many (error 1040). Close sessions, or on",
        ),
        (1203, ErrorKind.FULL, UnreachableError, "raise its max_user_connections"),
        (1129, ErrorKind.FULL, UnreachableError, "FLUSH HOSTS"),
        (3032, ErrorKind.FULL, UnreachableError, "SET GLOBAL offline_mode = OFF"),
        (1317, ErrorKind.INTERRUPTED, UnreachableError, "a statement was killed or hit a limit: Too many (error 1317)"),
        (1927, ErrorKind.LOST, UnreachableError, "cannot be reached"),
        (4031, ErrorKind.LOST, UnreachableError, "cannot be reached"),
        (1130, ErrorKind.LOGIN_REFUSED, RefusedError, "refuses the login of the user 'cdc'"),
        (1064, None, SourceError, "Too many (error 1064)"),
    ],
)
def test_a_number_means_one_kind_wherever_it_comes_from(
    code: int, kind: ErrorKind | None, error: type[WatermarkSourceError], message: str
) -> None:
    failure = pymysql.err.OperationalError(code, "Too many")
    assert kind_of(failure) is kind
    found = server_error(failure, WHERE, "cdc")
    assert type(found) is error
    assert message in str(found)
    # A dump that it ends is begun again where it would be.
    assert type(dump_error(code, "Too many", "binlog binlog.000003 position 157", WHERE, "cdc")) is error


@pytest.mark.parametrize("failure", [pymysql.err.InterfaceError(0, ""), pymysql.err.InternalError("out of step")])
def test_an_error_without_a_number_is_a_connection_that_is_over(failure: pymysql.MySQLError) -> None:
    assert kind_of(failure) is ErrorKind.LOST
