"""What a process has seen of the pauses of its splits: it decides when they are idle, and is in no offset."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.pauses import Pauses
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus


class PauseMemory:
    """Of one process. The decision that a split is idle is in the offset, so a replay needs nothing of this."""

    def __init__(self) -> None:
        self._pauses: dict[Split, Pauses] = {}

    def timeouts(self, state: SourceState, logs: ObservedLogs, *, is_first: bool) -> Mapping[Split, int]:
        """Take in which splits have rows now, and return how long each of the others must be quiet to be idle.

        ``is_first``: nobody knows when rows came that were written before this process.
        """
        found: dict[Split, int] = {}
        for split, at in state.splits.items():
            known, end = self._pauses.get(split, Pauses()), logs.ends.get(split)
            if end is None:
                continue
            if end <= at.position:
                found[split] = known.timeout
            elif not logs.ends_are_final and at.status is not SplitStatus.PAUSED:
                pause = None if is_first else _pause(at, known, logs.asked_at)
                self._pauses[split] = known.after(pause)
        return found


def _pause(at: SplitState, known: Pauses, asked_at: Millis) -> int | None:
    if at.since is None:
        return None
    # An idle split has been idle since then, and was quiet for its timeout before.
    before = known.timeout if at.status is SplitStatus.IDLE else 0
    return max(0, asked_at - at.since) + before
