"""What a process has seen of the pauses of its splits: it decides when they are idle, and is in no offset."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.learned_idle_timeout import Pauses
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus


class PauseMemory:
    """Of one process. The decision that a split is idle is in the offset, so a replay needs nothing of this."""

    def __init__(self) -> None:
        self._pauses: dict[Split, Pauses] = {}
        self._ends: dict[Split, int] = {}
        """As of the plan before."""

    def timeouts(self, state: SourceState, logs: ObservedLogs) -> Mapping[Split, int]:
        """Take in which splits have rows now, and return how long each of the others must be quiet to be idle.

        Nobody knows when rows came of a backlog, as of before this process: only splits that were read to their end,
        and have rows after it, tell of pauses.
        """
        found: dict[Split, int] = {}
        for split, at in state.splits.items():
            known, end = self._pauses.get(split, Pauses()), logs.ends.get(split)
            if end is None:
                continue
            before = self._ends.get(split)
            was_at_its_end = before is not None and before <= at.position
            self._ends[split] = end
            if end <= at.position:
                found[split] = known.timeout
            elif was_at_its_end and not logs.ends_are_final and at.status is not SplitStatus.PAUSED:
                self._pauses[split] = known.after(_pause(at, known, logs.asked_at))
        return found


def _pause(at: SplitState, known: Pauses, asked_at: Millis) -> int | None:
    if at.since is None:
        return None
    # An idle split has been idle since then, and was quiet for its timeout before.
    before = known.timeout if at.status is SplitStatus.IDLE else 0
    return max(0, asked_at - at.since) + before
