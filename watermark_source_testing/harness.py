"""What a connector's author gives the kit: how a check writes to the system and loses rows there, and its abilities."""

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
    """Milliseconds since 1970, a whole second. A system may date rows itself: see ``Ability.CHOSEN_TIMES``."""
    value: int
    """Unique among the rows of a check, which recognises the row by it."""


class Ability(Enum):
    """Abilities that only some systems or connectors have; each enables some checks."""

    CHOSEN_TIMES = auto()
    """A row's event time is the one that it was written with."""
    SEVERAL_SPLITS = auto()
    """There are two splits or more, and the writer chooses the split of a row."""
    NEW_SPLITS = auto()
    """Splits are added while a query runs: ``write`` creates a split that does not exist yet."""
    LOSS = auto()
    """``lose`` deletes rows."""
    QUIET = auto()
    """Nothing else writes to the logs, and without writes neither their ends nor their times move."""
    BUILT_OFFLINE = auto()
    """``load()`` does not connect."""
    REMOTE = auto()
    """The system may be out of reach: ``unreachable_options``."""
    SECRETS = auto()
    """Options hold secrets: ``secrets``."""
    TIME_INDEX = auto()
    """``Connector.time_index``."""
    PREVIEW = auto()
    """``Connector.preview``."""
    ROW_INDEX = auto()
    """Positions are not rows: ``Connector.row_index``."""
    CUTTER = auto()
    """``Connector.cutter``."""
    MARKS = auto()
    """Records carry watermarks: ``mark_options``."""
    BATCHES = auto()
    """``spark.read`` reads the rows of ``options``."""


class Harness(ABC):
    """One connector over logs that belong to one check. Each check gets a new harness, and closes it."""

    source: ClassVar[type[AlignedDataSource]]
    """The format's class."""
    abilities: ClassVar[frozenset[Ability]]
    value_column: ClassVar[str] = "value"
    unreachable_options: ClassVar[Mapping[str, str]] = {}
    """What to change in ``options`` so that the system is out of reach; the error must come within ``patience``."""
    mark_options: ClassVar[Mapping[str, str]] = {}
    """What to add to ``options`` so that each row carries its own event time as its watermark."""
    secrets: ClassVar[Sequence[str]] = ()
    """Texts in the values of ``options`` that must not appear anywhere."""
    patience: ClassVar[float] = 30.0
    """Seconds within which any one call of the connector answers or raises."""

    @property
    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """Options of a stream that begins with the first row."""

    @property
    @abstractmethod
    def options_at_end(self) -> Mapping[str, str]:
        """Options of a stream that begins after the last row that exists when it starts."""

    @abstractmethod
    def write(self, split: int, rows: Sequence[Row]) -> None:
        """Append rows to a split, in this order; they are readable when it returns."""

    def lose(self, split: int) -> None:
        """Delete all existing rows of a split, as retention or an accident would; other splits stay."""
        raise NotImplementedError

    def values(self, rows: pa.Table) -> Sequence[int]:
        """Return the values of delivered rows, which have the format's columns."""
        found: Sequence[int] = rows[self.value_column].to_pylist()
        return found

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Remove what the check has created."""

    def __enter__(self: _Harness) -> _Harness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


# One check of the kit: a function of a harness, and the abilities that it needs.


class NonConformanceError(AssertionError):
    """A connector breaks the contract; the message has what was seen and what was expected."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check. Call it with a new harness; it raises ``NonConformanceError``, or an error of the connector."""

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
    """Make a check of a function, with the function's name and the first line of its docstring."""

    def make(run: Callable[[Harness], None]) -> Check:
        return Check(run.__name__, frozenset(needs), (run.__doc__ or "").partition("\n")[0], run)

    return make


def expect(holds: bool, seen: str) -> None:
    """Raise ``NonConformanceError`` with a text unless a condition holds."""
    if not holds:
        raise NonConformanceError(seen)


def expect_equal(seen: object, expected: object, what: str) -> None:
    """Raise ``NonConformanceError`` unless two values are equal."""
    expect(seen == expected, f"{what}: seen {_short(seen)}, expected {_short(expected)}")


@contextmanager
def expect_error(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise ``NonConformanceError`` unless the block raises an error of this kind."""
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
