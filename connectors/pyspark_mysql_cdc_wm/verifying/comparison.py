"""The comparison: fingerprints of pieces on both sides, then rows by their keys in the pieces that differ.

The copy is read once, and is as of some position between its checkpoint's and the end of the binlog that is asked for
after it was read. Keys that changed in between are left out of the fingerprints: the row of such a key must be one
that the binlog has of it there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation

from pyspark_mysql_cdc_wm.verifying.logged_rows import KeyStates, keys_by_piece
from pyspark_mysql_cdc_wm.verifying.pieces import Pieces, Rows
from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint, too_long, totals
from watermark_source.errors import printable, shortened

_EXAMINED = 20
"""Number of pieces that differ whose keys are looked up."""
_NAMED = 10
"""Number of keys that are named of each kind in a piece."""


class Kind(Enum):
    """How rows of a copy differ from the server's."""

    MISSING = "missing"
    """The copy lacks the key."""
    DOUBLED = "doubled"
    """The copy has the key more than once."""
    ALTERED = "altered"
    """The row has other values."""
    STALE = "stale"
    """The row is one that the server had earlier, by the binlog that it still has."""
    EXTRA = "extra"
    """The server lacks the key."""


_MAY_BE_STALE = frozenset({Kind.ALTERED, Kind.EXTRA})


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of one piece of a table that differ in one way."""

    piece: str
    """The range of keys."""
    kind: Kind
    rows: int
    """Number of keys."""
    keys: tuple[str, ...]
    """The first ten of them."""

    def __str__(self) -> str:
        more = f" and {self.rows - len(self.keys)} more" if self.rows > len(self.keys) else ""
        keys = ", ".join(shortened(printable(key)) for key in self.keys)
        return f"{self.piece}: {self.rows} {self.kind.value}: {keys}{more}"


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison found."""

    rows: int
    """Rows of the copy."""
    pieces: int
    """Number of pieces whose fingerprints were compared, or that have keys that changed."""
    wrong: Mapping[int, Mapping[str, Kind]]
    """By piece the keys that differ, of the first twenty pieces."""
    unexamined: tuple[int, ...]
    """The other pieces that differ: these are too many, or no row was found that does."""


def compare(copy: DataFrame, server: Rows, pieces: Pieces, changed: Mapping[str, KeyStates]) -> Compared:
    """Compare a copy with the server.

    Args:
        copy: ``piece``, ``key`` and ``sha`` of its rows, which do not change any more.
        server: the rows in one consistent read.
        pieces: how both are cut.
        changed: what each key was that changed between the copy's position and the read's.
    """
    quiet, moved = _set_apart(copy, changed)
    by_piece, found = keys_by_piece(changed), fingerprints_of(quiet)
    there = pieces.on_server(server, lambda piece: by_piece.get(piece, ()))
    differing = sorted(piece for piece in found.keys() | there.keys() if found.get(piece) != there.get(piece))
    wrong: dict[int, dict[str, Kind]] = {}
    rows_of = _rows_by_piece(quiet.where(F.col("piece").isin(differing[:_EXAMINED])))
    for piece in differing[:_EXAMINED]:
        wrong[piece] = _against(rows_of[piece], server.by_key(pieces.where(piece), by_piece.get(piece, ())))
    for piece, names in by_piece.items():
        for key in names:
            if (kind := _among(moved[piece].get(key, ()), changed[key])) is not None:
                wrong.setdefault(piece, {})[key] = kind
    counted = sum(each.rows for each in found.values()) + sum(len(r) for of in moved.values() for r in of.values())
    named = {piece: of for piece, of in wrong.items() if of}
    others = (*(piece for piece in differing[:_EXAMINED] if piece not in named), *differing[_EXAMINED:])
    return Compared(counted, len(found.keys() | there.keys() | by_piece.keys()), named, others)


def fingerprints_of(rows: DataFrame) -> Mapping[int, Fingerprint]:
    """Return the fingerprints of pieces by their rows with ``piece`` and ``sha``."""
    groups = rows.groupBy("piece").agg(*map(F.expr, totals("sha")))
    return {piece: Fingerprint(*parts) for piece, *parts in groups.collect()}


def _set_apart(copy: DataFrame, changed: Collection[str]) -> tuple[DataFrame, Mapping[int, Mapping[str, list[int]]]]:
    """Return the rows of a copy whose keys did not change, and the others by their pieces and keys."""
    if not changed:
        return copy, defaultdict(dict)
    keys = F.broadcast(copy.sparkSession.createDataFrame([(key,) for key in changed], "key string"))
    return copy.join(keys, "key", "left_anti"), _rows_by_piece(copy.join(keys, "key", "left_semi"))


def _rows_by_piece(rows: DataFrame) -> Mapping[int, Mapping[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for piece, key, sha in rows.select("piece", "key", "sha").collect():
        found[piece][key].append(sha)
    return found


def _against(copy: Mapping[str, Sequence[int]], server: Mapping[str, int | None]) -> dict[str, Kind]:
    """Return the keys of a piece that differ."""
    if None in server.values():
        raise too_long()
    wrong = dict.fromkeys(server.keys() - copy.keys(), Kind.MISSING)
    for key, rows in copy.items():
        if len(rows) > 1:
            wrong[key] = Kind.DOUBLED
        elif key not in server:
            wrong[key] = Kind.EXTRA
        elif rows[0] != server[key]:
            wrong[key] = Kind.ALTERED
    return wrong


def _among(rows: Sequence[int], states: KeyStates) -> Kind | None:
    """Return how the rows of a key that changed differ from all that it was."""
    if len(rows) > 1:
        return Kind.DOUBLED
    if not rows:
        return None if states.may_lack else Kind.MISSING
    return None if rows[0] in states.rows else Kind.ALTERED


def differences(wrong: Mapping[int, Mapping[str, Kind]], stale: Collection[str], pieces: Pieces) -> list[Difference]:
    """Return the keys that differ by their pieces and kinds; ``stale`` are those with an earlier row of the server."""
    found = []
    for piece, of in sorted(wrong.items()):
        kinds = {key: Kind.STALE if key in stale and kind in _MAY_BE_STALE else kind for key, kind in of.items()}
        for kind, count in Counter(kinds.values()).items():
            keys = sorted((key for key, each in kinds.items() if each is kind), key=_in_order)
            found.append(Difference(pieces.name(piece), kind, count, tuple(keys[:_NAMED])))
    return found


def _in_order(key: str) -> tuple[int, str]:
    return (len(key), key) if key.isdecimal() else (0, key)


def counts(found: Iterable[Difference]) -> str:
    """Return how many rows differ in each way, such as ``3 missing, 1 altered``."""
    total: Counter[Kind] = Counter()
    for each in found:
        total[each.kind] += each.rows
    return ", ".join(f"{total[kind]} {kind.value}" for kind in Kind if total[kind])
