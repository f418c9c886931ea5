"""What a MySQL server says when it ends a dump of the binlog, as an error of the project's tree."""

from __future__ import annotations

import re

import pymysql

from pyspark_mysql_cdc_wm.errors.server_errors import LOG_CANNOT_BE_READ, kind_of, server_error
from watermark_source.errors import DataLossError, SourceError, WatermarkSourceError

_GONE = ("Could not find first log file", "purged required")
_OTHER = ("position > file size", "impossible position", "bogus data in log event")
"""What the server says of a place that its binlog has not."""
_OTHER_MODE = re.compile(r"when @@GLOBAL\.GTID_MODE = (ON|OFF)\b")
"""What it says of a transaction that was written in the other mode, with or without a GTID: it sends none of those."""


def dump_error(code: int, text: str, at: str, where: str, user: str) -> WatermarkSourceError:
    """Return the error for an error packet in a dump.

    Args:
        code: the server's number.
        text: what it says.
        at: how far the binlog was read, for example ``binlog binlog.000003 position 157``.
        where: as of ``server_error``.
        user: who has logged in.
    """
    if code == LOG_CANNOT_BE_READ and any(each in text for each in _GONE):
        return DataLossError(
            f"{at}: the binlog from here on, if it went on, was purged before it was read. Set failOnDataLoss to false "
            "to go on with what is left, and binlog_expire_logs_seconds on the server to keep it longer"
        )
    failure = pymysql.err.OperationalError(code, text)
    if kind_of(failure) is not None:
        return server_error(failure, where, user)
    advice = _advice(text) if code == LOG_CANNOT_BE_READ else ""
    return SourceError(f"{at}: the server ended the dump: {code} {text}{advice}")


def _advice(text: str) -> str:
    """What is to be done about a binlog that cannot be read, as the end of a message; empty if nobody knows."""
    if any(each in text for each in _OTHER):
        return ". Was the binlog reset (RESET BINARY LOGS AND GTIDS)? Then begin a new query"
    if mode := _OTHER_MODE.search(text):
        return (
            f". It was written before gtid_mode was {mode[1]}. On the server: SET GLOBAL gtid_mode = "
            f"{mode[1]}_PERMISSIVE, start the query again, and set it to {mode[1]} once the query has gone on"
        )
    return ""
