"""What changed of the sources of running queries, and their watermark and lag over time: kept in memory, bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import merge
from itertools import count, zip_longest
from operator import itemgetter
from typing import Final, NamedTuple

from watermark_source.monitor.three_clocks import behind_clock
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import watermark_text
from watermark_source.status_model.hold_texts import holder_name
from watermark_source.status_model.source_status import GroupStatus, SourceStatus, Status

MOST_CHANGES: Final = 1_000
"""Changes that are kept of a query."""
MOST_QUERIES: Final = 100
"""Queries of which changes are kept, the last ones to change."""
MOST_POINTS: Final = 400
"""Points that are kept of a source. Of more, two neighbours become one, with the worse values of both."""

_PACE_SPAN = 300_000
"""Milliseconds by which the time until all is read is estimated."""
_LOOKED_BACK = 20
"""Changes among which one is looked for that continues."""
NO_HOLDER: Final = "nothing"
"""The holder where nothing holds the watermark."""
_NOTHING_READ, _NO_LIMIT = "nothing is read", "none"
_NO_LIMITS = {_NOTHING_READ, _NO_LIMIT}


class ChangeKind(Enum):
    """What changed. The value is the word on the page."""

    HOLDER = "holder"
    """What holds the watermark back, or the batch that results waited for."""
    STATUS = "status"
    """The status of a partition."""
    LIMIT = "limit"
    """The limit of the alignment group. While it only advances, it is one change."""


class Change(NamedTuple):
    """One change. Times are milliseconds since 1970-01-01 UTC."""

    at: int
    query: str
    """The query's name, or its id if it has none."""
    source: str
    kind: ChangeKind
    subject: str
    """The partition, or the group."""
    before: str
    after: str
    why: str = ""
    times: int = 1
    """How often the limit has advanced since ``at``."""


class Point(NamedTuple):
    """A source at one moment."""

    at: int
    behind: int | None
    """Milliseconds that its watermark is behind the clock; ``None`` without a watermark."""
    lag: int | None
    """Unread rows; ``None`` if they cannot be counted."""


class HolderSpan(NamedTuple):
    """What held a watermark for a while. Times are milliseconds since 1970-01-01 UTC."""

    name: str
    """``NO_HOLDER`` where nothing did."""
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Known:
    """What was last reported of a source."""

    holder: str
    since: int
    limit: str
    statuses: Mapping[Split, Status]
    points: tuple[Point, ...]


def holder_spans(
    changes: Iterable[Change], first: int, now: int, holder: str, slow: HolderSpan | None = None
) -> tuple[HolderSpan, ...]:
    """Return what held a watermark, from ``first`` until ``now``.

    Args:
        changes: of the source, the oldest first.
        first: the first moment.
        now: the last one.
        holder: what holds it now.
        slow: the batch under way, if results wait for it.
    """
    found = [change for change in changes if change.kind is ChangeKind.HOLDER and change.at > first]
    begins = [first, *(change.at for change in found)]
    names = [*(change.before for change in found), holder]
    if slow is not None:
        begins, names = [*begins, max(slow.begin, begins[-1])], [*names, slow.name]
    return tuple(map(HolderSpan, names, begins, [*begins[1:], now]))


class ChangeHistory:
    """Thread-safe: Spark's listener thread writes, and threads that serve the page read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Known] = {}
        self._changes: dict[str, deque[tuple[int, Change]]] = {}
        """By query, the last one to change at the end; each with its number."""
        self._numbers = count()

    def record(self, query: str, sources: Iterable[SourceStatus], slow: HolderSpan | None = None) -> None:
        """Take in what the sources of a query report. What is reported first is no change, but a slow batch is one.

        Args:
            query: its name.
            sources: what they report.
            slow: the last batch, if results waited for it: where nothing held the watermark, it did.
        """
        with self._lock:
            for source in sources:
                key = query, source.source_name
                before = self._known.get(key)
                self._known[key], found = _after(before, query, source, slow)
                for change in found:
                    self._add(change)

    def end(self, query: str) -> None:
        """Forget what was reported of a query; its changes remain."""
        with self._lock:
            for key in [key for key in self._known if key[0] == query]:
                del self._known[key]

    def changes(self) -> tuple[Change, ...]:
        """Return the last changes, the oldest first."""
        with self._lock:
            return tuple(change for _, change in merge(*self._changes.values(), key=itemgetter(0)))

    def points(self, query: str, source: str) -> tuple[Point, ...]:
        """Return a source over time, from the first report on."""
        with self._lock:
            known = self._known.get((query, source))
            return () if known is None else known.points

    def points_until(self, now: int, query: str, source: SourceStatus) -> tuple[Point, ...]:
        """Return a source over time up to now: while a batch runs nothing is reported, and its watermark stands."""
        points = self.points(query, source.source_name)
        return (*points, _point(now, source)) if len(points) > 1 and now > points[-1].at else points

    def held_since(self, query: str, source: str, holder: str) -> int | None:
        """Return since when a source has been held by this holder; ``None`` if another was reported last."""
        with self._lock:
            known = self._known.get((query, source))
            return known.since if known is not None and known.holder == holder else None

    def _add(self, change: Change) -> None:
        """Add a change; a limit that has advanced before, and advances again, is the change that it was."""
        changes = self._changes.pop(change.query, deque(maxlen=MOST_CHANGES))
        self._changes[change.query] = changes
        if len(self._changes) > MOST_QUERIES:
            del self._changes[next(iter(self._changes))]
        for i in range(len(changes) - 1, max(0, len(changes) - _LOOKED_BACK) - 1, -1):
            number, last = changes[i]
            if last.kind is change.kind is ChangeKind.LIMIT and last.source == change.source:
                if not {last.before, change.after} & _NO_LIMITS:
                    changes[i] = number, last._replace(after=change.after, times=last.times + 1)
                    return
                break
        changes.append((next(self._numbers), change))


def _after(
    before: _Known | None, query: str, source: SourceStatus, slow: HolderSpan | None
) -> tuple[_Known, list[Change]]:
    held, limit = next(iter(source.holds), None), _limit(source.group)
    name = NO_HOLDER if held is None else holder_name(held)
    point = _point(source.at, source)
    statuses = {view.split: view.status for view in source.splits}
    before = before or _Known(name, source.at, limit, statuses, (point,))
    found: list[tuple[int, ChangeKind, str, str, str, str]] = []
    for view in source.splits:
        status = before.statuses.get(view.split)
        if status is not None and status is not view.status:
            at = source.at if view.since is None else view.since
            found.append((at, ChangeKind.STATUS, str(view.split), status.name, view.status.name, view.why))
    since = before.since if name == before.holder else source.at
    if name != before.holder:
        found.append((since, ChangeKind.HOLDER, "watermark", before.holder, name, "" if held is None else held.why))
    if slow is not None and name == NO_HOLDER and since < slow.end:
        begin, since = max(since, slow.begin), slow.end
        found.append((begin, ChangeKind.HOLDER, "watermark", name, slow.name, "results waited for it"))
        found.append((since, ChangeKind.HOLDER, "watermark", slow.name, name, ""))
    if limit != before.limit:
        group = "" if source.group is None else source.group.name
        found.append((source.at, ChangeKind.LIMIT, f"group {group}", before.limit, limit, ""))
    points = thinned((*before.points, point)) if point.at > before.points[-1].at else before.points
    known = _Known(name, since, limit, {**before.statuses, **statuses}, points)
    return known, [
        Change(at, query, source.source_name, kind, of, was, now, why) for at, kind, of, was, now, why in found
    ]


def _point(at: int, of: SourceStatus) -> Point:
    return Point(at, behind_clock(at, of.watermark), of.lag)


def _limit(group: GroupStatus | None) -> str:
    if group is None:
        return _NO_LIMIT
    if group.hold:
        return _NOTHING_READ
    return _NO_LIMIT if group.limit is None else watermark_text(group.limit)


def until_read(points: Sequence[Point]) -> int | None:
    """Return in how many milliseconds nothing is unread at the pace of the last minutes; ``None`` if that is unknown,
    or if no less is unread now than at their beginning."""
    known = [(each.at, each.lag) for each in points if each.lag is not None and each.at > points[-1].at - _PACE_SPAN]
    read = known[0][1] - known[-1][1] if known else 0
    return known[-1][1] * (known[-1][0] - known[0][0]) // read if read > 0 else None


def thinned(points: tuple[Point, ...], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """Return at most so many points, at least two: neighbours become one, with the worse values of both."""
    while len(points) > most:
        # The newest stays as it is, whatever their number.
        pairs = zip_longest(points[:-1:2], points[1:-1:2])
        points = (*(a if b is None else _worse_of(a, b) for a, b in pairs), points[-1])
    return points


def _worse_of(a: Point, b: Point) -> Point:
    # So that the first point stays that of the first report.
    known = ([value for value in both if value is not None] for both in zip(a[1:], b[1:], strict=True))
    return Point(a.at, *(max(each, default=None) for each in known))
