"""The first words of the page: how late a query's results are and why, and the facts that are always there. Pure.

It decides nothing: the case is the verdict of ``diagnose``, who holds and why are the sources' ``holds``, and the words
about them those of ``hold_causes`` and ``hold_texts``. So the headline cannot contradict the rows below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.facts import NOTHING_SEEN, Fact, Seen, facts_after_end, facts_of
from watermark_source.monitor.failure import Failure
from watermark_source.monitor.holder import holders_text
from watermark_source.monitor.open_windows import unfollowed_text
from watermark_source.monitor.three_clocks import (
    Delays,
    DelayVerdict,
    Diagnosis,
    QueryClocks,
    behind_clock,
    delays,
    passed_by_operators,
)
from watermark_source.monitor.window_closing import silent_peer, snapshots_of
from watermark_source.planning.holds import HeldBy, Hold
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_causes import NO_CLAUSE, Clause, cause, short_time
from watermark_source.status_model.hold_texts import as_sentence
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
    error: str = ""
    """The error that ended it."""
    facts: tuple[Fact, ...] = ()
    """What is asked of each query; empty of none and of several."""
    more: tuple[str, ...] = ()
    """Paragraphs about what else there is to know."""

    @property
    def lead(self) -> Clause:
        """Both as one sentence."""
        if not str(self.reason):
            return Clause(f"{self.where}.")
        return Clause(f"{self.where}: {self.reason.before}", self.reason.who, f"{self.reason.after}.")

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it as plain paragraphs, the first with the state's shape and word."""
        facts = (f"{fact}." for fact in self.facts)
        return (f"{self.state.shape} {self.word}  {self.lead}", *filter(None, (self.error, *facts, *self.more)))


def verdict_of(of: QueryClocks, why: Diagnosis, seen: Seen = NOTHING_SEEN) -> Verdict:
    """Return the verdict on a running query.

    Args:
        of: its clocks.
        why: what ``diagnose`` found.
        seen: what else is known of it.
    """
    held = of.held
    reason = _reason(of, why, held)
    facts = facts_of(of, why, seen, str(reason))
    more = tuple(() if held is None else _without(*held, of))
    state, word, where = State.WAITS if held is None else State.HELD, "starting", _where(of)
    if why.verdict is DelayVerdict.UNKNOWN:
        where, reason = as_sentence(str(reason)), NO_CLAUSE
    elif why.verdict is DelayVerdict.UNFOLLOWED and of.unfollowed is not None:
        state, word, where = State.FAILED, "not followed", "Results are wrong or missing"
        more = (f"{as_sentence(unfollowed_text(of.sources, of.unfollowed))}.",)
    else:
        state, word = _state(of, why, held)
    return Verdict(state=state, word=word, where=where, reason=reason, facts=facts, more=more)


def ended_verdict(
    of: QueryClocks | None, at: int, batch: int | None, error: Failure | None, now: int, *, dropped: int = 0
) -> Verdict:
    """Return the verdict on a query that has ended.

    Args:
        of: its clocks, as its last batch left them.
        at: when it ended, milliseconds since 1970-01-01 UTC.
        batch: the last one that it committed.
        error: what ended it; ``None`` if it was stopped.
        now: the present.
        dropped: rows that its operators are known to have dropped.
    """
    after = "before its first batch" if batch is None else f"after batch {count_text(batch)}"
    done = None if of is None else passed_by_operators(of)
    more = f"The rest of the page shows how the query left it at {short_time(at, now)}."
    if done is not None and is_moment(done):
        more = f"Its results were complete up to {short_time(done, now)}. {more}"
    state = State.ENDED if error is None else State.FAILED
    return Verdict(
        state=state,
        word=state.kind,
        where=f"The query {state.kind} {age_text(max(0, now - at))} ago, {after}",
        error="" if error is None else error.text,
        facts=facts_after_end(of, at, now, batch=batch, error=error, dropped=dropped),
        more=(more,),
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
    if of.first_batch is not None and held is None:
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


def _reason(of: QueryClocks, why: Diagnosis, held: tuple[SourceStatus, Hold] | None) -> Clause:
    """Return the cause of the delay; nothing where there is none to name."""
    if why.verdict in (DelayVerdict.UNKNOWN, DelayVerdict.UNFOLLOWED):
        unfollowed = "the query does not follow the watermark of its sources"
        return Clause(str(why) if why.verdict is DelayVerdict.UNKNOWN else unfollowed)
    if of.input_watermark is not None and not is_moment(of.input_watermark):
        return NO_CLAUSE
    if snapshots := snapshots_of(of):
        return Clause(_snapshot(snapshots, of.at))
    is_batch = why.verdict in (DelayVerdict.BATCH_SLOW, DelayVerdict.TRIGGER)
    if held is not None and not (is_batch and not held[1].kind.is_being_read):
        peer = silent_peer(*held)
        if peer is None:
            return cause(held[1], of.at)
        return Clause("source ", held[1].name, f" has reported nothing for {age_text(peer.silent)}")
    return Clause(_OF_VERDICT[why.verdict](of, delays(of)))


def _snapshot(of: list[SnapshotProgress], now: int) -> str:
    rows, expected = sum(each.rows for each in of), [each.rows if each.done else each.expected for each in of]
    known = [each for each in expected if each is not None]
    if len(known) < len(expected) or not sum(known):
        return f"a snapshot is being read, {count_text(rows, 'row')} so far"
    left = [each.left for each in of if each.left]
    to_go = f", with about {age_text(max(left))} to go, until {short_time(now + max(left), now)}" if left else ""
    tables = f" of all {len(of)} tables" if len(of) > 1 else ""
    return f"the snapshot{tables} is {min(99, 100 * rows // sum(known))} % read{to_go}"


def _data_old(of: QueryClocks, parts: Delays) -> str:
    if of.unprocessed is not None and of.unprocessed.is_older:
        left = sum(source.lag or 0 for source in of.sources)
        return "the query is still reading history" + (f", with {count_text(left, 'record')} to go" if left else "")
    return f"the data were {age_text(parts.age)} old when they arrived"


def _batch_slow(of: QueryClocks, parts: Delays) -> str:
    batch = of.batch
    if batch is not None and batch.running is not None:
        return f"batch {count_text(batch.number + 1)} has been running for {age_text(batch.running)}"
    return f"the oldest unread row came {age_text(parts.processing)} ago"


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


def _without(source: SourceStatus, hold: Hold, of: QueryClocks) -> Iterator[str]:
    """Yield what the watermark would be without what holds it."""
    then = source.without_holder
    if then is not None and is_moment(then) and hold.by is not HeldBy.SOURCE:
        at, close = short_time(then, of.at), ", and windows that end by then would close" if of.has_windows else ""
        later = at if source.watermark is None else f"{age_text(then - source.watermark)} later, at {at}"
        yield f"Without {holders_text(source)} the watermark would be {later}{close}."
