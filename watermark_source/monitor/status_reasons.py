"""The reason for a split's status, as one sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watermark_source.durations import count_text, format_duration, format_seconds
from watermark_source.monitor.source_status import NO_ROWS, SHORTEST_SILENCE, RowTotals, Status, WriterView
from watermark_source.planning.announced import AnnouncedBy, ObservedAnnouncements, WriterAt, WriterStatus
from watermark_source.planning.announcement import NO_WRITER
from watermark_source.planning.catch_up import is_done
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.watermark import MAX, watermark_text


@dataclass(frozen=True, slots=True)
class AlignmentWait:
    """The member that a paused split waits for."""

    slowest: str
    """The slowest member of the alignment group."""
    max_drift: int | None
    """Milliseconds; ``None`` while the member lets no other member read."""
    ahead: int | None = None
    """How far the split's watermark is ahead of that member, milliseconds."""
    drift_of: str | None = None
    """The other source whose ``alignmentMaxDrift`` is in force; ``None`` if it is that of this source."""


@dataclass(frozen=True, slots=True)
class Behind:
    """How far an active split is behind the combined watermark."""

    millis: int
    was_idle: bool
    """Whether it has been idle since its rows fell behind."""
    is_left_out: bool
    """Whether the watermark advances without it (``idleReturn``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about one split; durations in milliseconds."""

    status: Status
    lag: int | None
    """Unread rows; ``None`` if their number is unknown."""
    watermark: int | None
    holds_back: bool = False
    quiet: int | None = None
    """How long the split had had nothing to read when its log's end was last requested; ``None`` if it has rows."""
    idle_timeout: int | None = None
    wait: AlignmentWait | None = None
    hidden_ahead: bool = False
    """Whether rows after its position cannot be read ahead (``watermarkStrategy`` ``lookahead``)."""
    behind: Behind | None = None
    """``None`` if the split is not behind the combined watermark."""
    has_more: bool = False
    """Whether there are unread rows; used if their number is unknown."""
    reading: bool = False
    """Whether its last rows are in the current batch."""
    waits_for_budget: bool = False
    """Whether it has rows, and other splits used up the batch's row budget (``maxOffsetsPerTrigger``)."""
    waits_for_more: bool = False
    """Whether it has rows, but too few for a batch (``minOffsetsPerTrigger``)."""
    rows: RowTotals = NO_ROWS
    """Rows of the split that this run has read."""
    has_open_transaction: bool = False
    """Whether the records behind its end are in an open transaction."""
    by_marks: bool = False
    """Whether only watermarks in records move it (``watermarkStrategy`` ``punctuated``)."""
    has_watermark_of_own: bool = True
    """Whether splits have watermarks of their own; ``False`` where the watermark is the source's (``announced``)."""
    resumed: bool = False
    """Whether an earlier run of the query may have read rows of the split, which ``rows`` does not count."""


IN_GENERAL: dict[SplitStatus, str] = {
    SplitStatus.ACTIVE: "has rows to read",
    SplitStatus.IDLE: "nothing to read, or nothing with an event time, for longer than idleTimeout",
    SplitStatus.PAUSED: "ahead of its alignment group by more than alignmentMaxDrift",
}
"""The reason in a marker row. It follows from two offsets alone, on any replay, so it uses no fact but the status."""


def reason(facts: Facts) -> str:
    """Return the reason for a split's status as one sentence, without a full stop."""
    return _SENTENCES[facts.status](facts)


def _active(facts: Facts) -> str:
    if facts.hidden_ahead:
        return f"{_reading(facts)}; its next rows cannot be read ahead (see the log), and it holds the watermark"
    return _reading(facts) if facts.behind is None else f"{_reading(facts)}; {_late(facts.behind)}"


def _late(behind: Behind) -> str:
    was_idle = " (it was idle)" if behind.was_idle else ""
    late = f"{format_duration(behind.millis)} behind the watermark{was_idle}: its rows up to there are late"
    if behind.is_left_out:
        return f"{late}, and the watermark advances without it (idleReturn=pass)"
    return f"{late}; the watermark waits for it" + (", with idleReturn=pass it would not" if behind.was_idle else "")


def _reading(facts: Facts) -> str:
    if facts.lag is None:
        return "has more to read" if facts.has_more else "its end is unknown yet"
    if facts.lag:
        return _behind(facts)
    if facts.has_open_transaction:
        return "its next records are in a transaction that is open"
    if facts.watermark is None and not (facts.rows.read and not facts.has_watermark_of_own):
        reads_first = facts.reading and not facts.rows.read
        return "its first records are being read" if reads_first else _without_watermark(facts)
    return _caught_up(facts)


def _without_watermark(facts: Facts) -> str:
    """Return why a split has no watermark, whether it holds the combined watermark, and until when."""
    why = _without_time(facts)
    if not facts.holds_back:
        return why
    if not facts.rows.read or facts.by_marks:
        return f"{why}; holds the watermark"
    if facts.idle_timeout is None:
        return f"{why}; holds the watermark, and is never idle without idleTimeout"
    return f"{why}; holds the watermark until it is idle (idleTimeout {format_duration(facts.idle_timeout)})"


def _without_time(facts: Facts) -> str:
    rows, read = facts.rows, count_text(facts.rows.read, "record")
    if not rows.read:
        return "no record seen since the query was started" if facts.resumed else "no record seen yet"
    if facts.by_marks:
        far = "" if not rows.future else f" but {count_text(rows.future)} too far in the future (maxFutureSkew)"
        return f"{read}, none with a watermark (watermarkColumn){far}"
    if rows.undated and rows.future:
        return (
            f"{read}: {count_text(rows.undated)} without an event time, {count_text(rows.future)} too far in the "
            "future (maxFutureSkew)"
        )
    if rows.future:
        return f"{read}, all too far in the future (maxFutureSkew)"
    return f"{read}, none with an event time"


def _behind(facts: Facts) -> str:
    behind = f"behind by {count_text(facts.lag or 0, 'record')}"
    if facts.watermark is None and facts.rows.read and facts.has_watermark_of_own:
        behind = f"{behind}; {_without_time(facts)} so far"
    if facts.waits_for_more:
        return f"{behind}; waits for more to come (minOffsetsPerTrigger)"
    return f"{behind}; slower splits go first (maxOffsetsPerTrigger)" if facts.waits_for_budget else behind


def _caught_up(facts: Facts) -> str:
    if facts.quiet is None or facts.quiet < SHORTEST_SILENCE:
        return "caught up"
    quiet = f"{_nothing(facts)} for {format_duration(facts.quiet)}"
    if facts.idle_timeout is not None:
        return f"{quiet}; idle after {format_duration(facts.idle_timeout)}"
    return f"{quiet}; never idle without idleTimeout" if facts.holds_back else quiet


def _idle(facts: Facts) -> str:
    quiet = _nothing(facts) if facts.quiet is None else f"{_nothing(facts)} for {format_duration(facts.quiet)}"
    # A split stays idle until its next record, even if a restart has removed the timeout.
    return quiet if facts.idle_timeout is None else f"{quiet} (idleTimeout {format_duration(facts.idle_timeout)})"


def _nothing(facts: Facts) -> str:
    return "nothing with an event time" if facts.rows.undated or facts.rows.future else "nothing to read"


def _paused(facts: Facts) -> str:
    wait = facts.wait
    if wait is None:
        return "waits for its alignment group"
    if wait.max_drift is None:
        return f"reads nothing before its alignment group may begin: waits for {wait.slowest}"
    drift, of = format_duration(wait.max_drift), "" if wait.drift_of is None else f" of {wait.drift_of}"
    if wait.ahead is not None and wait.ahead > wait.max_drift:
        return f"{format_duration(wait.ahead)} ahead of {wait.slowest} (alignmentMaxDrift {drift}{of})"
    return f"next record over {drift} ahead of {wait.slowest} (alignmentMaxDrift{of})"


_SENTENCES: dict[Status, Callable[[Facts], str]] = {
    Status.ACTIVE: _active,
    Status.IDLE: _idle,
    Status.PAUSED: _paused,
    Status.FINISHED: lambda facts: (
        _without_watermark(facts)
        if facts.watermark is None and facts.holds_back and not facts.reading
        else "read to the end of this run"
    ),
    Status.UNKNOWN: lambda _: "no answer about its log",
}


# Writers that announce watermarks.


def writer_views(writers: Sequence[WriterAt], observed: ObservedAnnouncements) -> list[WriterView]:
    """Return the rows of the status about writers: each with its reason, and whether the watermark waits for it."""
    waits = [w for w in writers if w.status is WriterStatus.AWAITED]
    active = [w for w in writers if w.status is WriterStatus.ACTIVE]
    lowest = min((_watermark(w) or 0 for w in active), default=None)
    held = {w.writer.name for w in waits or (each for each in active if _watermark(each) == lowest)}
    return [_writer_view(w, observed, holds_back=w.writer.name in held) for w in writers]


def first_reading(state: SourceState) -> str | None:
    """Return how far logs that are read to their ends first are from there; ``None`` once they have been."""
    if is_done(state.catch_up):
        return None
    ends = {} if state.catch_up is None else state.catch_up.ends
    left = sum(max(0, end - state.splits[s].position) for s, end in ends.items() if s in state.splits)
    return f"it is read to its end first (readToEndFirst), {count_text(left, 'record')} to go"


def unannounced(observed: ObservedAnnouncements) -> str | None:
    """Return why the watermark stands whatever the writers announced; ``None`` if it follows them."""
    if not observed.is_current:
        return observed.trouble or "the announcements are being read"
    return None if observed.table.writers or observed.by.names else NO_WRITER


def _watermark(of: WriterAt) -> int | None:
    return None if of.at is None else of.at.watermark


def _writer_view(of: WriterAt, observed: ObservedAnnouncements, *, holds_back: bool) -> WriterView:
    newest, watermark = of.writer.newest, _watermark(of)
    return WriterView(
        name=of.writer.name,
        status=of.status.value,
        why=writer_reason(of, observed),
        holds_back=holds_back,
        batch=None if newest is None else newest.batch,
        watermark=None if watermark == MAX else watermark,
        announced=None if newest is None or newest.watermark == MAX else newest.watermark,
        since=None if newest is None else newest.written_at,
        rows_before_next=None if of.next is None else of.rows_before_next,
        query=of.writer.query,
    )


def writer_reason(of: WriterAt, observed: ObservedAnnouncements) -> str:
    """Return why a writer is where it is as one sentence, without a full stop."""
    writer, silent = of.writer, observed.silent.get(of.writer.name, 0)
    if of.status is WriterStatus.SILENT:
        return f"{_has_not_announced(silent)}, longer than {_time_to_live(observed.by)}: the watermark does not wait"
    if writer.unreadable is not None:
        return f"its last record cannot be read, so the watermark waits for the next one: {writer.unreadable}"
    if of.status in _OUT:
        return _OUT[of.status]
    if writer.newest is None and writer.query is None:
        named = writer.name in observed.by.names
        return "has announced nothing yet" + (" (announcedBy)" if named else ": the checkpoint names it")
    return _announcing(of, observed, silent)


_OUT = {
    WriterStatus.ENDED: "announced that it writes no more",
    WriterStatus.IDLE: "announced that it is idle",
}


def _announcing(of: WriterAt, observed: ObservedAnnouncements, silent: int) -> str:
    if of.next is not None and of.is_future:
        return f"its watermark of batch {of.next.batch} is in the future (maxFutureSkew): it waits for the clock"
    if of.next is not None:
        return f"{count_text(of.rows_before_next, 'row')} before the cut of batch {of.next.batch}"
    if _watermark(of) is None:
        return "asked to be waited for, and has no watermark yet"
    newest = of.writer.newest
    if observed.is_run and newest is not None and newest.written_at is not None:
        return f"announced last at {watermark_text(newest.written_at)} UTC, after batch {newest.batch}"
    return _has_not_announced(silent) if silent >= _WORTH_NAMING else "announces"


_WORTH_NAMING = 5_000
"""Milliseconds without an announcement from which the status states them."""


def _has_not_announced(silent: int) -> str:
    return f"has announced nothing for {format_seconds(silent)}"


def _time_to_live(by: AnnouncedBy) -> str:
    return f"writerTimeToLive ({format_duration(by.time_to_live or 0)})"
