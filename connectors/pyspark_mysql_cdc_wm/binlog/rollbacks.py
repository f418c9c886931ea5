"""What transactions log and undo themselves, in whole or since a savepoint."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_mysql_cdc_wm.binlog.event_headers import POSITION
from pyspark_mysql_cdc_wm.binlog.query_events import statements
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened


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
