"""Doubt: others that were there may seem to be gone, after a time in which they could not speak.

Pure: moments are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Doubt(NamedTuple):
    """So many others were there, and until a moment fewer than that are not believed."""

    members: int
    until: float


def after_answer(
    doubts: Sequence[Doubt], *, failed: bool, is_odd: bool, members: int, before: float, now: float, time_to_live: float
) -> tuple[Doubt, ...]:
    """Return the doubts after an answer.

    Args:
        doubts: as they were.
        failed: whether there was an error since the answer before it: nobody may have been able to speak meanwhile.
        is_odd: whether there is another reason to doubt it.
        members: how many others the answer before it told of.
        before: when that came.
        now: when this one came.
        time_to_live: how long those who could not speak are given to do so.
    """
    open_still = [doubt for doubt in doubts if doubt.until > before]
    if failed:
        # The time in which nobody could speak does not count. Any other does: it would never end with a store that
        # is slow, or fails now and then.
        open_still = [doubt._replace(until=doubt.until + now - before) for doubt in open_still]
    if not (failed or is_odd):
        return tuple(open_still)
    return (*(doubt for doubt in open_still if doubt.members > members), Doubt(members, now + time_to_live))


def is_believed(doubts: Sequence[Doubt], members: int, now: float) -> bool:
    """Return whether so many others may be all that there are."""
    return all(members >= doubt.members or now >= doubt.until for doubt in doubts)
