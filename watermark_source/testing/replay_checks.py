"""Checks of batches: the same offsets give the same rows, each row is in one batch, and a restart goes on."""

from __future__ import annotations

import json

from watermark_source.testing.check import check, expect, expect_equal
from watermark_source.testing.driven_stream import Batch, end_of, streaming, values_of
from watermark_source.testing.harness import Ability, Harness
from watermark_source.testing.other_process import read_elsewhere
from watermark_source.testing.written_rows import values, write


def _whole_numbers(part: object) -> bool:
    if isinstance(part, dict):
        return all(_whole_numbers(each) for each in part.values())
    if isinstance(part, list):
        return all(_whole_numbers(each) for each in part)
    return not isinstance(part, float)


@check()
def all_rows_come_once(harness: Harness) -> None:
    """The batches of a query have all rows, each in one of them."""
    written = write(harness)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial())
        expect_equal(sorted(values_of(harness, *batches)), values(written), "the rows of all batches")


@check()
def a_limit_of_rows_cuts_batches_and_loses_none(harness: Harness) -> None:
    """Small batches have all rows, each in one of them, and no more than the limit where positions are rows."""
    written = write(harness)
    for limit in (1, 3, 7):
        with streaming(harness) as stream:
            batches = stream.batches(stream.initial(), rows=limit)
            expect_equal(sorted(values_of(harness, *batches)), values(written), f"rows, {limit} a batch")
            largest = max(len(batch.rows) for batch in batches)
            is_kept = largest <= limit or Ability.ROW_INDEX in harness.abilities
            expect(is_kept, f"a batch of {largest} rows with a limit of {limit}")


@check()
def offsets_survive_json(harness: Harness) -> None:
    """Spark's log of offsets is JSON: a batch is the same from offsets that have been there, with keys in any order."""
    write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        end = stream.plan(start)
        expect(_whole_numbers(end), f"an offset holds a number that is not whole: {end}")
        again = [json.loads(json.dumps(each, sort_keys=True)) for each in (start, end)]
        expect_equal(stream.read(*again).shown, stream.read(start, end).shown, "the batch of sorted offsets")


@check()
def a_batch_is_read_again_as_before(harness: Harness) -> None:
    """The same two offsets give the same rows and markers, whatever has been written since."""
    write(harness, 10)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial(), rows=4)
        write(harness, 10, first=10)
        for each in batches:
            expect_equal(stream.read(each.start, each.end).shown, each.shown, "the batch again")


@check()
def a_batch_is_read_again_after_a_restart(harness: Harness) -> None:
    """Rows and markers come from the two offsets alone, and from nothing that a process remembers."""
    write(harness, 10)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial(), rows=4)
    write(harness, 10, first=10)
    for each in batches:
        with streaming(harness) as later:
            expect_equal(later.read(each.start, each.end).shown, each.shown, "the batch after a restart")


@check()
def a_batch_is_read_again_in_another_process(harness: Harness) -> None:
    """Nothing that a batch needs is in the process that planned it."""
    write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        batch = stream.read(start, stream.plan(start))
        expect_equal(read_elsewhere(stream, start, batch.end), batch.shown, "the batch in another process")


@check()
def batches_done_again_as_one_have_the_same_rows(harness: Harness) -> None:
    """Any start and any later end: with asynchronous progress tracking Spark does several batches again as one."""
    write(harness, 10)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial(), rows=4)
        for number in range(len(batches)):
            for later in range(number + 1, len(batches)):
                together = stream.read(batches[number].start, batches[later].end)
                apart = values_of(harness, *batches[number : later + 1])
                expect_equal(sorted(values_of(harness, together)), sorted(apart), "the rows of batches in one")


@check()
def a_restart_goes_on_where_the_query_was(harness: Harness) -> None:
    """A new process has only the offset: all rows come, and none twice."""
    written = write(harness)
    found: list[Batch] = []
    with streaming(harness) as stream:
        offset = stream.initial()
    for first in (20, 25, 30):
        with streaming(harness) as stream:
            found += stream.batches(offset, rows=9)
            offset = end_of(found, offset)
        more = write(harness, 5, first=first)
        written = {split: [*rows, *more[split]] for split, rows in written.items()}
    with streaming(harness) as stream:
        found += stream.batches(offset)
    expect_equal(sorted(values_of(harness, *found)), values(written), "the rows of all processes")


@check()
def more_tasks_deliver_the_same_rows(harness: Harness) -> None:
    """Ranges are cut into the tasks that ``minPartitions`` asks for."""
    written = write(harness)
    with streaming(harness, minPartitions="5") as stream:
        start = stream.initial()
        batch = stream.read(start, stream.plan_all(start))
        expect_equal(sorted(values_of(harness, batch)), values(written), "the rows of five tasks")


@check()
def a_run_of_what_is_there_ends(harness: Harness) -> None:
    """With the trigger AvailableNow rows that come meanwhile are left to the next run, which has them all."""
    first = write(harness, 10)
    with streaming(harness) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        start = stream.initial()
        second = write(harness, 10, first=10)
        run = stream.batches(start, rows=6)
        expect_equal(sorted(values_of(harness, *run)), values(first), "the rows of the run")
    with streaming(harness) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        run = stream.batches(end_of(run, start))
        expect_equal(sorted(values_of(harness, *run)), values(second), "the rows of the next run")


@check()
def nothing_new_gives_no_rows(harness: Harness) -> None:
    """While nothing is written no batch has rows, and where time stands still there is no batch."""
    write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        end = end_of(stream.batches(start), start)
        after = stream.batches(end)
        expect_equal(values_of(harness, *after), [], "rows of batches after the last one")
        if Ability.QUIET in harness.abilities:
            expect_equal([batch.end for batch in after], [], "offsets while nothing happens")
