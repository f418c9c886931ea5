"""Split status: the transition table, and the facts that drive it.

Idle is a statement about the log, not about the reader: a split turns idle only after it has been read to its end, and
brought no row with an event time, for longer than ``idleTimeout``. So a slow reader, a paused split or a long pause of
the driver never makes one (FLINK-35886, FLINK-36751). Rows count whatever else they carry, as events do in Flink's
``WatermarksWithIdleness``: a split whose rows have event times and no watermarks (``punctuated``) is not idle. One
whose rows have no event time turns idle no sooner than after the first plan that reads it to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.watermark import Millis, saturating_add


class SplitEvent(Enum):
    """What a plan observes of a split."""

    READS = "reads"
    """It has rows and some of them are in the plan."""
    WAITS = "waits"
    """It has rows, and the row budget went to others."""
    PAUSED = "paused"
    """It has rows, and its alignment group lets it read none."""
    CAUGHT_UP = "caught up"
    """It has no rows left."""
    QUIET = "quiet"
    """It has had no rows left for longer than the idle timeout, or none with an event time."""
    UNCOMMITTED = "uncommitted"
    """It has rows that cannot be read before their transaction ends: they may be older than any watermark so far."""
    ON_CLOCK = "on the clock"
    """Time is the clock, which no split has to show by rows (FLIP-326: such a channel is considered active)."""


_ACTIVE, _IDLE, _PAUSED = SplitStatus.ACTIVE, SplitStatus.IDLE, SplitStatus.PAUSED

TRANSITIONS: dict[tuple[SplitStatus, SplitEvent], SplitStatus] = {
    (_ACTIVE, SplitEvent.READS): _ACTIVE,
    (_ACTIVE, SplitEvent.WAITS): _ACTIVE,
    (_ACTIVE, SplitEvent.PAUSED): _PAUSED,
    (_ACTIVE, SplitEvent.CAUGHT_UP): _ACTIVE,
    (_ACTIVE, SplitEvent.QUIET): _IDLE,
    (_ACTIVE, SplitEvent.UNCOMMITTED): _ACTIVE,
    (_ACTIVE, SplitEvent.ON_CLOCK): _ACTIVE,
    (_IDLE, SplitEvent.READS): _ACTIVE,
    (_IDLE, SplitEvent.WAITS): _ACTIVE,
    (_IDLE, SplitEvent.PAUSED): _PAUSED,
    # The timeout may have been made longer, or switched off, since: idle all the same until a row comes.
    (_IDLE, SplitEvent.CAUGHT_UP): _IDLE,
    (_IDLE, SplitEvent.QUIET): _IDLE,
    (_IDLE, SplitEvent.UNCOMMITTED): _ACTIVE,
    (_IDLE, SplitEvent.ON_CLOCK): _ACTIVE,
    (_PAUSED, SplitEvent.READS): _ACTIVE,
    (_PAUSED, SplitEvent.WAITS): _PAUSED,
    (_PAUSED, SplitEvent.PAUSED): _PAUSED,
    (_PAUSED, SplitEvent.CAUGHT_UP): _ACTIVE,
    # A paused split has rows, so it cannot have been quiet; its log was truncated: the quiet time restarts.
    (_PAUSED, SplitEvent.QUIET): _ACTIVE,
    (_PAUSED, SplitEvent.UNCOMMITTED): _ACTIVE,
    (_PAUSED, SplitEvent.ON_CLOCK): _PAUSED,
}


def changed_status(before: Mapping[Split, SplitState], after: Mapping[Split, SplitState]) -> list[Split]:
    """Return the splits whose status is not what it was; a new split was active."""
    return [s for s, t in after.items() if t.status is not (_ACTIVE if (was := before.get(s)) is None else was.status)]


def is_quiet(state: SplitState) -> bool:
    """Return whether a split is on its way to turn idle: active, with nothing left to read."""
    return state.status is _ACTIVE and state.since is not None


def caught_up_since(state: SplitState, asked_at: Millis) -> Millis:
    """Return since when an active split has had nothing left to read, which may be just now.

    ``asked_at`` is when the log's end was requested. In a run whose ends were fixed when it began that is not the
    present: later rows are not known, and time spent reading must not count as quiet.
    """
    if state.status is not _ACTIVE or state.since is None:
        return asked_at
    # A clock that was set back between two processes must not make a moment in the future.
    return min(state.since, asked_at)


def unanswered(state: SplitState) -> SplitState:
    """Return a split whose log's system does not answer, or did not for a while.

    Writers could not reach it either, so its quiet time restarts.
    """
    return replace(state, since=None) if is_quiet(state) else state


def uncommitted(state: SplitState) -> SplitState:
    """Return a split with rows whose transaction is open: active, and its quiet time restarts."""
    status = TRANSITIONS[state.status, SplitEvent.UNCOMMITTED]
    return replace(state, status=status, since=None)


def on_the_clock(state: SplitState) -> SplitState:
    """Return a split whose time is the clock: none is idle."""
    status = TRANSITIONS[state.status, SplitEvent.ON_CLOCK]
    return state if status is state.status else replace(state, status=status, since=None)


def after_range(state: SplitState, *, undated: bool) -> SplitState:
    """Return a split whose last range has been read: a row with an event time ends its quiet, and its idleness."""
    if undated or state.since is None or state.status is _PAUSED:
        return state
    return replace(state, status=_ACTIVE, since=None)


def stays_quiet(state: SplitState, asked_before: Millis | None, idle_timeout: int | None) -> bool:
    """Return whether a split that has rows is idle all the same; of one whose last range had no event time.

    All rows up to the previous plan's ends, requested at ``asked_before``, have been read, and none had an event time
    for longer than the timeout. Later rows are judged by the next plan.
    """
    if idle_timeout is None or asked_before is None or state.since is None or state.status is _PAUSED:
        return False
    return state.status is SplitStatus.IDLE or asked_before - state.since > idle_timeout


def quiet_while_read(state: SplitState, asked_at: Millis, idle_timeout: int | None, *, undated: bool) -> Millis | None:
    """Return since when a split that is read to its end is quiet, if no row that is read now has an event time.

    ``undated``: nor had any row of its last range. An idle split stays quiet since before it turned idle.
    """
    if state.status is SplitStatus.IDLE and state.since is not None and idle_timeout is not None:
        return saturating_add(state.since, -idle_timeout)
    if state.status is _ACTIVE and state.since is not None:
        return caught_up_since(state, asked_at)
    return asked_at if undated and state.status is _ACTIVE else None


def stays_at_rest(state: SplitState, asked_at: Millis, idle_timeout: int | None) -> bool:
    """Return whether nothing changes of a split that has nothing left to read: ``to_planned_end`` would return it."""
    if state.since is None or state.status is not _ACTIVE:
        return state.since is not None and state.status is _IDLE
    return state.since <= asked_at and (idle_timeout is None or asked_at - state.since <= idle_timeout)


def rest_event(state: SplitState, asked_at: Millis, idle_timeout: int | None) -> SplitEvent:
    """Return the event of a split that has nothing left to read."""
    if idle_timeout is not None and asked_at - caught_up_since(state, asked_at) > idle_timeout:
        return SplitEvent.QUIET
    return SplitEvent.CAUGHT_UP


def next_since(state: SplitState, event: SplitEvent, status: SplitStatus, asked_at: Millis) -> Millis | None:
    """Return the moment that goes with the new status: see ``SplitState.since``."""
    if status is _ACTIVE:
        return caught_up_since(state, asked_at) if event in (SplitEvent.CAUGHT_UP, SplitEvent.QUIET) else None
    return state.since if status is state.status and state.since is not None else asked_at


def to_planned_end(
    state: SplitState, allowed: int | None, end: int | None, asked_at: Millis, idle_timeout: int | None
) -> SplitState:
    """Return a split at its planned end. ``allowed`` is where the group lets it go, ``None`` if it has no rows."""
    if allowed is None or end is None:
        event = rest_event(state, asked_at, idle_timeout)
    elif allowed == state.position:
        event = SplitEvent.PAUSED
    else:
        event = SplitEvent.WAITS if end == state.position else SplitEvent.READS
    status = TRANSITIONS[state.status, event]
    since = next_since(state, event, status, asked_at)
    if status is state.status and since == state.since and (end is None or end == state.position):
        return state
    return state.planned_to(state.position if end is None else end, status, since)


# Pauses of a split, and the idle timeout that is learned from them.


SHORTEST_IDLE_TIMEOUT: Final = 10_000
"""Milliseconds: the shortest timeout, however busy the split was."""
LONGEST_IDLE_TIMEOUT: Final = 300_000
"""Milliseconds: the longest timeout, and that of a split with too few observations."""
_KNOWN: Final = 10
"""Arrivals that must have been seen before a timeout is learned."""
_MANY: Final = 1_000
"""Pauses in a window: the longest of them is their 99.9th percentile."""


class Pauses(NamedTuple):
    """Between rows of a split, as plans see them: from the first that found nothing to the first that found rows."""

    arrivals: int = 0
    """Plans that found rows, except after a silence longer than ``LONGEST``."""
    seen: int = 0
    longest: int = 0
    """The longest of the ``seen`` pauses, in milliseconds."""
    earlier: int = 0
    """The longest of the thousand before."""

    def after(self, pause: int | None) -> Pauses:
        """Return the pauses after rows have arrived; ``pause`` is ``None`` if the previous plan found rows, too.

        Nothing is learned from a silence that is longer than any timeout: after a quiet night there is no reason to
        wait longer than before, nor to wait less if there are only such silences.
        """
        if pause is not None and pause > LONGEST_IDLE_TIMEOUT:
            return self
        arrivals = min(self.arrivals + 1, _KNOWN)
        if pause is None:
            return self._replace(arrivals=arrivals)
        longest = max(pause, self.longest)
        if self.seen + 1 < _MANY:
            return Pauses(arrivals, self.seen + 1, longest, self.earlier)
        return Pauses(arrivals, earlier=longest)

    @property
    def timeout(self) -> int:
        """Return for how many milliseconds the split must be quiet: one and a half times its longest pause."""
        if self.arrivals < _KNOWN:
            return LONGEST_IDLE_TIMEOUT
        longest = max(self.longest, self.earlier)
        return min(max(longest + longest // 2, SHORTEST_IDLE_TIMEOUT), LONGEST_IDLE_TIMEOUT)
