"""Checks of positions: where logs begin and end, and where a query does."""

from __future__ import annotations

import logging
import time

from watermark_source.errors import DataLossError
from watermark_source.planning.split import Split
from watermark_source_testing.driven_stream import (
    Batch,
    Offset,
    OpenLogs,
    end_of,
    numbered,
    splits_of,
    streaming,
    values,
    values_of,
    write,
)
from watermark_source_testing.harness import (
    Ability,
    Harness,
    NonConformanceError,
    check,
    expect,
    expect_equal,
    expect_error,
)
from watermark_source_testing.support import Line, logged

_ABSENT = Split("no-such-log", 977)


@check()
def positions_are_whole_numbers_from_0_on(harness: Harness) -> None:
    """Offsets hold them as JSON's integers, and Arrow as 64 bits."""
    write(harness)
    for each in OpenLogs.of(harness).ranges():
        for position in each[1:]:
            fits = type(position) is int and 0 <= position < 2**63
            expect(fits, f"{position!r} ({type(position).__name__}) is not a position")


@check()
def a_log_begins_before_it_ends(harness: Harness) -> None:
    """The first retained position is at most the end, and a new query begins between the two."""
    logs = OpenLogs.with_rows(harness)
    earliest = logs.connector.bounds.earliest_positions(logs.splits)
    for each in logs.ranges():
        expect(earliest[each.split] <= each.start <= each.end, f"{each} of a log that begins at {earliest[each.split]}")


@check()
def the_end_moves_with_written_rows(harness: Harness) -> None:
    """A written row lies before an end that is requested afterwards."""
    logs = OpenLogs.with_rows(harness, 5)
    before = {each.split: each.end for each in logs.ranges()}
    write(harness, 3, first=5)
    after = {each.split: each.end for each in logs.ranges()}
    grown = sum(1 for split, end in after.items() if end >= before[split] + 3)
    expect(grown >= len(splits_of(harness)), f"ends were {before} and are {after}, three rows later")


@check(Ability.QUIET)
def the_end_stays_while_nothing_is_written(harness: Harness) -> None:
    """Otherwise Spark would run a batch without rows each time."""
    logs = OpenLogs.with_rows(harness)
    expect_equal(logs.ranges(), logs.ranges(), "ends of logs without writes")


@check()
def ends_are_returned_when_it_is_quiet(harness: Harness) -> None:
    """Idleness is judged by ``current_ends``: it answers for each split, in time, with the end."""
    logs = OpenLogs.with_rows(harness)
    begun = time.monotonic()
    ends = logs.connector.bounds.current_ends(logs.splits)
    took = time.monotonic() - begun
    expect(not ends.unknown, f"current_ends has no answer for {sorted(ends.unknown)} although the system answers")
    expect_equal(set(ends.positions), set(logs.splits), "the splits of current_ends")
    ends_after = logs.connector.bounds.end_positions(logs.splits)
    behind = {s: (end, ends_after[s]) for s, end in ends.positions.items() if end > ends_after[s]}
    expect(not behind, f"current_ends and then end_positions: {behind}")
    if Ability.QUIET in harness.abilities:
        expect_equal(dict(ends.positions), dict(ends_after), "current_ends")
    expect(took <= harness.patience, f"current_ends took {took:.1f} s")


@check()
def splits_that_do_not_exist_are_left_out(harness: Harness) -> None:
    """A deleted split has no end and no beginning, which is no error."""
    logs = OpenLogs.with_rows(harness)
    asked = frozenset({*logs.splits, _ABSENT})
    for positions in (logs.connector.bounds.end_positions(asked), logs.connector.bounds.earliest_positions(asked)):
        expect_equal(set(positions), set(logs.splits), "the splits with positions")
    ends = logs.connector.bounds.current_ends(asked)
    expect(_ABSENT not in ends.positions, f"current_ends has an end of {_ABSENT}, which does not exist")


@check()
def positions_have_texts_that_differ(harness: Harness) -> None:
    """Errors and logs show positions as users know them."""
    logs = OpenLogs.with_rows(harness)
    for split, start, end in logs.ranges():
        first, last = logs.definition.position_text(split, start), logs.definition.position_text(split, end)
        expect(bool(first) and bool(last) and first != last, f"{start} is shown as {first!r}, {end} as {last!r}")


@check()
def a_new_query_keeps_its_start(harness: Harness) -> None:
    """Spark requests the start more than once; it stays, although rows were written since."""
    write(harness, 5)
    with streaming(harness, **harness.options_at_end) as stream:
        first = stream.initial()
        write(harness, 5, first=5)
        expect_equal(stream.initial(), first, "initialOffset the second time")


@check()
def a_query_from_the_end_reads_only_later_rows(harness: Harness) -> None:
    """A query that begins at the end reads no earlier rows, and all later ones."""
    write(harness, 7)
    with streaming(harness, **harness.options_at_end) as stream:
        start = stream.initial()
        before = stream.batches(start)
        expect_equal(values_of(harness, *before), [], "rows before the start")
        new = write(harness, 5, first=7)
        after = stream.batches(end_of(before, start))
        expect_equal(sorted(values_of(harness, *after)), values(new), "rows after the start")


# Checks of discovery: splits are found, added ones too, and a look-up is one that really ran.


_AT_ONCE = 1.0
"""Seconds."""


@check()
def all_splits_are_discovered(harness: Harness) -> None:
    """``discover`` returns every existing split, and the same ones again."""
    logs = OpenLogs.with_rows(harness)
    expect(len(logs.splits) >= len(splits_of(harness)), f"discovered are {sorted(logs.splits)}")
    expect_equal(logs.splits, logs.splits, "the splits the second time")


@check()
def a_look_up_is_awaited_no_longer_than_requested(harness: Harness) -> None:
    """``looked_since`` without time to wait returns at once, and never raises."""
    write(harness)
    discovery = OpenLogs.of(harness).connector.discovery
    discovery.discover()
    begun = time.monotonic()
    discovery.looked_since(begun, wait=0)
    took = time.monotonic() - begun
    expect(took <= _AT_ONCE, f"looked_since(wait=0) took {took:.1f} s")


@check()
def a_look_up_runs_when_it_is_awaited(harness: Harness) -> None:
    """``looked_since`` starts a look-up if none is running: otherwise the watermark would never advance."""
    write(harness)
    discovery = OpenLogs.of(harness).connector.discovery
    discovery.discover()
    expect(discovery.looked_since(time.monotonic(), wait=harness.patience), "looked_since returned false")


@check(Ability.NEW_SPLITS)
def a_look_up_finds_all_earlier_splits(harness: Harness) -> None:
    """Once ``looked_since`` is true, ``discover`` has every split that existed at that moment."""
    logs = OpenLogs.with_rows(harness)
    before = logs.splits
    new = len(splits_of(harness))
    harness.write(new, numbered(new, 3))
    found = logs.connector.discovery.looked_since(time.monotonic(), wait=harness.patience)
    expect(found, "looked_since returned false")
    expect(len(logs.splits) > len(before), f"discovered are {sorted(logs.splits)}, and a split was added")


@check(Ability.NEW_SPLITS)
def a_split_that_is_added_is_read_from_its_beginning(harness: Harness) -> None:
    """All its rows are new, wherever a new query would begin."""
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


# Checks of loss: lost rows end the query, or are skipped with a warning.


_SKIP = {"failOnDataLoss": "false"}


def _read_and_lose(harness: Harness) -> Offset:
    """Return the offset of a query whose read and unread rows were lost."""
    write(harness, 10)
    with streaming(harness) as stream:
        start = stream.initial()
        at = end_of(stream.batches(start), start)
    write(harness, 10, first=10)
    harness.lose(0)
    return at


def _expect_warning(lines: list[Line]) -> None:
    warned = [line.text for line in lines if line.level >= logging.WARNING]
    expect(bool(warned), "rows were skipped without a warning")


@check(Ability.LOSS)
def lost_rows_end_the_query_when_it_is_planned(harness: Harness) -> None:
    """A position that the log no longer has is found before any row is read."""
    at = _read_and_lose(harness)
    with streaming(harness) as stream, expect_error(DataLossError, "a plan after rows were lost"):
        stream.plan(at)


@check(Ability.LOSS)
def lost_rows_are_skipped_if_the_user_wants(harness: Harness) -> None:
    """With ``failOnDataLoss`` false a warning names the loss, and later rows are read."""
    at = _read_and_lose(harness)
    with streaming(harness, **_SKIP) as stream:
        with logged() as lines:
            skipped = stream.batches(at)
        _expect_warning(lines)
        rows = {0: numbered(0, 5, first=20)}
        harness.write(0, rows[0])
        found = stream.batches(end_of(skipped, at))
        of_the_split = [value for value in values_of(harness, *found) if value in set(values(rows))]
        expect_equal(sorted(of_the_split), values(rows), "the rows after the loss")


@check(Ability.LOSS)
def rows_lost_before_they_are_read_end_the_task(harness: Harness) -> None:
    """Retention may delete a range between its plan and its task: the reader finds that."""
    logs = OpenLogs.with_rows(harness, 10)
    ranges = logs.ranges()
    harness.lose(0)
    with expect_error(DataLossError, "reading a range whose rows are lost"):
        logs.read(ranges)


@check(Ability.LOSS)
def a_task_skips_lost_rows_if_the_user_wants(harness: Harness) -> None:
    """With ``failOnDataLoss`` false the reader warns, and reads the rest of its ranges."""
    written = write(harness, 10)
    logs = OpenLogs.of(harness, **_SKIP)
    ranges = logs.ranges()
    harness.lose(0)
    with logged() as lines:
        rows = logs.read(ranges)
    _expect_warning(lines)
    others = {split: written[split] for split in splits_of(harness) if split != 0}
    expect_equal(sorted(row.value for row in rows), values(others), "the rows of the other splits")
