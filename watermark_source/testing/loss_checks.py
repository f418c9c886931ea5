"""Checks of loss: rows that were due and are gone end the query, or are skipped and told."""

from __future__ import annotations

import logging

from watermark_source.errors import DataLossError
from watermark_source.testing.check import check, expect, expect_equal, expect_error
from watermark_source.testing.direct_reads import OpenLogs
from watermark_source.testing.driven_stream import Offset, end_of, streaming, values_of
from watermark_source.testing.harness import Ability, Harness
from watermark_source.testing.log_messages import Line, logged
from watermark_source.testing.written_rows import numbered, splits_of, values, write

_SKIP = {"failOnDataLoss": "false"}


def _read_and_lose(harness: Harness) -> Offset:
    """Return where a query was when all that it had and had not read was lost."""
    write(harness, 10)
    with streaming(harness) as stream:
        start = stream.initial()
        at = end_of(stream.batches(start), start)
    write(harness, 10, first=10)
    harness.lose(0)
    return at


def _expect_warning(lines: list[Line]) -> None:
    warned = [line.text for line in lines if line.level >= logging.WARNING]
    expect(bool(warned), "rows were skipped, and no warning says so")


@check(Ability.LOSS)
def rows_that_are_gone_end_the_query_when_it_is_planned(harness: Harness) -> None:
    """A position that the log does not have any more is noticed before anything is read."""
    at = _read_and_lose(harness)
    with streaming(harness) as stream, expect_error(DataLossError, "a plan after rows were lost"):
        stream.plan(at)


@check(Ability.LOSS)
def rows_that_are_gone_are_skipped_if_the_user_wants(harness: Harness) -> None:
    """With ``failOnDataLoss`` false a warning tells of the loss, and what is written afterwards is read."""
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
def rows_that_go_before_they_are_read_end_the_task(harness: Harness) -> None:
    """Retention may pass a range between its plan and its task: the reader notices."""
    write(harness, 10)
    logs = OpenLogs.of(harness)
    ranges = logs.ranges()
    harness.lose(0)
    with expect_error(DataLossError, "reading a range whose rows are gone"):
        logs.read(ranges)


@check(Ability.LOSS)
def a_task_skips_what_is_gone_if_the_user_wants(harness: Harness) -> None:
    """With ``failOnDataLoss`` false the reader warns, and reads all that is left of its ranges."""
    written = write(harness, 10)
    logs = OpenLogs.of(harness, **_SKIP)
    ranges = logs.ranges()
    harness.lose(0)
    with logged() as lines:
        rows = logs.read(ranges)
    _expect_warning(lines)
    others = {split: written[split] for split in splits_of(harness) if split != 0}
    expect_equal(sorted(row.value for row in rows), values(others), "the rows of the other splits")
