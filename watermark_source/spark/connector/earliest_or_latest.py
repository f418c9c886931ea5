"""Where a query begins whose connector offers no more than either end of its logs."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from watermark_source.planning.split import Split
from watermark_source.spark.connector.stream import LogBounds, StartPositions


@dataclass(frozen=True, slots=True)
class EarliestOrLatest(StartPositions):
    """``StartPositions`` of a source whose new queries begin at the first row there is, or after the last one."""

    bounds: LogBounds
    earliest: bool

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return one end of each log or the other."""
        return self.bounds.earliest_positions(splits) if self.earliest else self.bounds.end_positions(splits)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first retained positions."""
        return self.bounds.earliest_positions(splits)
