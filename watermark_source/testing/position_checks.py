"""Checks of positions: where logs begin and end, and where a query does."""

from __future__ import annotations

import time

from watermark_source.planning.split import Split
from watermark_source.testing.check import check, expect, expect_equal
from watermark_source.testing.direct_reads import OpenLogs
from watermark_source.testing.driven_stream import end_of, streaming, values_of
from watermark_source.testing.harness import Ability, Harness
from watermark_source.testing.written_rows import splits_of, values, write

_NOBODY = Split("no-such-log", 977)


@check()
def positions_are_whole_numbers_from_0_on(harness: Harness) -> None:
    """Offsets hold them as JSON's integers, and Arrow as 64 bits."""
    write(harness)
    for each in OpenLogs.of(harness).ranges():
        for position in each[1:]:
            fits = type(position) is int and 0 <= position < 2**63
            expect(fits, f"{position!r} ({type(position).__name__}) is no position")


@check()
def a_log_begins_before_it_ends(harness: Harness) -> None:
    """The first retained position is at most the end, and a new query begins between the two."""
    write(harness)
    logs = OpenLogs.of(harness)
    earliest = logs.connector.bounds.earliest_positions(logs.splits)
    for each in logs.ranges():
        expect(earliest[each.split] <= each.start <= each.end, f"{each} of a log that begins at {earliest[each.split]}")


@check()
def the_end_moves_by_what_is_written(harness: Harness) -> None:
    """A row that was written lies before an end that is asked for afterwards."""
    write(harness, 5)
    logs = OpenLogs.of(harness)
    before = {each.split: each.end for each in logs.ranges()}
    write(harness, 3, first=5)
    after = {each.split: each.end for each in logs.ranges()}
    grown = sum(1 for split, end in after.items() if end >= before[split] + 3)
    expect(grown >= len(splits_of(harness)), f"ends were {before} and are {after}, three rows later")


@check(Ability.QUIET)
def the_end_stays_while_nothing_is_written(harness: Harness) -> None:
    """Else there would be a batch without rows each time that Spark asks."""
    write(harness)
    logs = OpenLogs.of(harness)
    expect_equal(logs.ranges(), logs.ranges(), "ends of logs that nobody writes to")


@check()
def ends_are_told_when_it_is_quiet(harness: Harness) -> None:
    """``current_ends`` is what idleness is judged by: an answer for each split, in time, equal to the end."""
    write(harness)
    logs = OpenLogs.of(harness)
    begun = time.monotonic()
    ends = logs.connector.bounds.current_ends(logs.splits)
    took = time.monotonic() - begun
    expect(not ends.unknown, f"current_ends does not know {sorted(ends.unknown)} of a system that answers")
    expect_equal(set(ends.positions), set(logs.splits), "the splits that current_ends knows")
    asked_again = logs.connector.bounds.end_positions(logs.splits)
    behind = {s: (end, asked_again[s]) for s, end in ends.positions.items() if end > asked_again[s]}
    expect(not behind, f"current_ends and then end_positions: {behind}")
    if Ability.QUIET in harness.abilities:
        expect_equal(dict(ends.positions), dict(asked_again), "current_ends")
    expect(took <= harness.patience, f"current_ends took {took:.1f} s")


@check()
def splits_that_are_not_there_are_left_out(harness: Harness) -> None:
    """Of a split that is gone there is no end and no beginning, and that is no error."""
    write(harness)
    logs = OpenLogs.of(harness)
    asked = frozenset({*logs.splits, _NOBODY})
    for told in (logs.connector.bounds.end_positions(asked), logs.connector.bounds.earliest_positions(asked)):
        expect_equal(set(told), set(logs.splits), "the splits that are told about")
    ends = logs.connector.bounds.current_ends(asked)
    expect(_NOBODY not in ends.positions, f"current_ends knows where {_NOBODY} ends, which is not there")


@check()
def positions_have_texts_that_differ(harness: Harness) -> None:
    """Errors and logs name positions as users know them."""
    write(harness)
    logs = OpenLogs.of(harness)
    for split, start, end in logs.ranges():
        first, last = logs.definition.position_text(split, start), logs.definition.position_text(split, end)
        expect(bool(first) and bool(last) and first != last, f"{start} is shown as {first!r}, {end} as {last!r}")


@check()
def a_new_query_asks_once_where_it_begins(harness: Harness) -> None:
    """Spark asks more than once; the answer stays, whatever has been written since."""
    write(harness, 5)
    with streaming(harness, **harness.options_at_end) as stream:
        first = stream.initial()
        write(harness, 5, first=5)
        expect_equal(stream.initial(), first, "initialOffset the second time")


@check()
def a_query_from_the_end_reads_only_what_comes(harness: Harness) -> None:
    """A query that begins at the end reads nothing from before its start, and all from after it."""
    write(harness, 7)
    with streaming(harness, **harness.options_at_end) as stream:
        start = stream.initial()
        before = stream.batches(start)
        expect_equal(values_of(harness, *before), [], "rows from before the start")
        new = write(harness, 5, first=7)
        after = stream.batches(end_of(before, start))
        expect_equal(sorted(values_of(harness, *after)), values(new), "rows from after the start")
