"""How far event time is in a log, told without reading it: by a time index, or of the newest rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.time_index import TimeIndex


class EventTimeIndex(TimeIndex, Protocol):
    """Event-time look-ups in a log whose system keeps a time index."""

    def newest(self, splits: Set[Split]) -> Mapping[Split, Millis | None]:
        """Return the highest event time in each split; ``None`` if it is empty or the system cannot tell.

        To know the highest event time *below an end*, ask for it before asking for the end.
        """
        ...


class EventTimePreview(Protocol):
    """How far event time is in ranges, told without reading them.

    So a batch's watermark need not wait for the next one, and a new process need not read the last batch again. Methods
    wait for at most half a second, and do not raise: what is not known moves nothing.
    """

    def prepare(self, splits: Set[Split]) -> None:
        """Look where splits are newest, before the ends are asked for that a batch is planned with."""
        ...

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return, of ranges, an event time of a row that will be delivered, at best the highest."""
        ...

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest event time of ranges, of those of which that can be told."""
        ...
