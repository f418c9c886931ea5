"""What a connector gives the engine: three protocols that every connector has, and a reader of ranges.

The engine calls the *driver side* of a stream only in the source's runner process, from one thread, and the *executor
side* (the range readers) only inside a task. Every call either answers within the connector's own time limits or raises
an error of ``watermark_source.errors``; none waits without limit. A class that names a protocol as its base gets the
defaults of what it does not say. What only some systems have, a time index, snapshots, replicas, transactions, lies
beside this file, one a file. docs/writing-a-source.md builds a connector from these step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.row_index import RowIndex
from watermark_source.planning.split import Split
from watermark_source.spark.connector.event_time_lookups import EventTimeIndex, EventTimePreview
from watermark_source.spark.connector.open_transactions import OpenTransactions
from watermark_source.spark.connector.progress_sink import ProgressSink
from watermark_source.spark.connector.range_cutter import RangeCutter
from watermark_source.spark.connector.range_reader import RangeReader
from watermark_source.spark.connector.replicas import Replicas
from watermark_source.spark.connector.snapshots import Snapshots


class SplitDiscovery(Protocol):
    """Which splits exist now."""

    def discover(self) -> Set[Split]:
        """Return all splits the user's selection matches.

        Cheap to call often: but for the first time the connector answers from memory, and looks again beside the calls.
        """
        ...

    def looked_since(self, moment: float, *, wait: float) -> bool:
        """Return whether ``discover`` answers with a look that began after a moment of ``time.monotonic()``.

        Begins such a look if there is none, and waits for it at most ``wait`` seconds. A split that is found later did
        not exist at that moment. Must not raise: a look that fails is no look. By default true, which is right where
        each call of ``discover`` looks.
        """
        return True

    def expect(self, splits: Set[Split]) -> None:
        """Take in which splits the query's checkpoint has, before the first plan of a process.

        A part of the system may not know of them for a moment: that alone does not make them gone. By default nothing
        is done, which is right where one answer is the truth.
        """
        return None  # noqa: RET501 - without a body no class could leave it out


class StartPositions(Protocol):
    """Where a query, and where a split found later, begins."""

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Resolve the user's starting options for a new query; the splits are all that exist.

        Raises:
            StartMismatchError: they name other splits. Said only of a query that has no first batch yet.
        """
        ...

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest position of splits that appeared while the query was running."""
        ...


@dataclass(frozen=True, slots=True)
class Ends:
    """Where logs end, as far as their systems answer."""

    positions: Mapping[Split, int]
    """First position that does not exist yet; splits that are gone are left out."""
    unknown: Mapping[Split, int | None] = field(default_factory=dict)
    """Splits there was no answer about in time; with an end they had a while ago, where that is known."""
    reached: Mapping[Split, Millis] = field(default_factory=dict)
    """Of logs whose system dates the rows when it writes them: its time just before it told the end. No row after the
    end is earlier. Not where splits may be added while a query runs: the rows of one not found yet would be late."""


class CurrentEnds(Protocol):
    """Where logs end now."""

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends without letting a part of the system that is slow or dead keep the others waiting.

        It is asked on; the error comes when it has been silent for the connector's own time limit.
        """
        ...


class LogBounds(CurrentEnds, Protocol):
    """First and last position that can be read."""

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return what ``CurrentEnds`` says.

        By default what ``end_positions`` returns, which is right where all splits are one system's that answers or does
        not.
        """
        return Ends(self.end_positions(splits))

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end (first position that does not exist yet); splits that are gone are left out."""
        ...

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained position; splits that are gone are left out."""
        ...


@dataclass(frozen=True, slots=True)
class Connector:
    """The driver side of one source, open for one query."""

    discovery: SplitDiscovery
    starts: StartPositions
    bounds: LogBounds
    time_index: EventTimeIndex | None = None
    progress: ProgressSink | None = None
    row_index: RowIndex | None = None
    """``None`` where each position is about one row, so that a range can be cut at any of them."""
    cutter: RangeCutter | None = None
    """For ranges that cannot be cut at any position; ``None`` if each is one task's."""
    snapshots: Snapshots | None = None
    replicas: Replicas | None = None
    """``None`` of a system that has no replicas, or none that can be told apart."""
    preview: EventTimePreview | None = None
    watched: CurrentEnds | None = None
    """Asked from a thread of its own while no plan asks, and so on connections of its own. Without it such time counts
    as time in which the logs answered."""
    transactions: OpenTransactions | None = None
    """``None`` where all that lies before an end can be read, and nothing lies behind it."""

    @property
    def positions_are_rows(self) -> bool:
        """Whether each position is about one row, so that a range can be cut at any of them."""
        return self.row_index is None


class SourceDefinition(Protocol):
    """One source as the user configured it. Picklable; building it does not connect."""

    @property
    def name(self) -> str:
        """Format name, for example ``aligned-kafka``."""
        ...

    @property
    def event_time(self) -> str | None:
        """Return what the event time of a row is, in the user's words, such as ``eventTimeColumn = at``.

        ``None``, the default, if it is what it is without a choice of the user's. It goes into the offset: a watermark
        of one event time says nothing of another.
        """
        return None

    @property
    def loss_conditions(self) -> Mapping[LossKind, str]:
        """What the system's usual Spark source calls each kind of loss; by default it has none."""
        return {}

    @property
    def selection(self) -> str | None:
        """Return the option that selects logs and its value, such as ``subscribe is orders``; by default ``None``."""
        return None

    def selects(self, log: str) -> bool | None:
        """Return whether the user's options select a log that a checkpoint holds.

        ``None``, the default, if they do not select it by its name.
        """
        return None

    def position_text(self, split: Split, position: int) -> str:
        """Return a position as users of the system know it, for errors and logs; by default the number."""
        return str(position)

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""
        ...

    @property
    def observing_reader(self) -> RangeReader:
        """The executor side with no columns but event time, to look at a range again; by default with all columns."""
        return self.range_reader

    @property
    def reader_ahead(self) -> RangeReader:
        """``observing_reader`` for rows that no batch has read yet; by default that one itself.

        A row whose event time cannot be found has none here: the batch that reads it decides what that means.
        """
        return self.observing_reader

    def open(self) -> Connector:
        """Connect the driver side."""
        ...

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        """Read an offset written by the system's usual Spark source, or ``None`` if it is not one, the default."""
        return None
