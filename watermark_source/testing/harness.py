"""What a connector's author tells the kit: how a check writes to the system, loses rows there, and what can be done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import ClassVar, NamedTuple, TypeVar

import pyarrow as pa

from watermark_source.spark.data_source import AlignedDataSource

_Harness = TypeVar("_Harness", bound="Harness")


class Row(NamedTuple):
    """A row that a check writes."""

    event_time: int
    """Milliseconds since 1970, a whole second. The system may date rows by itself: see ``Ability.CHOSEN_TIMES``."""
    value: int
    """By which the check knows the row again; no two rows of a check have the same."""


class Ability(Enum):
    """What not every system or connector has; each is the reason of some checks."""

    CHOSEN_TIMES = auto()
    """A row's event time is the one that it was written with."""
    SEVERAL_SPLITS = auto()
    """There are two splits or more, and the writer says to which one a row goes."""
    NEW_SPLITS = auto()
    """Splits are added while a query runs: ``write`` makes one that is not there yet."""
    LOSS = auto()
    """``lose`` makes rows be gone."""
    QUIET = auto()
    """Nobody else writes, and time stands still in silence: a log that is not written to tells nothing new."""
    BUILT_OFFLINE = auto()
    """``load()`` asks the system nothing."""
    REMOTE = auto()
    """The system may be out of reach: ``unreachable_options``."""
    SECRETS = auto()
    """Options hold secrets: ``secrets``."""
    TIME_INDEX = auto()
    PREVIEW = auto()
    ROW_INDEX = auto()
    """Positions are not rows: ``Connector.row_index``."""
    CUTTER = auto()
    MARKS = auto()
    """Records carry watermarks: ``mark_options``."""
    BATCHES = auto()
    """``spark.read`` reads the rows of ``options``."""


class Harness(ABC):
    """One connector over logs of one check's own. Made anew for every check, and closed after it."""

    source: ClassVar[type[AlignedDataSource]]
    """The format's class."""
    abilities: ClassVar[frozenset[Ability]]
    value_column: ClassVar[str] = "value"
    unreachable_options: ClassVar[Mapping[str, str]] = {}
    """What to change in ``options`` so that the system is out of reach, and an error comes within ``patience``."""
    mark_options: ClassVar[Mapping[str, str]] = {}
    """What to add to ``options`` so that each row carries its own event time as its watermark."""
    secrets: ClassVar[Sequence[str]] = ()
    """Texts in the values of ``options`` that must be shown nowhere."""
    patience: ClassVar[float] = 30.0
    """Seconds within which any one call of the connector answers or raises."""

    @property
    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """Options of a stream that begins with the first row."""

    @property
    @abstractmethod
    def options_at_end(self) -> Mapping[str, str]:
        """Options of a stream that begins after the last row there is when it starts."""

    @abstractmethod
    def write(self, split: int, rows: Sequence[Row]) -> None:
        """Append rows to a split, in this order; they can be read when it returns."""

    def lose(self, split: int) -> None:
        """Make all rows of a split be gone that there are, as retention or an accident would; the rest stays."""
        raise NotImplementedError

    def values(self, rows: pa.Table) -> Sequence[int]:
        """Return the values of delivered rows, given with the columns that the format has."""
        found: Sequence[int] = rows[self.value_column].to_pylist()
        return found

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Remove what the check has made."""

    def __enter__(self: _Harness) -> _Harness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


# One check of the kit: a function of a harness, and what a connector must offer for it to mean anything.


class NonConformanceError(AssertionError):
    """What a connector does otherwise than the engine relies on; the message says what was seen and expected."""


@dataclass(frozen=True, slots=True)
class Check:
    """Call it with a harness of its own; raises ``NonConformanceError``, or an error of the connector's."""

    name: str
    needs: frozenset[Ability]
    contract: str
    """What is expected of a connector, in one sentence."""
    run: Callable[[Harness], None]

    def __call__(self, harness: Harness) -> None:
        """Run it."""
        self.run(harness)

    def __str__(self) -> str:
        return self.name


def check(*needs: Ability) -> Callable[[Callable[[Harness], None]], Check]:
    """Make a check of a function; its name and first line of documentation become the check's."""

    def make(run: Callable[[Harness], None]) -> Check:
        return Check(run.__name__, frozenset(needs), (run.__doc__ or "").partition("\n")[0], run)

    return make


def expect(holds: bool, seen: str) -> None:
    """Raise ``NonConformanceError`` unless something holds."""
    if not holds:
        raise NonConformanceError(seen)


def expect_equal(seen: object, expected: object, what: str) -> None:
    """Raise ``NonConformanceError`` unless two values are equal."""
    expect(seen == expected, f"{what}: seen {_short(seen)}, expected {_short(expected)}")


@contextmanager
def expect_error(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise ``NonConformanceError`` unless an error of a kind is raised within."""
    try:
        yield
    except kind:
        return
    except Exception as other:
        raise NonConformanceError(f"{what}: expected {kind.__name__}, seen {type(other).__name__}: {other}") from other
    raise NonConformanceError(f"{what}: expected {kind.__name__}, and nothing was raised")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
