"""One check of the kit: a function of a harness, and what a connector must offer for it to mean anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from watermark_source.testing.harness import Ability, Harness


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
