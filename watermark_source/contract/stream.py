"""What a connector gives the engine: three protocols that every connector has, and a reader of ranges.

The engine calls the *driver side* of a stream only in the source's runner process, from one thread, and the *executor
side* (the range readers) only inside a task. Every call either answers within the connector's own time limits or raises
an error of ``watermark_source.errors``; none waits without limit. A class that names a protocol as its base gets the
defaults of what it does not say. What only some systems have, a time index, snapshots, replicas, transactions, lies
beside this file, one a file. docs/writing-a-source.md builds a connector from these step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyspark.sql.datasource import Filter

from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.loss_kind import LossKind
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import Piece, RowIndex, Split, SplitRange, TimeIndex
from watermark_source.planning.state import Bound
from watermark_source.planning.watermark import Millis

# What a connector runs in tasks: the reader of ranges.


class RangeReader(Protocol):
    """Reads ranges in a task. Picklable; connects on first use; keeps connections for the worker's next task."""

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in position order, about 10 000 rows a batch.

        Raises ``DataLossError`` if rows of a range are gone and ``failOnDataLoss`` is true; with false it logs what is
        skipped and goes on inside the range.
        """
        ...


# What a connector offers for batch reads: ranges that are fixed when the read is planned, and their reader.


class BatchRangeReader(Protocol):
    """Reads ranges of a batch in a task, as ``RangeReader`` does those of a stream."""

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return what each split's log holds now; splits that are gone are left out."""
        ...

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in position order.

        Of the splits ``from_beginning`` the first rows may be gone without that being a loss: such a range begins
        wherever its log begins.
        """
        ...


class BatchDefinition(Protocol):
    """One batch read as the user configured it. Picklable; building it does not connect."""

    @property
    def range_reader(self) -> BatchRangeReader:
        """The executor side."""
        ...

    def late_ranges(self) -> Sequence[OpenRange]:
        """Return what to read: the user's starting and ending options, resolved now. Ranges of a split do not overlap.

        Called on the driver, once for each plan; connections do not outlive the call.
        """
        ...

    def narrowed(self, filters: Sequence[Filter]) -> BatchDefinition:
        """Return the same read, which may leave out rows that do not pass all of the filters. Does not connect."""
        ...


# How far event time is in a log, told without reading it: by a time index, or of the newest rows.


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


# What a connector offers whose logs hold rows that nobody may read yet.


class OpenTransactions(Protocol):
    """Rows that are in a log, and that nobody may read before their transaction is over."""

    def behind(self, ends: Mapping[Split, int]) -> Set[Split]:
        """Return the splits that have such rows at these ends, and those of which that is not known."""
        ...


# What a connector offers that shows a query's progress to others.


class ProgressSink(Protocol):
    """Where a query's progress is shown to others. Nothing is ever read back: the checkpoint alone says where to go on.

    It must not hold the query up or fail it: both methods handle what goes wrong by themselves.
    """

    def processed(self, positions: Mapping[Split, int]) -> None:
        """Take note that every row before these positions is done, and nothing else of these splits. Returns at once.

        The mapping holds all splits there are, and is not changed any more.
        """
        ...

    def close(self) -> None:
        """Show what was noted last, within two seconds or so, or give up. May interrupt a call of ``processed``."""
        ...


# What a connector offers whose long ranges cannot be cut at any position.


class RangeCutter(Protocol):
    """Cuts long ranges of logs whose positions are not rows."""

    def pieces(self, wanted: SplitRange, at_least: int | None) -> Sequence[Piece]:
        """Return all of a range, in order; one piece where it is not worth while.

        ``at_least``: so many, if there is that much to read.
        """
        ...


class PieceReader(Protocol):
    """A ``RangeReader`` of a source that cuts its ranges."""

    def read_piece(self, piece: Piece, batch: SnapshotBatch | None) -> Iterator[ReadBatch]:
        """Yield the rows of one piece; together the pieces of a range are what the readers of whole ranges yield.

        ``batch`` is ``None`` of a source that takes no snapshots.
        """
        ...


# What a connector offers whose system has replicas, so that a query can go on with another one.


class Passage(NamedTuple):
    """How a copy is read that has other positions: up to one of its own, without what it is told to leave out."""

    position: int
    left_out: str


class Replicas(Protocol):
    """One of a system's replicas: logs of the same changes, each with positions of its own, in orders that may differ.

    ``done`` names a set of changes in words that every copy understands; ``None``: the copy had no such words.
    """

    @property
    def system(self) -> str:
        """Which copy this is."""
        ...

    @property
    def left_out_at_first(self) -> str | None:
        """What a new query leaves out, if it begins with that rather than at a position."""
        ...

    def done_before(self, position: int) -> str | None:
        """Return all that lies before a position: one of the ends that were asked for, or where the query was."""
        ...

    def confirm(self, position: int, done: str | None) -> None:
        """Raise ``OffsetError`` if something else than this lies before a position of this copy now."""
        ...

    def remember(self, position: int, done: str | None) -> None:
        """Take in that this lies before a position of this copy."""
        ...

    def resumed(self, position: int, done: str | None, end: int | None = None) -> int:
        """Return where to go on behind a position before which lies this: there, or where the log begins by now.

        That is behind the position only if nothing but this is gone; rows that were not read are for others to miss.
        ``end`` of the batch that begins there: a log that keeps both or neither need not be asked.
        """
        ...

    def begin(self, done: str | None) -> int:
        """Return a position before which there is nothing but this.

        Raises ``OffsetError`` if the copy lacks some of it, and ``DataLossError`` if it no longer has what comes next.
        """
        ...

    def shift_after(self, position: int) -> int:
        """Return what has to be added to all positions of this copy so that they are beyond one of another copy's."""
        ...

    def between(self, start: str | None, end: str | None) -> Passage:
        """Return how to read exactly what ``end`` has and ``start`` has not; raises as ``begin``."""
        ...


@dataclass(frozen=True, slots=True)
class Relocation:
    """How the ranges of a batch are read, which may have begun on another copy, or after another copy was read."""

    copy: str
    """Whose positions the ranges are of: any other must not be read."""
    shift: int = 0
    """What to add to this copy's positions where rows tell them."""
    floor: Millis | None = None
    """No event that the log's own clock dates is taken to be earlier than this: it was on time, but clocks of replicas
    differ, and a clock may be set back."""
    left_out: str | None = None
    """Read all up to the range's end but this; ``None``: by positions."""
    as_of: tuple[int, str] | None = None
    """Chunks are as of all of this, wherever it lies, and their rows are of a position; ``None``: as of the end."""


class RelocatedRangeReader(Protocol):
    """A ``RangeReader`` of a system with replicas."""

    def relocated(self, relocation: Relocation) -> RangeReader:
        """Return the reader for such a batch."""
        ...


# What a connector offers that reads tables before, and beside, the log of their changes.


class SnapshotSize(NamedTuple):
    """About how large a snapshot is, for users to see; ``None`` where that cannot be told cheaply."""

    rows: int | None
    chunk_rows: int | None
    """Rows of a chunk that is not the last."""


class Snapshots(Protocol):
    """What is read of tables before, and beside, the log of their changes; see planning/snapshot_ranges.py."""

    @property
    def come_first(self) -> bool:
        """Whether a new query begins with them; one that did not, takes none later."""
        ...

    @property
    def nothing_follows(self) -> bool:
        """Whether the stream ends with them: the log is read only for as long as they are."""
        ...

    @property
    def one_moment(self) -> bool:
        """Whether all that a query begins with is as of one moment: the log is read on when it is complete.

        A batch's chunks are then read together.
        """
        ...

    def logs(self) -> Set[str]:
        """Return what there is to take a snapshot of. Cheap to call often: the system is asked now and again.

        All of it was there before any position that is asked for after this returns.
        """
        ...

    def gone(self, logs: Set[str]) -> Set[str]:
        """Return which logs that were not listed are gone; one may be missing for the moment in which it is renamed."""
        ...

    def is_wanted(self, log: str) -> bool:
        """Return whether the user's selection has a log, be it there or not."""
        ...

    def next_chunks(self, lower: Mapping[str, Bound], *, to_end: bool) -> Mapping[str, tuple[Bound, ...]]:
        """Return where the chunks end that come next in each log, from a key on; the last chunk of a log has no limit.

        Without logs that are gone or wait their turn. All before the ends that were asked for last can be read by then.

        Args:
            lower: the logs to go on with, and where, in the order of their turns.
            to_end: plan all that is left.
        """
        ...

    def sizes(self, logs: Set[str]) -> Mapping[str, SnapshotSize]:
        """Return about how large the snapshots of logs are, as far as that is known."""
        ...


class SnapshotRangeReader(Protocol):
    """A ``RangeReader`` of a source with snapshots."""

    def read_during_snapshot(self, ranges: Sequence[SplitRange], batch: SnapshotBatch) -> Iterator[ReadBatch]:
        """Yield as ``RangeReader.read`` does: of chunks the rows as of the batch's end, of other ranges what concerns
        keys that were read before."""
        ...


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


# Where a query begins whose connector offers no more than either end of its logs.


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
