"""Pauses of a split, and the idle timeout that is learned from them."""

from __future__ import annotations

from typing import Final, NamedTuple

SHORTEST: Final = 10_000
"""Milliseconds: the shortest timeout, however busy the split was."""
LONGEST: Final = 300_000
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
    """Of those ``seen``, milliseconds."""
    earlier: int = 0
    """The longest of the thousand before."""

    def after(self, pause: int | None) -> Pauses:
        """Return the pauses after rows have arrived; ``pause`` is ``None`` if the previous plan found rows, too.

        Nothing is learned from a silence that is longer than any timeout: after a quiet night there is no reason to
        wait longer than before, nor to wait less if there are only such silences.
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
        """Return for how many milliseconds the split must be quiet: one and a half times its longest pause."""
        if self.arrivals < _KNOWN:
            return LONGEST
        longest = max(self.longest, self.earlier)
        return min(max(longest + longest // 2, SHORTEST), LONGEST)
