"""XA transactions in the binlog: the names of those that are prepared, and the statements that end them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import POSITION, STOP
from pyspark_mysql_cdc_wm.binlog.query_events import statements, text_places
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened

_XA = b"XA "
_FORMATS = 2**32
"""An XA_PREPARE event holds four bytes of the format's number; the statements hold all of it, up to 2**63 - 1.

Servers compare only the two other parts of a name, so what is equal modulo this is one name.
"""


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
            yield XaEnd(_as_prepared(name.casefold()), what == "COMMIT", int(queries[i]))


def _as_prepared(name: str) -> str:
    """Return the name in a statement with the format's number that an XA_PREPARE event has for it."""
    parts, comma, number = name.rpartition(",")
    return f"{parts}{comma}{int(number) % _FORMATS}" if number.isdecimal() else name


def prepared_name(body: bytes) -> str:
    """Return the name of a transaction by the body of its XA_PREPARE event.

    One byte, the number of the name's format and the sizes of its two parts (4 bytes each), then these.
    """
    kind, first, second = struct.unpack_from("<III", body, 1)
    whole, begin = body[13 : 13 + first + second], first
    return f"X'{whole[:begin].hex()}',X'{whole[begin:].hex()}',{kind}".casefold()


# What transactions log and undo themselves, in whole or since a savepoint.


def rollbacks(memory: Bytes, events: Longs, transactions: Longs) -> Iterator[tuple[int, int | None]]:
    """Yield which statements of a block undo what their transaction did, and since which savepoint of the block.

    Servers log both, what was done and its end, where something else that was done cannot be undone. ``None``: since
    before the block, or the transaction's beginning. ``transactions`` has the number of each event's.

    Raises:
        CorruptDataError: a statement that does not fit its event.
        UnsupportedFormatError: a savepoint whose name the server may take for another one's.
    """
    savepoints: dict[tuple[int, str], int] = {}
    for found in statements(memory, events):
        if found.effect is not None and (undoes := found.effect.undoing) is not None:
            point = int(transactions[found.number]), undoes.name
            if undoes.is_savepoint:
                savepoints[point] = found.number
            else:
                named = [name for transaction, name in savepoints if transaction == point[0]]
                if undoes.name and not all(map(str.isascii, (undoes.name, *named))):
                    # By the server's collation ss may be the same name as ß, and e as é.
                    raise UnsupportedFormatError(
                        f"binlog position {events[found.number, POSITION]}: {shortened(found.text)}: a transaction was "
                        "rolled back to a savepoint, and which one is not certain: the server may take names of "
                        "savepoints that are not in ASCII for equal. Name savepoints in ASCII, and begin a new query "
                        "behind this transaction"
                    )
                yield found.number, savepoints.get(point)
