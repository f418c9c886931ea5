"""PURE. Source status: what a source reports about its splits.

A source returns it as JSON (``status_json.py``) from ``reportLatestOffset``. Spark shows it, as JSON, under
``sources[i].latestOffset`` of every ``StreamingQueryProgress``, and ``progress_event.parse_progress`` reads it back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.report_fields import Fields
from watermark_source.planning.range_report import NONE_LATE, LateRows
from watermark_source.planning.split import Split

# PURE. The bound on out-of-orderness that is in force where it is learned, as it stands in a status report.


_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class BoundInForce:
    """Milliseconds."""

    bound: int
    most: int
    """The largest that may be learned, and the one until enough rows are known."""
    on_time: int
    """So many rows of a million are to be on time."""
    since: int | None = None
    """Since when, milliseconds since 1970-01-01 UTC; of a query that was restarted, since the restart at the most."""

    def after(self, before: BoundInForce | None, now: int) -> BoundInForce:
        """Return it with the moment since when it is so."""
        is_new = before is None or before.bound != self.bound
        return replace(self, since=now if is_new or before is None else before.since)

    @property
    def wish(self) -> float:
        """Return the share of rows that may be late."""
        return (_MILLION - self.on_time) / _MILLION


def bound_to_json(of: BoundInForce | None) -> dict[str, Any] | None:
    """Return the fields of a report."""
    if of is None:
        return None
    since = {} if of.since is None else {"since": of.since}
    return {"bound": of.bound, "most": of.most, "onTime": of.on_time, **since}


def bound_from_json(fields: Fields) -> BoundInForce:
    """Read what ``bound_to_json`` wrote."""
    since = fields.optional_integer("since")
    return BoundInForce(fields.integer("bound"), fields.integer("most"), fields.integer("onTime"), since)


# PURE. Row totals: how many rows a source has read, and of how many of them the event time does not count.


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTotals:
    """Of one run of a query, or a part of it; the sum of two is that of both."""

    read: int = 0
    future: int = 0
    """Those whose event time was too far in the future to count (``maxFutureSkew``)."""
    undated: int = 0
    """Those in which no event time was found."""
    late: LateRows = NONE_LATE
    """Those at or before the watermark that their batch began with."""

    @property
    def late_share(self) -> float | None:
        """Return which share was late; ``None`` before the first row."""
        return self.late.rows / self.read if self.read else None

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(
            read=self.read + other.read,
            future=self.future + other.future,
            undated=self.undated + other.undated,
            late=self.late + other.late if other.late.rows else self.late,
        )


NO_ROWS: Final = RowTotals()


# PURE. Snapshot progress: how far the snapshot of one table is, in figures and as a line with a bar.


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


REPORTED_SPLITS = 100
"""At most so many splits are in a report; Spark keeps the last 100 reports of a query in memory."""


class Status(Enum):
    """Watermark status of a split in reports. The value is its letter there; a, i and p are those of offsets."""

    ACTIVE = "a"
    IDLE = "i"
    PAUSED = "p"
    FINISHED = "f"
    """Read up to the end this run was given."""
    UNKNOWN = "u"
    """Its log could not be asked; what is known of it is of before."""


class Outline(NamedTuple):
    """What tells how interesting a split is."""

    split: Split
    status: Status
    lag: int | None
    """Positions still to be read."""
    holds_back: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of a split is still to be read."""

    position: int
    """First position that is not part of a planned batch."""
    end: int | None
    """End position of the log; ``None`` while it is not known."""
    uncounted: bool = False
    """Whether its positions only order its rows: how many lie between two of them is not known."""

    @property
    def rows(self) -> int | None:
        """Return how many rows that are, ``None`` where that is not known."""
        # An end before our position is a log that was cut off or created anew; there is nothing to read in it.
        left = None if self.end is None else max(0, self.end - self.position)
        return None if left and self.uncounted else left


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    """One row of the status table. Times are milliseconds since 1970-01-01 UTC, durations milliseconds."""

    split: Split
    backlog: Backlog
    watermark: int | None
    status: Status
    since: int | None
    """When the status began, if that is known."""
    why: str
    """The reason for the status, as a sentence: see ``status_reasons.reason``."""
    drift: int | None = None
    """Watermark less the minimum of the alignment group, or of the source when it is in no group."""
    holds_back: bool = False
    """Whether this split is the minimum that the others wait for."""
    late_rows: int = 0
    """Late rows of this run: those at or before the watermark that their batch began with."""
    looked_ahead: int | None = None
    """How many rows behind its position were looked at; ``None`` but with ``watermarkStrategy`` ``lookahead``."""
    idle_after: int | None = None
    """For how long it must be quiet to be idle, milliseconds, where that is learned."""

    @property
    def lag(self) -> int | None:
        """Return how many rows are still to be read, ``None`` where that is not known."""
        return self.backlog.rows


_Interesting = TypeVar("_Interesting", Outline, SplitView)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The alignment group as the source last saw it."""

    name: str
    max_drift: int | None
    """Milliseconds; ``None`` of a source that goes with the clock."""
    limit: int | None
    """Highest watermark a member may reach; ``None`` while no member holds the group, and while ``hold``."""
    members: int
    """Splits of this source, all of which are in the group."""
    hold: bool = False
    """Whether nothing may be read yet."""
    others: int = 0
    """Sources elsewhere that are in the group."""
    slowest: str | None = None
    """Which of them has the lowest watermark; ``None`` if none of them counts."""
    since: int | None = None
    """Since when it is that one, milliseconds since 1970-01-01 UTC."""
    trouble: str | None = None
    """Why what is known of them may be old."""
    store: str | None = None
    """Where they meet: ``driver``, ``none``, or kind, host and name of a database; ``None`` in reports of before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A whole source at one moment. Build it with ``of``, which keeps the numbers and the splits consistent."""

    format_name: str
    source_name: str
    at: int
    """When the report was made, milliseconds since 1970-01-01 UTC."""
    watermark: int | None
    """The combined watermark that goes out; ``None`` before the first."""
    processing_time: bool
    """Event time is the clock (FLIP-326)."""
    group: GroupStatus | None
    splits: tuple[SplitView, ...]
    """In split order; at most ``REPORTED_SPLITS`` of them, the most interesting ones."""
    counts: Mapping[Status, int]
    """How many splits have each status, those that are not in ``splits`` included."""
    lag: int | None
    """Rows still to be read in all splits whose end is known; ``None`` where they cannot be counted."""
    rows: RowTotals = NO_ROWS
    """Those read since the query was started."""
    bound: BoundInForce | None = None
    """What is allowed for disorder, where that is learned."""
    snapshots: tuple[SnapshotProgress, ...] = ()
    """While there are some that are not done: those of this run, by name, at most ``REPORTED_SPLITS``."""

    @classmethod
    def of(
        cls,
        splits: Sequence[Outline],
        view: Callable[[Outline], SplitView],
        *,
        format_name: str,
        source_name: str,
        at: int,
        watermark: int | None,
        processing_time: bool = False,
        group: GroupStatus | None = None,
        rows: RowTotals = NO_ROWS,
        uncounted: bool = False,
        bound: BoundInForce | None = None,
        snapshots: Iterable[SnapshotProgress] = (),
    ) -> SourceStatus:
        """Build the status of a source from *all* its splits; only those that are reported are viewed."""
        reported = map(view, most_interesting(splits, REPORTED_SPLITS))
        left = sum(outline.lag or 0 for outline in splits)
        return cls(
            format_name=format_name,
            source_name=source_name,
            at=at,
            watermark=watermark,
            processing_time=processing_time,
            group=group,
            splits=tuple(sorted(reported, key=_by_split)),
            counts=dict(Counter(outline.status for outline in splits)),
            lag=None if left and uncounted else left,
            rows=rows,
            bound=bound,
            snapshots=_at_work(snapshots),
        )

    @property
    def splits_total(self) -> int:
        """Return how many splits the source has; ``splits`` may hold fewer."""
        return sum(self.counts.values())

    @property
    def late_share(self) -> float | None:
        """Return which share of ``rows`` was late; ``None`` before the first row."""
        return self.rows.late_share


def most_interesting(splits: Iterable[_Interesting], n: int) -> list[_Interesting]:
    """Return the ``n`` splits to look at first, in that order: holding back, paused, idle, then by lag."""
    return heapq.nsmallest(n, splits, key=_interest)


def _by_split(view: SplitView) -> Split:
    return view.split


_STATUS_INTEREST = {Status.PAUSED: 0, Status.IDLE: 1}


def _interest(of: Outline | SplitView) -> tuple[bool, int, int, Split]:
    rest = len(_STATUS_INTEREST)
    return not of.holds_back, _STATUS_INTEREST.get(of.status, rest), -(of.lag or 0), of.split


def _at_work(snapshots: Iterable[SnapshotProgress]) -> tuple[SnapshotProgress, ...]:
    """Return those that are reported: of very many, first what is being read."""
    found = sorted(snapshots, key=lambda each: (each.done, not each.chunks, each.log))
    return tuple(sorted(found[:REPORTED_SPLITS], key=lambda each: each.log))
