"""The rows of a table that a piece of the binlog has, by the text of their key, and which states each key had in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Row

from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import UnsupportedFormatError

_TOGETHER = 200_000
"""Rows that become one DataFrame."""
CHANGE_TYPE = "_change_type"
_MOST_STATES = 2_000_000
"""Limit for the rows that are kept of keys that changed; they take half a gigabyte."""


def tables_of(batches: Iterable[ReadBatch], names: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of a piece of the binlog in its order, many at once; ``names`` are those of their columns."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.rows:
            gathered.append(pa.record_batch(list(batch.columns), names=names))
        if sum(each.num_rows for each in gathered) >= _TOGETHER:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


@dataclass(slots=True)
class KeyStates:
    """What one key was in a piece of the binlog."""

    piece: int
    before: int | None
    """The fingerprint of the row that it had before; ``None``: it had none."""
    may_lack: bool = False
    """Whether it had no row at some position."""
    rows: set[int] = field(default_factory=set)
    """The fingerprints of its rows, the one before the piece included."""


def states_of(changes: Iterable[Row]) -> dict[str, KeyStates]:
    """Return the states by key of changes, in the order of the binlog, each with ``key``, ``piece`` and fingerprint.

    Raises:
        UnsupportedFormatError: there are too many.
    """
    found: dict[str, KeyStates] = {}
    count = 0
    for change in changes:
        # An update that changes the key is a deletion and an insert.
        lacks = change[CHANGE_TYPE] in ("insert", "delete")
        row = change["sha"]
        if (states := found.get(change["key"])) is None:
            existed = change[CHANGE_TYPE] in ("update_preimage", "delete")
            states = found[change["key"]] = KeyStates(change["piece"], row if existed else None)
        states.may_lack |= lacks
        count -= len(states.rows)
        states.rows.add(row)
        count += len(states.rows)
        if count > _MOST_STATES:
            raise UnsupportedFormatError(
                f"the binlog since the checkpoint's last committed batch has more than {_MOST_STATES:,} rows, and "
                "those of each key are compared in memory. Let the query read them, and verify then"
            )
    return found


def keys_by_piece(changed: Mapping[str, KeyStates]) -> Mapping[int, Sequence[str]]:
    """Return the keys that changed by their pieces."""
    found: dict[int, list[str]] = defaultdict(list)
    for key, states in changed.items():
        found[states.piece].append(key)
    return found


def before_changes(
    found: Mapping[int, Fingerprint], changed: Mapping[str, KeyStates], count: int
) -> tuple[Fingerprint, ...]:
    """Return the fingerprints of so many pieces as they were before keys changed; ``found`` is without these keys."""
    pieces = [found.get(piece, Fingerprint()) for piece in range(count)]
    for states in changed.values():
        if states.before is not None:
            rows, sha = pieces[states.piece]
            pieces[states.piece] = Fingerprint(rows + 1, sha ^ states.before)
    return tuple(pieces)
