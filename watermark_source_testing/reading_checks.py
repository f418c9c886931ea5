"""Checks of readers: each row of a range once, in order, in batches of bounded size, with its columns and its time."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from watermark_source.contract.lineage import ExpectedLogs, of_logs
from watermark_source.contract.stream import PieceReader
from watermark_source.errors import DataLossError
from watermark_source.planning.split import Piece, SplitRange
from watermark_source_testing.driven_stream import (
    START,
    Batch,
    OpenLogs,
    by_split,
    end_of,
    micros,
    read_as_batch,
    read_elsewhere,
    streaming,
    values,
    values_of,
    write,
)
from watermark_source_testing.harness import Ability, Harness, Row, check, expect, expect_equal, expect_error

_log = logging.getLogger(__name__)

MOST_ROWS = 65_536
"""Rows of one batch of a reader: some MB of rows of usual width."""
_MANY = 70_000


@check()
def every_row_of_a_range_is_delivered_once(harness: Harness) -> None:
    """All rows between the start of a range and its end, and none twice."""
    logs = OpenLogs.with_rows(harness)
    expect_equal(sorted(row.value for row in logs.read(logs.ranges())), values(logs.written), "the rows of all ranges")


@check()
def rows_of_a_split_come_in_order(harness: Harness) -> None:
    """Each split's rows come in the order of their positions, which is the order of writing."""
    logs = OpenLogs.with_rows(harness)
    seen = sorted(by_split(logs.read(logs.ranges())).values())
    expect_equal(seen, sorted([row.value for row in rows] for rows in logs.written.values()), "rows, split by split")


@check()
def a_range_may_be_cut_anywhere(harness: Harness) -> None:
    """Parts of a range, read separately and in another order, have the rows of the whole."""
    logs = OpenLogs.with_rows(harness)
    for whole in logs.ranges():
        parts = [logs.read([part]) for part in reversed(logs.cuts(whole))]
        in_parts = [row for part in reversed(parts) for row in part]
        expect_equal(in_parts, logs.read([whole]), f"{whole} read in parts")


@check()
def an_empty_range_has_no_rows(harness: Harness) -> None:
    """A range that ends where it starts is read without an error."""
    logs = OpenLogs.with_rows(harness)
    for split, start, end in logs.ranges():
        for position in (start, end):
            expect_equal(logs.read([SplitRange(split, position, position)]), [], f"the rows of {split} at {position}")


@check(Ability.SEVERAL_SPLITS)
def batches_name_the_split_of_their_rows(harness: Harness) -> None:
    """A task reads ranges of several splits in one call; each batch names the split of its rows."""
    logs = OpenLogs.with_rows(harness)
    ranges = logs.ranges()
    alone = {each.split: [row.value for row in logs.read([each])] for each in ranges}
    expect_equal(dict(by_split(logs.read(ranges))), {s: rows for s, rows in alone.items() if rows}, "split by split")


@check()
def a_range_is_read_again_as_before(harness: Harness) -> None:
    """A retried task gets the same rows, although rows were written since."""
    logs = OpenLogs.with_rows(harness, 10)
    ranges = logs.ranges()
    once = logs.read(ranges)
    write(harness, 10, first=10)
    expect_equal(logs.read(ranges), once, "the rows of the same ranges after more was written")


@check()
def another_log_of_a_name_is_a_loss_if_logs_have_ids(harness: Harness) -> None:
    """Where ``SplitDiscovery.ids`` names logs, a range is read of the log with that id alone: ``of_logs``."""
    logs = OpenLogs.with_rows(harness)
    ids = logs.connector.discovery.ids()
    if not ids:
        _log.warning(
            "%s names no ids of its logs: of one that is deleted and created again nothing is noticed, unless it ends "
            "before the position that was read", harness.source.format_name,
        )  # fmt: skip
        return
    for reader in (logs.definition.range_reader, logs.definition.reader_ahead):
        these, others = (
            of_logs(reader, ExpectedLogs(named)) for named in (ids, {log: id_[::-1] for log, id_ in ids.items()})
        )
        rows = [sum(batch.rows for batch in each.read(logs.ranges())) for each in (reader, these)]
        expect_equal(rows[1], rows[0], f"the rows that {type(reader).__name__} reads of logs with the ids {dict(ids)}")
        with expect_error(DataLossError, f"{type(reader).__name__} of logs with other ids than {dict(ids)}"):
            list(others.read(logs.ranges()))


@check()
def a_reader_may_be_left_half_way(harness: Harness) -> None:
    """A task that is killed, or stopped by a limit, leaves nothing behind that disturbs a later one."""
    logs = OpenLogs.with_rows(harness)
    ranges = logs.ranges()
    reader = logs.definition.range_reader
    left = iter(reader.read(ranges))
    next(left)
    close = getattr(left, "close", None)
    if close is not None:
        close()
    rows = sorted(row.value for row in logs.read(ranges, reader))
    expect_equal(rows, values(logs.written), "rows after a read that was left half-way")


@check()
def columns_are_those_of_the_schema(harness: Harness) -> None:
    """Each column has the type of the schema, and a value for each row."""
    logs = OpenLogs.with_rows(harness)
    own = list(to_arrow_schema(logs.schema, timezone="UTC"))[:-2]
    for batch in logs.definition.range_reader.read(logs.ranges()):
        if not batch.rows:
            # A batch without rows only reports how far time is.
            continue
        expect_equal([column.type for column in batch.columns], [field.type for field in own], "types of columns")
        lengths = {len(column) for column in (*batch.columns, batch.event_time)}
        expect_equal(lengths, {batch.rows}, "lengths of columns")


@check()
def event_times_are_microseconds_in_utc(harness: Harness) -> None:
    """``event_time`` is a timestamp column in microseconds; a null holds the highest 64-bit number."""
    logs = OpenLogs.with_rows(harness)
    for batch in logs.definition.range_reader.read(logs.ranges()):
        expect_equal(batch.event_time.type, pa.timestamp("us", tz="UTC"), "the type of event_time")
        nulls = [int(at) for at, held in zip(micros(batch), batch.event_time.is_valid().to_pylist(), strict=True)
                 if not held]  # fmt: skip
        expect(set(nulls) <= {2**63 - 1}, f"nulls of event_time hold {nulls[:3]}")


@check()
def rows_with_an_event_time_are_not_undated(harness: Harness) -> None:
    """``undated`` counts the rows without an event time; the harness writes no such row."""
    logs = OpenLogs.with_rows(harness)
    undated = [batch.undated for batch in logs.definition.range_reader.read(logs.ranges())]
    expect_equal(sum(undated), 0, "the rows counted as undated")


@check()
def positions_of_rows_are_in_order_and_in_their_range(harness: Harness) -> None:
    """``positions``, if present, is an ``int64`` array with the position of each row, in ascending order."""
    logs = OpenLogs.with_rows(harness)
    for whole in logs.ranges():
        least = whole.start
        for batch in logs.definition.range_reader.read([whole]):
            if batch.positions is None or not batch.rows:
                continue
            kind = batch.positions.type if isinstance(batch.positions, pa.Array) else type(batch.positions)
            expect_equal(kind, pa.int64(), "the type of positions")
            for position in batch.positions.to_pylist():
                expect(least <= position < whole.end, f"position {position} of {whole}, from {least} on is expected")
                least = position + 1
            expect_equal(len(batch.positions), batch.rows, "the number of positions")


@check(Ability.CHOSEN_TIMES)
def event_times_are_those_written(harness: Harness) -> None:
    """A row has the event time that its writer gave it."""
    logs = OpenLogs.with_rows(harness)
    times = {row.value: row.event_time for row in logs.read(logs.ranges())}
    expected = {row.value: row.event_time * 1_000 for rows in logs.written.values() for row in rows}
    expect_equal(times, expected, "event times")


@check()
def the_observing_reader_sees_the_same_times(harness: Harness) -> None:
    """A range that is read again without columns has the same event times."""
    logs = OpenLogs.with_rows(harness)
    ranges = logs.ranges()
    first, again = (
        sorted((batch.split, at) for batch in reader.read(ranges) for at in micros(batch).tolist())
        for reader in (logs.definition.range_reader, logs.definition.observing_reader)
    )
    expect_equal(again, first, "event times of the observing reader")


@check()
def batches_are_of_bounded_size(harness: Harness) -> None:
    """A reader holds some thousand rows at a time, not a range."""
    harness.write(0, [Row(START, number) for number in range(_MANY)])
    logs = OpenLogs.of(harness)
    for whole in logs.ranges():
        sizes = [batch.rows for batch in logs.definition.range_reader.read([whole])]
        largest = max(sizes, default=0)
        expect(largest <= MOST_ROWS, f"{whole} came in batches of up to {largest} rows; {MOST_ROWS} are expected")


@check(Ability.ROW_INDEX)
def a_limit_of_rows_is_kept_where_positions_are_not_rows(harness: Harness) -> None:
    """``end_within`` returns an end with at most so many rows before it, or the first possible one: ranges advance."""
    logs = OpenLogs.with_rows(harness)
    index = logs.connector.row_index
    expect(index is not None, "there is no row_index")
    for whole in logs.ranges():
        at = whole.start
        while index is not None and at < whole.end:
            end = index.end_within(SplitRange(whole.split, at, whole.end), 3)
            expect(at < end <= whole.end, f"end_within of {whole} from {at} on: {end}")
            count = len(logs.read([SplitRange(whole.split, at, end)]))
            expect(count <= 3, f"{count} rows in {whole.split}[{at},{end}), at most 3 are expected")
            at = end


@check(Ability.CUTTER)
def the_pieces_of_a_range_are_all_of_it(harness: Harness) -> None:
    """Pieces follow one another without a gap, and their rows are those of the range."""
    logs = OpenLogs.with_rows(harness)
    for whole in logs.ranges():
        pieces = list(logs.connector.cutter.pieces(whole, 3)) if logs.connector.cutter is not None else []
        ends = [whole.start, *(piece.range.end for piece in pieces)]
        expect_equal([piece.range.start for piece in pieces], ends[:-1], "where pieces start")
        expect_equal(ends[-1], whole.end, "where the last piece ends")
        rows = [row for piece in pieces for row in _read_piece(logs, piece)]
        expect_equal(rows, logs.read([whole]), f"the rows of the pieces of {whole}")


def _read_piece(logs: OpenLogs, piece: Piece) -> list[object]:
    reader = logs.definition.range_reader
    if piece.range == piece.whole:
        return list(logs.read([piece.range]))
    piece_reader: PieceReader = reader  # type: ignore[assignment]
    return [row for batch in piece_reader.read_piece(piece, None) for row in logs.rows(batch)]


@check(Ability.BATCHES)
def a_batch_read_has_all_rows(harness: Harness) -> None:
    """``spark.read`` delivers every row once, in the stream's columns."""
    written = write(harness)
    rows = read_as_batch(harness)
    expect_equal(sorted(harness.values(rows)), values(written), "the rows of a batch read")


# Checks of batches: the same offsets give the same rows, each row is in one batch, and a restart continues.


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
    """Spark logs offsets as JSON: a batch is the same from offsets read back from it, with keys in any order."""
    write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        end = stream.plan(start)
        expect(_whole_numbers(end), f"an offset holds a number that is not whole: {end}")
        again = [json.loads(json.dumps(each, sort_keys=True)) for each in (start, end)]
        expect_equal(stream.read(*again).shown, stream.read(start, end).shown, "the batch of sorted offsets")


@check()
def a_batch_is_read_again_as_before(harness: Harness) -> None:
    """The same two offsets give the same rows and markers, although rows were written since."""
    write(harness, 10)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial(), rows=4)
        write(harness, 10, first=10)
        for each in batches:
            expect_equal(stream.read(each.start, each.end).shown, each.shown, "the batch again")


@check()
def a_batch_is_read_again_after_a_restart(harness: Harness) -> None:
    """Rows and markers depend on the two offsets alone, and on no memory of a process."""
    write(harness, 10)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial(), rows=4)
    write(harness, 10, first=10)
    for each in batches:
        with streaming(harness) as later:
            expect_equal(later.read(each.start, each.end).shown, each.shown, "the batch after a restart")


@check()
def a_batch_is_read_again_in_another_process(harness: Harness) -> None:
    """A batch needs nothing from the process that planned it."""
    write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        batch = stream.read(start, stream.plan(start))
        expect_equal(read_elsewhere(stream, start, batch.end), batch.shown, "the batch in another process")


@check()
def batches_repeated_as_one_have_the_same_rows(harness: Harness) -> None:
    """Any start and any later end: with asynchronous progress tracking Spark repeats several batches as one."""
    write(harness, 10)
    with streaming(harness) as stream:
        batches = stream.batches(stream.initial(), rows=4)
        for number in range(len(batches)):
            for later in range(number + 1, len(batches)):
                together = stream.read(batches[number].start, batches[later].end)
                apart = values_of(harness, *batches[number : later + 1])
                expect_equal(sorted(values_of(harness, together)), sorted(apart), "the rows of batches in one")


@check()
def a_restart_continues_where_the_query_was(harness: Harness) -> None:
    """A new process has only the offset: it delivers all rows, and none twice."""
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
def a_run_of_available_rows_ends(harness: Harness) -> None:
    """With the trigger AvailableNow rows written during the run are left to the next run, which has them all."""
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
    """Without new rows no batch has rows, and where time does not advance there is no batch."""
    write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        end = end_of(stream.batches(start), start)
        after = stream.batches(end)
        expect_equal(values_of(harness, *after), [], "rows of batches after the last one")
        if Ability.QUIET in harness.abilities:
            expect_equal([batch.end for batch in after], [], "offsets while nothing happens")
