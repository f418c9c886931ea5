"""Connectors that are broken on purpose: a fault, what it does to the file log, and the check that it must fail."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from examples.file_log import pyspark_file_log as example
from tests.unit.testing import full_file_log
from tests.unit.testing.full_file_log import FullDataSource, FullLog, FullReader, FullSource
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import EarliestOrLatest, Ends
from watermark_source.planning.split import NewestTime, Split, SplitRange
from watermark_source.planning.strategy import Abilities
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver import input_partitions, runner
from watermark_source.spark.driver.run_bounds import InitialOffset
from watermark_source.spark.markers import markers_between
from watermark_source.spark.stream_schema import stream_schema

Patch = tuple[Any, str, Any]
read, ends = FullReader.read, FullLog.end_positions
open_source, discover = FullSource.open, FullLog.discover


class Fault(NamedTuple):
    check: str
    message: str
    """What the failure states."""
    patches: Sequence[Patch]

    def break_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for target, name, broken in self.patches:
            monkeypatch.setattr(target, name, broken, raising=False)


def reading(
    check: str, message: str, broken: Callable[[FullReader, Sequence[SplitRange]], Iterator[ReadBatch]]
) -> Fault:
    return Fault(check, message, [(FullReader, "read", broken)])


def at(number: int) -> Callable[[FullReader, Sequence[SplitRange]], Iterator[ReadBatch]]:
    """A reader that leaves a row of each batch out."""

    def broken(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        for batch in read(self, ranges):
            yield taken(batch, np.delete(np.arange(batch.rows), number))

    return broken


def taken(batch: ReadBatch, rows: Any) -> ReadBatch:
    columns = tuple(column.take(pa.array(rows)) for column in batch.columns)
    return ReadBatch(batch.split, len(rows), columns, batch.event_time.take(pa.array(rows)))


def in_the_order_reversed(batch: ReadBatch) -> ReadBatch:
    assert batch.positions is not None
    return replace(batch, positions=batch.positions[::-1])


def over(change: Callable[[ReadBatch], ReadBatch]) -> Callable[[FullReader, Sequence[SplitRange]], Iterator[ReadBatch]]:
    def broken(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        return map(change, read(self, ranges))

    return broken


def wider(change: Callable[[SplitRange], SplitRange]) -> Callable[..., Iterator[ReadBatch]]:
    return lambda self, ranges: read(self, [change(each) for each in ranges])


def twice(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    for batch in read(self, ranges):
        yield from (batch, batch)


def without_first_of_later(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    return read(self, [each._replace(start=each.start + (0 < each.start < each.end)) for each in ranges])


def without_last_of_long(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    return read(self, [each._replace(end=each.end - (each.size > 4)) for each in ranges])


def to_the_end_of_the_file(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    whole = ends(FullLog(self.folder), {each.split for each in ranges})
    return read(self, [each._replace(end=whole.get(each.split, each.end)) for each in ranges])


def of_the_first_split(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    return (replace(batch, split=ranges[0].split) for batch in read(self, ranges))


_busy = threading.Lock()


def one_at_a_time(self: FullReader, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    if not _busy.acquire(blocking=False):
        return
    yield from read(self, ranges)
    _busy.release()


def later(batch: ReadBatch, micros: int = 1_000_000) -> ReadBatch:
    times = pa.array(np.asarray(batch.event_time.view("int64")) + micros).view(pa.timestamp("us", tz="UTC"))
    return replace(batch, event_time=times)


def added(batch: ReadBatch, number: int = 500) -> ReadBatch:
    return replace(batch, columns=tuple(pa.array(np.asarray(column) + number) for column in batch.columns))


_opened: list[None] = []


def counting_open(self: FullSource) -> Any:
    _opened.append(None)
    return open_source(self)


def keeping_open(self: FullSource) -> Any:
    object.__setattr__(self, "kept", threading.Lock())
    return open_source(self)


def from_the_start(self: FullSource) -> Any:
    return replace(open_source(self), starts=EarliestOrLatest(FullLog(self.reader.folder), earliest=True))


_first_found: dict[str, Any] = {}


def remembered(ask: Callable[..., Any]) -> Callable[..., Any]:
    """What was answered first in a folder, for ever."""
    return lambda self, *given: _first_found.setdefault(f"{ask.__name__} {self.folder}", ask(self, *given))


_tick = itertools.count(1)


def growing(self: FullLog, splits: set[Split]) -> dict[Split, int]:
    return {split: end + next(_tick) for split, end in ends(self, splits).items()}


_most: dict[tuple[str, Split], int] = {}


def never_smaller(self: FullLog, splits: set[Split]) -> dict[Split, int]:
    for split, end in ends(self, splits).items():
        _most[self.folder, split] = max(end, _most.get((self.folder, split), 0))
    return {split: most for (folder, split), most in _most.items() if folder == self.folder and split in splits}


def silent(self: FullLog, splits: set[Split]) -> Ends:
    return Ends({}, dict.fromkeys(splits, None))


_told: dict[tuple[str, Split], int] = {}


def silent_when_quiet(self: FullLog, splits: set[Split]) -> Ends:
    now = ends(self, splits)
    same = {split for split, end in now.items() if _told.get((self.folder, split)) == end}
    _told.update({(self.folder, split): end for split, end in now.items()})
    return Ends({s: e for s, e in now.items() if s not in same}, dict.fromkeys(same, None))


def no_pickle(self: object) -> Any:
    raise TypeError("cannot pickle this")


def connecting_source(self: FullDataSource, options: Any) -> FullSource:
    with socket.socket() as client:
        client.connect_ex(("127.0.0.1", 9))
    return source(self, options)


columns = vars(example.FileLogSource)["columns"].fget
source, schema, parsed = FullDataSource.source, FullDataSource.schema, FullDataSource.source_options
stream_reader, reader_status, markers = (
    FullDataSource.streamReader,
    runner.SourceRunner.status,
    markers_between,
)
initial, first_after, pieces = InitialOffset.offset, FullLog.first_after, FullLog.pieces


def another_column(self: FullSource) -> StructType:
    return columns(self).add(StructField(f"c{next(_tick)}", LongType()))


def without(name: str) -> Callable[[FullDataSource, Mapping[str, str]], Any]:
    def broken(self: FullDataSource, given: Mapping[str, str]) -> Any:
        self.options = {key: text for key, text in self.options.items() if key != name}
        return parsed(self, {key: text for key, text in given.items() if key != name})

    return broken


def own_case(self: FullDataSource) -> StructType:
    return schema(self) if "startingOffsets" in self.options else StructType()


def sleepy(self: FullLog, moment: float, *, wait: float) -> bool:
    time.sleep(1.2)
    return True


def negative(before: Any, after: Any) -> Any:
    return tuple(replace(m, watermark=None if m.watermark is None else -m.watermark) for m in markers(before, after))


def asking_again(self: InitialOffset) -> Any:
    self._offset = None
    return initial(self)


def swallowed(self: FullReader, wanted: SplitRange, lines: int) -> None: ...


def last_times(self: FullLog, splits: set[Split]) -> Any:
    return {split: NewestTime(Millis(int(self._times(split)[-1]))) for split in splits}


def refused(server: str) -> None:
    raise ConnectionRefusedError(server)


FAULTS = (
    Fault("the_definition_has_the_name_of_the_format", "expected 'file-log'", [(FullSource, "name", "other")]),
    Fault("the_schema_ends_in_event_time_and_marker", "the last columns", [
        (FullDataSource, "_schema", lambda self, source, options: StructType(
            stream_schema(source.columns, options.engine).fields[:-1]))]),
    Fault("the_schema_is_the_same_each_time", "second time", [(FullSource, "columns", property(another_column))]),
    Fault("names_of_options_ignore_case", "lower case", [(FullDataSource, "schema", own_case)]),
    Fault("an_unknown_option_is_refused", "nothing was raised", [
        (FullDataSource, "source_options", without("noSuchOption"))]),
    Fault("a_wrong_value_is_an_error_of_the_option", "nothing was raised", [
        (FullDataSource, "source_options", without("idleTimeout"))]),
    Fault("late_rows_are_marked_with_include_late", "the column late", [
        (FullDataSource, "source_options", without("includeLate"))]),
    Fault("a_schema_of_the_users_is_refused", "nothing was raised", [
        (FullDataSource, "streamReader", lambda self, _: stream_reader(self, self.schema()))]),
    Fault("building_connects_to_nothing", "a connection was made", [(FullDataSource, "source", connecting_source)]),
    Fault("a_definition_survives_the_pickle_and_connects_to_nothing", "cannot pickle", [
        (FullSource, "__reduce__", no_pickle)]),
    Fault("readers_of_ranges_survive_the_pickle", "cannot pickle", [(FullReader, "__reduce__", no_pickle)]),
    Fault("a_reader_in_use_survives_the_pickle", "cannot pickle", [(FullSource, "open", keeping_open)]),
    Fault("an_unreachable_system_is_an_error_within_a_time_limit", "seen ConnectionRefusedError", [
        (full_file_log, "connect", refused)]),
    Fault("secrets_are_shown_nowhere", "a secret is shown", [(FullReader, "__repr__", lambda self: self.token)]),
    Fault("the_harness_names_all_parts_of_the_connector", "TIME_INDEX", [
        (FullSource, "open", lambda self: replace(open_source(self), time_index=None))]),
    Fault("positions_are_whole_numbers_from_0_on", "is not a position", [
        (FullLog, "end_positions", lambda self, splits: {s: float(e) for s, e in ends(self, splits).items()})]),
    Fault("a_log_begins_before_it_ends", "of a log that begins at", [
        (FullLog, "earliest_positions", lambda self, splits: {s: e + 1 for s, e in ends(self, splits).items()})]),
    Fault("the_end_moves_with_written_rows", "three rows later", [(FullLog, "end_positions", remembered(ends))]),
    Fault("the_end_stays_while_nothing_is_written", "without writes", [(FullLog, "end_positions", growing)]),
    Fault("ends_are_returned_when_it_is_quiet", "has no answer for", [(FullLog, "current_ends", silent)]),
    Fault("splits_that_do_not_exist_are_left_out", "the splits with positions", [
        (FullLog, "earliest_positions", lambda self, splits: dict.fromkeys(splits, 0))]),
    Fault("positions_have_texts_that_differ", "is shown as", [(FullSource, "position_text", lambda *_: "somewhere")]),
    Fault("a_new_query_keeps_its_start", "second time", [
        (InitialOffset, "offset", asking_again)]),
    Fault("a_query_from_the_end_reads_only_later_rows", "rows before the start", [
        (FullSource, "open", from_the_start)]),
    reading("every_row_of_a_range_is_delivered_once", "of all ranges", twice),
    reading("rows_of_a_split_come_in_order", "split by split",
            over(lambda batch: taken(batch, np.arange(batch.rows)[::-1]))),
    reading("a_range_may_be_cut_anywhere", "read in parts", wider(lambda each: each._replace(start=0))),
    reading("an_empty_range_has_no_rows", " at 0", wider(lambda each: each._replace(end=max(each.end, 1)))),
    reading("batches_name_the_split_of_their_rows", "split by split", of_the_first_split),
    reading("a_range_is_read_again_as_before", "after more was written", to_the_end_of_the_file),
    reading("a_reader_may_be_left_half_way", "left half-way", one_at_a_time),
    reading("columns_are_those_of_the_schema", "types of columns", over(
        lambda batch: replace(batch, columns=tuple(column.cast(pa.float64()) for column in batch.columns)))),
    reading("event_times_are_microseconds_in_utc", "type of event_time", over(
        lambda batch: replace(batch, event_time=batch.event_time.cast(pa.timestamp("ms", tz="UTC"))))),
    reading("rows_with_an_event_time_are_not_undated", "counted as undated", over(
        lambda batch: replace(batch, undated=7))),
    reading("positions_of_rows_are_in_order_and_in_their_range", "from", over(
        in_the_order_reversed)),
    reading("event_times_are_those_written", "event times", over(later)),
    Fault("the_observing_reader_sees_the_same_times", "observing reader", [
        (FullSource, "observing_reader", property(lambda self: replace(self.reader, event_time="value")))]),
    Fault("batches_are_of_bounded_size", "up to 70000 rows", [(example, "BATCH_LINES", 10**9)]),
    Fault("a_limit_of_rows_is_kept_where_positions_are_not_rows", "at most 3", [
        (FullLog, "end_within", lambda _, wanted, rows: min(wanted.end, wanted.start + 2 * rows))]),
    Fault("the_pieces_of_a_range_are_all_of_it", "where the last piece ends", [
        (FullLog, "pieces", lambda self, wanted, at_least: pieces(self, wanted, at_least)[:-1])]),
    Fault("another_log_of_a_name_is_a_loss_if_logs_have_ids", "nothing was raised", [
        (FullReader, "of_logs", lambda self, _: self)]),
    reading("a_batch_read_has_all_rows", "of a batch read", at(-1)),
    reading("all_rows_come_once", "of all batches", at(-1)),
    reading("a_limit_of_rows_cuts_batches_and_loses_none", "a batch", without_first_of_later),
    Fault("offsets_survive_json", "not JSON", [
        (FullLog, "end_positions", lambda self, splits: {s: np.int64(e) for s, e in ends(self, splits).items()})]),
    reading("a_batch_is_read_again_as_before", "the batch again", to_the_end_of_the_file),
    Fault("a_batch_is_read_again_after_a_restart", "after a restart", [
        (FullSource, "open", counting_open), (FullReader, "read", over(lambda batch: added(batch, len(_opened))))]),
    reading("a_batch_is_read_again_in_another_process", "in another process", over(added)),
    reading("batches_repeated_as_one_have_the_same_rows", "of batches in one", without_last_of_long),
    reading("a_restart_continues_where_the_query_was", "of all processes", without_first_of_later),
    reading("more_tasks_deliver_the_same_rows", "of five tasks", without_first_of_later),
    reading("a_run_of_available_rows_ends", "of the run", to_the_end_of_the_file),
    Fault("nothing_new_gives_no_rows", "while nothing happens", [
        (FullLog, "end_positions", growing), (example.FileLogReader, "_report_loss", swallowed)]),
    Fault("all_splits_are_discovered", "discovered are", [
        (FullLog, "discover", lambda self: frozenset(sorted(discover(self))[:1]))]),
    Fault("a_look_up_is_awaited_no_longer_than_requested", "took 1", [(FullLog, "looked_since", sleepy)]),
    Fault("a_look_up_runs_when_it_is_awaited", "looked_since returned false", [
        (FullLog, "looked_since", lambda *_, wait: False)]),
    Fault("a_look_up_finds_all_earlier_splits", "a split was added", [(FullLog, "discover", remembered(discover))]),
    Fault("a_split_that_is_added_is_read_from_its_beginning", "its first rows are gone", [
        (EarliestOrLatest, "added_positions", lambda self, splits: self.bounds.end_positions(splits))]),
    Fault("lost_rows_end_the_query_when_it_is_planned", "nothing was raised", [
        (FullLog, "end_positions", never_smaller), (example.FileLogReader, "_report_loss", swallowed)]),
    reading("lost_rows_are_skipped_if_the_user_wants", "after the loss",
            wider(lambda each: each._replace(start=each.start + (each.start < each.end)))),
    Fault("rows_lost_before_they_are_read_end_the_task", "nothing was raised", [
        (FullReader, "_report_loss", swallowed)]),
    Fault("a_task_skips_lost_rows_if_the_user_wants", "without a warning", [(FullReader, "_report_loss", swallowed)]),
    Fault("the_watermark_never_goes_back", "watermarks", [(input_partitions, "markers_between", negative)]),
    Fault("the_watermark_is_that_of_the_slowest_split", "after the first minute", [
        (FullLog, "discover", lambda self: frozenset(sorted(discover(self))[:1]))]),
    Fault("a_silent_split_becomes_idle_and_delays_no_other", "idleTimeout is 300 ms", [
        (FullLog, "current_ends", silent_when_quiet)]),
    Fault("a_log_that_is_read_to_its_end_has_no_lag", "lag", [
        (runner.SourceRunner, "status", lambda self: {**(reader_status(self) or {}), "lag": 7})]),
    Fault("the_time_index_is_exact", "the first time after", [
        (FullLog, "first_after", lambda self, limits: first_after(self, {s: m - 1 for s, m in limits.items()}))]),
    Fault("the_newest_event_time_is_the_highest", "newest", [(FullLog, "newest", last_times)]),
    reading("batches_carry_positions_exactly_if_row_positions_is_declared", "has positions: False", over(
        lambda batch: replace(batch, positions=None))),
    reading("no_batch_carries_marks_that_are_not_declared", "marks is not declared", over(
        lambda batch: replace(batch, marks=batch.event_time.view("int64")))),
    reading("batches_carry_the_marks_of_their_rows", "the marks of", over(lambda batch: replace(batch, marks=None))),
    Fault("reading_ahead_begins_anywhere_if_rows_ahead_is_declared", "event times of reader_ahead", [
        (FullSource, "reader_ahead", property(lambda self: replace(self.reader, event_time="value")))]),
    Fault("ends_are_dated_if_dates_rows_is_declared", "splits whose end has a time", [
        (FullDataSource, "abilities", lambda self, values: Abilities(dates_rows=True))]),
    Fault("a_preview_returns_times_of_delivered_rows", "the time of none", [
        (FullLog, "reached", lambda self, ranges: {each.split: 1 for each in ranges})]),
)  # fmt: skip
