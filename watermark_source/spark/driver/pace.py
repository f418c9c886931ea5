"""Polling: how often Spark's question "is there anything new?" may reach the brokers or the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from watermark_source.planning.kept_plan import KeptPlan
from watermark_source.planning.planner import Plan
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import MAX, Millis

_SHORTEST, _LONGEST = 0.015, 0.1
"""Seconds from an answer "nothing new" to the next look. Spark asks about 85 times a second while it is idle."""
_SHARE = 0.04
"""The next look comes after this part of the time that has passed since the last batch, within those bounds."""
_CPU_SHARE, _RAREST = 0.025, 1.0
"""Looks that would take more than this share of a core though they are ``_LONGEST`` apart become rarer still, up to so
many seconds: thousands of splits take their time. What checks for new logs takes as much beside them."""
_CHEAP, _FADED = 0.01, 2.0
"""Seconds of CPU time that a look may take and still follow a batch closely: what it takes beyond them keeps to the
share from the first look on, and after so many seconds without a batch all of it does."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the next look is due, in seconds of the monotonic clock."""

    last_batch: float = field(default_factory=time.monotonic)
    next_look: float = 0.0
    cpu: tuple[float, float] = (0.0, 0.0)
    """Seconds of CPU time of the last two looks. The lower is their price: at times one does more than look."""

    def after_look(self, cpu: float) -> Pace:
        """Return it with the CPU time of a look like those to come."""
        return replace(self, cpu=(self.cpu[1], cpu))

    def after(self, *, is_batch: bool, held: bool = False) -> Pace:
        """Return the pace after a poll that gave a batch with rows, or none.

        ``held``: there are rows that the alignment group does not allow to be read. In a run with an end each such look
        is a batch without rows, so they become rarer the longer it takes.
        """
        now, price = time.monotonic(), min(self.cpu)
        if is_batch and not held:
            return Pace(now, cpu=self.cpu)
        longest = _RAREST if held else min(_RAREST, max(_LONGEST, price / _CPU_SHARE))
        rest = now - self.last_batch
        spared = _CHEAP * max(0.0, 1.0 - rest / _FADED)
        pause = max(_SHORTEST, _SHARE * rest, (price - spared) / _CPU_SHARE)
        return replace(self, next_look=now + min(longest, pause))

    def wait(self, sleep: Callable[[float], object]) -> None:
        """Sleep until the next look is due; ``sleep`` takes seconds, and may end early.

        The question could be answered from memory instead, but ``processAllAvailable`` must see what was written
        before it was called.
        """
        sleep(max(0.0, self.next_look - time.monotonic()))


# No-data batches: for how long a source has had nothing to do, after which time alone may be worth a batch.


_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class Rest:
    """It begins with the second plan in a row that is no batch.

    After the first one Spark may still make a batch of its own, for what the last watermark closed. So a query comes to
    an end of what there is, however long its batches take (Spark's ``processAllAvailable`` waits for that).
    """

    plans: int = 0
    """Without a batch, one after another, up to two."""
    since: Millis | None = None

    def after(self, *, is_batch: bool, asked_at: Millis) -> Rest:
        """Return what it is after a plan."""
        if is_batch:
            return Rest()
        plans = min(self.plans + 1, _ENOUGH)
        return Rest(plans, asked_at if self.since is None and plans == _ENOUGH else self.since)

    def lasted(self, asked_at: Millis) -> Millis | None:
        """Return for how long; ``None`` if it has not begun."""
        return None if self.since is None else Millis(asked_at - self.since)


# The unread parts of the logs.


def splits_behind(state: SourceState, ends: Mapping[Split, int]) -> Set[Split]:
    """Return the splits with rows to read."""
    return {s for s, end in ends.items() if (at := state.splits.get(s)) is None or end > at.position}


def exceeds(state: SourceState, ends: Mapping[Split, int], limit: ReadLimit) -> bool:
    """Return whether there is more to read than one batch may take."""
    # The limit of a source without one is never reached.
    if not isinstance(limit, ReadMaxRows) or limit.max_rows == MAX:
        return False
    backlog = sum(end - state.splits[s].position if s in state.splits else end for s, end in ends.items())
    return bool(backlog > limit.max_rows)


# The state of the last plan that a process keeps for the next one, in addition to the offset.


@dataclass(frozen=True, slots=True)
class LastPlan:
    """Before the first plan of a process: nothing."""

    offset: Mapping[str, Any] | None = None
    """What Spark was answered."""
    state: SourceState = field(default_factory=SourceState)
    """The state to continue from if Spark plans from that offset."""
    was_batch: bool = False
    """Whether it was one, which is done when Spark asks for the next."""
    ends: Mapping[Split, int] = field(default_factory=dict)
    """Of the logs."""
    newest_mattered: bool = False
    """Then they probably do again, and planning twice would cost more."""
    rows_at: Millis | None = None
    """When the ends were asked for of the last plan with rows."""
    without_rows_at: Millis | None = None
    """When the ends were asked for of the last batch without rows."""
    asked_at: Millis | None = None
    """When the ends were asked for."""
    combined: Millis | None = None
    """See ``SplitWatermarks.combined``."""
    rest: Rest = field(default_factory=Rest)
    pace: Pace = field(default_factory=Pace)
    kept: KeptPlan | None = None
    """The plan, if it holds until something happens."""

    @property
    def read_up_to(self) -> Mapping[Split, int]:
        """The ends of the logs if all before them is read, and was when they were asked for last; else nothing."""
        return {} if self.kept is None else self.kept.ends

    @property
    def is_first(self) -> bool:
        """Whether there was none yet in this process."""
        return self.offset is None

    @property
    def is_behind(self) -> bool:
        """Whether it left rows for the next."""
        return bool(splits_behind(self.state, self.ends))

    def after(
        self,
        planned: Plan,
        before: SourceState,
        *,
        state: SourceState,
        offset: Mapping[str, Any],
        cpu: float,
        kept: KeptPlan | None = None,
    ) -> LastPlan:
        """Return what the next plan needs of this one.

        Args:
            planned: the plan.
            before: the state it began with.
            state: the state that the next plan begins with.
            offset: the offset that Spark receives.
            cpu: CPU time of the look in seconds.
            kept: the plan, if it holds until something happens.
        """
        logs = planned.observation.logs
        held = planned.state.group.held > before.group.held
        # The first plan connects, and a batch is more than a look.
        pace = self.pace if self.is_first or planned.is_batch else self.pace.after_look(cpu)
        return LastPlan(
            offset=offset,
            state=state,
            was_batch=planned.is_batch,
            ends=logs.ends,
            newest_mattered=planned.newest_matters,
            rows_at=logs.asked_at if planned.has_rows else self.rows_at,
            without_rows_at=logs.asked_at if planned.is_batch and not planned.has_rows else self.without_rows_at,
            asked_at=logs.asked_at,
            combined=planned.watermarks.combined,
            rest=self.rest.after(is_batch=planned.is_batch, asked_at=logs.asked_at),
            # A batch for the time alone is no reason to look more often, and fixed ends need no second look.
            pace=pace.after(is_batch=planned.has_rows or logs.ends_are_final, held=held),
            kept=kept,
        )
