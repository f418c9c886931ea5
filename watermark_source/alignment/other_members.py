"""OtherMembers: what a source knows of the members of its alignment group elsewhere when it plans a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from watermark_source.eventtime.watermark import MIN, Millis


class OtherMember(NamedTuple):
    """A member of the group that is not a split of this source: another source, in this query or in any other."""

    name: str
    since: Millis | None = None
    """Since when it has been the slowest."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class OtherMembers:
    """The members elsewhere, as they were when the place where they meet was last asked."""

    minimum: Millis | None = None
    """Lowest watermark of those that count; ``MIN`` if one of them lets nobody read yet, ``None`` if none counts."""
    slowest: OtherMember | None = None
    members: int = 0
    ceiling: Millis | None = None
    """What is known is not enough: the limit that held before, beyond which nobody goes. ``None``: it is enough."""
    awaited: bool = False
    """Whether that is because others are still to come, and not because the place does not answer."""
    idle: Millis | None = None
    """Highest watermark of those that are idle; ``None`` if none is, or has one."""

    @property
    def hold(self) -> bool:
        """Whether nothing may be read: somebody's snapshot comes first, or no limit was known before."""
        return MIN in (self.minimum, self.ceiling)


NOBODY = OtherMembers()


def unanswered(known: OtherMembers, last_limit: Millis | None, *, awaited: bool = False) -> OtherMembers:
    """Return what is known when it is not enough, and the last limit was this; ``None``: there was none yet."""
    return replace(known, ceiling=MIN if last_limit is None else last_limit, awaited=awaited)
