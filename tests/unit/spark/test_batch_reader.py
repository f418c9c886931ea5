"""How a batch is laid out, and what a task makes of its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, InputPartition
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from watermark_source.contract.batch_read import BatchDefinition
from watermark_source.contract.lineage import ExpectedLogs
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import InternalError
from watermark_source.option_table import OptionTable
from watermark_source.planning.ranges_per_task import OpenPiece, OpenRange
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.batch_reader import AlignedBatchReader, BatchPack, NarrowingBatchReader, lay
from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.markers import arrow_schema
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.stream_schema import MARKER_TYPE

A, B, GONE = Split("log", 0), Split("log", 1), Split("log", 2)
SYSTEM = StructType([StructField("value", LongType()), StructField(EVENT_TIME, TimestampType())])
SCHEMA = StructType([*SYSTEM.fields, StructField(MARKER, MARKER_TYPE)])


def late(split: Split, start: int, end: int, *, late_start: bool = True, late_end: bool = True) -> OpenRange:
    return OpenRange(SplitRange(split, start, end), late_start, late_end)


@dataclass(frozen=True)
class Numbers(BatchDefinition):
    """Logs whose rows are their own positions. States what it was asked."""

    logs: Mapping[Split, tuple[int, int]]
    ranges: Sequence[OpenRange] = ()
    asked: list[object] = field(default_factory=list)
    ids: Mapping[str, str] = field(default_factory=dict)
    """Of the logs that a task is to read."""

    @property
    def range_reader(self) -> Numbers:
        return self

    def late_ranges(self) -> Sequence[OpenRange]:
        return self.ranges

    def narrowed(self, filters: Sequence[Filter]) -> Numbers:
        self.asked.append(filters)
        return replace(self, ranges=[late(A, 0, 5)])

    def of_logs(self, expected: ExpectedLogs) -> Numbers:
        return replace(self, ids=expected.ids)

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        self.asked.append((set(splits), self.ids) if self.ids else set(splits))
        return {split: SplitRange(split, *self.logs[split]) for split in splits if split in self.logs}

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split]) -> Iterator[ReadBatch]:
        self.asked.append((list(ranges), set(from_beginning)))
        if self.ids:
            self.asked.append(self.ids)
        for r in ranges:
            values = pa.array(range(r.start, r.end), pa.int64())
            yield ReadBatch(r.split, len(values), (values,), values.view(pa.timestamp("us", tz="UTC")))


def reader(numbers: Numbers, schema: StructType = SCHEMA, **given: str) -> AlignedBatchReader:
    options = EngineOptions.of(OptionTable(ENGINE_OPTIONS).parse(given), format_name="numbers", given=given)
    return AlignedBatchReader(numbers, options, schema)


def values(batches: Iterator[pa.RecordBatch]) -> list[list[int]]:
    return [batch.column(0).to_pylist() for batch in batches]


def test_small_ranges_share_a_task_and_big_ones_are_cut() -> None:
    wholes = [late(B, 0, 5), late(A, 0, 3_000_000), late(GONE, 7, 7)]
    packs = lay(wholes, at_least=None, at_most=None)
    assert [[str(piece.range) for piece in pieces] for pieces in packs] == [
        ["log-0[0,750000)"], ["log-0[750000,1500000)"], ["log-0[1500000,2250000)"], ["log-0[2250000,3000000)"],
        ["log-1[0,5)", "log-2[7,7)"],
    ]  # fmt: skip
    assert {piece.whole for pieces in packs for piece in pieces} == set(wholes)


def test_the_users_numbers_of_tasks_and_of_rows_in_one_are_kept() -> None:
    assert len(reader(Numbers({}, [late(A, 0, 12)]), minPartitions="5").partitions()) >= 5
    assert len(reader(Numbers({}, [late(A, 0, 12)]), maxRecordsPerPartition="4").partitions()) == 3


def test_a_read_of_nothing_is_one_task_that_reads_nothing() -> None:
    empty = reader(Numbers({}))
    (only,) = empty.partitions()
    assert only == BatchPack(())
    assert values(empty.read(only)) == []


def test_a_task_binds_its_late_pieces_and_leaves_the_others_as_they_are() -> None:
    fixed = late(B, 3, 6, late_start=False, late_end=False)
    numbers = Numbers({A: (2, 9), B: (0, 99)})
    pack = BatchPack((OpenPiece(SplitRange(A, 0, 5), late(A, 0, 5)), OpenPiece(fixed.range, fixed)))
    assert values(reader(numbers).read(pack)) == [[2, 3, 4, 5, 6, 7, 8], [3, 4, 5]]
    assert numbers.asked == [{A}, ([SplitRange(A, 2, 9), SplitRange(B, 3, 6)], {A})]


def test_nothing_is_looked_up_for_bounds_that_are_given() -> None:
    fixed = late(A, 3, 5, late_start=False, late_end=False)
    numbers = Numbers({A: (0, 99)})
    assert values(reader(numbers).read(BatchPack((OpenPiece(fixed.range, fixed),)))) == [[3, 4]]
    assert numbers.asked == [([SplitRange(A, 3, 5)], set())]


def test_a_split_that_is_gone_is_left_to_the_reader_as_it_was_planned() -> None:
    numbers = Numbers({})
    list(reader(numbers).read(BatchPack((OpenPiece(SplitRange(GONE, 1, 4), late(GONE, 1, 4)),))))
    assert numbers.asked[1] == ([SplitRange(GONE, 1, 4)], {GONE})


def test_a_task_reads_the_logs_that_were_planned_with_and_no_others_of_their_names() -> None:
    """A log that is deleted and created again in between would pass for the one that was planned."""
    numbers = Numbers({A: (2, 9)})
    named = late(A, 0, 5)._replace(log_id="first").within(1, None)
    assert named is not None
    assert values(reader(numbers).read(BatchPack((OpenPiece(named.range, named),)))) == [[2, 3, 4, 5, 6, 7, 8]]
    ids = {"log": "first"}
    assert numbers.asked == [({A}, ids), ([SplitRange(A, 2, 9)], {A}), ids]


@pytest.mark.parametrize("schema", [SCHEMA, SYSTEM])
def test_rows_have_the_streams_schema_and_no_marker(schema: StructType) -> None:
    whole = late(A, 0, 3)
    (batch,) = reader(Numbers({A: (0, 3)}), schema).read(BatchPack((OpenPiece(whole.range, whole),)))
    assert batch.schema == arrow_schema(schema)
    assert MARKER not in batch.schema.names or batch.column(2).null_count == 3


def test_a_partition_that_is_not_ours_is_a_bug() -> None:
    with pytest.raises(InternalError, match="not a task of ours: InputPartition"):
        reader(Numbers({})).read(InputPartition(None))


def test_filters_are_taken_and_all_left_to_spark() -> None:
    numbers = Numbers({A: (0, 5)}, [late(A, 0, 3_000_000)])
    options = EngineOptions.of(OptionTable(ENGINE_OPTIONS).parse({}), format_name="numbers", given={})
    narrowed = NarrowingBatchReader(numbers, options, SCHEMA)
    filters: list[Filter] = [EqualTo(("value",), 3)]
    assert list(narrowed.pushFilters(filters)) == filters
    assert numbers.asked == [filters]
    packs = [pack for pack in narrowed.partitions() if isinstance(pack, BatchPack)]
    assert [str(piece.range) for pack in packs for piece in pack.pieces] == ["log-0[0,5)"]


def test_ranges_of_one_split_are_read_one_after_the_other() -> None:
    numbers = Numbers({A: (0, 9), B: (0, 3)})
    whole = late(A, 0, 9, late_start=False, late_end=False)
    ranges = [whole.within(0, 2), whole.within(4, 5), whole.within(6, None)]
    packs = lay([each for each in ranges if each is not None] + [late(B, 0, 3)], at_least=None, at_most=None)
    read = reader(numbers).read(BatchPack(packs[0]))
    assert [value for batch in values(read) for value in batch] == [0, 1, 0, 1, 2, 4, 6, 7, 8]
    assert [[str(r) for r in asked[0]] for asked in numbers.asked[1:]] == [  # type: ignore[index]
        ["log-0[0,2)", "log-1[0,3)"], ["log-0[4,5)"], ["log-0[6,9)"],
    ]  # fmt: skip


def test_two_empty_ranges_of_a_split_stay_two() -> None:
    whole = late(A, 0, 5)
    ranges = [part for at in (7, 9) if (part := whole.within(at, at + 1)) is not None]
    assert [str(part.range) for part in ranges] == ["log-0[5,5)"] * 2
    read = reader(Numbers({A: (0, 20)})).read(BatchPack(lay(ranges, at_least=None, at_most=None)[0]))
    assert [value for batch in values(read) for value in batch] == [7, 9]
