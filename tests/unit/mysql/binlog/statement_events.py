"""Blocks of events with statements, made by hand."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.events import EVENT_FIELDS, HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded


def logged(*texts: str, database: str = "shop", variables: bytes = b"") -> tuple[Bytes, Longs]:
    """A block of events: a statement behind a BEGIN and a commit, each with the number 100 times its place."""
    content = b""
    events = np.zeros((2 + len(texts), EVENT_FIELDS), np.int64)
    for i, text in enumerate(("BEGIN", None, *texts)):
        events[i, [START, TYPE, POSITION]] = len(content), EventType.QUERY if text else EventType.XID, 100 * i
        content += bytes(HEADER_SIZE)
        if text:
            name = database.encode()
            content += bytes(8) + bytes([len(name)]) + bytes(2) + len(variables).to_bytes(2, "little") + variables
            content += name + b"\0" + text.encode()
        events[i, STOP] = len(content)
    return padded(content), events
