"""How a long range of the binlog is cut: at the beginnings of files, and where that is not enough within a file.

A dump can begin at a file's first event, or where a batch ended. Within a file each task therefore receives what is
before its piece too, and passes it over: that costs little beside reading it, but the server sends it more than once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, file_number
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from watermark_source.planning.split import Piece, SplitRange

LEAST_BYTES = 8 * 1024 * 1024
"""Of a piece: below, a task of its own costs more than it saves."""
_PIECES = 2
"""In so many a range is cut where the user does not say: each more lets the server send half of the file again."""


class BinlogPieces:
    """``RangeCutter`` of ``spark.connector``."""

    def __init__(self, status: LogStatus) -> None:
        self._status = status

    def pieces(self, wanted: SplitRange, at_least: int | None) -> Sequence[Piece]:
        """Return all of a range in order; raises what asking for the sizes of files does."""
        sizes: Mapping[int, int] = {}
        if LogPosition.of(wanted.start).file != LogPosition.of(wanted.end).file:
            sizes = {file_number(file): size for file, size in self._status.sizes().items()}
        return cut(wanted, sizes, at_least)


def cut(wanted: SplitRange, sizes: Mapping[int, int], at_least: int | None) -> list[Piece]:
    """Cut a range by the bytes of files; files that are gone have none. Pieces that are asked for may be short."""
    pieces, least = (_PIECES, LEAST_BYTES) if at_least is None else (at_least, 1)
    stretches = list(_stretches(wanted, sizes))
    total = sum(size for _, size in stretches)
    found: list[Piece] = []
    for stretch, size in stretches:
        parts = max(1, min(round(pieces * size / total), size // least)) if total else 1
        edges = [stretch.start + size * i // parts for i in range(parts)] + [stretch.end]
        whole = SplitRange(wanted.split, stretch.start, wanted.end)
        found += [Piece(SplitRange(wanted.split, a, b), whole) for a, b in pairwise(edges)]
    return found


def _stretches(wanted: SplitRange, sizes: Mapping[int, int]) -> Iterator[tuple[SplitRange, int]]:
    """Yield parts of a range that begin with a file or with the range, and their bytes; small files go together."""
    first, last = LogPosition.of(wanted.start), LogPosition.of(wanted.end)
    start, size = wanted.start, 0
    for file in range(first.file, last.file + 1):
        begin = LogPosition(file).number
        end = last.offset if file == last.file else sizes.get(file, 0)
        more = max(0, end - (first.offset if file == first.file else 0))
        # Of what is put together no part is long enough to be cut within.
        if file > first.file and begin < wanted.end and max(size, more) >= LEAST_BYTES:
            yield SplitRange(wanted.split, start, begin), size
            start, size = begin, 0
        size += more
    yield SplitRange(wanted.split, start, wanted.end), size
