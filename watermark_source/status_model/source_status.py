"""Source status: what a source reports about its splits. Pure.

A source returns it as JSON (``status_json``) from ``reportLatestOffset``. Spark includes that JSON in every
``StreamingQueryProgress``, under ``sources[i].latestOffset``, and ``status_json.parse_progress`` reads it back.
"""

from __future__ import annotations

import heapq
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from watermark_source.durations import count_text, format_duration
from watermark_source.planning.announced import WriterStatus
from watermark_source.planning.group import OwnSilence, Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import Hold
from watermark_source.planning.range_report import NO_ROWS, RowTotals
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitStatus
from watermark_source.planning.strategy import LateCause
from watermark_source.planning.watermark import LAST, MIN, watermark_text
from watermark_source.words import NO_WORDS, Words

REPORTED_SPLITS = 100
"""Limit on the splits in a report: Spark keeps the last 100 reports of a query in memory."""

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class BoundInForce:
    """The learned bound on out-of-orderness, in milliseconds."""

    bound: int
    most: int
    """The largest bound that may be learned, in force until enough rows have been counted."""
    on_time: int
    """How many of a million rows should be on time."""
    since: int | None = None
    """When the bound came into force, milliseconds since 1970-01-01 UTC; not before the last restart of the query."""

    def after(self, previous: BoundInForce | None, now: int) -> BoundInForce:
        """Return the bound with ``since``: the previous bound's if it is equal, else ``now``."""
        is_new = previous is None or previous.bound != self.bound
        return replace(self, since=now if is_new or previous is None else previous.since)

    @property
    def wish(self) -> float:
        """The share of rows that may be late."""
        return (_MILLION - self.on_time) / _MILLION


_GAP = "  "
_BAR, _LEAST_BAR = 30, 8
_NEARLY = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProgress:
    """Progress of the snapshot of one table, or other log, that this run of the query reads or has read."""

    log: str
    rows: int
    """Rows read. Rows of the current batch and of earlier runs are estimated from the size of their chunks."""
    chunks: int
    """Chunks read, including the current batch."""
    expected: int | None
    """The system's estimate of the table's rows, never below ``rows``. ``None`` without an estimate."""
    rate: int | None
    """Rows per second in this run after its first batch; ``None`` until the second batch."""
    done: bool
    began: int | None = None
    """When it began, milliseconds since 1970-01-01 UTC: changes since then wait. ``None``: in an earlier run."""

    @property
    def chunks_expected(self) -> int | None:
        """Chunks in all, at the rows that those so far had; ``None`` before the first row, or without an estimate."""
        if self.done:
            return self.chunks
        return -(-self.expected * self.chunks // self.rows) if self.expected and self.rows else None

    @property
    def share(self) -> float | None:
        """The share that has been read. It is 1 only when the snapshot is done, whatever the estimate."""
        if self.done:
            return 1.0
        return None if self.expected is None else min(_NEARLY, self.rows / max(1, self.expected))

    @property
    def left(self) -> int | None:
        """Milliseconds until the snapshot is done at this rate; ``None`` if unknown."""
        if self.done or self.expected is None or not self.rate:
            return None
        return 1_000 * max(0, self.expected - self.rows) // self.rate


def progress_line(of: SnapshotProgress, name_width: int, width: int) -> str:
    """Return name, bar, share, rows, rate and time left in ``width`` characters. Rate and rows are dropped to fit."""
    texts = [text for text in (_share(of), rows_text(of), _rate(of), _left(of)) if text]
    # The bar shows the rows roughly, and the time left shows both.
    droppable = [text for text in (_rate(of), rows_text(of)) if text]
    name = of.log.ljust(name_width)
    while (room := width - len(_GAP.join([name, "[]", *texts]))) < _LEAST_BAR and droppable:
        texts.remove(droppable.pop(0))
    size = max(0, min(_BAR, room))
    filled = int(size * (of.share or 0))
    return _GAP.join([name, f"[{'#' * filled}{'.' * (size - filled)}]", *texts])[:width]


def _share(of: SnapshotProgress) -> str:
    return "   ?" if of.share is None else f"{int(100 * of.share):3} %"


def rows_text(of: SnapshotProgress) -> str:
    """Return how many rows of a snapshot are read, and of how many."""
    if of.done:
        return "done"
    if not of.chunks:
        return "waits for its turn"
    about = "" if of.expected is None else f" of about {count_text(of.expected)}"
    return f"{count_text(of.rows)}{about} rows"


def _rate(of: SnapshotProgress) -> str:
    return f"{count_text(of.rate)} rows/s" if of.rate and not of.done else ""


def _left(of: SnapshotProgress) -> str:
    # An estimate has whole seconds.
    return "" if of.left is None else f"{format_duration(max(1, of.left // 1_000) * 1_000)} left"


class Status(Enum):
    """Watermark status of a split in reports. The value is its letter in reports; offsets use the same a, i and p."""

    ACTIVE = "a"
    IDLE = "i"
    PAUSED = "p"
    FINISHED = "f"
    """The split was read up to the end of this run."""
    UNKNOWN = "u"
    """The split's log did not answer; its figures are from the last answer."""


STATUS_OF: Final[Mapping[SplitStatus, Status]] = {status: Status(status.value) for status in SplitStatus}
"""The status that an offset has, in a report."""


@dataclass(frozen=True, slots=True)
class Unprocessed:
    """The rows of a source that are in its logs and not in a committed batch: its processing-time watermark."""

    arrived: int
    """When the oldest of them arrived at the earliest, milliseconds since 1970-01-01 UTC: the request for the log's end
    before the one that first showed it. Without such rows: the last request, which showed that there are none."""
    split: str | None = None
    """Where the oldest is; ``None`` if there is none."""
    is_older: bool = False
    """Whether it was there at the first request of this run: then ``arrived`` is that request, and the row is older by
    an unknown time."""


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How often something of a source changed since the query was started."""

    watermark: int = 0
    """Plans that advanced the combined watermark."""
    status: int = 0
    """Changes of the status of splits, of all together."""


NO_CHANGES: Final = ChangeCounts()


@dataclass(frozen=True, slots=True)
class TimeInStatus:
    """For how many milliseconds a split has been active, idle and paused since the query was started."""

    active: int
    idle: int
    paused: int
    changes: int = 0
    """How often its status changed."""


class Outline(NamedTuple):
    """The part of a split's status that decides whether it is among the reported splits."""

    split: Split
    status: Status
    lag: int | None
    """Unread positions."""
    holds_back: bool
    watermark: int | None


@dataclass(frozen=True, slots=True)
class SplitBacklog:
    """The unread part of a split."""

    position: int
    """First position that is not part of a planned batch."""
    end: int | None
    """End position of the log; ``None`` while it is unknown."""
    uncounted: bool = False
    """Whether positions only order rows, so that the number of rows between two positions is unknown."""

    @property
    def rows(self) -> int | None:
        """Number of unread rows, ``None`` if it is unknown."""
        # A log that ends before our position was truncated or recreated, and holds nothing to read.
        left = None if self.end is None else max(0, self.end - self.position)
        return None if left and self.uncounted else left


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitView:
    """One row of the status table. Times are milliseconds since 1970-01-01 UTC, durations milliseconds."""

    split: Split
    backlog: SplitBacklog
    watermark: int | None
    status: Status
    since: int | None
    """When the status began; ``None`` if that is unknown."""
    why: str
    """``kind`` as a sentence."""
    kind: HoldKind
    """Why it is not further."""
    drift: int | None = None
    """The watermark minus the minimum of the alignment group, or of the source without a group."""
    holds_back: bool = False
    """Whether it holds the watermark."""
    late_rows: int = 0
    """Rows of this run at or before the watermark that their batch began with."""
    looked_ahead: int | None = None
    """Rows after its position whose event times were read; ``None`` except with ``watermarkStrategy`` ``lookahead``."""
    idle_after: int | None = None
    """The learned idle timeout in milliseconds; ``None`` if it is not learned."""
    unobserved: int = 0
    """Positions of the last batch, or of the current one, whose rows are not in ``watermark`` yet."""
    quiet: int | None = None
    """For how long it had had nothing to read when its log's end was last requested; ``None`` if it has rows, or if
    that is unknown."""
    newest_in_log: int | None = None
    """Highest event time in its log; ``None`` unless the plan had to know it."""
    times: TimeInStatus | None = None
    """Exact, from the moments at which the status changed; ``None`` in older reports."""

    @property
    def lag(self) -> int | None:
        """Number of unread rows, ``None`` if it is unknown."""
        return self.backlog.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterView:
    """A writer that announces watermarks (``watermarkStrategy`` ``announced``)."""

    name: str
    status: str
    """``awaited``, ``active``, ``idle``, ``silent`` or ``ended``."""
    why: str
    """``kind`` as a sentence."""
    kind: HoldKind
    """Why it is not further."""
    holds_back: bool = False
    """Whether the combined watermark waits for it."""
    batch: int | None = None
    """The batch that it announced last."""
    watermark: int | None = None
    """The announcement in force at the source's positions."""
    announced: int | None = None
    """The watermark that it announced last, which may not be reached yet."""
    since: int | None = None
    """When it announced last, milliseconds since 1970-01-01 UTC, by the record's timestamp."""
    rows_before_next: int | None = None
    """Rows to be read before its next announcement is in force; ``None``: there is none."""
    query: str | None = None
    """Id of the query that announces; ``None`` while only the writer's name is known."""


_Interesting = TypeVar("_Interesting", Outline, SplitView)


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The alignment group when the source last planned."""

    name: str
    max_drift: int | None
    """The one in force, in milliseconds, the lowest of the group; ``None`` for a source whose event time is the
    clock."""
    limit: int | None
    """Highest watermark a member may reach; ``None`` while no member limits the group, and while ``hold``."""
    members: int
    """Splits of this source; all are members."""
    hold: bool = False
    """Whether members must not read yet."""
    others: int = 0
    """Other sources in the group."""
    slowest: str | None = None
    """The other source with the lowest watermark; ``None`` if no other source counts."""
    since: int | None = None
    """Since when that source is the slowest, milliseconds since 1970-01-01 UTC."""
    trouble: str | None = None
    """Why the state of the other sources may be outdated, or why sources of the same query went ahead of this one."""
    store: str | None = None
    """The group's store: ``driver``, ``none``, or kind, host and name of a database; ``None`` in older reports."""
    minimum: int | None = None
    """The watermark that the slowest counts with, which ``limit`` is ``max_drift`` ahead of; for another source of the
    query that may be the one after its next batch."""
    holder: str | None = None
    """The split, or the other source, with that watermark."""
    max_drift_of: str | None = None
    """The other source whose ``alignmentMaxDrift`` is in force; ``None`` if it is that of this source."""
    own_max_drift: int | None = None
    """``alignmentMaxDrift`` of this source, in milliseconds, where another one's is in force."""
    peers: tuple[Peer, ...] = ()
    """The other sources, in this driver and in others, the most silent first: also those that the group does not wait
    for any more."""
    own_silence: OwnSilence | None = None
    """The last time in which this source itself reported nothing, if that ended within ten minutes."""

    @property
    def silent(self) -> tuple[Peer, ...]:
        """The other sources that have missed a report: each reports once a second."""
        return tuple(peer for peer in self.peers if peer.is_silent)


class Quantiles(NamedTuple):
    """Watermarks of many splits, milliseconds since 1970-01-01 UTC, each that of a split."""

    lowest: int
    p5: int
    p25: int
    median: int
    p75: int
    p95: int
    highest: int


_SHARES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def quantiles(watermarks: Iterable[int]) -> Quantiles | None:
    """Return where watermarks lie; ``None`` without any."""
    ordered = sorted(watermarks)
    return Quantiles(*(ordered[round(share * (len(ordered) - 1))] for share in _SHARES)) if ordered else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A source at one moment. ``reported_splits`` gives its splits, counts and lag."""

    format_name: str
    source_name: str
    at: int
    """When the report was made, milliseconds since 1970-01-01 UTC."""
    watermark: int | None
    """The combined watermark that the source emits; ``None`` before the first."""
    processing_time: bool
    """Event time is the clock (FLIP-326)."""
    group: GroupStatus | None
    splits: tuple[SplitView, ...]
    """The ``REPORTED_SPLITS`` most interesting splits, in split order."""
    counts: Mapping[Status, int]
    """Number of splits by status, including splits that are not in ``splits``."""
    lag: int | None
    """Unread rows of all splits with a known end; ``None`` if rows cannot be counted."""
    quantiles: Mapping[Status, Quantiles] = field(default_factory=dict)
    """By status, the watermarks of all splits that have one; empty where all splits are in ``splits``."""
    rows: RowTotals = NO_ROWS
    """Rows read since the query was started."""
    late_cause: LateCause | None = None
    """Why rows of this run are late; ``None`` if none is."""
    bound: BoundInForce | None = None
    """The bound on out-of-orderness, if it is learned."""
    snapshots: tuple[SnapshotProgress, ...] = ()
    """This run's snapshots by name, at most ``REPORTED_SPLITS``; none once all are done."""
    writers: tuple[WriterView, ...] = ()
    """Those that announce watermarks, by name, at most ``REPORTED_SPLITS``: first those that hold the watermark."""
    unannounced: str | None = None
    """Why the watermark stands whatever the writers announced: their announcements cannot be read, for example."""
    first_reading: str | None = None
    """How far the source is from the ends to which its logs are read first; ``None`` otherwise."""
    unprocessed: Unprocessed | None = None
    """The oldest unprocessed row as of the plan of the last batch, whose rows are not in a committed batch yet."""
    unread: Unprocessed | None = None
    """The same once that batch is committed."""
    newest: int | None = None
    """Highest event time of the rows that were read before that batch in this run."""
    rows_at: int | None = None
    """The last request for the ends of the logs that found new rows, milliseconds since 1970-01-01 UTC; ``None`` if
    none did since the query was started."""
    rows_after: int | None = None
    """The request before that one: the newest of these rows arrived between the two."""
    changes: ChangeCounts = NO_CHANGES
    idle_timeout: int | None = None
    """The option ``idleTimeout`` in milliseconds, or its upper limit where it is learned; ``None`` without it."""
    out_of_orderness: int | None = None
    """Milliseconds that the watermark of a split is behind its highest event time, less one; ``None`` where event times
    do not move it."""
    without_holder: int | None = None
    """The watermark if the splits that hold it back were left out; ``None`` if it would be the same or is unknown."""
    slowest: tuple[Hold, ...] = ()
    """As ``holds``, at most ``NAMED`` of them, or the one that is only slower than the others."""
    more_holds: int = 0
    """How many more hold it."""
    words: Words = NO_WORDS
    """The words of its connector."""

    @property
    def holds(self) -> tuple[Hold, ...]:
        """What holds the watermark; first what does not end by itself."""
        return tuple(hold for hold in self.slowest if not hold.takes_turns)

    @property
    def is_announced(self) -> bool:
        """Whether writers announce its watermark."""
        return bool(self.writers) or self.unannounced is not None

    @property
    def is_at_rest(self) -> bool:
        """Whether no reader waits for it until it has rows again: all of its splits are idle, or all writers that it
        follows are or have ended, and all that they have announced is read; or it has ended itself."""
        if self.watermark is not None and self.watermark >= LAST:
            return True
        if self.is_announced:
            is_read = self.lag == 0 and all(writer.rows_before_next is None for writer in self.writers)
            return self.unannounced is None and is_read and all(writer.status in _AT_REST for writer in self.writers)
        return not self.processing_time and self.counts.keys() == {Status.IDLE}

    @property
    def splits_total(self) -> int:
        """Number of splits of the source; ``splits`` may hold fewer."""
        return sum(self.counts.values())

    @property
    def late_share(self) -> float | None:
        """The share of late rows; ``None`` before the first row."""
        return self.rows.late_share


_AT_REST = frozenset({WriterStatus.IDLE.value, WriterStatus.ENDED.value})


def most_interesting(splits: Iterable[_Interesting], n: int) -> list[_Interesting]:
    """Return the first ``n`` splits: those that hold the watermark, then by it, and idle ones last."""
    return heapq.nsmallest(n, splits, key=_interest)


def _interest(of: Outline | SplitView) -> tuple[bool, bool, int, int, Split]:
    watermark = MIN if of.watermark is None else of.watermark
    return not of.holds_back, of.status is Status.IDLE, watermark, -(of.lag or 0), of.split


class ReportedSplits(NamedTuple):
    """The fields of ``SourceStatus`` that follow from *all* its splits."""

    splits: tuple[SplitView, ...]
    counts: Mapping[Status, int]
    lag: int | None
    quantiles: Mapping[Status, Quantiles]


def reported_splits(
    splits: Sequence[Outline], view: Callable[[Outline], SplitView], *, positions_are_rows: bool = True
) -> ReportedSplits:
    """Return what a status reports of all splits of a source.

    Args:
        splits: all of them.
        view: called for the ``REPORTED_SPLITS`` most interesting ones only.
        positions_are_rows: whether positions count rows, and not only order them.
    """
    views = map(view, most_interesting(splits, REPORTED_SPLITS))
    left = sum(outline.lag or 0 for outline in splits)
    counts = Counter(outline.status for outline in splits)
    return ReportedSplits(
        tuple(sorted(views, key=attrgetter("split"))),
        dict(counts),
        left if positions_are_rows or not left else None,
        _by_status(splits) if len(splits) > REPORTED_SPLITS else {},
    )


def _by_status(splits: Sequence[Outline]) -> dict[Status, Quantiles]:
    marks: dict[Status, list[int]] = {}
    for outline in splits:
        if outline.watermark is not None:
            marks.setdefault(outline.status, []).append(outline.watermark)
    return {status: found for status, each in marks.items() if (found := quantiles(each)) is not None}


def reported_writers(writers: Iterable[WriterView]) -> tuple[WriterView, ...]:
    """Return the reported writers: those that hold the watermark first, then by name."""
    return tuple(sorted(writers, key=lambda of: (not of.holds_back, of.name))[:REPORTED_SPLITS])


def reported_snapshots(snapshots: Iterable[SnapshotProgress]) -> tuple[SnapshotProgress, ...]:
    """Return the reported snapshots by name. If there are too many, those that are being read take precedence."""
    by_interest = sorted(snapshots, key=lambda snapshot: (snapshot.done, not snapshot.chunks, snapshot.log))
    return tuple(sorted(by_interest[:REPORTED_SPLITS], key=lambda snapshot: snapshot.log))


def own_silence_text(of: OwnSilence) -> str:
    """Return that a source itself was silent, and what followed from it."""
    waited = (
        "the group waited for it"
        if of.was_waited_for
        else "longer than its alignmentTimeToLive, so that the group did not wait for it"
    )
    return (
        f"this source itself reported nothing for {format_duration(of.lasted)} until {watermark_text(of.until)} UTC "
        f"(its driver was frozen, or the store did not answer): {waited}"
    )


def silence_text(peer: Peer, group: GroupStatus) -> str:
    """Return that another source of an alignment group is silent, and what follows from it."""
    waits = "longer than its alignmentTimeToLive, so that the group does not wait for it"
    if peer.is_waited_for:
        left = long = ""
        if peer.time_to_live is not None:
            left = f", in {format_duration(max(0, peer.time_to_live - peer.silent))}"
            long = f" ({format_duration(peer.time_to_live)})"
        waits = f"the group waits for it until its alignmentTimeToLive{long} has passed{left}"
        if group.store not in (None, "driver", "none"):
            command = shlex.join(("--alignmentGroup", group.name, "leave", peer.name))
            waits += f"; if it does not start again: python -m watermark_source group {command}"
    return (
        f"source {peer.name} of the alignment group {group.name} has reported nothing for "
        f"{format_duration(peer.silent)} (it was stopped, or its driver is frozen, gone, or does not reach the store): "
        f"{waits}"
    )
