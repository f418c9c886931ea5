"""Pauses of a split, and how long one must be quiet to be idle where that is learned from them."""

from __future__ import annotations

from typing import Final, NamedTuple

SHORTEST: Final = 10_000
"""Milliseconds: no split is idle sooner, however busy it was."""
LONGEST: Final = 300_000
"""Milliseconds: every split is idle after so long, and one of which little is known not before."""
_KNOWN: Final = 10
"""So many arrivals must have been seen."""
_MANY: Final = 1_000
"""The longest of so many pauses is their 99.9th percentile."""


class Pauses(NamedTuple):
    """Between rows of a split, as plans see them: from the first that found nothing to the first that found rows."""

    arrivals: int = 0
    """Plans that found rows, but for those after a silence beyond ``LONGEST``."""
    seen: int = 0
    longest: int = 0
    """Of those ``seen``, milliseconds."""
    earlier: int = 0
    """The longest of the thousand before."""

    def after(self, pause: int | None) -> Pauses:
        """Return what is known once rows have come; ``None``: the plan before had found rows too.

        From a silence that no timeout would have waited out nothing is learned: after a quiet night there is no reason
        to wait longer than before, nor, where such silences are all there is, to wait less.
        """
        if pause is not None and pause > LONGEST:
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
        """Return for how many milliseconds the split must be quiet: half as long again as its longest pauses."""
        if self.arrivals < _KNOWN:
            return LONGEST
        longest = max(self.longest, self.earlier)
        return min(max(longest + longest // 2, SHORTEST), LONGEST)
