"""What a process has seen of the pauses of its splits: it decides when they are idle, and is in no offset."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.learned_idle_timeout import SHORTEST, Pauses
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus

_CLOSE = SHORTEST // 3
"""Milliseconds between two plans. Of rows that both found, the pause between them is less than twice that: they need
not be waited for longer than ``SHORTEST``."""


class PauseMemory:
    """Of one process. The decision that a split is idle is in the offset, so a replay needs nothing of this."""

    def __init__(self) -> None:
        self._pauses: dict[Split, Pauses] = {}
        self._ends: dict[Split, int] = {}
        """As of the plan before."""
        self._asked_at: Millis | None = None
        """When the plan before asked for them."""
        self._without_rows: dict[Split, Millis] = {}
        """When the ends were asked for before the last plan that found rows: those came since."""

    def timeouts(self, state: SourceState, logs: ObservedLogs) -> Mapping[Split, int]:
        """Take in which splits have rows now, and return how long each of the others must be quiet to be idle.

        Nobody knows when rows came of a backlog, as of before this process: only splits that were read to their end,
        and have rows after it, show pauses. Between two plans that are far apart, as by long batches, a pause may pass
        unseen: rows that both found show none, and one that was seen may have been longer by the time between plans.
        """
        found: dict[Split, int] = {}
        before_plan, self._asked_at = self._asked_at, logs.asked_at
        are_close = before_plan is not None and logs.asked_at - before_plan <= _CLOSE
        for split, at in state.splits.items():
            known, end = self._pauses.get(split, Pauses()), logs.ends.get(split)
            if end is None:
                continue
            before = self._ends.get(split)
            was_at_its_end = before is not None and before <= at.position
            self._ends[split] = end
            if end <= at.position:
                found[split] = known.timeout
                continue
            if was_at_its_end and not logs.ends_are_final and at.status is not SplitStatus.PAUSED:
                pause = self._longest_pause(split, at, known, logs.asked_at)
                if pause is not None or are_close:
                    self._pauses[split] = known.after(pause)
            if before_plan is not None:
                self._without_rows[split] = before_plan
        return found

    def _longest_pause(self, split: Split, at: SplitState, known: Pauses, asked_at: Millis) -> int | None:
        """Return for how long there may have been no row; ``None`` if no plan saw that there was none."""
        if at.since is None or at.observed < at.position:
            return None
        # An idle split has been idle since then, and was quiet for its timeout before.
        seen = max(0, asked_at - at.since) + (known.timeout if at.status is SplitStatus.IDLE else 0)
        earliest = self._without_rows.get(split)
        return seen if earliest is None else max(seen, asked_at - earliest)
