"""PURE. Snapshot progress: how far the snapshot of one table is, in figures and as a line with a bar."""

from __future__ import annotations

from dataclasses import dataclass

from watermark_source.durations import format_duration
from watermark_source.monitor.number_format import count_text

_GAP = "  "
_BAR, _LEAST_BAR = 30, 8
_NEARLY = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProgress:
    """One table, or other log, whose snapshot this run of the query reads or has read."""

    log: str
    rows: int
    """Rows read, those of the batch under way and of earlier runs by the size of their chunks."""
    chunks: int
    """Chunks read, those of the batch under way included."""
    expected: int | None
    """About so many rows it has, as the system estimates; never below ``rows``. ``None`` if it does not tell."""
    rate: int | None
    """Rows a second in this run, after its first batch; ``None`` until there was another."""
    done: bool

    @property
    def share(self) -> float | None:
        """Return which part is read, 1 when all is; an estimate alone never says so."""
        if self.done:
            return 1.0
        return None if self.expected is None else min(_NEARLY, self.rows / max(1, self.expected))

    @property
    def left(self) -> int | None:
        """Return how many milliseconds the rest takes at this rate."""
        if self.done or self.expected is None or not self.rate:
            return None
        return 1_000 * max(0, self.expected - self.rows) // self.rate


def progress_line(of: SnapshotProgress, name_width: int, width: int) -> str:
    """Return name, bar, share, rows, rate and time left in ``width`` characters: what has no room is left out."""
    texts = [text for text in (_share(of), _rows(of), _rate(of), _left(of)) if text]
    # The rate first, then the rows: the bar tells about them, and the time left about both.
    droppable = [text for text in (_rate(of), _rows(of)) if text]
    name = of.log.ljust(name_width)
    while (room := width - len(_GAP.join([name, "[]", *texts]))) < _LEAST_BAR and droppable:
        texts.remove(droppable.pop(0))
    size = max(0, min(_BAR, room))
    filled = int(size * (of.share or 0))
    return _GAP.join([name, f"[{'#' * filled}{'.' * (size - filled)}]", *texts])[:width]


def _share(of: SnapshotProgress) -> str:
    return "   ?" if of.share is None else f"{int(100 * of.share):3} %"


def _rows(of: SnapshotProgress) -> str:
    if of.done:
        return "done"
    if not of.chunks:
        return "waits for its turn"
    about = "" if of.expected is None else f" of about {count_text(of.expected)}"
    return f"{count_text(of.rows)}{about} rows"


def _rate(of: SnapshotProgress) -> str:
    return f"{count_text(of.rate)} rows/s" if of.rate and not of.done else ""


def _left(of: SnapshotProgress) -> str:
    # Finer than a second is no estimate.
    return "" if of.left is None else f"{format_duration(max(1, of.left // 1_000) * 1_000)} left"
