"""Checks of time: watermarks, idleness, event times known without reading rows, declared abilities, own strategies."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial, reduce
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from watermark_source.contract.stream import EventTimeIndex
from watermark_source.errors import GeneratorError, OffsetError
from watermark_source.planning.canonical_json import canonical, value_of
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.generator import Own, RowsRead, WatermarkGenerator, load_generator
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermarks import advanced
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import Millis
from watermark_source_testing.driven_stream import START, Batch, OpenLogs, declared_by, end_of, micros, streaming, write
from watermark_source_testing.harness import Ability, Harness, NonConformanceError, Row, check, expect, expect_equal
from watermark_source_testing.support import no_connections

_IDLE = {"idleTimeout": "300 ms"}
_SECOND = 1_000


def watermarks(batches: Sequence[Batch]) -> list[int]:
    """Return the watermarks in markers of the whole source, in milliseconds."""
    found = [m["watermark"] for each in batches for m in each.markers if m["type"] == "watermark"]
    return [_millis(moment) for moment in found if moment is not None]


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


@check()
def the_watermark_never_goes_back(harness: Harness) -> None:
    """Whatever the order of event times, and across a restart."""
    write(harness)
    with streaming(harness, maxOutOfOrderness="20 seconds") as stream:
        start = stream.initial()
        batches = stream.batches(start, rows=6)
    write(harness, first=20)
    with streaming(harness, maxOutOfOrderness="20 seconds") as stream:
        batches += stream.batches(end_of(batches, start), rows=6)
    found = watermarks(batches)
    expect(bool(found), "no watermark came")
    expect_equal(found, sorted(found), "watermarks")


@check(Ability.SEVERAL_SPLITS, Ability.CHOSEN_TIMES)
def the_watermark_is_that_of_the_slowest_split(harness: Harness) -> None:
    """The rows of every split count."""
    harness.write(0, [Row(START + 100 * _SECOND, 1), Row(START + 90 * _SECOND, 2)])
    harness.write(1, [Row(START + 7 * _SECOND, 3)])
    with streaming(harness) as stream:
        found = watermarks(stream.batches(stream.initial()))
        expect(bool(found), "no watermark came")
        expect_equal(found[-1] - START, 7 * _SECOND - 1, "the watermark after the first minute, in milliseconds")


@check(Ability.SEVERAL_SPLITS, Ability.CHOSEN_TIMES)
def a_silent_split_becomes_idle_and_delays_no_other(harness: Harness) -> None:
    """Ends are returned while a log is quiet: otherwise no split would ever be known to be read to its end."""
    harness.write(0, [Row(START + 100 * _SECOND, 1)])
    harness.write(1, [Row(START + 7 * _SECOND, 2)])
    with streaming(harness, **_IDLE) as stream:
        start = stream.initial()
        batches = stream.batches(start)
        until = time.monotonic() + harness.patience
        while not (found := watermarks(batches)) or found[-1] < START + 100 * _SECOND - 1:
            if time.monotonic() > until:
                raise NonConformanceError(
                    f"idleTimeout is 300 ms, and after {harness.patience} s the watermarks are {found}"
                )
            time.sleep(0.1)
            batches += stream.batches(end_of(batches, start))
        marked = [m["status"] for each in batches for m in each.markers if m["type"] == "status"]
        expect("idle" in marked, f"no marker has the status idle: {marked}")


@check()
def a_log_that_is_read_to_its_end_has_no_lag(harness: Harness) -> None:
    """``StreamingQueryProgress`` reports how far each split is behind its log."""
    write(harness)
    with streaming(harness) as stream:
        stream.batches(stream.initial())
        status = stream.reader.reportLatestOffset()
        expect(status is not None, "there is no status after a batch")
        expect_equal((status or {}).get("lag", 0), 0, "the lag of a source that has read all")


def _time_index(logs: OpenLogs) -> EventTimeIndex:
    index = logs.connector.time_index
    if index is None:
        raise NonConformanceError("there is no time index")
    return index


@check(Ability.TIME_INDEX)
def the_time_index_is_exact(harness: Harness) -> None:
    """``first_after`` finds the first row of a log that is later than a limit, where times are in any order."""
    logs = OpenLogs.with_rows(harness)
    index = _time_index(logs)
    for whole in logs.ranges():
        times = _times(logs, whole)
        for limit in sorted({moment + off for moment in times for off in (-1, 0)}):
            entry = index.first_after({whole.split: Millis(limit)})[whole.split]
            expected = next((moment for moment in times if moment > limit), None)
            expect_equal(None if entry is None else int(entry.event_time), expected, f"the first time after {limit}")
            if entry is not None:
                before = _times(logs, SplitRange(whole.split, whole.start, entry.position))
                expect(max(before, default=limit) <= limit, f"before {entry}, the first after {limit}: {before}")
                found = _times(logs, SplitRange(whole.split, entry.position, entry.after))
                expect(int(entry.event_time) in found, f"at {entry} are rows of {found}")


def _times(logs: OpenLogs, of: SplitRange) -> list[int]:
    return [row.event_time // 1_000 for row in logs.read([of]) if row.event_time is not None]


@check(Ability.TIME_INDEX)
def the_newest_event_time_is_the_highest(harness: Harness) -> None:
    """``newest`` is no lower than any row's time; while nothing is written it is that of a row up to its position."""
    logs = OpenLogs.with_rows(harness)
    index = _time_index(logs)
    found, highest_of = index.newest(logs.splits), _highest(logs)
    for whole in logs.ranges():
        newest, highest = found.get(whole.split), highest_of[whole.split]
        seen = f"newest of {whole.split}: {newest}, the highest event time of its rows is {highest}"
        expect(newest is not None and newest.event_time >= highest, seen)
        if newest is not None and Ability.QUIET in harness.abilities:
            expect(newest.event_time == highest, seen)
            end = whole.end if newest.position is None else newest.position + 1
            expect(highest in _times(logs, SplitRange(whole.split, whole.start, end)), f"{seen}, and lies behind it")


@check(Ability.PREVIEW)
def a_preview_returns_times_of_delivered_rows(harness: Harness) -> None:
    """``reached`` of a range is the event time of one of its rows, and ``highest`` that of the latest."""
    logs = OpenLogs.with_rows(harness)
    preview = logs.connector.preview
    ranges = logs.ranges()
    if preview is None:
        raise NonConformanceError("there is no preview")
    preview.prepare(logs.splits)
    reached = preview.reached(ranges)
    for each in ranges:
        times = {row.event_time // 1_000 for row in logs.read([each]) if row.event_time is not None}
        seen = reached.get(each.split)
        expect(seen is None or int(seen) in times, f"reached of {each}: {seen}, which is the time of none of its rows")
    highest = _highest(logs)
    wrong = {s: (t, highest[s]) for s, t in preview.highest(ranges).items() if int(t) != highest[s]}
    expect(not wrong, f"highest: seen and true {wrong}")


def _highest(logs: OpenLogs) -> dict[Split, int]:
    highest: dict[Split, int] = {}
    for row in logs.read(logs.ranges()):
        if row.event_time is not None:
            highest[row.split] = max(row.event_time // 1_000, highest.get(row.split, 0))
    return highest


# What the connector declares for watermark strategies (``AlignedDataSource.abilities``), and what its batches carry.


@check()
def batches_carry_positions_exactly_if_row_positions_is_declared(harness: Harness) -> None:
    """``row_positions`` promises ``ReadBatch.positions`` in all batches of both readers; positions are rows."""
    logs = OpenLogs.with_rows(harness)
    declared = declared_by(harness).row_positions
    if declared:
        expect(logs.connector.positions_are_rows, "row_positions is declared, and the connector has a row_index")
    for reader in (logs.definition.range_reader, logs.definition.observing_reader):
        for batch in reader.read(logs.ranges()):
            carried = batch.positions is not None
            seen = f"row_positions is {declared}, and a batch of {type(reader).__name__} has positions: {carried}"
            expect(carried == declared or not batch.rows, seen)


@check()
def no_batch_carries_marks_that_are_not_declared(harness: Harness) -> None:
    """Without ``marks`` no strategy reads ``ReadBatch.marks``, and the watermarks in it would be lost."""
    logs = OpenLogs.with_rows(harness)
    if not declared_by(harness).marks:
        marked = [batch.split for batch in logs.definition.range_reader.read(logs.ranges()) if batch.marks is not None]
        expect(not marked, f"marks is not declared, and batches carry them: of {marked[:3]}")


@check(Ability.MARKS)
def batches_carry_the_marks_of_their_rows(harness: Harness) -> None:
    """``marks`` promises the watermarks of records, in order, as ``int64`` microseconds: here each row's event time."""
    write(harness)
    logs = OpenLogs.of(harness, **harness.mark_options)
    expect(declared_by(harness, **harness.mark_options).marks, "marks is not declared with the options of mark_options")
    for reader in (logs.definition.range_reader, logs.definition.observing_reader):
        for batch in reader.read(logs.ranges()):
            if batch.rows:
                marks = None if batch.marks is None else (batch.marks.type, batch.marks.to_pylist())
                expect_equal(marks, (pa.int64(), micros(batch).tolist()), f"the marks of {type(reader).__name__}")


@check()
def reading_ahead_begins_anywhere_if_rows_ahead_is_declared(harness: Harness) -> None:
    """``rows_ahead`` promises that ``reader_ahead`` reads any range's event times, from any position on."""
    logs = OpenLogs.with_rows(harness)
    if not declared_by(harness).rows_ahead:
        return
    expect(logs.connector.positions_are_rows, "rows_ahead is declared, and the connector has a row_index")
    for whole in logs.ranges():
        for part in logs.cuts(whole):
            rest = SplitRange(whole.split, part.start, whole.end)
            ahead, batches = (
                [moment for batch in reader.read([rest]) for moment in micros(batch).tolist()]
                for reader in (logs.definition.reader_ahead, logs.definition.range_reader)
            )
            expect_equal(ahead, batches, f"event times of reader_ahead in {rest}")


@check()
def ends_are_dated_if_dates_rows_is_declared(harness: Harness) -> None:
    """``dates_rows`` promises ``Ends.reached`` of every split, and no row after the end that is earlier."""
    if not declared_by(harness).dates_rows:
        return
    logs = OpenLogs.with_rows(harness)
    ends = logs.connector.bounds.current_ends(logs.splits)
    expect_equal(sorted(ends.reached), sorted(logs.splits), "dates_rows is declared, and splits whose end has a time")
    write(harness, first=20)
    later = logs.connector.bounds.end_positions(logs.splits)
    after = [SplitRange(split, end, later[split]) for split, end in ends.positions.items()]
    early = [row for row in logs.read(after) if (row.event_time or 0) < ends.reached[row.split] * 1_000]
    expect(not early, f"rows after the ends that are earlier than {ends.reached}: {early[:3]}")


# A watermark strategy of a user's own: it belongs to no connector, so it needs no harness.


_CODEC = OffsetCodec(source="check_generator", name="check_generator")
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
_PAUSE = 0.01
"""Seconds between the two runs: a clock that shows milliseconds has moved by then."""


def check_generator(
    generator: type[WatermarkGenerator] | str, ranges: Sequence[RowsRead] = (), rows: pa.RecordBatch | None = None
) -> None:
    """Check a watermark strategy of your own, a ``WatermarkGenerator`` or its name in ``watermarkStrategy``.

    It is called for about two thousand ranges of three splits: three days of event times with disorder, gaps and
    deleted rows, the same in each run. Then again: with a new instance before every range, as if another process had
    planned each batch; with the splits in another order; twice for each range; with another clock. Every state passes
    through the JSON of an offset. Both runs must have the same watermarks and states, the watermark of a split must not
    decrease, and no call may open a connection. After each range comes an hour of silence. A class that has
    ``summarize`` sees the rows in one piece, in pieces cut anywhere, and one by one: the summary must be the same.

    Args:
        generator: the class, which can be imported by its name.
        ranges: your own, in the order in which they are read, instead of those.
        rows: of a split, as the stream has them; needed for ``summarize``. Each range has some of them.

    Raises:
        NonConformanceError: what was seen, and what is expected.
        OptionError: the class cannot be imported, or not made without arguments.
    """
    name = generator if isinstance(generator, str) else f"{generator.__module__}:{generator.__qualname__}"
    sums_up = Own(name).summarized_by is not None
    expect(sums_up == (rows is not None), f"{name}: rows are to be given for summarize, and for nothing else")
    with no_connections():
        if rows is not None:
            _check_summaries(name, rows)
        read = [*ranges] or list(_three_days(name, rows, marks=load_generator(name).reads_marks))
        load_generator.cache_clear()
        first = _after_each_range(name, read)
        time.sleep(_PAUSE)
        with _another_day():
            by_split = sorted(read, key=lambda each: (each.log, -each.number))
            again = _after_each_range(name, by_split, in_new_processes=True)
    for split, states in first.items():
        for number, (one, other) in enumerate(zip(states, again[split], strict=True)):
            expect_equal(other, one, f"{name}: {split} after range {number}, planned by another process")
    expect(
        any(each.watermark is not None for states in first.values() for each, _ in states),
        f"{name}: no watermark in {len(read)} ranges",
    )


def _check_summaries(name: str, rows: pa.RecordBatch) -> None:
    own, split, count = Own(name), Split("log", 0), rows.num_rows
    try:
        whole = own.summary_of(split, rows)
        expect(whole is not None, f"{name}: no summary of {count} rows")
        for cut in [*([0, at, count] for at in range(1, count)), [*range(count + 1)]]:
            parts: list[str | None] = [own.summary_of(split, rows.slice(at, to - at)) for at, to in pairwise(cut)]
            summary = reduce(partial(own.merged, split), parts)
            expect_equal(summary, whole, f"{name}: the summary of rows that are cut at {cut[1:-1]}")
    except GeneratorError as error:
        raise NonConformanceError(str(error)) from error


def _after_each_range(
    name: str, ranges: Sequence[RowsRead], *, in_new_processes: bool = False
) -> Mapping[Split, list[tuple[SplitState, Millis | None]]]:
    """Return each split after each of its ranges, as an offset has it, and its watermark in silence."""
    strategy, found = Own(name), defaultdict[Split, list[tuple[SplitState, Millis | None]]](list)
    for each in ranges:
        split = Split(each.log, each.number)
        before = found[split][-1][0] if found[split] else SplitState(0, 0)
        planned = SplitState(before.position + 1, before.position, before.watermark, kept=before.kept)
        summaries = () if each.summary is None else (canonical(each.summary),)
        seen = RangeSummary(_moment(each.highest), _moment(each.marked), summaries=summaries, is_whole=each.is_whole)
        try:
            if in_new_processes:
                load_generator.cache_clear()
                strategy.check_kept(name, {split: planned.kept})
                advanced(split, planned, seen, strategy, None)
            after = advanced(split, planned, seen, strategy, None)
            silent = strategy.at_rest(split, after.kept, Millis((each.highest or START) + 3_600 * _SECOND))
        except (GeneratorError, OffsetError) as error:
            raise NonConformanceError(str(error)) from error
        offset = json.dumps(_CODEC.encode(SourceState(splits={split: after}, kept_by=name)))
        decoded = _CODEC.decode(json.loads(offset)).splits[split]
        expect_equal(decoded, after, f"{name}: {split} as its offset has it")
        decreased = before.watermark is not None and (after.watermark is None or after.watermark < before.watermark)
        expect(not decreased, f"{name}: the watermark of {split} went from {before.watermark} to {after.watermark}")
        found[split].append((decoded, silent))
    return found


def _moment(millis: int | None) -> Millis | None:
    return None if millis is None else Millis(millis)


def _three_days(name: str, rows: pa.RecordBatch | None, *, marks: bool) -> Iterator[RowsRead]:
    random, hour = Random(7), 3_600 * _SECOND  # noqa: S311 - the same in each run
    times = [START, START + hour, START - 24 * hour]
    while min(times) < START + 72 * hour:
        number = random.randrange(3)
        step = random.choice((0, 1, _SECOND, hour // 60, hour // 6, hour, -hour // 12))
        times[number] += 2 * hour if random.random() < 0.005 else step
        only_marks = marks and random.random() < 0.2
        some = None if rows is None else rows.slice(random.randrange(rows.num_rows), random.randint(1, rows.num_rows))
        yield RowsRead(
            log="log",
            number=number,
            highest=None if only_marks else times[number],
            marked=times[number] - 90 * _SECOND if only_marks or (marks and random.random() < 0.5) else None,
            is_whole=random.random() < 0.98,
            summary=None if some is None else value_of(Own(name).summary_of(Split("log", number), some)),
        )


@contextmanager
def _another_day() -> Iterator[None]:
    """Have the clocks of the module ``time`` show the next day."""
    kept: dict[str, Any] = {name: getattr(time, name) for name in _CLOCKS}

    def a_day_later(name: str) -> Any:
        return lambda: kept[name]() + 86_400 * (10**9 if name.endswith("_ns") else 1)

    try:
        for name in kept:
            setattr(time, name, a_day_later(name))
        yield
    finally:
        for name, clock in kept.items():
            setattr(time, name, clock)
