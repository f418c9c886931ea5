"""A watermark strategy of the user's own: a class that computes each split's watermark, and how the planner calls it.

The class is Flink's ``WatermarkGenerator``, called once for each range that a batch read instead of once for each
record. Its state is an argument and a result: the offset carries it, so a replay begins with what the first run had.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import ClassVar, Final

from watermark_source.errors import GeneratorError, OffsetError, OptionError, shortened
from watermark_source.planning.canonical_json import Json, canonical, value_of
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Advance, LateCause, RowsAlone, TasksObserve
from watermark_source.planning.watermark import LAST, MIN, Millis

LARGEST_STATE: Final = 1_024
"""Bytes of one split's state as compact JSON in UTF-8: each batch's offset has that of every split."""

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
    ``highest`` and ``marked`` is a number.
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


class WatermarkGenerator(ABC):
    """Derive from it, and name the class: ``watermarkStrategy = package.module:Class``.

    One instance, made without arguments, serves all splits of a source, in the one Python process that plans its
    batches. That process and the one that calls ``load()`` must be able to import the module; executors never do.

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
            rows: what the batch found in the range. Ranges without a time are not passed.
            state: what the last call for this split returned; ``None`` for its first range. A copy, free to change.

        Returns:
            The watermark in milliseconds since 1970-01-01 UTC. One that is lower than the split's last one leaves that
            in force, and so does ``None``. And the state: JSON of at most 1 024 bytes.
        """

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

    @property
    def users_class(self) -> str:
        """The class."""
        return self.name

    def continues(self, kept_by: str | None) -> bool:
        """Return whether the class, or one of its earlier names, kept it."""
        return kept_by in (None, self.name, *load_generator(self.name).formerly)

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        """Ask the generator.

        Raises:
            GeneratorError: it raised an error, or returned what is no watermark or no state.
        """
        if seen.highest is None and seen.marked is None:
            return Advance(None, kept)
        rows = RowsRead(split.log, split.number, seen.highest, seen.marked, seen.is_whole)
        generator = load_generator(self.name)
        with _wrapped(self.name, split, "on_range"):
            returned = generator.on_range(rows, value_of(kept))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise _broken(self.name, split, f"returned {shortened(repr(returned))}", "a watermark and a state")
        watermark, state = returned
        if watermark is not None and (type(watermark) is not int or not MIN < watermark < LAST):
            raise _broken(
                self.name, split, f"returned the watermark {shortened(repr(watermark))}",
                "None, or whole milliseconds since 1970-01-01 UTC, in 64 bits",
            )  # fmt: skip
        found = None if watermark is None or (cap is not None and watermark > cap) else Millis(watermark)
        return Advance(found, self._text(split, state))

    def check_kept(self, kept_by: str | None, kept: Mapping[Split, str | None]) -> None:
        """Check that the generator can continue a checkpoint. What one of the project's strategies kept is dropped.

        Raises:
            OffsetError: another class wrote it, or the generator refuses the state of a split.
            GeneratorError: its ``check_state`` raised anything else.
        """
        own = load_generator(self.name)
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
                with _wrapped(self.name, split, "check_state"):
                    own.check_state(value_of(text))
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

    def _text(self, split: Split, state: Json) -> str | None:
        try:
            text = None if state is None else canonical(state)
            same = value_of(text) == state
        except (TypeError, ValueError, RecursionError) as error:
            raise _broken(self.name, split, f"returned a state that is not JSON: {error}", _STATE) from None
        if not same:
            raise _broken(
                self.name, split, f"returned the state {shortened(repr(state))}, which JSON gives back as "
                f"{shortened(repr(value_of(text)))}", _STATE,
            )  # fmt: skip
        if text is not None and (size := len(text.encode())) > LARGEST_STATE:
            raise _broken(
                self.name, split, f"returned a state of {size} bytes, {shortened(text)}",
                f"at most {LARGEST_STATE} bytes of JSON, because each batch's offset has the state of every split",
            )  # fmt: skip
        return text


_STATE = "None, bool, int, float, str, lists of these, and dicts of these by str"


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
            "module: install it there, give it as one .py file to --py-files, or set PYTHONPATH before Spark starts. A "
            "query whose class was renamed continues with the new name, if the class has the old one in formerly",
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
    if isinstance(made.formerly, str):
        raise OptionError(
            OPTION, name, f'has formerly = "{made.formerly}", and it must be a tuple of names, ("{made.formerly}",)'
        )
    return made


# A program that is imported, or a class that gives up, by sys.exit would end the process that plans, without a reason.


@contextmanager
def _wrapped(name: str, split: Split, method: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise GeneratorError(
            f"watermarkStrategy {name} failed in {method} for split {split}: {type(error).__name__}: {error}"
        ) from error


def _broken(name: str, split: Split, seen: str, accepted: str) -> GeneratorError:
    return GeneratorError(f"watermarkStrategy {name}: on_range for split {split} {seen}; accepted: {accepted}")
