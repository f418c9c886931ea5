"""What a connector gives the engine: three protocols that every connector has, and a reader of ranges.

The engine calls the *driver side* of a stream only in the source's runner process, from one thread, and the *executor
side* (the range readers) only inside a task. Every call answers or raises an error of ``watermark_source.errors``
within the connector's own time limits. A class that names a protocol as its base inherits the protocol's defaults. The
optional protocols, such as a time index, snapshots, replicas or transactions, are those of ``Connector``'s optional
fields. docs/writing-a-source.md builds a connector from these step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from watermark_source.contract.announcements import AnnouncementLog
from watermark_source.contract.lineage import Lineage
from watermark_source.planning.policy import LossKind
from watermark_source.planning.snapshot_ranges import SnapshotBatch
from watermark_source.planning.split import NewestTime, Piece, RowIndex, Split, SplitRange, TimeIndex
from watermark_source.planning.state import Bound
from watermark_source.planning.watermark import Millis
from watermark_source.words import Words

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    # Arrow is loaded where rows are read: the process that checks options does without.
    from watermark_source.contract.read_batch import ReadBatch

# The executor side: what runs in tasks.


class RangeReader(Protocol):
    """Reads ranges in a task. Picklable; connects on first use; keeps connections for the worker's next task."""

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in position order, about 10 000 rows a batch.

        Raises ``DataLossError`` if rows of a range no longer exist and ``failOnDataLoss`` is true; with false it logs
        a warning that names the skipped rows and continues inside the range.
        """


# Event time in a log without reading its rows: a time index, or the newest rows.


class EventTimeIndex(TimeIndex, Protocol):
    """Event-time look-ups in a log whose system keeps a time index."""

    def newest(self, splits: Set[Split]) -> Mapping[Split, NewestTime | None]:
        """Return the highest event time in each split and where it is; ``None`` if it is empty or there is no answer.

        To know the highest event time *below an end*, request it before requesting the end.
        """


class EventTimePreview(Protocol):
    """Event times of ranges, known before the ranges are read.

    With it a batch carries the watermark of its own rows instead of leaving it to the next batch, and a new process
    need not read the last batch again. Methods wait for at most half a second and do not raise: a split without an
    answer is left out, and its watermark stays.
    """

    def prepare(self, splits: Set[Split]) -> None:
        """Look up where the newest rows of the splits are. Called before the ends that a batch is planned with."""

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return for each range the event time of one of its rows, at best the highest."""

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the exact highest event time of ranges; those for which it is not known are left out."""


class OpenTransactions(Protocol):
    """Rows of open transactions: they are in a log, and can be read once the transaction is over."""

    def ends(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the ends of these splits with such rows included; without the splits that do not answer in time."""


class ProgressSink(Protocol):
    """Where a query's progress is shown in the system's own tools. It is never read back: the checkpoint decides.

    It must neither delay nor fail the query: both methods handle their own errors.
    """

    def record(self, positions: Mapping[Split, int]) -> None:
        """Record that every row before these positions was processed. Returns at once.

        The mapping holds all existing splits, and does not change afterwards.
        """

    def close(self) -> None:
        """Publish the last recorded positions, within about two seconds. May interrupt a call of ``record``."""


# Ranges that cannot be cut at any position.


class RangeCutter(Protocol):
    """Cuts long ranges of logs whose positions are not rows."""

    def pieces(self, wanted: SplitRange, at_least: int | None) -> Sequence[Piece]:
        """Return the whole range in order; one piece if the range is not worth cutting.

        ``at_least``: the number of pieces to cut a range into that is long enough.
        """


class PieceReader(Protocol):
    """A ``RangeReader`` of a source with a ``RangeCutter``."""

    def read_piece(self, piece: Piece, batch: SnapshotBatch | None) -> Iterator[ReadBatch]:
        """Yield the rows of one piece; the pieces of a range together yield what the range yields.

        ``batch`` is ``None`` for a source without snapshots.
        """


# Replicas: a query can continue with another server whose positions differ.


class Passage(NamedTuple):
    """How a replica with other positions is read: up to one of its positions, without a set of changes."""

    position: int
    left_out: str


class Replicas(Protocol):
    """One of a system's replicas: logs of the same changes, each with positions of its own, in orders that may differ.

    ``done`` is a text that names a set of changes, which every replica understands; ``None`` if the replica had none.
    """

    @property
    def system(self) -> str:
        """The name of this replica."""

    @property
    def left_out_at_first(self) -> str | None:
        """The changes that a new query leaves out, if it begins with a set of changes rather than at a position."""

    def done_before(self, position: int) -> str | None:
        """Return all changes before a position: one of the ends that were requested, or where the query was."""

    def confirm(self, position: int, done: str | None) -> None:
        """Raise ``OffsetError`` if the changes before a position of this replica are not these."""

    def remember(self, position: int, done: str | None) -> None:
        """Record that these changes lie before a position of this replica."""

    def resumed(self, position: int, done: str | None, end: int | None = None) -> int:
        """Return where to resume after a position before which these changes lie: there, or where the log now begins.

        It is after the position only if all that expired are these changes; other expired rows are found as a loss.
        ``end`` of the batch that begins there: a log that keeps both or neither needs no look-up.
        """

    def begin(self, done: str | None) -> int:
        """Return a position before which there are only these changes.

        Raises ``OffsetError`` if the replica lacks some of them, and ``DataLossError`` if it no longer has the next
        ones.
        """

    def shift_after(self, position: int) -> int:
        """Return the number that moves all positions of this replica beyond a position of another replica."""

    def between(self, start: str | None, end: str | None) -> Passage:
        """Return how to read exactly what ``end`` has and ``start`` has not; raises as ``begin``."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """How the ranges of a batch are read that began on another replica, or follow a batch of another replica."""

    copy: str
    """The replica whose positions the ranges have; they must not be read from another one."""
    shift: int = 0
    """What to add to this replica's positions in delivered rows."""
    floor: Millis | None = None
    """Lowest event time for events that the log's own clock dates. They were on time, but clocks of replicas differ,
    and a clock may be set back."""
    left_out: str | None = None
    """Read all changes up to the range's end except these; ``None``: read by positions."""
    as_of: tuple[int, str] | None = None
    """Chunks are as of these changes, wherever those lie, and their rows have this position; ``None``: as of the
    end."""


class RelocatedRangeReader(Protocol):
    """A ``RangeReader`` of a system with replicas."""

    def relocated(self, relocation: Relocation) -> RangeReader:
        """Return the reader for such a batch."""


# Snapshots: the rows of tables, read before and beside the log of their changes.


class SnapshotSize(NamedTuple):
    """The approximate size of a snapshot, for the status; ``None`` where an estimate would be expensive."""

    rows: int | None
    chunk_rows: int | None
    """Rows of a chunk that is not the last."""


class Snapshots(Protocol):
    """Chunks of tables, read before and beside the log of their changes; see planning/snapshot_ranges.py."""

    @property
    def come_first(self) -> bool:
        """Whether a new query begins with snapshots; a query that did not begin with them takes none later."""

    @property
    def nothing_follows(self) -> bool:
        """Whether the stream ends with the snapshots: the log is read only until they are complete."""

    @property
    def one_moment(self) -> bool:
        """Whether all snapshots of a new query are as of one moment; the log is read once they are complete.

        A batch's chunks are then read together.
        """

    def logs(self) -> Set[str]:
        """Return the tables to snapshot. Cheap to call often: the connector requests the list only now and then.

        All of them existed before any position that is requested after this returns.
        """

    def dropped(self, logs: Set[str]) -> Set[str]:
        """Return which unlisted tables no longer exist; a table may be missing from the list while it is renamed."""

    def is_wanted(self, log: str) -> bool:
        """Return whether the user's selection includes a table, whether or not it exists."""

    def next_chunks(self, lower: Mapping[str, Bound], *, to_end: bool) -> Mapping[str, tuple[Bound, ...]]:
        """Return the upper bounds of each table's next chunks, from a key on; the last chunk of a table has no bound.

        Tables that no longer exist or wait their turn are left out. All rows before the last requested ends can be
        read by then.

        Args:
            lower: the tables to continue with and the key to continue from, in the order of their turns: those that
                were begun, then new ones. Keep it: a plan whose log has more to read discards chunks of new tables.
            to_end: plan all remaining chunks.
        """

    def sizes(self, logs: Set[str]) -> Mapping[str, SnapshotSize]:
        """Return the approximate sizes of snapshots, where there is an estimate."""


class SnapshotRangeReader(Protocol):
    """A ``RangeReader`` of a source with snapshots."""

    def read_during_snapshot(self, ranges: Sequence[SplitRange], batch: SnapshotBatch) -> Iterator[ReadBatch]:
        """Yield as ``RangeReader.read``: for chunks the rows as of the batch's end, for other ranges the changes of
        keys that earlier batches read."""


# The driver side that every connector has.


class SplitDiscovery(Protocol):
    """Which splits exist now."""

    def discover(self) -> Set[Split]:
        """Return all splits the user's selection matches.

        Called for every batch. A connector whose system answers slowly returns the result of the last look-up, and
        repeats the look-up in a thread of its own.
        """

    def looked_since(self, moment: float, *, wait: float) -> bool:
        """Return whether ``discover`` returns a result whose look-up began after a moment of ``time.monotonic()``.

        Starts such a look-up if none is running, and waits for it at most ``wait`` seconds. A split that is found
        later did not exist at that moment. Must not raise: a failed look-up does not count. The default is true,
        which is right where each call of ``discover`` is a look-up.
        """
        return True

    def expect(self, splits: Set[Split], ids: Mapping[str, str]) -> None:
        """Receive the splits of the query's checkpoint and their logs' ids, before the first plan of a process.

        A server may not know them for a moment, which alone does not make them deleted or others. The default does
        nothing, which is right where one answer is the truth.
        """
        return None  # noqa: RET501 - without a body no class could leave it out

    def ids(self) -> Mapping[str, str]:
        """Return the ids of the logs that ``discover`` returned last; by default none.

        A log that is deleted and created again under its name has another id. Return a new one only once the whole
        system knows it: a query starts again with the log's first row.
        """
        return {}


class StartPositions(Protocol):
    """Where a query, and where a split found later, begins."""

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Resolve the user's starting options for a new query; the splits are all that exist.

        Raises:
            StartMismatchError: they name other splits. Only for a query that has no first batch yet.
        """

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest position of splits that appeared while the query was running."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where logs end, as far as their systems answer."""

    positions: Mapping[Split, int]
    """First position that does not exist yet; deleted splits are left out."""
    unknown: Mapping[Split, int | None] = field(default_factory=dict)
    """Splits without an answer in time, each with its last known end, or ``None``."""
    reached: Mapping[Split, Millis] = field(default_factory=dict, kw_only=True)
    """For logs whose system dates the rows when it writes them: the system's time just before it returned the end. No
    row after the end is earlier. Leave it empty where splits may be added while a query runs: rows of a split that is
    not found yet would be late."""


class CurrentEnds(Protocol):
    """Where logs end now."""

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends; a slow or dead server of several does not delay the ends of the others.

        The connector keeps requesting the missing ends, and raises once a server has been silent for the connector's
        own time limit.
        """


class LogBounds(CurrentEnds, Protocol):
    """First and last position that can be read."""

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends as ``CurrentEnds`` describes.

        The default returns ``end_positions``, which is right where all splits belong to one server.
        """
        return Ends(self.end_positions(splits))

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end (first position that does not exist yet); deleted splits are left out."""

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained position; deleted splits are left out."""


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
    """For ranges that cannot be cut at any position; ``None``: one task reads a whole range."""
    snapshots: Snapshots | None = None
    replicas: Replicas | None = None
    """``None`` for a system without replicas, or with replicas that have the same positions."""
    preview: EventTimePreview | None = None
    watched: CurrentEnds | None = None
    """Called from a thread of its own between plans, so it needs connections of its own. Without it the time between
    plans counts as time in which the logs answered."""
    transactions: OpenTransactions | None = None
    """``None`` where all rows before an end can be read, and none exists behind it."""
    announcements: AnnouncementLog | None = None
    """Needed for ``watermarkStrategy`` ``announced``; opened only with it."""
    lineage: Lineage | None = None
    """``None`` for logs that keep their rows, or lose the oldest ones alone."""

    @property
    def positions_are_rows(self) -> bool:
        """Whether each position is about one row, so that a range can be cut at any of them."""
        return self.row_index is None


class SourceDefinition(Protocol):
    """One source as the user configured it. Picklable; it connects when ``open`` is called."""

    @property
    def name(self) -> str:
        """Name of the format."""

    @property
    def columns(self) -> StructType:
        """The system's own columns; the stream has ``event_time`` and ``marker`` after them."""

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""

    def open(self) -> Connector:
        """Connect the driver side."""

    @property
    def begins_with_snapshot(self) -> bool:
        """Whether a new query reads snapshots first, and has no watermark before they are complete; false by default.

        A join on processing time takes only such a source as its build side.
        """
        return False

    @property
    def deletion_time_column(self) -> str | None:
        """Own column with the time of a deletion, where the row that reports it has the deleted row's event time.

        ``None``, the default: its event time is that of the deletion, or is not known to be another. A join on event
        time refuses deletions with the deleted row's time: they would take back a version at its beginning.
        """
        return None

    @property
    def change_columns(self) -> Sequence[str]:
        """The column of the kind of change, then those that order the changes of a row; by default none.

        A source that names them has rows that are changes of a table. A join refuses it as build side without them.
        """
        return ()

    @property
    def event_time(self) -> str | None:
        """Return the user's choice of event time as text, such as an option and its value.

        ``None``, the default, if the user has no choice. It is recorded in the offset: a watermark of one event time
        is not valid for another.
        """
        return None

    @property
    def time_columns(self) -> Sequence[str]:
        """Own columns with the same times as ``event_time``, by the user's choice or by default; by default none.

        ``follow_watermark`` warns of other columns: the watermark is not about their times.
        """
        return ()

    @property
    def words(self) -> Words:
        """What warnings and the status call the parts of the source, and which of its options they name.

        The default names the options that ``AlignedDataSource`` adds for streams.
        """
        return Words(limit="maxRowsPerTrigger", from_start='.option("startingOffsets", "earliest")')

    @property
    def loss_conditions(self) -> Mapping[LossKind, str]:
        """The error conditions of the system's usual Spark source, by kind of loss; by default none."""
        return {}

    @property
    def selection(self) -> str | None:
        """Return the option that selects logs and its value, such as ``subscribe is orders``; by default ``None``."""
        return None

    def selects(self, log: str) -> bool | None:
        """Return whether the user's options select a log that a checkpoint holds.

        ``None``, the default, if they do not select logs by name.
        """
        return None

    def position_text(self, split: Split, position: int) -> str:
        """Return a position as users of the system know it, for errors and logs; by default the number."""
        return str(position)

    @property
    def observing_reader(self) -> RangeReader:
        """The reader that repeats a range for its event times, without columns; by default ``range_reader``."""
        return self.range_reader

    @property
    def reader_ahead(self) -> RangeReader:
        """``observing_reader`` for rows that no batch has read yet; by default that reader.

        A row whose event time cannot be found has a null here: the batch that reads the row decides what that means.
        """
        return self.observing_reader

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        """Read an offset of the system's usual Spark source; ``None``, the default, if it is not one."""
        return None


@dataclass(frozen=True, slots=True)
class EarliestOrLatest(StartPositions):
    """``StartPositions`` of a source whose new queries begin at the first existing row, or after the last one."""

    bounds: LogBounds
    earliest: bool

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first position of each log, or its end."""
        return self.bounds.earliest_positions(splits) if self.earliest else self.bounds.end_positions(splits)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the first retained positions."""
        return self.bounds.earliest_positions(splits)
