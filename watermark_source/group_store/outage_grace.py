"""Grace period: others that were there may seem to be gone, after a time in which they could not speak.

Pure: moments are seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class GracePeriod(NamedTuple):
    """So many others were there, and until a moment fewer than that are not believed."""

    members: int
    until: float


def after_answer(
    periods: Sequence[GracePeriod],
    *,
    failed: bool,
    is_odd: bool,
    members: int,
    before: float,
    now: float,
    time_to_live: float,
) -> tuple[GracePeriod, ...]:
    """Return the grace periods after an answer.

    Args:
        periods: as they were.
        failed: whether there was an error since the answer before it: nobody may have been able to speak meanwhile.
        is_odd: whether there is another reason not to believe it.
        members: how many others the answer before it told of.
        before: when that came.
        now: when this one came.
        time_to_live: how long those who could not speak are given to do so.
    """
    open_still = [period for period in periods if period.until > before]
    if failed:
        # The time in which nobody could speak does not count. Any other does: it would never end with a store that
        # is slow, or fails now and then.
        open_still = [period._replace(until=period.until + now - before) for period in open_still]
    if not (failed or is_odd):
        return tuple(open_still)
    return (*(period for period in open_still if period.members > members), GracePeriod(members, now + time_to_live))


def may_be_all(periods: Sequence[GracePeriod], members: int, now: float) -> bool:
    """Return whether so many others may be all that there are."""
    return all(members >= period.members or now >= period.until for period in periods)
