"""Watermark strategies: how the watermark of a split follows the event times of its rows. One class each.

A strategy computes watermarks; the split keeps the highest one so far, which is the output rule of Flink's
``WatermarkOutput``. Flink calls a generator for each record (``onEvent``); here a strategy is called once for each
range that a batch read (``on_range``), and a range of one record gives the same watermark.

A strategy object is a value, and keeps nothing in itself. Its fields are the properties that it overrides, with
``field()``: without a default of its own a field would have what it overrides as its default. One that needs earlier
ranges of a split returns what it remembers of them from ``on_range``, and is given it with the split's next range:
offsets have it under "own", with the strategy's name (``keeps_as``). So a replay begins with what the first run had.

To add a strategy, derive a class from ``WatermarkStrategy`` or from the strategy it resembles, and give it a row in
``watermark_source/spark/strategy_rows.py``, of which option texts and pages are made. Nothing decides by which strategy
it is. ``Bounded`` is the one to derive from where the highest event time decides, ``RowsAlone`` where rows decide in
another way, ``WholeSource`` where no split has a watermark of its own; one that remembers ranges is ``MedianOfRanges``
in ``tests/unit/planning/median_of_ranges.py``. The user's classes are called by ``generator.py``. What each of ours
answers::

    class           tasks_observe  behind_highest  advances_early  looks_up_times
    Bounded         HIGHEST        bound           yes             yes
    Monotonous      HIGHEST        bound           yes             yes
    Percentile      DISORDER       bound           yes             yes
    Ingestion       HIGHEST        bound           yes             yes
    LookAhead       HIGHEST        bound           no              yes
    Punctuated      MARKS          None            no              no
    Own             HIGHEST        None            no              no
    OwnWithMarks    MARKS          None            no              no
    Announced       LATE_ROWS      None            no              yes
    ProcessingTime  NOTHING        None            no              yes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Final, NamedTuple

from watermark_source.durations import format_duration
from watermark_source.errors import OffsetError
from watermark_source.planning.announced import AnnouncedBy
from watermark_source.planning.disorder import MILLION, Counts, Learned, RangeSummary, bound_of, rows_of, summed
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import MIN, Millis, saturating_add, watermark_text

CLOCKS_DIFFER: Final = 60_000
"""Milliseconds by which a watermark may be later than the driver's clock because two clocks differ."""


class TasksObserve(Enum):
    """What tasks observe in the rows of a range for a strategy."""

    HIGHEST = "the highest event time"
    DISORDER = "the highest event time, and how far each row is behind the highest one before it"
    MARKS = "the watermarks that rows carry"
    LATE_ROWS = "how many rows are late, for the status alone"
    NOTHING = "nothing"

    @property
    def is_event_times(self) -> bool:
        """Whether watermarks follow from the event times of rows."""
        return self in (TasksObserve.HIGHEST, TasksObserve.DISORDER)

    @property
    def is_needed(self) -> bool:
        """Whether a watermark depends on it: then a range is read again for what no task reported."""
        return self not in (TasksObserve.LATE_ROWS, TasksObserve.NOTHING)


class LateCause(NamedTuple):
    """Why rows of a split are late."""

    text: str
    option: str | None = None
    """The option that would have made them on time; ``None`` if there is none."""
    millis: int = 0
    """The value with which it would have."""
    hint: str = ""
    """What else to do, if anything."""


class Advance(NamedTuple):
    """What a range of a split leads to."""

    watermark: Millis | None = None
    """The split's watermark after the range, which may be lower than an earlier one; ``None``: no new one."""
    kept: str | None = None
    """What the strategy remembers of the split from now on: made by ``canonical``, read by ``value_of``
    (``canonical_json.py``)."""


def behind(event_time: Millis, bound: int) -> Millis:
    """Return the watermark of bounded out-of-orderness: ``bound`` ms and one more before an event time.

    One more because another event may have the same time. The result saturates at ``MIN``.
    """
    return saturating_add(event_time, -bound - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a connector declares that it can do for a strategy; ``load()`` refuses a strategy that needs more."""

    marks: bool = False
    """Its batches carry the watermarks of records (``ReadBatch.marks``)."""
    row_positions: bool = False
    """Each position is about one row, and batches carry the position of each row (``ReadBatch.positions``)."""
    rows_ahead: bool = False
    """Reading may begin at any position of a log, so that the driver can read the event times behind a batch."""
    announcements: bool = False
    """Writers can announce watermarks of its logs (``Connector.announcements``)."""
    dates_rows: bool = False
    """The system dates rows when it writes them, in the order of its log, and names its time with a log's end
    (``Ends.reached``)."""


class WatermarkStrategy(ABC):
    """A strategy that follows the highest event time of a split at a distance of ``bound`` ms, unless overridden."""

    __slots__ = ()

    needs: ClassVar[Mapping[str, str]] = {}
    """Fields of ``Abilities`` without which a connector cannot serve the strategy. Each value is the reason in the
    error of ``load()``, after "watermarkStrategy = …: "."""
    needless_where_dated: ClassVar[str | None] = None
    """Why the strategy is refused for a system that dates its rows itself (``Abilities.dates_rows``), as a database's
    log does while no column of the rows has the event time; ``None`` if it is not refused."""
    tasks_observe: ClassVar[TasksObserve] = TasksObserve.HIGHEST
    """What tasks observe for it in the rows that they read."""
    advances_early: ClassVar[bool] = True
    """Whether a batch may carry the watermark of its own rows where a look-up shows it before they are read."""

    looks_up_times: ClassVar[bool] = True
    """Whether budget and alignment plan by event times that are looked up (``TimeIndex``); else in steps. No, where the
    watermark after a range depends on more than its highest event time."""

    is_clock: ClassVar[bool] = False
    """Whether event time is the driver's clock, once all that is read first has been read."""

    has_split_watermarks: ClassVar[bool] = True
    """Whether each split has a watermark of its own, from which the combined one follows."""

    rows_ahead: int | None = None
    """How many positions of each log the driver reads ahead of a batch, at most; ``None`` if it does not."""

    announced_by: AnnouncedBy | None = None
    """Whose announcements the combined watermark follows; ``None`` if it does not follow any."""

    write_delay: int | None = None
    """Milliseconds after its event time within which each row must be written; ``None`` if that is not required."""

    @property
    @abstractmethod
    def bound(self) -> int:
        """Milliseconds by which a row may be behind the highest event time of its split and still be on time."""

    @property
    def behind_highest(self) -> int | None:
        """Milliseconds by which a split's watermark is behind its highest event time.

        The most that it can be, where it differs by split. ``None``: it does not follow that time. Then no first look
        at rows tells a group where a split stands, and the status states no bound and no newest event time of a hold.
        """
        return self.bound

    @property
    def behind_newest(self) -> int | None:
        """As ``behind_highest``; ``None`` as well where a clock also moves the watermark."""
        return self.behind_highest if self.write_delay is None else None

    @property
    def keeps_as(self) -> str | None:
        """The name under which offsets have what it remembers of splits; ``None`` if it remembers nothing."""
        return None

    @property
    def users_class(self) -> str | None:
        """The user's class that it calls, ``package.module:Class``; ``None`` if it calls none."""
        return None

    @property
    def summarized_by(self) -> str | None:
        """The user's class that sums up rows in tasks (``RangeSummary.summaries``); ``None`` if none does."""
        return None

    def continues(self, kept_by: str | None) -> bool:
        """Return whether what the strategy of this name, if any, kept of splits is of use from now on."""
        return kept_by in (None, self.keeps_as)

    def watermark_of(self, event_time: Millis) -> Millis:
        """Return the watermark of a split whose highest event time is this. Budget and alignment plan by it."""
        return behind(event_time, self.bound)

    def event_time_of(self, watermark: Millis) -> Millis:
        """Return the highest event time that gives at most this watermark; the inverse of ``watermark_of``."""
        return saturating_add(watermark, self.bound + 1)

    # The watermark of one split. Each method returns None where the strategy derives no watermark, and may return one
    # that is lower than an earlier one. One without ``kept`` never returns a higher one than ``on_range`` would.

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        """Return the watermark of a split after a range of its rows was read, and what is remembered of the split.

        It may be called again with equal arguments, and then answers the same.

        Args:
            split: whose range it is.
            kept: what the last call for this split returned; ``None`` for its first range.
            seen: what tasks observed in the range alone; it may be nothing, and then ``kept`` is returned as it is. A
                strategy with ``kept_highest`` is called for each plan, also without a range, with that highest time.
            cap: the latest event time that counted in it; ``None`` if all did.
        """
        return Advance(None if seen.highest is None else self.watermark_of(seen.highest))

    def with_batch(self, event_time: Millis) -> Millis | None:
        """Return the watermark that goes out with a batch known to hold a row of this event time, before it is read."""
        return self.watermark_of(event_time) if self.advances_early else None

    def at_end(self, reached: Millis) -> Millis | None:
        """Return the watermark of a batch that reads to the log's end, just before which its system stated this time.

        The system dates rows when it writes them: no row after that end is earlier.
        """
        return self.watermark_of(reached)

    def at_rest(self, split: Split, kept: str | None, reached: Millis) -> Millis | None:
        """Return the watermark of a split with nothing left to read.

        Args:
            split: which one.
            kept: as ``on_range`` returned it last.
            reached: as in ``LogTimes.reached``.
        """
        return self.watermark_of(reached)

    def at_rest_beside_rows(self, split: Split, kept: str | None, reached: Millis) -> Millis | None:
        """Return the watermark of a split at rest in a batch that reads rows of other splits.

        By default ``None``: the clock advances a split only while the whole source is at rest.
        """
        return None

    # The time that a log has reached at its end.

    def clock_due(self, due: Millis, now: Millis, interval: int) -> Millis | None:
        """Return up to when splits must be known for the driver's clock to advance one at rest.

        Args:
            due: what its watermark must exceed.
            now: by that clock.
            interval: milliseconds between two batches for the time alone.

        Returns:
            By that clock; ``None`` if it is not used.
        """
        return None

    def times_at_ends(
        self, stated: Mapping[Split, Millis], ends: Set[Split], driver: Millis | None
    ) -> Mapping[Split, Millis]:
        """Return the time that each log has reached at its end.

        Args:
            stated: by the logs' own systems.
            ends: splits whose end is known.
            driver: the driver's time of the last look for splits; ``None`` while that is not known.
        """
        return stated

    # Learning: what a strategy remembers of the rows.

    def kept_highest(self, before: Millis | None, seen: RangeSummary) -> Millis | None:
        """Return the highest event time that is kept of a split, beside its watermark; ``None`` if none is."""
        return None

    def after(self, learned: Learned | None, counts: Iterable[Counts]) -> Learned | None:
        """Return the source's disorder after rows were counted; ``None`` if the strategy does not learn from it."""
        return None

    def with_learned(self, learned: Learned | None) -> WatermarkStrategy:
        """Return the strategy with the bound that was learned."""
        return self

    # The source as a whole.

    def check_checkpoint(self, watermark: Millis | None, now: Millis, *, use_processing_time: bool) -> None:
        """Check that a query can resume with this strategy.

        Args:
            watermark: the combined watermark in the checkpoint.
            now: the driver's wall clock.
            use_processing_time: whether that watermark is a clock's.

        Raises:
            OffsetError: the strategy cannot continue from there.
        """
        if use_processing_time:
            raise OffsetError(
                "the checkpoint was written with processing-time watermarks (watermarkStrategy none), and its "
                "watermark is the clock: every row would be late. Set the old strategy, or start with a new "
                "checkpoint location."
            )

    def check_kept(self, kept_by: str | None, kept: Mapping[Split, str | None]) -> None:
        """Check that the strategy can begin with what a checkpoint has of an earlier one, or can do without.

        Args:
            kept_by: the strategy that kept it; ``None`` if none did.
            kept: of each split.

        Raises:
            OffsetError: it can do neither, or what it kept itself is not as it writes it: an offset may be damaged. By
                default it drops what it does not continue.
        """
        return

    def is_on_clock(self, *, reads_first: bool, was_on_clock: bool) -> bool:
        """Return whether event time is the driver's clock in the next batch (FLIP-326).

        Args:
            reads_first: whether snapshots, or logs that are read to their ends first, are not yet read so far.
            was_on_clock: whether it was in the last batch.
        """
        return False

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Return why rows of a split are late although it was not idle. ``longest``: how late, in milliseconds."""
        return LateCause(
            f"They are out of order by more than maxOutOfOrderness ({format_duration(self.bound)})",
            option="maxOutOfOrderness",
            millis=self.bound + longest + 1,
        )


@dataclass(frozen=True, slots=True)
class Bounded(WatermarkStrategy):
    """Follows the highest event time at a fixed distance."""

    bound: int = 0
    """The user's ``maxOutOfOrderness``."""


@dataclass(frozen=True, slots=True)
class Monotonous(Bounded):
    """``Bounded`` for splits whose rows come in order."""

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Name the strategy that allows for others."""
        return LateCause(
            "They are out of order, and with watermarkStrategy monotonous no row may be",
            hint="Use bounded with maxOutOfOrderness",
        )


@dataclass(frozen=True, slots=True)
class Percentile(WatermarkStrategy):
    """Follows the highest event time at a distance that is learned from the disorder of the rows read last."""

    needs: ClassVar[Mapping[str, str]] = {
        "row_positions": "needs positions that count rows, and those of this source do not"
    }
    tasks_observe: ClassVar[TasksObserve] = TasksObserve.DISORDER

    on_time: int
    """How many rows of a million are to be on time."""
    rows: int
    """The bound is learned from this many of the last rows, at least half of them; of a batch with more, from all that
    it counted."""
    most: int
    """Milliseconds: the bound never exceeds it, and it is the bound until enough is known."""
    learned: int | None = None
    """Milliseconds: the bound that was learned; ``None`` before."""

    _ENOUGH_BEYOND: ClassVar[int] = 10
    """A share is known well enough once this many rows are expected beyond it."""
    _ENOUGH_TIMES: ClassVar[int] = 10
    """The bound is learned from this many times as many rows as are enough."""

    @classmethod
    def of(cls, on_time: int, most: int) -> Percentile:
        """Return the strategy that learns from as many rows as its share needs."""
        made = cls(on_time, 0, most)
        return replace(made, rows=cls._ENOUGH_TIMES * made.enough)

    @property
    def bound(self) -> int:
        """The bound in force."""
        return self.most if self.learned is None else min(self.learned, self.most)

    @property
    def enough(self) -> int:
        """How many rows must have been seen before the bound follows them."""
        return -(-self._ENOUGH_BEYOND * MILLION // (MILLION - self.on_time))

    def kept_highest(self, before: Millis | None, seen: RangeSummary) -> Millis | None:
        """Return the highest event time so far: while the bound grows, the watermark does not show it."""
        if before is None or seen.highest is None:
            return seen.highest if before is None else before
        return max(before, seen.highest)

    def after(self, learned: Learned | None, counts: Iterable[Counts]) -> Learned:
        """Return the disorder with more rows, each counted by how far it was behind."""
        found = list(counts)
        if not found and learned is not None:
            return learned
        recent, earlier = ((), ()) if learned is None else (learned.recent, learned.earlier)
        recent = summed([recent, *found])
        bound = self._bound_of(summed([recent, earlier]))
        # Whole halves are dropped: reducing each counter a little with each small batch would lose rare rows.
        return Learned(bound, (), recent) if rows_of(recent) * 2 >= self.rows else Learned(bound, recent, earlier)

    def with_learned(self, learned: Learned | None) -> Percentile:
        """Return it with the bound that was learned."""
        return self if learned is None else replace(self, learned=learned.bound)

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """State the share that is meant to be late, and how to reduce it; or the limit, while it is the bound."""
        if self.bound >= self.most:
            return WatermarkStrategy.cause_of_late_rows(self, longest)
        return LateCause(
            f"watermarkStrategy percentile keeps {self.on_time * 100 / MILLION:g} % of the rows on time, and the "
            "others are late",
            hint="For fewer late rows, raise watermarkPercentile or use bounded; includeLate keeps them",
        )

    def _bound_of(self, counts: Counts) -> int:
        total = rows_of(counts)
        if total < self.enough:
            return self.most
        beyond, allowed = 0, total * (MILLION - self.on_time) // MILLION
        for bucket, rows in reversed(counts):
            beyond += rows
            if beyond > allowed:
                bound = bound_of(bucket)
                return self.most if bound is None else min(bound, self.most)
        return self.most


class RowsAlone(WatermarkStrategy):
    """A strategy in which nothing but what was read advances a split: neither a time at its log's end nor a clock."""

    __slots__ = ()

    advances_early: ClassVar[bool] = False

    bound: int = 0
    """A strategy with ``maxOutOfOrderness`` overrides it, and ``watermark_of`` follows."""
    behind_highest: int | None = None

    def at_end(self, reached: Millis) -> Millis | None:
        """Return ``None``."""
        return None

    def at_rest(self, split: Split, kept: str | None, reached: Millis) -> Millis | None:
        """Return ``None``."""
        return None


@dataclass(frozen=True, slots=True)
class Punctuated(RowsAlone):
    """Uses the watermarks that rows carry; nothing else advances a split."""

    needs: ClassVar[Mapping[str, str]] = {
        "marks": "needs records that carry watermarks, and those of this source carry none"
    }
    tasks_observe: ClassVar[TasksObserve] = TasksObserve.MARKS
    looks_up_times: ClassVar[bool] = False

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        """Return the highest of the range's watermarks."""
        return Advance(seen.marked)

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Name the producer, which states the watermarks."""
        return LateCause("They come behind a watermark that a record carries: the producer writes it too early")


class WholeSource(RowsAlone):
    """A strategy whose watermark is of the source as a whole: splits have none, and no row is behind by a bound."""

    __slots__ = ()

    has_split_watermarks: ClassVar[bool] = False

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        """Return no watermark, as all methods about one split."""
        return Advance()


@dataclass(frozen=True, slots=True)
class Announced(WholeSource):
    """Follows what the writers of the logs announce; see ``announced.py``. Splits have no watermark of their own."""

    needs: ClassVar[Mapping[str, str]] = {
        "announcements": "needs a log beside the data in which its writers announce watermarks, and the writers of "
        "this source's data have none"
    }
    needless_where_dated: ClassVar[str | None] = (
        "the source's own system dates its rows, in the order of its log, and no writer announces watermarks"
    )
    tasks_observe: ClassVar[TasksObserve] = TasksObserve.LATE_ROWS

    announced_by: AnnouncedBy = field()
    """The user's choice of writers."""

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Name the writers, which announce the watermarks."""
        return LateCause(
            "They lie behind an announcement whose watermark they are not later than: they are copies of a batch that "
            "a writer repeated (drop them by a key: docs/between-jobs.md), or rows of a producer that does not announce"
        )


@dataclass(frozen=True, slots=True)
class Ingestion(WatermarkStrategy):
    """Follows the highest event time, and the driver's clock while a split has nothing left to read."""

    needless_where_dated: ClassVar[str | None] = (
        "the source's own system dates its rows, and with bounded the watermark follows its clock while nothing is "
        "written"
    )

    write_delay: int = field()
    """The user's ``maxWatermarkLag``, by which the watermark of a split at rest is behind the clock: a row that is
    written later is behind that watermark."""
    bound: int = 0
    """The user's ``maxOutOfOrderness``, for rows that are read."""

    def at_end(self, reached: Millis) -> Millis | None:
        """Return ``None``: the driver's clock does not date rows, and advances splits at rest alone."""
        return None

    def at_rest(self, split: Split, kept: str | None, reached: Millis) -> Millis | None:
        """Return the clock's time less the lag."""
        return behind(reached, self.write_delay)

    at_rest_beside_rows = at_rest
    """The same: a batch goes out anyway, so splits at rest need not wait until the whole source is."""

    def clock_due(self, due: Millis, now: Millis, interval: int) -> Millis | None:
        """Return the inverse of ``at_rest``."""
        return saturating_add(due, self.write_delay + 1)

    def times_at_ends(
        self, stated: Mapping[Split, Millis], ends: Set[Split], driver: Millis | None
    ) -> Mapping[Split, Millis]:
        """Return the driver's time for all of them."""
        return {} if driver is None else dict.fromkeys(ends, driver)

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Name both bounds: which of them the watermark followed is not known of each row."""
        return LateCause(
            "They were written, after a pause of the split, longer after their event time than maxWatermarkLag "
            f"({format_duration(self.write_delay)}), or are out of order by more than maxOutOfOrderness "
            f"({format_duration(self.bound)})",
            hint="Raise the one that applies",
        )


@dataclass(frozen=True, slots=True)
class LookAhead(WatermarkStrategy):
    """Stays behind the lowest event time that is known to be unread; see ``look_ahead.py``."""

    needs: ClassVar[Mapping[str, str]] = {
        "rows_ahead": "needs a log that can be read from any position on, and that of this source cannot be"
    }
    needless_where_dated: ClassVar[str | None] = "the source's log is in the order in which its system dates the rows"
    advances_early: ClassVar[bool] = False

    rows_ahead: int = field()
    bound: int = 0
    """The user's ``maxOutOfOrderness``, for rows that are not known yet."""

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Name the options of this strategy."""
        return LateCause("They came behind what was looked at ahead: see lookaheadRows")


@dataclass(frozen=True, slots=True)
class ProcessingTime(WholeSource):
    """Processing time: event time is the driver's clock once all snapshots are read; no watermark before (FLIP-326)."""

    tasks_observe: ClassVar[TasksObserve] = TasksObserve.NOTHING
    is_clock: ClassVar[bool] = True

    def check_checkpoint(self, watermark: Millis | None, now: Millis, *, use_processing_time: bool) -> None:
        """Refuse a watermark of event times that is later than the clock."""
        if not use_processing_time and (watermark or MIN) > saturating_add(now, CLOCKS_DIFFER):
            raise OffsetError(
                f"the checkpoint's watermark, {watermark_text(watermark)}, is of event times and later than the "
                f"driver's clock, {watermark_text(now)}: with watermarkStrategy none every row would be dated so, and "
                "no window would close, until the clock has come there. Set the old strategy, or start with a new "
                "checkpoint location."
            )

    def is_on_clock(self, *, reads_first: bool, was_on_clock: bool) -> bool:
        """Return whether all snapshots are read. It never goes back, though a table found later has a snapshot too."""
        return was_on_clock or not reads_first
