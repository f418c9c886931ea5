"""Checks of discovery: splits are found, those that are added too, and a look is one that really looked."""

from __future__ import annotations

import time

from watermark_source.testing.check import NonConformanceError, check, expect, expect_equal
from watermark_source.testing.direct_reads import OpenLogs
from watermark_source.testing.driven_stream import Batch, end_of, streaming, values_of
from watermark_source.testing.harness import Ability, Harness
from watermark_source.testing.written_rows import numbered, splits_of, values, write

_AT_ONCE = 1.0
"""Seconds."""


@check()
def all_splits_are_discovered(harness: Harness) -> None:
    """``discover`` returns each split that there is, and the same ones again."""
    write(harness)
    logs = OpenLogs.of(harness)
    expect(len(logs.splits) >= len(splits_of(harness)), f"discovered are {sorted(logs.splits)}")
    expect_equal(logs.splits, logs.splits, "the splits the second time")


@check()
def a_look_is_not_waited_for_longer_than_asked(harness: Harness) -> None:
    """``looked_since`` with no time to wait answers at once, and never raises."""
    write(harness)
    discovery = OpenLogs.of(harness).connector.discovery
    discovery.discover()
    begun = time.monotonic()
    discovery.looked_since(begun, wait=0)
    took = time.monotonic() - begun
    expect(took <= _AT_ONCE, f"looked_since(wait=0) took {took:.1f} s")


@check()
def a_look_comes_when_it_is_waited_for(harness: Harness) -> None:
    """``looked_since`` begins a look if there is none: the watermark would stand still for ever."""
    write(harness)
    discovery = OpenLogs.of(harness).connector.discovery
    discovery.discover()
    expect(discovery.looked_since(time.monotonic(), wait=harness.patience), "no look came")


@check(Ability.NEW_SPLITS)
def a_look_finds_the_splits_there_were(harness: Harness) -> None:
    """When ``looked_since`` says so, ``discover`` has every split that was there at that moment."""
    write(harness)
    logs = OpenLogs.of(harness)
    before = logs.splits
    new = len(splits_of(harness))
    harness.write(new, numbered(new, 3))
    found = logs.connector.discovery.looked_since(time.monotonic(), wait=harness.patience)
    expect(found, "no look came")
    expect(len(logs.splits) > len(before), f"discovered are {sorted(logs.splits)}, and a split was added")


@check(Ability.NEW_SPLITS)
def a_split_that_is_added_is_read_from_its_beginning(harness: Harness) -> None:
    """Its rows are new, wherever a new query would begin."""
    write(harness, 3)
    with streaming(harness, **harness.options_at_end) as stream:
        start = stream.initial()
        found: list[Batch] = stream.batches(start)
        new = len(splits_of(harness))
        rows = numbered(new, 5)
        harness.write(new, rows)
        until = time.monotonic() + harness.patience
        while not values_of(harness, *found):
            if time.monotonic() > until:
                raise NonConformanceError(f"no row of an added split within {harness.patience} s")
            found += stream.batches(end_of(found, start))
        found += stream.batches(end_of(found, start))
        expect_equal(sorted(values_of(harness, *found)), values({new: rows}), "the rows of the added split")
