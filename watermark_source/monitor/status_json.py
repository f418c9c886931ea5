"""Source status as JSON: writes and reads the report that Spark includes in progress events. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, TypeVar

from watermark_source.errors import UsageError
from watermark_source.monitor.source_status import (
    NO_CHANGES,
    BoundInForce,
    ChangeCounts,
    GroupStatus,
    SnapshotProgress,
    SourceStatus,
    SplitBacklog,
    SplitView,
    Status,
    TimeInStatus,
    Unprocessed,
    WriterView,
)
from watermark_source.planning.group import OwnSilence, Peer
from watermark_source.planning.holds import HeldBy, Hold, HoldKind
from watermark_source.planning.range_report import BOUNDS_MS, NONE_LATE, LateRows, RowTotals
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis
from watermark_source.words import NO_WORDS, Words

_Word = TypeVar("_Word", bound=Enum)

VERSION = 1
_SIGNATURE = {"v", "format", "source", "splits"}
_BUCKETS = (*map(str, BOUNDS_MS), "more")


def status_to_json(of: SourceStatus) -> dict[str, Any]:
    """Return the report: strings, integers, ``true`` and nested objects, without keys for ``None``.

    Equal states give equal text. Splits are nested as in Spark's Kafka offsets: ``{"orders": {"0": {…}}}``.
    """
    splits: dict[str, dict[str, Any]] = defaultdict(dict)
    for view in sorted(of.splits, key=attrgetter("split")):
        splits[view.split.log][str(view.split.number)] = _split_to_json(view)
    group = of.group
    return _present(
        v=VERSION,
        format=of.format_name,
        source=of.source_name,
        at=of.at,
        watermark=of.watermark,
        processingTime=of.processing_time or None,
        group=None if group is None else _group_to_json(group),
        counts={status.value: n for status in Status if (n := of.counts.get(status, 0))},
        lag=of.lag,
        rows=of.rows.read,
        futureRows=of.rows.future,
        late=late_to_json(of.rows.late),
        undatedRows=of.rows.undated or None,
        malformedRows=of.rows.malformed or None,
        bound=_bound_to_json(of.bound),
        splits=dict(splits),
        snapshots={snapshot.log: _snapshot_to_json(snapshot) for snapshot in of.snapshots} or None,
        writers={writer.name: _writer_to_json(writer) for writer in of.writers} or None,
        unannounced=of.unannounced,
        firstReading=of.first_reading,
        unprocessed=_unprocessed_to_json(of.unprocessed),
        unread=_unprocessed_to_json(of.unread),
        newest=of.newest,
        rowsAt=of.rows_at,
        rowsAfter=of.rows_after,
        changes=_present(watermark=of.changes.watermark or None, status=of.changes.status or None) or None,
        idleTimeout=of.idle_timeout,
        outOfOrderness=of.out_of_orderness,
        withoutHolder=of.without_holder,
        slowest={str(number): _hold_to_json(hold) for number, hold in enumerate(of.slowest)} or None,
        moreHolds=of.more_holds or None,
        words=_words_to_json(of.words),
    )


def status_from_json(report: Mapping[str, Any]) -> SourceStatus:
    """Read what ``status_to_json`` wrote.

    Raises:
        UsageError: the object is no such report, or a report of another version.
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
    return SourceStatus(
        format_name=fields.text("format"),
        source_name=fields.text("source"),
        at=fields.integer("at"),
        watermark=fields.optional_integer("watermark"),
        processing_time=fields.flag("processingTime"),
        group=_group_from_json(fields.child("group")) if "group" in report else None,
        splits=tuple(sorted(views, key=attrgetter("split"))),
        counts={counts.word(letter, letter, Status): counts.integer(letter) for letter in counts},
        lag=fields.optional_integer("lag"),
        rows=RowTotals(
            read=fields.integer("rows"),
            future=fields.integer("futureRows"),
            undated=fields.optional_integer("undatedRows") or 0,
            malformed=fields.optional_integer("malformedRows") or 0,
            late=late_from_json(fields.child("late")) if "late" in report else NONE_LATE,
        ),
        bound=_bound_from_json(fields.child("bound")) if "bound" in report else None,
        snapshots=tuple(_snapshots_from_json(fields.child("snapshots"))) if "snapshots" in report else (),
        writers=tuple(_writers_from_json(fields.child("writers"))) if "writers" in report else (),
        unannounced=fields.optional_text("unannounced"),
        first_reading=fields.optional_text("firstReading"),
        unprocessed=_unprocessed_from_json(fields.child("unprocessed")) if "unprocessed" in report else None,
        unread=_unprocessed_from_json(fields.child("unread")) if "unread" in report else None,
        newest=fields.optional_integer("newest"),
        rows_at=fields.optional_integer("rowsAt"),
        rows_after=fields.optional_integer("rowsAfter"),
        changes=_changes_from_json(fields.child("changes")) if "changes" in report else NO_CHANGES,
        idle_timeout=fields.optional_integer("idleTimeout"),
        out_of_orderness=fields.optional_integer("outOfOrderness"),
        without_holder=fields.optional_integer("withoutHolder"),
        slowest=tuple(_holds_from_json(fields.child("slowest"))) if "slowest" in report else (),
        more_holds=fields.optional_integer("moreHolds") or 0,
        words=_words_from_json(fields.child("words")) if "words" in report else NO_WORDS,
    )


def _hold_to_json(of: Hold) -> dict[str, Any]:
    return _present(
        by=of.by.value,
        name=of.name,
        kind=of.kind.value,
        why=of.why,
        watermark=of.watermark,
        lag=of.lag,
        quiet=of.quiet,
        timeout=of.timeout,
        last=of.is_last or None,
        newest=of.newest,
        beganBehind=of.began_behind or None,
        takesTurns=of.takes_turns or None,
        followsGroup=of.follows_group or None,
    )


def _holds_from_json(numbers: Fields) -> Iterator[Hold]:
    for number in numbers:
        fields = numbers.child(number)
        yield Hold(
            by=fields.word("by", fields.text("by"), HeldBy),
            name=fields.text("name"),
            kind=fields.word("kind", fields.text("kind"), HoldKind),
            why=fields.text("why"),
            watermark=fields.optional_integer("watermark"),
            lag=fields.optional_integer("lag"),
            quiet=fields.optional_integer("quiet"),
            timeout=fields.optional_integer("timeout"),
            is_last=fields.flag("last"),
            newest=fields.optional_integer("newest"),
            began_behind=fields.flag("beganBehind"),
            takes_turns=fields.flag("takesTurns"),
            follows_group=fields.flag("followsGroup"),
        )


_WORDS = {
    "split": "split",
    "limit": "limit",
    "minimum": "minimum",
    "eventTime": "event_time",
    "profile": "profile",
    "fromStart": "from_start",
    "atRest": "at_rest",
}


def _words_to_json(of: Words) -> dict[str, str] | None:
    return _present(**{key: getattr(of, name) for key, name in _WORDS.items()}) if of != NO_WORDS else None


def _words_from_json(fields: Fields) -> Words:
    return Words(**{_WORDS[key]: fields.text(key) for key in fields if key in _WORDS})


def _bound_to_json(of: BoundInForce | None) -> dict[str, Any] | None:
    """Return the report's fields for a bound."""
    if of is None:
        return None
    since = {} if of.since is None else {"since": of.since}
    return {"bound": of.bound, "most": of.most, "onTime": of.on_time, **since}


def _bound_from_json(fields: Fields) -> BoundInForce:
    """Read what ``_bound_to_json`` wrote."""
    since = fields.optional_integer("since")
    return BoundInForce(fields.integer("bound"), fields.integer("most"), fields.integer("onTime"), since)


def late_to_json(late: LateRows) -> dict[str, Any] | None:
    """Return the report's fields for late rows: their number, longest and total lag in ms, and a histogram."""
    if not late.rows:
        return None
    behind = {bucket: rows for bucket, rows in zip(_BUCKETS, late.histogram, strict=True) if rows}
    return {"rows": late.rows, "longest": late.longest, "total": late.total, "behind": behind}


def late_from_json(fields: Fields) -> LateRows:
    """Read what ``late_to_json`` wrote."""
    behind = fields.child("behind")
    histogram = tuple(behind.optional_integer(bucket) or 0 for bucket in _BUCKETS)
    return LateRows(histogram, fields.integer("longest"), fields.integer("total"))


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _unprocessed_to_json(of: Unprocessed | None) -> dict[str, Any] | None:
    return None if of is None else _present(arrived=of.arrived, split=of.split, older=of.is_older or None)


def _unprocessed_from_json(fields: Fields) -> Unprocessed:
    return Unprocessed(fields.integer("arrived"), fields.optional_text("split"), fields.flag("older"))


def _changes_from_json(fields: Fields) -> ChangeCounts:
    return ChangeCounts(fields.optional_integer("watermark") or 0, fields.optional_integer("status") or 0)


def _times_to_json(of: TimeInStatus | None) -> dict[str, Any] | None:
    if of is None:
        return None
    return _present(active=of.active, idle=of.idle or None, paused=of.paused or None, changes=of.changes or None)


def _times_from_json(fields: Fields) -> TimeInStatus:
    return TimeInStatus(
        fields.integer("active"),
        fields.optional_integer("idle") or 0,
        fields.optional_integer("paused") or 0,
        fields.optional_integer("changes") or 0,
    )


def _group_to_json(group: GroupStatus) -> dict[str, Any]:
    return _present(
        name=group.name,
        maxDrift=group.max_drift,
        maxDriftOf=group.max_drift_of,
        ownMaxDrift=group.own_max_drift,
        limit=group.limit,
        members=group.members,
        hold=group.hold or None,
        others=group.others or None,
        slowest=group.slowest,
        since=group.since,
        trouble=group.trouble,
        store=group.store,
        minimum=group.minimum,
        holder=group.holder,
        peers={str(number): _peer_to_json(peer) for number, peer in enumerate(group.peers)} or None,
        ownSilence=_own_silence_to_json(group.own_silence),
    )


def _own_silence_to_json(of: OwnSilence | None) -> dict[str, Any] | None:
    return None if of is None else _present(until=of.until, lasted=of.lasted, waited=of.was_waited_for or None)


def _own_silence_from_json(fields: Fields) -> OwnSilence:
    return OwnSilence(Millis(fields.integer("until")), fields.integer("lasted"), fields.flag("waited"))


def _peer_to_json(of: Peer) -> dict[str, Any]:
    return _present(
        name=of.name, status=of.status, watermark=of.watermark, silent=of.silent, waited=of.is_waited_for or None
    )


def _peers_from_json(numbers: Fields) -> Iterator[Peer]:
    for number in numbers:
        fields = numbers.child(number)
        watermark = fields.optional_integer("watermark")
        yield Peer(
            fields.text("name"),
            fields.text("status"),
            None if watermark is None else Millis(watermark),
            fields.integer("silent"),
            fields.flag("waited"),
        )


def _group_from_json(fields: Fields) -> GroupStatus:
    return GroupStatus(
        name=fields.text("name"),
        max_drift=fields.optional_integer("maxDrift"),
        max_drift_of=fields.optional_text("maxDriftOf"),
        own_max_drift=fields.optional_integer("ownMaxDrift"),
        limit=fields.optional_integer("limit"),
        members=fields.integer("members"),
        hold=fields.flag("hold"),
        others=fields.optional_integer("others") or 0,
        slowest=fields.optional_text("slowest"),
        since=fields.optional_integer("since"),
        trouble=fields.optional_text("trouble"),
        store=fields.optional_text("store"),
        minimum=fields.optional_integer("minimum"),
        holder=fields.optional_text("holder"),
        peers=tuple(_peers_from_json(fields.child("peers"))) if "peers" in fields else (),
        own_silence=_own_silence_from_json(fields.child("ownSilence")) if "ownSilence" in fields else None,
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


def _writer_to_json(of: WriterView) -> dict[str, Any]:
    return _present(
        status=of.status,
        why=of.why,
        kind=of.kind.value,
        holdsBack=of.holds_back or None,
        batch=of.batch,
        watermark=of.watermark,
        announced=of.announced,
        since=of.since,
        rowsBeforeNext=of.rows_before_next,
        query=of.query,
    )


def _writers_from_json(names: Fields) -> Iterator[WriterView]:
    for name in names:
        fields = names.child(name)
        yield WriterView(
            name=name,
            status=fields.text("status"),
            why=fields.text("why"),
            kind=fields.word("kind", fields.text("kind"), HoldKind),
            holds_back=fields.flag("holdsBack"),
            batch=fields.optional_integer("batch"),
            watermark=fields.optional_integer("watermark"),
            announced=fields.optional_integer("announced"),
            since=fields.optional_integer("since"),
            rows_before_next=fields.optional_integer("rowsBeforeNext"),
            query=fields.optional_text("query"),
        )


def _split_to_json(view: SplitView) -> dict[str, Any]:
    return _present(
        position=view.backlog.position,
        end=view.backlog.end,
        watermark=view.watermark,
        status=view.status.value,
        since=view.since,
        why=view.why,
        kind=view.kind.value,
        drift=view.drift,
        holdsBack=view.holds_back or None,
        uncounted=view.backlog.uncounted or None,
        late=view.late_rows or None,
        idleAfter=view.idle_after,
        ahead=view.looked_ahead,
        unobserved=view.unobserved or None,
        quiet=view.quiet,
        times=_times_to_json(view.times),
    )


def _split_from_json(split: Split, fields: Fields) -> SplitView:
    return SplitView(
        split=split,
        backlog=SplitBacklog(fields.integer("position"), fields.optional_integer("end"), fields.flag("uncounted")),
        watermark=fields.optional_integer("watermark"),
        status=fields.word("status", fields.text("status"), Status),
        since=fields.optional_integer("since"),
        why=fields.text("why"),
        kind=fields.word("kind", fields.text("kind"), HoldKind),
        drift=fields.optional_integer("drift"),
        holds_back=fields.flag("holdsBack"),
        late_rows=fields.optional_integer("late") or 0,
        idle_after=fields.optional_integer("idleAfter"),
        looked_ahead=fields.optional_integer("ahead"),
        unobserved=fields.optional_integer("unobserved") or 0,
        quiet=fields.optional_integer("quiet"),
        times=_times_from_json(fields.child("times")) if "times" in fields else None,
    )


# Progress events of Spark: the statuses of sources, and the rows that operators dropped.


def parse_progress(progress: Mapping[str, Any] | str | None) -> tuple[SourceStatus, ...]:
    """Return the status of each source of this project in a query's progress, in the query's order.

    Args:
        progress: ``query.lastProgress``, or a listener's progress event, as JSON or parsed. ``None``, which Spark
            returns before the first batch, has no sources.

    Raises:
        UsageError: the text is not JSON, or a report of this project is corrupt or of another version.
    """
    sources = event_of(progress).get("sources", ())
    statuses = (parse_report(source.get("latestOffset")) for source in sources)
    return tuple(status for status in statuses if status is not None)


def parse_report(latest: object) -> SourceStatus | None:
    """Return the status in a source's latest offset; ``None`` for that of another project's source.

    Raises:
        UsageError: it is a report of this project that is corrupt or of another version.
    """
    report = _report_in(latest)
    return None if report is None else status_from_json(report)


def late_rows(progress: Mapping[str, Any] | str | None) -> int:
    """Return the late rows that stateful operators dropped in the progress' batch (``numRowsDroppedByWatermark``).

    A window aggregation counts groups, not rows: Spark aggregates the rows of a batch before it drops any.
    """
    operators = event_of(progress).get("stateOperators", ())
    return sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators)


def event_of(progress: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """Return a progress event as a mapping; empty for ``None``, which Spark returns before the first batch."""
    if progress is None:
        return {}
    parsed: object = progress
    if isinstance(progress, str):
        try:
            parsed = json.loads(progress)
        except ValueError as error:
            raise UsageError(f"a query's progress is expected as JSON; seen: {progress[:80]!r} ({error})") from None
    if not isinstance(parsed, Mapping):
        raise UsageError(f"a query's progress is expected as a JSON object; seen: {type(parsed).__name__}")
    event: Mapping[str, Any] = parsed.get("progress", parsed)
    return event


def _report_in(latest: object) -> Mapping[str, Any] | None:
    """Return the report, or ``None`` for the latest offset of another project's source."""
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return None
    return latest if isinstance(latest, Mapping) and latest.keys() >= _SIGNATURE else None


class Fields:
    """A JSON object and its path in the report. Every method raises ``UsageError`` for a value of another type."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def _refuse(self, key: str, expected: str) -> UsageError:
        return UsageError(
            f"status report: {self._path}{key} = {self._values.get(key)!r}; expected {expected}. "
            "Only what a source of this project reported can be read"
        )

    def _typed(self, key: str, kind: type, expected: str) -> Any:
        value = self._values.get(key)
        # JSON's true is an int to Python.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._refuse(key, expected)
        return value

    def integer(self, key: str) -> int:
        """Return a whole number."""
        value: int = self._typed(key, int, "an integer")
        return value

    def optional_integer(self, key: str) -> int | None:
        """Return a whole number, ``None`` without the key."""
        return None if self._values.get(key) is None else self.integer(key)

    def text(self, key: str) -> str:
        """Return a string."""
        value: str = self._typed(key, str, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """Return a string, ``None`` without the key."""
        return None if self._values.get(key) is None else self.text(key)

    def flag(self, key: str) -> bool:
        """Return a boolean, false without the key."""
        return key in self._values and bool(self._typed(key, bool, "true or false"))

    def child(self, key: str) -> Fields:
        """Return the fields of a nested object."""
        return Fields(self._typed(key, Mapping, "an object"), f"{self._path}{key}.")

    def number(self, key: str) -> int:
        """Return the key itself as a split's number."""
        if not (key.isascii() and key.isdigit()):
            raise self._refuse(key, "a split's number as key")
        return int(key)

    def word(self, key: str, text: str, kind: type[_Word]) -> _Word:
        """Return the member of an enum with the value ``text``, which is the key or its value."""
        try:
            return kind(text)
        except ValueError:
            raise self._refuse(key, f"one of {', '.join(str(member.value) for member in kind)}") from None
