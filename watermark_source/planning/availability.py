"""Availability: which splits answer requests for their end position, are slow or silent, or are deleted.

One table by split, used on both sides of the connector's contract: a connector keeps its requests in flight in it, and
the engine the answers that its polls got. Pure: times are arguments, in seconds of the caller's monotonic clock.

A *silence* of a split begins when a call returns without its answer, and ends with the next answer or with the split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from watermark_source.errors import SourceError
from watermark_source.planning.split import Split

_Answer = TypeVar("_Answer")


class Availability(Enum):
    """Whether a split's system answers requests about it."""

    KNOWN = "known"
    """No request is in flight. The last one was answered, or there was none."""
    SLOW = "slow"
    """Silent: the call has returned without the answer, and its request is still in flight."""
    SILENT = "silent"
    """Silent: the request has ended without an answer. The next call sends another one."""
    DELETED = "deleted"
    """The system no longer lists it."""


class AvailabilityEvent(Enum):
    """What happens to a split between, and in, the calls that ask for it."""

    LISTED = "listed"
    """The system lists it."""
    UNLISTED = "unlisted"
    """The system has listed its splits without it, for as long as a deletion takes to be believed."""
    ANSWER = "answer"
    """The answer to a request arrives."""
    RETURN = "return"
    """The call that sent a request returns without its answer, and leaves it in flight."""
    TIME_OUT = "time out"
    """A request ends without an answer."""
    EXPIRE = "expire"
    """No call has asked for the split for the time limit."""


class Effect(Enum):
    """What a transition does beside the change of the state."""

    KEEP = "keep"
    """The answer is late: it is kept for the next call that asks for the split."""
    BEGIN_SILENCE = "begin silence"
    """The caller logs it, and counts no time as quiet."""
    END_SILENCE = "end silence"
    """The caller logs it."""
    FORGET = "forget"
    """What was kept of earlier calls is dropped: a late answer, a failure, the beginning of a silence."""


class Transition(NamedTuple):
    """The state after an event, and the effects of the event."""

    state: Availability
    effects: tuple[Effect, ...] = ()


_KNOWN, _SLOW = Availability.KNOWN, Availability.SLOW
_SILENT, _DELETED = Availability.SILENT, Availability.DELETED

TRANSITIONS: Final[Mapping[tuple[Availability, AvailabilityEvent], Transition]] = {
    (_KNOWN, AvailabilityEvent.LISTED): Transition(_KNOWN),
    (_KNOWN, AvailabilityEvent.UNLISTED): Transition(_DELETED, (Effect.FORGET,)),
    (_KNOWN, AvailabilityEvent.ANSWER): Transition(_KNOWN, (Effect.FORGET,)),
    (_KNOWN, AvailabilityEvent.RETURN): Transition(_SLOW, (Effect.BEGIN_SILENCE,)),
    (_KNOWN, AvailabilityEvent.TIME_OUT): Transition(_SILENT, (Effect.BEGIN_SILENCE,)),
    (_KNOWN, AvailabilityEvent.EXPIRE): Transition(_KNOWN, (Effect.FORGET,)),
    (_SLOW, AvailabilityEvent.LISTED): Transition(_SLOW),
    (_SLOW, AvailabilityEvent.UNLISTED): Transition(_DELETED, (Effect.FORGET,)),
    (_SLOW, AvailabilityEvent.ANSWER): Transition(_KNOWN, (Effect.KEEP, Effect.END_SILENCE)),
    # One request at a time: a second answer could be older than the first.
    (_SLOW, AvailabilityEvent.RETURN): Transition(_SLOW),
    (_SLOW, AvailabilityEvent.TIME_OUT): Transition(_SILENT),
    # A topic that no call asked for may have been deleted and created again.
    (_SLOW, AvailabilityEvent.EXPIRE): Transition(_KNOWN, (Effect.FORGET,)),
    (_SILENT, AvailabilityEvent.LISTED): Transition(_SILENT),
    (_SILENT, AvailabilityEvent.UNLISTED): Transition(_DELETED, (Effect.FORGET,)),
    (_SILENT, AvailabilityEvent.ANSWER): Transition(_KNOWN, (Effect.END_SILENCE,)),
    (_SILENT, AvailabilityEvent.RETURN): Transition(_SLOW),
    (_SILENT, AvailabilityEvent.TIME_OUT): Transition(_SILENT),
    (_SILENT, AvailabilityEvent.EXPIRE): Transition(_KNOWN, (Effect.FORGET,)),
    (_DELETED, AvailabilityEvent.LISTED): Transition(_KNOWN),
    (_DELETED, AvailabilityEvent.UNLISTED): Transition(_DELETED),
    # Whether it exists again is for its system to answer.
    (_DELETED, AvailabilityEvent.ANSWER): Transition(_KNOWN),
    (_DELETED, AvailabilityEvent.RETURN): Transition(_SLOW, (Effect.BEGIN_SILENCE,)),
    (_DELETED, AvailabilityEvent.TIME_OUT): Transition(_SILENT, (Effect.BEGIN_SILENCE,)),
    (_DELETED, AvailabilityEvent.EXPIRE): Transition(_DELETED),
}

SILENCES: Final = frozenset({_SLOW, _SILENT})
"""States of a silence."""


@dataclass(frozen=True, slots=True)
class SplitAvailability(Generic[_Answer]):
    """One row of the table; times are seconds of the monotonic clock."""

    state: Availability = _KNOWN
    request: int | None = None
    """The number of the request in flight."""
    silent_since: float | None = None
    """When the request was sent whose answer a call did not wait for, or that ended without one."""
    wanted_at: float = 0.0
    """When the last call ended that asked for the split, or its late answer came."""
    was_served: bool = True
    """Whether the connections were served at least every few seconds since the silence began."""
    failure: SourceError | None = None
    """Why the last request ended without an answer."""
    late: _Answer | None = None
    """An answer that came after its call had returned."""


class AvailabilityTable(Generic[_Answer]):
    """The rows of all splits of which more is to be known than that they are ``KNOWN``. One caller at a time.

    Methods return what the event does to which splits, with the row that each had before.
    """

    def __init__(self) -> None:
        self._plain: SplitAvailability[_Answer] = SplitAvailability()
        self._rows: dict[Split, SplitAvailability[_Answer]] = {}
        self._requests = 0
        self._begun: set[Split] = set()

    def of(self, split: Split) -> SplitAvailability[_Answer]:
        """Return the row of a split."""
        return self._rows.get(split, self._plain)

    def within(self, states: Set[Availability]) -> Set[Split]:
        """Return the splits in one of some states other than ``KNOWN``."""
        return {split for split, row in self._rows.items() if row.state in states}

    def take_begun(self) -> Set[Split]:
        """Return the splits whose silence has begun since the last call; it may be over by now."""
        begun, self._begun = self._begun, set()
        return begun

    def clear(self) -> None:
        """Forget all splits, and their requests."""
        self._rows.clear()

    def note_listed(self, splits: Set[Split]) -> None:
        """Take in which splits exist. A deleted one keeps nothing, so that one created again begins without it."""
        listed = self._rows.keys() & splits
        self._apply(AvailabilityEvent.LISTED, listed)
        self._apply(AvailabilityEvent.UNLISTED, self._rows.keys() - listed)

    @property
    def in_flight(self) -> Set[Split]:
        """The splits with a request that may still be answered."""
        return {split for split, row in self._rows.items() if row.state is _SLOW}

    def waiting_for(self, request: int, splits: Iterable[Split]) -> Set[Split]:
        """Return the splits for which a request is the one in flight."""
        return {split for split in splits if self.of(split).request == request}

    def answer(self, asked: Set[Split], unanswered: Set[Split]) -> Effects[_Answer]:
        """Take in that a call got the answers about the splits that it asked for, except some."""
        # Nothing changes for a split without a row.
        return self._apply(AvailabilityEvent.ANSWER, asked & (self._rows.keys() - unanswered))

    def answer_late(self, request: int, answers: Mapping[Split, _Answer | None], at: float) -> None:
        """Keep the answers to a request in flight that have come by ``at``; ``None``: the split does not exist.

        Answers for which another request, or none, is in flight are discarded.
        """
        for split in self._apply(AvailabilityEvent.ANSWER, self.waiting_for(request, answers)).get(Effect.KEEP, ()):
            if answers[split] is not None:
                self._rows[split] = SplitAvailability(wanted_at=at, late=answers[split])

    def leave_in_flight(self, splits: Iterable[Split], *, sent_at: float) -> int:
        """Take in that the call that sent a request returns without some of its answers; return its number."""
        self._requests += 1
        self._apply(AvailabilityEvent.RETURN, splits, request=self._requests, since=sent_at)
        return self._requests

    def time_out(
        self, splits: Iterable[Split], *, sent_at: float, failure: SourceError | None = None
    ) -> Effects[_Answer]:
        """Take in that a request has ended without some of its answers."""
        return self._apply(AvailabilityEvent.TIME_OUT, splits, since=sent_at, failure=failure)

    def take_late(self, wanted: Set[Split]) -> Mapping[Split, _Answer]:
        """Return the late answers about some splits, each once."""
        found = {s: late for s in wanted & self._rows.keys() if (late := self._rows[s].late) is not None}
        for split in found:
            del self._rows[split]
        return found

    def note_wanted(self, splits: Set[Split], at: float) -> None:
        """Take in that a call which asked for some splits ended at ``at``."""
        for split in splits & self._rows.keys():
            if (row := self._rows[split]).state in SILENCES:
                self._rows[split] = replace(row, wanted_at=at)

    def note_unserved(self) -> None:
        """Take in that the connections have not been served for long: what is silent may have answered."""
        for split, row in self._rows.items():
            if row.state in SILENCES:
                self._rows[split] = replace(row, was_served=False)

    def expire(self, wanted_before: float) -> None:
        """Forget splits that no call has asked for since ``wanted_before``."""
        expired = [split for split, row in self._rows.items() if row.wanted_at <= wanted_before]
        self._apply(AvailabilityEvent.EXPIRE, expired)

    def overdue(self, splits: Set[Split], *, now: float, call_ends_at: float, limit: float) -> Set[Split]:
        """Return the splits that have been silent for a time limit in seconds, or will be when the call returns.

        The latter only where a request has ended without an answer: it ends before its limit if another try would begin
        after that, so the request of this call decides.
        """
        found: set[Split] = set()
        for split in splits & self._rows.keys():
            row = self._rows[split]
            until = now if row.failure is None else call_ends_at
            if row.silent_since is not None and until - row.silent_since >= limit:
                found.add(split)
        return found

    def _apply(
        self,
        event: AvailabilityEvent,
        splits: Iterable[Split],
        *,
        request: int | None = None,
        since: float = 0.0,
        failure: SourceError | None = None,
    ) -> Effects[_Answer]:
        def changed(row: SplitAvailability[_Answer], transition: Transition) -> SplitAvailability[_Answer]:
            state = transition.state
            if state is row.state and Effect.FORGET not in transition.effects:
                return row
            if state is _KNOWN:
                return self._plain
            if state is _DELETED:
                return SplitAvailability(_DELETED)
            row = replace(row, state=state, request=request)
            if Effect.BEGIN_SILENCE in transition.effects:
                row = replace(row, silent_since=since, wanted_at=since)
            return row if failure is None else replace(row, failure=failure)

        effects: dict[Effect, dict[Split, SplitAvailability[_Answer]]] = {}
        for split in splits:
            row = self.of(split)
            transition = TRANSITIONS[row.state, event]
            after = changed(row, transition)
            if after is not self._plain:
                self._rows[split] = after
            else:
                self._rows.pop(split, None)
            for effect in transition.effects:
                effects.setdefault(effect, {})[split] = row
        self._begun.update(effects.get(Effect.BEGIN_SILENCE, ()))
        return effects


Effects: TypeAlias = Mapping[Effect, Mapping[Split, SplitAvailability[_Answer]]]
"""The splits that an effect is about, and their rows before the event."""
