"""PURE. Source status: what a source reports about its splits, its JSON, and how to find it in a query's progress.

A source returns ``SourceStatus.to_json()`` from ``reportLatestOffset``. Spark shows it, as JSON, under
``sources[i].latestOffset`` of every ``StreamingQueryProgress``, and ``progress_event.parse_progress`` reads it back.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from watermark_source.errors import UsageError
from watermark_source.monitor.bound import BoundInForce, bound_from_json, bound_to_json
from watermark_source.monitor.late import late_from_json, late_to_json
from watermark_source.monitor.report_fields import Fields
from watermark_source.monitor.snapshot import SnapshotProgress
from watermark_source.planning.late_rows import NONE_LATE, LateRows
from watermark_source.planning.split import Split

VERSION = 1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    """One row of the status table. Times are milliseconds since 1970-01-01 UTC, durations milliseconds."""

    split: Split
    position: int
    """First position that is not part of a planned batch."""
    end: int | None
    """End position of the log; ``None`` while it is not known."""
    watermark: int | None
    status: Status
    since: int | None
    """When the status began, if that is known."""
    why: str
    """The reason for the status, as a sentence: see ``why.why``."""
    drift: int | None = None
    """Watermark less the minimum of the alignment group, or of the source when it is in no group."""
    holds_back: bool = False
    """Whether this split is the minimum that the others wait for."""
    uncounted: bool = False
    """Whether its positions only order its rows: how many lie between two of them is not known."""
    late_rows: int = 0
    """Late rows of this run: those at or before the watermark that their batch began with."""
    looked_ahead: int | None = None
    """How many rows behind its position were looked at; ``None`` but with ``watermarkStrategy`` ``lookahead``."""

    idle_after: int | None = None
    """For how long it must be quiet to be idle, milliseconds, where that is learned."""

    @property
    def lag(self) -> int | None:
        """Return how many rows are still to be read, ``None`` where that is not known."""
        # An end before our position is a log that was cut off or created anew; there is nothing to read in it.
        left = None if self.end is None else max(0, self.end - self.position)
        return None if left and self.uncounted else left


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
    rows: int
    """Rows read since the query was started."""
    future_rows: int
    """Those of ``rows`` whose event time was too far in the future to count (``maxFutureSkew``)."""
    late: LateRows = NONE_LATE
    """Those of ``rows`` at or before the watermark that their batch began with."""
    undated_rows: int = 0
    """Those of ``rows`` in which no event time was found."""
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
        rows: int = 0,
        future_rows: int = 0,
        late: LateRows = NONE_LATE,
        undated_rows: int = 0,
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
            future_rows=future_rows,
            late=late,
            undated_rows=undated_rows,
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
        return self.late.rows / self.rows if self.rows else None

    def to_json(self) -> dict[str, Any]:
        """Return the report: strings, integers, ``true`` and nested objects only; what is ``None`` is left out.

        Equal states give equal text. Splits are nested as in Spark's Kafka offsets: ``{"orders": {"0": {…}}}``.
        """
        splits: dict[str, dict[str, Any]] = defaultdict(dict)
        for view in sorted(self.splits, key=_by_split):
            splits[view.split.log][str(view.split.number)] = _split_to_json(view)
        group = self.group
        return _present(
            v=VERSION,
            format=self.format_name,
            source=self.source_name,
            at=self.at,
            watermark=self.watermark,
            processingTime=self.processing_time or None,
            group=None if group is None else _group_to_json(group),
            counts={status.value: n for status in Status if (n := self.counts.get(status, 0))},
            lag=self.lag,
            rows=self.rows,
            futureRows=self.future_rows,
            late=late_to_json(self.late),
            undatedRows=self.undated_rows or None,
            bound=bound_to_json(self.bound),
            splits=dict(splits),
            snapshots={each.log: _snapshot_to_json(each) for each in self.snapshots} or None,
        )

    @classmethod
    def from_json(cls, report: Mapping[str, Any]) -> SourceStatus:
        """Read what ``to_json`` wrote.

        Raises:
            UsageError: it is no such report, or one of a newer version.
        """
        fields = Fields(report)
        version = fields.integer("v")
        if version != VERSION:
            raise UsageError(
                f"status report of version {version}; this monitor reads version {VERSION}: "
                "use the release of the project that the query runs with"
            )
        logs, counts = fields.child("splits"), fields.child("counts")
        views = (
            _split_from_json(Split(log, numbers.number(key)), numbers.child(key))
            for log in logs
            for numbers in (logs.child(log),)
            for key in numbers
        )
        return cls(
            format_name=fields.text("format"),
            source_name=fields.text("source"),
            at=fields.integer("at"),
            watermark=fields.optional_integer("watermark"),
            processing_time=fields.flag("processingTime"),
            group=_group_from_json(fields.child("group")) if "group" in report else None,
            splits=tuple(sorted(views, key=_by_split)),
            counts={counts.word(letter, letter, Status): counts.integer(letter) for letter in counts},
            lag=fields.optional_integer("lag"),
            rows=fields.integer("rows"),
            future_rows=fields.integer("futureRows"),
            late=late_from_json(fields.child("late")) if "late" in report else NONE_LATE,
            undated_rows=fields.optional_integer("undatedRows") or 0,
            bound=bound_from_json(fields.child("bound")) if "bound" in report else None,
            snapshots=tuple(_snapshots_from_json(fields.child("snapshots"))) if "snapshots" in report else (),
        )


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


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _group_to_json(group: GroupStatus) -> dict[str, Any]:
    return _present(
        name=group.name,
        maxDrift=group.max_drift,
        limit=group.limit,
        members=group.members,
        hold=group.hold or None,
        others=group.others or None,
        slowest=group.slowest,
        since=group.since,
        trouble=group.trouble,
        store=group.store,
    )


def _group_from_json(fields: Fields) -> GroupStatus:
    return GroupStatus(
        name=fields.text("name"),
        max_drift=fields.optional_integer("maxDrift"),
        limit=fields.optional_integer("limit"),
        members=fields.integer("members"),
        hold=fields.flag("hold"),
        others=fields.optional_integer("others") or 0,
        slowest=fields.optional_text("slowest"),
        since=fields.optional_integer("since"),
        trouble=fields.optional_text("trouble"),
        store=fields.optional_text("store"),
    )


def _snapshot_to_json(of: SnapshotProgress) -> dict[str, Any]:
    return _present(rows=of.rows, chunks=of.chunks, expected=of.expected, rate=of.rate, done=of.done or None)


def _snapshots_from_json(logs: Fields) -> Iterator[SnapshotProgress]:
    for log in logs:
        fields = logs.child(log)
        yield SnapshotProgress(
            log=log,
            rows=fields.integer("rows"),
            chunks=fields.integer("chunks"),
            expected=fields.optional_integer("expected"),
            rate=fields.optional_integer("rate"),
            done=fields.flag("done"),
        )


def _split_to_json(view: SplitView) -> dict[str, Any]:
    return _present(
        position=view.position,
        end=view.end,
        watermark=view.watermark,
        status=view.status.value,
        since=view.since,
        why=view.why,
        drift=view.drift,
        holdsBack=view.holds_back or None,
        uncounted=view.uncounted or None,
        late=view.late_rows or None,
        idleAfter=view.idle_after,
        ahead=view.looked_ahead,
    )


def _split_from_json(split: Split, fields: Fields) -> SplitView:
    return SplitView(
        split=split,
        position=fields.integer("position"),
        end=fields.optional_integer("end"),
        watermark=fields.optional_integer("watermark"),
        status=fields.word("status", fields.text("status"), Status),
        since=fields.optional_integer("since"),
        why=fields.text("why"),
        drift=fields.optional_integer("drift"),
        holds_back=fields.flag("holdsBack"),
        uncounted=fields.flag("uncounted"),
        late_rows=fields.optional_integer("late") or 0,
        idle_after=fields.optional_integer("idleAfter"),
        looked_ahead=fields.optional_integer("ahead"),
    )
