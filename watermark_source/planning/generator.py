"""A watermark strategy of the user's own: a class that computes each split's watermark, and how the planner calls it.

The class is Flink's ``WatermarkGenerator``, called once for each range that a batch read instead of once for each
record. Its state is an argument and a result: the offset carries it, so a replay begins with what the first run had.
What it needs of the rows themselves it sums up in the tasks that read them (``summarize``), and the report of a task
carries that, as it carries the highest event time. Flink's ``onPeriodicEmit`` is ``on_silence``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from watermark_source.errors import GeneratorError, OffsetError, OptionError, shortened
from watermark_source.planning.canonical_json import Json, canonical, value_of
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Advance, LateCause, RowsAlone, TasksObserve
from watermark_source.planning.watermark import LAST, MAX, MIN, Millis, saturating_add

if TYPE_CHECKING:
    # Tasks alone have rows: what plans needs no Arrow.
    import pyarrow as pa

LARGEST_STATE: Final = 1_024
"""Bytes of one split's state, and of a summary, as compact JSON in UTF-8: each batch's offset has the state of every
split, and each report of a task a summary."""

OPTION: Final = "watermarkStrategy"
EXAMPLE: Final = "my_package.watermarks:MyGenerator"
_CLASS: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def names_a_class(strategy: str) -> bool:
    """Return whether the name of a strategy is that of a user's class, and not of one of the project's strategies."""
    return ":" in strategy


def class_name(text: str) -> str:
    """Parse the name of a class; raises ``ValueError``."""
    if _CLASS.fullmatch(text.strip()) is None:
        raise ValueError(f"a class is named as {EXAMPLE}")
    return text.strip()


@dataclass(frozen=True, slots=True)
class RowsRead:
    """One range of a split whose rows a batch has read. The same range always has the same values.

    Event times later than ``maxFutureSkew`` allows are left out, and so are rows without an event time. At least one of
    ``highest``, ``marked`` and ``summary`` is not ``None``.
    """

    log: str
    """Topic or table."""
    number: int
    """Number of the partition; 0 where a log has only one."""
    highest: int | None
    """Highest event time of the range, in milliseconds since 1970-01-01 UTC; ``None`` if no row has one."""
    marked: int | None = None
    """Highest watermark that a record of the range carries; ``None`` if none does, and without ``reads_marks``."""
    is_whole: bool = True
    """False if rows of the range were deleted or could not be read again: they may have had any event time."""
    summary: Json = None
    """What ``summarize`` and ``merge`` made of the rows; ``None`` if nothing, or the class has neither."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A split with nothing left to read, at a moment of a running query."""

    log: str
    """Topic or table."""
    number: int
    """Number of the partition; 0 where a log has only one."""
    now: int
    """The clock just before the split's end was asked for, in milliseconds since 1970-01-01 UTC: that of its system
    where that states one, else the driver's. No row that was written before is unread."""


class WatermarkGenerator(ABC):
    """Derive from it, and name the class: ``watermarkStrategy = package.module:Class``.

    One instance, made without arguments, serves all splits of a source, in the one Python process that plans its
    batches. That process and the one that calls ``load()`` must be able to import the module; executors need it for
    ``summarize`` alone.

    A generator is deterministic: equal arguments give equal results, in any process. It keeps nothing in the instance,
    reads no clock, and does no I/O. After a failure, or while a batch is planned, it is called again for the same range
    with the same state; only the last result counts. A call that does not return for ten minutes ends the query.

    A watermark ``W`` states that no row with an event time at or before ``W`` follows in the split. The generator alone
    answers for that: rows behind its watermark are late, and dropped by windows.
    """

    reads_marks: ClassVar[bool] = False
    """Whether it uses the watermarks that records carry: the source must have records that carry some."""
    formerly: ClassVar[Collection[str]] = ()
    """Earlier names of the class, ``package.module:Class``, whose state in a checkpoint it continues."""

    @abstractmethod
    def on_range(self, rows: RowsRead, state: Json) -> tuple[int | None, Json]:
        """Return the watermark of a split after a range of its rows was read, and its state from now on.

        Args:
            rows: what the batch found in the range. Ranges without a time and without a summary are not passed.
            state: what the last call for this split returned; ``None`` for its first range. A copy, free to change.

        Returns:
            The watermark in milliseconds since 1970-01-01 UTC. One that is lower than the split's last one leaves that
            in force, and so does ``None``. And the state: JSON of at most 1 024 bytes.
        """

    def summarize(self, rows: pa.RecordBatch) -> Json:
        """Return what some rows of a range say, for ``RowsRead.summary``. Called in tasks, if a class has it.

        How many rows come at once differs from run to run, and ``merge`` makes one summary of those of a range: cut
        anywhere, the same rows must give the same.

        Args:
            rows: one or more, with the columns of the stream up to ``event_time``. Those that are later than
                ``maxFutureSkew`` allows are left out, and so are all of a snapshot.

        Returns:
            JSON of at most 1 024 bytes; ``None`` if the rows say nothing.
        """
        return None

    def merge(self, first: Json, second: Json) -> Json:
        """Return the summary of rows that follow each other in a split. A class with ``summarize`` has it, too.

        Args:
            first: of the earlier rows; not ``None``, nor is the other.
            second: of those behind them.
        """
        raise NotImplementedError

    def on_silence(self, silence: Silence, state: Json) -> int | None:
        """Return the watermark of a split while nothing comes. Called now and then, if a class has it.

        How often is not defined, so it changes no state, and one call must do as well as many. ``watermarkInterval``
        is the time between two batches for a watermark alone; the offset of such a batch has it.

        Args:
            silence: the split, and what time it is.
            state: what ``on_range`` returned last for the split; ``None`` before its first range.

        Returns:
            As ``on_range``. A watermark that is later than ``silence.now`` moves nothing, either.
        """
        return None

    def check_state(self, state: Json) -> None:
        """Raise ``ValueError`` for a split's state that this class cannot continue. By default any is accepted.

        Called for each split of a checkpoint before the first batch of a process. A class whose state changes its form
        either reads both forms in ``on_range``, or refuses the old one here.
        """
        return None  # noqa: RET501 - without a body no class could leave it out


class OwnStrategy(RowsAlone):
    """The strategy that calls a generator. It holds the class by name, so that executors need not import it."""

    __slots__ = ()

    looks_up_times: ClassVar[bool] = False

    name: str
    """The class, as ``package.module:Class``."""

    @property
    def keeps_as(self) -> str:
        """The class."""
        return self.name

    users_class = keeps_as

    @property
    def summarized_by(self) -> str | None:
        """The class, if it has ``summarize``."""
        return self.name if _overrides(load_generator(self.name), "summarize") else None

    @property
    def sees_silence(self) -> bool:
        """Whether the class has ``on_silence``."""
        return _overrides(load_generator(self.name), "on_silence")

    def continues(self, kept_by: str | None) -> bool:
        """Return whether the class, or one of its earlier names, kept it."""
        return kept_by in (None, self.name, *load_generator(self.name).formerly)

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        """Ask the generator.

        Raises:
            GeneratorError: it raised an error, or returned what is no watermark or no state.
        """
        summary = reduce(partial(self.merged, split), seen.summaries, None)
        if seen.highest is None and seen.marked is None and summary is None:
            return Advance(None, kept)
        rows = RowsRead(split.log, split.number, seen.highest, seen.marked, seen.is_whole, value_of(summary))
        on_range = _Call(self.name, split, "on_range")
        returned = on_range(rows, value_of(kept))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise on_range.broken(f"returned {shortened(repr(returned))}", "a watermark and a state")
        watermark, state = returned
        return Advance(on_range.watermark(watermark, cap), on_range.text("state", state))

    def summary_of(self, split: Split, rows: pa.RecordBatch) -> str | None:
        """Return the class's summary of some rows, as canonical JSON; ``None``: nothing.

        Raises:
            GeneratorError: it raised an error, or returned what is no summary.
        """
        summarize = _Call(self.name, split, "summarize")
        return summarize.text("summary", summarize(rows))

    def merged(self, split: Split, first: str | None, second: str | None) -> str | None:
        """Return the summary of rows that follow each other, each with its own; raises as ``summary_of``."""
        if first is None or second is None:
            return second if first is None else first
        merge = _Call(self.name, split, "merge")
        return merge.text("summary", merge(value_of(first), value_of(second)))

    def at_rest(self, split: Split, kept: str | None, reached: Millis) -> Millis | None:
        """Ask the generator, if it has ``on_silence``.

        Raises:
            GeneratorError: it raised an error, or returned what is no watermark.
        """
        if not self.sees_silence:
            return None
        on_silence = _Call(self.name, split, "on_silence")
        return on_silence.watermark(on_silence(Silence(*split, reached), value_of(kept)), reached)

    at_rest_beside_rows = at_rest
    """The silence of a split is its own."""

    def clock_due(self, due: Millis, now: Millis, interval: int) -> Millis | None:
        """Return the beginning of the interval that ends now: the class alone knows when the clock is of use."""
        since = due if due == MAX else saturating_add(now, -interval)
        return since if self.sees_silence else None

    def times_at_ends(
        self, stated: Mapping[Split, Millis], ends: Set[Split], driver: Millis | None
    ) -> Mapping[Split, Millis]:
        """Return the driver's time where the logs' own systems state none, for a class that sees silence."""
        if driver is None or not self.sees_silence:
            return stated
        return {**dict.fromkeys(ends, driver), **stated}

    def check_kept(self, kept_by: str | None, kept: Mapping[Split, str | None]) -> None:
        """Check that the generator can continue a checkpoint. What one of the project's strategies kept is dropped.

        Raises:
            OffsetError: another class wrote it, or the generator refuses the state of a split.
            GeneratorError: its ``check_state`` raised anything else.
        """
        if kept_by is None or not names_a_class(kept_by):
            return
        if not self.continues(kept_by):
            raise OffsetError(
                f"the checkpoint has the watermark state of {kept_by}, and watermarkStrategy is {self.name}. If that "
                f'is the same class under a new name, write in it: formerly = ("{kept_by}",). Otherwise set '
                f"watermarkStrategy to {kept_by}, or start with a new checkpoint location"
            )
        for split, text in kept.items():
            if text is None:
                continue
            try:
                _Call(self.name, split, "check_state")(value_of(text))
            except GeneratorError as error:
                if not isinstance(error.__cause__, ValueError):
                    raise
                raise OffsetError(
                    f"watermarkStrategy {self.name} cannot continue the state of {split} in the checkpoint, "
                    f"{shortened(text)}: {error.__cause__}. Have the class accept it, or start with a new checkpoint "
                    "location"
                ) from error.__cause__

    def cause_of_late_rows(self, longest: int) -> LateCause:
        """Name the class."""
        return LateCause(
            f"They come behind the watermark of {self.name} (watermarkStrategy), which alone decides how far rows may "
            "be out of order"
        )


@dataclass(frozen=True, slots=True)
class Own(OwnStrategy):
    """The strategy of a generator that uses event times alone."""

    name: str


@dataclass(frozen=True, slots=True)
class OwnWithMarks(OwnStrategy):
    """The strategy of a generator that also uses the watermarks which records carry."""

    needs: ClassVar[Mapping[str, str]] = {
        "marks": "reads watermarks that records carry (reads_marks), and those of this source carry none"
    }
    tasks_observe: ClassVar[TasksObserve] = TasksObserve.MARKS

    name: str


@cache
def load_generator(name: str) -> WatermarkGenerator:
    """Import a class, and make its one instance in this process.

    Raises:
        OptionError: there is no such class, it is no generator, or it cannot be made without arguments.
    """
    module, _, cls = name.partition(":")
    if module == "__main__":
        raise OptionError(
            OPTION, name, "is in the program itself, which the process that plans batches does not run: move the class "
            "to a module that it can import", example=EXAMPLE,
        )  # fmt: skip
    try:
        found = getattr(import_module(module), cls)
    except (Exception, SystemExit) as error:
        raise OptionError(
            OPTION, name, f"cannot be imported ({type(error).__name__}: {error}). The driver's Python needs its "
            "module, and with summarize that of executors: install it there, give it as one .py file to --py-files, or "
            "set PYTHONPATH before Spark starts. A query whose class was renamed continues with the new name, if the "
            "class has the old one in formerly",
        ) from error  # fmt: skip
    if not isinstance(found, type) or not issubclass(found, WatermarkGenerator):
        kind = "class of another kind" if isinstance(found, type) else type(found).__name__
        raise OptionError(
            OPTION, name, f"is a {kind}, and must be a class derived from watermark_source.WatermarkGenerator",
            example=EXAMPLE,
        )  # fmt: skip
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise OptionError(
            OPTION, name, f"cannot be made without arguments ({type(error).__name__}: {error}). Parameters belong in "
            "the class, or in a class derived from it", example=EXAMPLE,
        ) from error  # fmt: skip
    if _overrides(made, "summarize") and not _overrides(made, "merge"):
        raise OptionError(
            OPTION, name, "has summarize without merge, which makes one summary of those of all tasks that read a range"
        )
    if isinstance(made.formerly, str):
        raise OptionError(
            OPTION, name, f'has formerly = "{made.formerly}", and it must be a tuple of names, ("{made.formerly}",)'
        )
    return made


def _overrides(generator: WatermarkGenerator, method: str) -> bool:
    return getattr(type(generator), method) is not getattr(WatermarkGenerator, method)


_JSON = "None, bool, int, float, str, lists of these, and dicts of these by str"


class _Call(NamedTuple):
    """A call of a method of a user's class for a split, and the checks of what it returns."""

    name: str
    split: Split
    method: str

    def __call__(self, *arguments: object) -> Any:
        """Return what the method returns; raises ``GeneratorError`` for what it raises."""
        try:
            return getattr(load_generator(self.name), self.method)(*arguments)
        # A program that is imported, or a class that gives up, by sys.exit would end the process that plans, without a
        # reason.
        except (Exception, SystemExit) as error:
            raise GeneratorError(
                f"watermarkStrategy {self.name} failed in {self.method} for split {self.split}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def watermark(self, returned: object, latest: Millis | None) -> Millis | None:
        """Return the watermark that was returned; one after the ``latest`` moves nothing."""
        if returned is not None and (type(returned) is not int or not MIN < returned < LAST):
            raise self.broken(
                f"returned the watermark {shortened(repr(returned))}",
                "None, or whole milliseconds since 1970-01-01 UTC, in 64 bits",
            )
        return None if returned is None or (latest is not None and returned > latest) else Millis(returned)

    def text(self, what: str, value: Json) -> str | None:
        """Return the state or summary that was returned, as canonical JSON."""
        try:
            text = None if value is None else canonical(value)
            same = value_of(text) == value
        except (TypeError, ValueError, RecursionError) as error:
            raise self.broken(f"returned a {what} that is not JSON: {error}", _JSON) from None
        if not same:
            back = shortened(repr(value_of(text)))
            raise self.broken(f"returned the {what} {shortened(repr(value))}, which JSON gives back as {back}", _JSON)
        if text is not None and (size := len(text.encode())) > LARGEST_STATE:
            raise self.broken(
                f"returned a {what} of {size} bytes, {shortened(text)}",
                f"at most {LARGEST_STATE} bytes of JSON, because offsets have the state of every split, and reports "
                "the summary of every range",
            )
        return text

    def broken(self, seen: str, accepted: str) -> GeneratorError:
        """Return the error about what was returned."""
        return GeneratorError(
            f"watermarkStrategy {self.name}: {self.method} for split {self.split} {seen}; accepted: {accepted}"
        )
