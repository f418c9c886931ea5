"""PURE. Source status: what a source reports about its splits.

A source returns it as JSON (``status_json.py``) from ``reportLatestOffset``. Spark shows it, as JSON, under
``sources[i].latestOffset`` of every ``StreamingQueryProgress``, and ``progress_event.parse_progress`` reads it back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from watermark_source.monitor.bound_in_force import BoundInForce
from watermark_source.monitor.row_totals import NO_ROWS, RowTotals
from watermark_source.monitor.snapshot_progress import SnapshotProgress
from watermark_source.planning.split import Split

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
