"""What tests leave open: an error in a run without servers and Spark, a count at the end of any other (record 114)."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from _pytest.terminal import WarningReport

_KINDS = ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def found_in_its_file() -> Iterator[None]:
    """Collect garbage before the next file, whose test would fail of what this one's left open in a cycle."""
    yield
    gc.collect()
    # What is left lives as long as the run: the next file's garbage is looked for without it.
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Find what was frozen with its file and has no owner any more: it is counted, whose file it was is not known."""
    gc.unfreeze()
    with warnings.catch_warnings():
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    # pytest collects five times more, in which nothing is left to be found.
    gc.freeze()


def count_beside_spark(items: Sequence[pytest.Item]) -> None:
    """Have warnings recorded for all tests of a run of which some need a server or Spark."""
    if any(item.get_closest_marker(marker) for item in items for marker in ("service", "spark")):
        for item in items:
            for kind in _KINDS:
                item.add_marker(pytest.mark.filterwarnings(f"always::{kind}"))


def take_counts(terminalreporter: pytest.TerminalReporter) -> str:
    """Return how much each file left open, and take it out of the warnings that are listed one by one."""
    reported = terminalreporter.stats.get("warnings", [])
    kinds = tuple(f"{kind.rpartition('.')[2]}: " for kind in _KINDS)
    left_open: list[WarningReport] = []
    others: list[WarningReport] = []
    for warning in reported:
        (left_open if any(kind in warning.message for kind in kinds) else others).append(warning)
    reported[:] = others
    files = Counter((warning.nodeid or "elsewhere").partition("::")[0] for warning in left_open)
    return ", ".join(f"{file} {count}" for file, count in files.most_common())
