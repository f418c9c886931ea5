"""XA transactions in the binlog: the names of those that are prepared, and the statements that end them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import STOP
from pyspark_mysql_cdc_wm.binlog.query_events import text_places
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs

_XA = b"XA "


class XaEnd(NamedTuple):
    """A statement that ends a transaction which was prepared before."""

    transaction: str
    """Its name, as ``prepared_name`` has it."""
    commits: bool
    number: int
    """Of its event in the block."""


def xa_ends(memory: Bytes, events: Longs) -> Iterator[XaEnd]:
    """Yield the statements of a block of events that commit or roll back what was prepared.

    Servers write them themselves, always in one form; raises as ``statements``.
    """
    queries, _, _, texts = text_places(memory, events)
    heads = memory[texts[:, None] + np.arange(len(_XA))] == np.frombuffer(_XA, np.uint8)
    for i in np.flatnonzero(heads.all(axis=1)).tolist():
        text = memory[texts[i] : events[queries[i], STOP]].tobytes().decode("ascii", errors="replace")
        _, what, name = text.split(" ", 2)
        if what in ("COMMIT", "ROLLBACK"):
            yield XaEnd(name.casefold(), what == "COMMIT", int(queries[i]))


def prepared_name(body: bytes) -> str:
    """Return the name of a transaction by the body of its XA_PREPARE event.

    One byte, the number of the name's format and the sizes of its two parts (4 bytes each), then these.
    """
    kind, first, second = struct.unpack_from("<iII", body, 1)
    whole, begin = body[13 : 13 + first + second], first
    return f"X'{whole[:begin].hex()}',X'{whole[begin:].hex()}',{kind}".casefold()
