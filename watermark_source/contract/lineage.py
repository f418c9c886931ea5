"""What a connector answers about logs that are led by one of several replicas."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar, cast

from watermark_source.planning.lineage import History
from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch


@dataclass(frozen=True, slots=True)
class ExpectedLogs:
    """Which logs the ranges of a task are of."""

    ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[Split, int] = field(default_factory=dict)
    """The epoch of each range's last row: rows of a later one were not there when the range was planned."""


class LineageRangeReader(Protocol):
    """A ``RangeReader``, or ``BatchRangeReader``, of a system whose logs have ids (``SplitDiscovery.ids``)."""

    def of_logs(self, expected: ExpectedLogs) -> Self:
        """Return the reader of ranges of these logs alone: other rows at their positions are a loss."""


Reader = TypeVar("Reader")


def of_logs(reader: Reader, expected: ExpectedLogs | None) -> Reader:
    """Return the reader of ranges of these logs alone; the same one where nothing is known of them."""
    if expected is None or not (expected.ids or expected.epochs):
        return reader
    return cast("Reader", cast("LineageRangeReader", reader).of_logs(expected))


class ReadUpTo(Protocol):
    """How far a split has been read."""

    @property
    def position(self) -> int:
        """The first position that has not been read."""

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of the row before it, if that is known."""


class Lineage(Protocol):
    """The epochs of logs that can lose their ends, and give the positions to other rows (planning/lineage.py)."""

    def histories(self, splits: Mapping[Split, ReadUpTo]) -> Mapping[Split, History]:
        """Return the epochs of each log, newest first, as of its end that was returned last or later.

        They reach back to the ``epoch`` given, or an earlier one; where it is not known, to the one of the row before
        ``position``. A log whose newest epoch is the one given has lost nothing, and is left out without a request.
        Called for each plan.
        """

    def forget(self, logs: Set[str]) -> None:
        """Forget logs that were created again."""
