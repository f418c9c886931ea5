"""XA transactions in the binlog: the names of prepared ones, the statements that end them, and rollbacks."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import POSITION, STOP
from pyspark_mysql_cdc_wm.binlog.query_events import statements, text_places
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened

_XA, _START = b"XA ", b"XA START "
_FORMATS = 2**32
"""An XA_PREPARE event has the low four bytes of the format's number; statements have all of it, up to 2**63 - 1.

Servers compare only the two other parts of a name, so names are equal if the numbers are equal modulo this.
"""


class XaEnd(NamedTuple):
    """A statement that commits or rolls back a prepared transaction."""

    transaction: str
    """The transaction's name, as ``prepared_name`` returns it."""
    commits: bool
    number: int
    """Index of the statement's event in the block."""


def xa_ends(memory: Bytes, events: Longs) -> Iterator[XaEnd]:
    """Yield the statements of a block of events that commit or roll back prepared transactions.

    Servers write them in one fixed form. Raises as ``statements``.
    """
    queries, _, _, texts = text_places(memory, events)
    heads = memory[texts[:, None] + np.arange(len(_XA))] == np.frombuffer(_XA, np.uint8)
    for i in np.flatnonzero(heads.all(axis=1)).tolist():
        text = memory[texts[i] : events[queries[i], STOP]].tobytes().decode("ascii", errors="replace")
        _, what, name = text.split(" ", 2)
        if what in ("COMMIT", "ROLLBACK"):
            yield XaEnd(_as_prepared(name.casefold()), what == "COMMIT", int(queries[i]))


def begins_xa(memory: Bytes, query: Longs) -> bool:
    """Return whether the statement of a QUERY, a row of the table of events, begins an XA transaction.

    Raises as ``statements``.
    """
    *_, (text,) = text_places(memory, query[None])
    return memory[text : query[STOP]].tobytes().startswith(_START)


def _as_prepared(name: str) -> str:
    """Return the name of a statement with the format's number reduced to the bytes of an XA_PREPARE event."""
    parts, comma, number = name.rpartition(",")
    return f"{parts}{comma}{int(number) % _FORMATS}" if number.isdecimal() else name


def prepared_name(body: bytes) -> str:
    """Return the name of a transaction from the body of its XA_PREPARE event.

    The body is one byte, the number of the name's format and the sizes of its two parts (4 bytes each), then the parts.
    """
    kind, first, second = struct.unpack_from("<III", body, 1)
    whole, begin = body[13 : 13 + first + second], first
    return f"X'{whole[:begin].hex()}',X'{whole[begin:].hex()}',{kind}".casefold()


def rollbacks(memory: Bytes, events: Longs, transactions: Longs) -> Iterator[tuple[int, int | None]]:
    """Yield the rollbacks of a block: the statement's index, and the index of the savepoint that it rolls back to.

    Servers log changes and their rollback when the transaction also changed something that cannot be rolled back. The
    savepoint is ``None`` if it is before the block, or if the whole transaction is rolled back. ``transactions`` has
    the transaction's number for each event.

    Raises:
        CorruptDataError: a statement does not fit its event.
        UnsupportedFormatError: the server may treat two names of savepoints as equal.
    """
    savepoints: dict[tuple[int, str], int] = {}
    for statement in statements(memory, events):
        if statement.effect is not None and (undoes := statement.effect.undoing) is not None:
            point = int(transactions[statement.number]), undoes.name
            if undoes.is_savepoint:
                savepoints[point] = statement.number
            else:
                named = [name for transaction, name in savepoints if transaction == point[0]]
                if undoes.name and not all(map(str.isascii, (undoes.name, *named))):
                    # In the server's collation ss may equal ß, and e may equal é.
                    raise UnsupportedFormatError(
                        f"binlog position {events[statement.number, POSITION]}: {shortened(statement.text)}: a "
                        "transaction was rolled back to a savepoint, and which one is not certain: the server may "
                        "treat names of savepoints that are not in ASCII as equal. Name savepoints in ASCII, and begin "
                        "a new query behind this transaction"
                    )
                yield statement.number, savepoints.get(point)
