"""The first words of the page: how late a query's results are and why, who holds them, and what ends it. Pure.

It decides nothing: the case is the verdict of ``diagnose``, who holds and why are the sources' ``holds``, and the words
about them those of ``hold_causes`` and ``hold_texts``. So the headline cannot contradict the rows below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.history import HolderSpan
from watermark_source.monitor.open_windows import unfollowed_text
from watermark_source.monitor.three_clocks import (
    TOLERANCE,
    Delays,
    DelayVerdict,
    Diagnosis,
    QueryClocks,
    behind_clock,
    delays,
    passed_by_operators,
)
from watermark_source.monitor.window_facts import names_text
from watermark_source.planning.group import Peer
from watermark_source.planning.group_limit import STORE, TO_COME
from watermark_source.planning.hold_kinds import Motion
from watermark_source.planning.holds import THE_ANNOUNCEMENTS, HeldBy, Hold
from watermark_source.planning.watermark import MIN, is_moment
from watermark_source.status_model.hold_causes import NO_CLAUSE, Clause, cause, short_time
from watermark_source.status_model.hold_texts import advice_of, as_sentence, ends_by_itself, subject
from watermark_source.status_model.source_status import SnapshotProgress, SourceStatus, Status


class State(Enum):
    """How a query is: a colour is never the only sign, so that each has a shape, too. The value is its class."""

    ON_TIME = "on-time", "●"
    HELD = "held", "◆"
    WAITS = "waits", "○"
    FAILED = "failed", "■"
    ENDED = "ended", "▪"

    def __init__(self, kind: str, shape: str) -> None:
        self.kind = kind
        self.shape = shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The sentences about a query before its picture."""

    state: State
    word: str
    """The state in a word or two."""
    where: str
    """How late results are, without a full stop."""
    reason: Clause = NO_CLAUSE
    """Why, as a clause; empty where there is no cause to name."""
    more: tuple[Clause, ...] = ()
    """Paragraphs: who holds and what ends it, then what happens meanwhile."""
    error: str = ""
    """The first line of the error that ended it."""

    @property
    def lead(self) -> Clause:
        """Both as one sentence."""
        if not str(self.reason):
            return Clause(f"{self.where}.")
        return Clause(f"{self.where}: {self.reason.before}", self.reason.who, f"{self.reason.after}.")

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it as plain paragraphs, the first with the state's shape and word."""
        return (f"{self.state.shape} {self.word}  {self.lead}", *filter(None, (self.error, *map(str, self.more))))


def holder_of(of: QueryClocks) -> tuple[SourceStatus, Hold] | None:
    """Return what holds the query's watermark, with its source; ``None`` if the sources take turns."""
    held = [(source, source.holds[0]) for source in of.sources if source.holds]
    return min(held, key=lambda each: MIN if each[0].watermark is None else each[0].watermark, default=None)


class Since(NamedTuple):
    """Since when something holds."""

    at: int
    """Milliseconds since 1970-01-01 UTC."""
    is_least: bool
    """Whether it may have held before, when nobody looked."""


def verdict_of(
    of: QueryClocks, why: Diagnosis, held_since: Since | None = None, until_read: int | None = None
) -> Verdict:
    """Return the verdict on a running query.

    Args:
        of: its clocks.
        why: what ``diagnose`` found.
        held_since: since when the present holder holds it; ``None`` if unknown.
        until_read: in how many milliseconds nothing is unread at the present pace; ``None`` if unknown.
    """
    held = holder_of(of)
    if why.verdict is DelayVerdict.UNFOLLOWED and of.unfollowed is not None:
        reason = Clause("the query does not follow the watermark of its sources")
        more = Clause(f"{as_sentence(unfollowed_text(of.sources, of.unfollowed))}.")
        return Verdict(
            state=State.FAILED,
            word="not followed",
            where="Results are wrong or missing",
            reason=reason,
            more=(more, *_hold(held, of, held_since)),
        )
    if why.verdict is DelayVerdict.UNKNOWN:
        if _waits_for_first_batch(of, held):
            held = None
        state = State.WAITS if held is None else State.HELD
        sentences = (*_hold(held, of, held_since), *_next_to_close(of, why))
        return Verdict(state=state, word="starting", where=as_sentence(str(why)), more=sentences)
    parts = delays(of)
    state, word = _state(of, why, held)
    is_fresh = state is State.ON_TIME and why.verdict is DelayVerdict.FRESH
    return Verdict(
        state=state,
        word=word,
        where=_where(of),
        reason=_reason(of, why, parts, held),
        more=(
            *_hold(held, of, held_since),
            *_slow(of, why),
            *_pace(of, held, until_read),
            *(_on_time(of) if is_fresh else ()),
            *_next_to_close(of, why),
        ),
    )


def _waits_for_first_batch(of: QueryClocks, held: tuple[SourceStatus, Hold] | None) -> bool:
    """Return whether results wait for the first batch alone: what it reads holds nothing back yet."""
    return of.first_batch is not None and (held is None or held[1].kind.motion is Motion.COMES)


def ended_verdict(of: QueryClocks | None, at: int, batch: int | None, error: str | None, now: int) -> Verdict:
    """Return the verdict on a query that has ended.

    Args:
        of: its clocks, as its last batch left them.
        at: when it ended, milliseconds since 1970-01-01 UTC.
        batch: the last one that it committed.
        error: the first line of the error that ended it.
        now: the present.
    """
    after = "before its first batch" if batch is None else f"after batch {count_text(batch)}"
    done = None if of is None else passed_by_operators(of)
    more = f"The rest of the page is as the query left it at {short_time(at, now)}."
    if done is not None and is_moment(done):
        more = f"Its results are complete up to {short_time(done, now)}. {more}"
    state = State.ENDED if error is None else State.FAILED
    return Verdict(
        state=state,
        word=state.kind,
        where=f"The query {state.kind} {age_text(max(0, now - at))} ago, {after}",
        more=(Clause(more),),
        error=error or "",
    )


def _where(of: QueryClocks) -> str:
    passed = passed_by_operators(of)
    if passed is None:
        return "There are no results yet" if of.has_windows else "There is no watermark yet"
    if not is_moment(passed):
        return "All results are complete"
    late = behind_clock(of.at, passed) or 0
    what = "Results" if of.has_windows else "Rows"
    return f"{what} are {age_text(abs(late))} {'behind' if late >= 0 else 'ahead of'} the clock"


def _state(of: QueryClocks, why: Diagnosis, held: tuple[SourceStatus, Hold] | None) -> tuple[State, str]:
    if of.input_watermark is not None and not is_moment(of.input_watermark):
        return State.ENDED, "complete"
    if snapshots_of(of):
        return State.WAITS, "reads a snapshot"
    if _waits_for_first_batch(of, held):
        return State.WAITS, "starting"
    if of.input_watermark is None and not of.first_batch:
        return State.WAITS if held is None else State.HELD, "no watermark yet"
    if held is not None:
        return State.HELD, "held back"
    state, word = _WORDS[why.verdict]
    is_late = state is State.ON_TIME and any(source.rows.late.rows for source in of.sources)
    return state, f"{word}, with late rows" if is_late else word


_WORDS: Final[Mapping[DelayVerdict, tuple[State, str]]] = {
    DelayVerdict.FRESH: (State.ON_TIME, "on time"),
    DelayVerdict.QUIET: (State.ON_TIME, "on time, no rows come"),
    DelayVerdict.TRIGGER: (State.WAITS, "waits for the trigger"),
    DelayVerdict.DATA_OLD: (State.WAITS, "old data"),
    DelayVerdict.ROWS_WAIT: (State.WAITS, "rows wait"),
    DelayVerdict.BATCH_SLOW: (State.HELD, "slow batch"),
}


def _reason(of: QueryClocks, why: Diagnosis, parts: Delays, held: tuple[SourceStatus, Hold] | None) -> Clause:
    """Return the cause of the delay; nothing where there is none to name."""
    if of.input_watermark is not None and not is_moment(of.input_watermark):
        return NO_CLAUSE
    if snapshots := snapshots_of(of):
        return Clause(_snapshot(snapshots, of.at))
    is_batch = why.verdict in (DelayVerdict.BATCH_SLOW, DelayVerdict.TRIGGER)
    if held is not None and not (is_batch and not held[1].kind.is_being_read):
        return _silent_source(*held) or cause(held[1], of.at)
    return Clause(_OF_VERDICT[why.verdict](of, parts))


def _silent_source(source: SourceStatus, hold: Hold) -> Clause | None:
    """Return that the source of the group which holds has stopped reporting; ``None`` if it has not."""
    peer = _silent_peer(source, hold)
    return None if peer is None else Clause("source ", hold.name, f" has reported nothing for {age_text(peer.silent)}")


def _silent_peer(source: SourceStatus, hold: Hold) -> Peer | None:
    silent = () if source.group is None or hold.by is not HeldBy.SOURCE else source.group.silent
    return next((peer for peer in silent if peer.name == hold.name), None)


def snapshots_of(of: QueryClocks) -> list[SnapshotProgress]:
    """Return the snapshots that are being read, and those of the same sources that are done."""
    return [each for source in of.sources if any(not s.done for s in source.snapshots) for each in source.snapshots]


def _snapshot(of: list[SnapshotProgress], now: int) -> str:
    rows, expected = sum(each.rows for each in of), [each.rows if each.done else each.expected for each in of]
    known = [each for each in expected if each is not None]
    if len(known) < len(expected) or not sum(known):
        return f"a snapshot is being read, {count_text(rows, 'row')} so far"
    left = [each.left for each in of if each.left]
    to_go = f", with about {age_text(max(left))} to go, until {short_time(now + max(left), now)}" if left else ""
    return f"the snapshot is {min(99, 100 * rows // sum(known))} % read{to_go}"


def _data_old(of: QueryClocks, parts: Delays) -> str:
    if of.unprocessed is not None and of.unprocessed.is_older:
        left = sum(source.lag or 0 for source in of.sources)
        return "the query is still reading history" + (f", with {count_text(left, 'record')} to go" if left else "")
    return f"the data were {age_text(parts.age)} old when they arrived"


def _batch_slow(of: QueryClocks, parts: Delays) -> str:
    if (batch := _running_batch(of)) is not None:
        return f"{batch.name} has been running for {age_text(batch.end - batch.begin)}"
    return f"the oldest unread row came {age_text(parts.processing)} ago"


def slow_batch(of: QueryClocks, why: Diagnosis) -> HolderSpan | None:
    """Return the batch that results wait for; ``None`` if they do not, or something holds the watermark."""
    batch = _running_batch(of)
    if batch is None or why.verdict is not DelayVerdict.BATCH_SLOW or holder_of(of) is not None:
        return None
    return batch if batch.end - batch.begin > TOLERANCE else None


def _slow(of: QueryClocks, why: Diagnosis) -> Iterator[Clause]:
    batch, before = slow_batch(of, why), of.batch
    if batch is not None and before is not None:
        who = f"{as_sentence(batch.name)} has run {span_text(Since(batch.begin, is_least=False), batch.end)}"
        took = "" if before.lasted is None else f"; the one before took {age_text(before.lasted)}"
        yield Clause("", who, f"{took}. No option is needed: Spark's UI shows what takes long, its tasks or the sink.")


def _running_batch(of: QueryClocks) -> HolderSpan | None:
    """Return the batch after the last committed one; ``None`` if none is running, or it is unknown."""
    batch = of.batch
    if batch is None or batch.running is None:
        return None
    return HolderSpan(f"batch {count_text(batch.number + 1)}", of.at - batch.running, of.at)


def _rows_wait(of: QueryClocks, parts: Delays) -> str:
    paused = sum(source.counts.get(Status.PAUSED, 0) for source in of.sources)
    if paused and parts.processing >= parts.held + parts.quiet:
        return f"{count_text(paused, 'partition')} wait{'s' if paused == 1 else ''} for the alignment group"
    if parts.quiet:
        return f"the last row came {age_text(parts.quiet)} ago, and open windows wait for newer ones"
    return "rows wait in open windows for newer ones"


def _quiet(of: QueryClocks, parts: Delays) -> str:
    if of.nothing_came:
        return "no row has come since the query was started"
    return f"the last row came {age_text(parts.quiet)} ago"


_OF_VERDICT: Final[Mapping[DelayVerdict, Callable[[QueryClocks, Delays], str]]] = {
    DelayVerdict.FRESH: lambda *_: "",
    DelayVerdict.QUIET: _quiet,
    DelayVerdict.TRIGGER: lambda *_: "the next batch begins at the interval of its trigger",
    DelayVerdict.DATA_OLD: _data_old,
    DelayVerdict.ROWS_WAIT: _rows_wait,
    DelayVerdict.BATCH_SLOW: _batch_slow,
}


_WORTH_NAMING: Final = 1_000
"""Milliseconds from which the page states how long something has held the watermark."""


def _hold(held: tuple[SourceStatus, Hold] | None, of: QueryClocks, since: Since | None) -> Iterator[Clause]:
    if held is None:
        return
    source, hold = held
    is_one = len(of.sources) == 1
    whose = "" if is_one else f" of source {source.source_name}"
    back = f"{'the watermark' if source.watermark is not None else 'the first watermark'}{whose}"
    if hold.by is HeldBy.SOURCE:
        back = "the limit of the alignment group"
    several = hold.name == THE_ANNOUNCEMENTS
    verb = f"hold{'' if several else 's'} {back} back"
    if since is not None and of.at - since.at >= _WORTH_NAMING:
        verb = f"{'have' if several else 'has'} held {back} back {span_text(since, of.at)}"
    to_do = advice_of(source)
    if to_do and ends_by_itself(hold):
        to_do = f"no option is needed: {to_do}"
    # Of a partition and of a writer it is in the first sentence and in their row.
    why = f": {hold.why}." if hold.by in (HeldBy.SOURCE, HeldBy.READING) or several else "."
    where = "" if is_one else f"for source {source.source_name}: "
    advised = f" {as_sentence(f'{where}{to_do}')}." if to_do else ""
    yield Clause("", f"{_subject(hold)} {verb}", f"{why}{advised}{_without(source, of)}")


def span_text(since: Since, at: int) -> str:
    """Return since when something has held, and for how long at a moment in milliseconds."""
    begin, long = short_time(since.at, at), age_text(max(0, at - since.at))
    return f"since {begin} or before (at least {long})" if since.is_least else f"since {begin} ({long})"


def _subject(hold: Hold) -> str:
    return subject(hold) if hold.by in (HeldBy.SPLIT, HeldBy.SOURCE) else as_sentence(subject(hold))


def _without(source: SourceStatus, of: QueryClocks) -> str:
    """Return what the watermark would be without what holds it."""
    then = source.without_holder
    if then is None or not is_moment(then) or source.holds[0].by is HeldBy.SOURCE:
        return ""
    who = _holders(source)
    at, close = short_time(then, of.at), ", and windows that end by then would close" if of.has_windows else ""
    later = at if source.watermark is None else f"{age_text(then - source.watermark)} later, at {at}"
    return f" Without {who} the watermark would be {later}{close}."


def _holders(source: SourceStatus) -> str:
    names = [subject(hold) for hold in source.holds]
    return names_text(names) if not source.more_holds else f"{names[0]} and {len(names) - 1 + source.more_holds} more"


def _on_time(of: QueryClocks) -> Iterator[Clause]:
    views = [view for source in of.sources for view in source.splits if view.status is not Status.IDLE]
    marks = [view.watermark for view in views if view.watermark is not None]
    total = sum(source.splits_total for source in of.sources)
    if len(marks) > 1 and total == sum(len(source.splits) for source in of.sources):
        spread = age_text(max(marks) - min(marks))
        yield Clause(f"All {count_text(len(views), 'active partition')} are within {spread} of each other.")


def _pace(of: QueryClocks, held: tuple[SourceStatus, Hold] | None, until_read: int | None) -> Iterator[Clause]:
    """Yield when all is read, where results wait for that."""
    is_old = of.unprocessed is not None and of.unprocessed.is_older
    if until_read and (is_old if held is None else held[1].kind.is_being_read):
        yield Clause(f"At the pace of the last minutes all is read in about {age_text(until_read)}.")


def _next_to_close(of: QueryClocks, why: Diagnosis) -> Iterator[Clause]:
    applied = of.applied_watermark
    if of.has_windows and applied is not None and is_moment(applied):
        window, closed = next_window(of), short_time(applied, of.at)
        which = f"Windows that end by {closed} have closed; a later one closes"
        if window is not None:
            missing = window.end - (applied if of.input_watermark is None else of.input_watermark)
            lacks = f" lacks {age_text(missing)} of event time: it" if missing > 0 else ""
            which = f"The next window, {window.times},{lacks} closes"
        yield Clause(f"{which} {_closes_by(of, why, None if window is None else window.end)}.")


def _closes_by(of: QueryClocks, why: Diagnosis, end: int | None) -> str:
    """Return what closes a window; ``end``: of the window, ``None`` if that is unknown."""
    held, batch, late = holder_of(of), slow_batch(of, why), behind_clock(of.at, of.applied_watermark)
    if held is None and why.verdict is DelayVerdict.FRESH and late is not None and late >= 0:
        about = f"about {age_text(late)} after its end"
        return about if end is None else f"{about}, at {short_time(end + late, of.at)}"
    if batch is not None:
        return f"in a batch after {batch.name}"
    if end is not None and of.input_watermark is not None and of.input_watermark >= end:
        return "with the next batch, which applies what the sources have sent"
    if held is None:
        return "once the watermark has passed its end"
    return _once_further(*held, of, end)


def _once_further(source: SourceStatus, hold: Hold, of: QueryClocks, end: int | None) -> str:
    """Return when the watermark of a source that is held is further."""
    if hold.by is HeldBy.READING:
        return f"once {hold.name} is read to its end"
    if hold.by is HeldBy.SOURCE:
        return _WITHOUT_A_LIMIT.get(hold.name, f"once the limit of the group moves on{_given_up(source, hold, of.at)}")
    then = source.without_holder
    without = _left_out(source, of.at) if then is not None and then >= (end or MIN) else ""
    passed = "moves on" if end is None else f"passes {short_time(end, of.at)}"
    return f"once the watermark of {_holders(source)} {passed}{without}"


_WITHOUT_A_LIMIT: Final[Mapping[str, str]] = {
    str(STORE): "once the store of the group answers",
    str(TO_COME): "once the other sources of the group have joined",
}
"""What closes a window while the group's limit is held by no source."""


def _given_up(source: SourceStatus, hold: Hold, now: int) -> str:
    """Return when a source of the group that has stopped reporting is waited for no more."""
    peer = _silent_peer(source, hold)
    if peer is None or peer.time_to_live is None:
        return ""
    at = short_time(source.at - peer.silent + peer.time_to_live, now)
    return f", or after {at}, when {hold.name} is waited for no more"


def _left_out(source: SourceStatus, now: int) -> str:
    """Return when all that hold a source are left out, if they stay silent; empty if that leaves out not all."""
    if source.more_holds or not all(hold.kind.is_silence for hold in source.holds):
        return ""
    that, stay = ("that", "that stays") if len(source.holds) == 1 else ("them", "they stay")
    if any(hold.timeout is None for hold in source.holds):
        return f", or after a restart with idleTimeout, which leaves {that} out"
    left = [hold.timeout - hold.quiet for hold in source.holds if hold.timeout is not None and hold.quiet is not None]
    if len(left) < len(source.holds):
        return ""
    # The times are as of the plan; the next one leaves out whose time is over.
    at = source.at + max(left)
    return f", or {f'at {short_time(at, now)}' if at > now else 'with the next batch'}, if {stay} silent"


class NextWindow(NamedTuple):
    """The next window to close."""

    times: str
    end: int
    """Milliseconds since 1970-01-01 UTC."""


def next_window(of: QueryClocks) -> NextWindow | None:
    """Return it; ``None`` before a watermark and at the ends of time, and where the windows are not known."""
    applied, windows = of.applied_watermark, of.windows
    if applied is None or not is_moment(applied) or windows is None:
        return None
    end = windows.next_end(applied)
    times = f"{short_time(end - windows.size, of.at)} to {short_time(end, of.at)}"
    return NextWindow(times, end)
