"""What the planner asks of a log's time index. The planner stays pure: the connector answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split


class IndexEntry(NamedTuple):
    """A row found through a time index."""

    position: int
    event_time: Millis
    size: int = 1
    """Positions it takes; where positions are not rows, those of all rows that cannot be read apart from it."""

    @property
    def after(self) -> int:
        """First position after it."""
        return self.position + self.size


class TimeIndex(Protocol):
    """Event-time look-ups in logs whose system keeps a time index."""

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """Return each log's first row whose event time is *greater* than its limit; ``None`` if there is none.

        It is the first such row of the whole log: rows before it are all at or before the limit, rows after it may be
        too.
        """
        ...
