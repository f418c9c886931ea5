"""What the planner asks of logs whose positions are not rows. The planner stays pure: the connector answers."""

from __future__ import annotations

from typing import Protocol

from watermark_source.planning.split import SplitRange


class RowIndex(Protocol):
    """Where ranges of such logs may end."""

    def end_within(self, wanted: SplitRange, rows: int) -> int:
        """Return the last position up to which a range has at most so many rows, of those at which one may end.

        It is the range's own end if the whole of it has no more, and the first position at which a range may end if
        there are more rows even before that one: every range gets on.
        """
        ...
