"""Runs with an end of a query on two sources of one group: every run keeps them together, not the first alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.queries import Streams

pytestmark = pytest.mark.spark

DRIFT = 60
EVERY = {"slow": 10, "fast": 1}
"""Seconds between two rows."""


def reached(offset: dict[str, Any], name: str) -> int:
    """Return how many seconds of its log a source has planned to read."""
    ((_, numbers),) = offset["splits"].items()
    return (int(numbers["0"][0]) - 1) * EVERY[name]


def test_a_run_that_goes_on_where_all_had_come_to_their_ends_keeps_its_sources_together(streams: Streams) -> None:
    frames = []
    for name in EVERY:
        budget = {"maxRowsPerTrigger": 5} if name == "slow" else {}
        group = {"sourceName": name, "alignmentGroup": "runs", "alignmentMaxDrift": f"{DRIFT} seconds"}
        streams.write({0: [(0, 0)]}, name=name)
        frames.append(streams.load(name=name, **group, **budget))
    both = frames[0].union(frames[1])
    streams.run(both, "both")
    before = len(streams.offsets("both"))
    for name, every in EVERY.items():
        streams.write({0: [(second, second) for second in range(every, 600, every)]}, name=name)
    streams.run(both, "both")
    slow, fast = ([reached(o, name) for o in streams.offsets("both", source=n)] for n, name in enumerate(EVERY))
    apart = [b - a for a, b in zip(slow[before:], fast[before:], strict=True)]
    assert (slow[-1], fast[-1]) == (590, 599)
    assert max(apart) <= DRIFT + EVERY["fast"]
