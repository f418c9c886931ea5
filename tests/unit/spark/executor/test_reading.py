"""What a task yields, and when it reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

from tests.unit.spark.executor.read_batches import A, batch
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.split import SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.executor.reading import run_task
from watermark_source.spark.markers import Marker, arrow_schema
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.stream_schema import MARKER_TYPE

SYSTEM = StructType([StructField("value", LongType()), StructField(EVENT_TIME, TimestampType())])
SCHEMA = StructType([*SYSTEM.fields, StructField(MARKER, MARKER_TYPE)])
WATERMARK = Marker("watermark", None, None, 5, None, False, None)


@dataclass(frozen=True)
class Given:
    batches: tuple[ReadBatch, ...]

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        yield from (b for b in self.batches if b.split in {r.split for r in ranges})


def work(**changes: object) -> ReadTask:
    plain: dict[str, object] = {
        "ranges": (SplitRange(A, 0, 2),), "markers": (), "future_cap": None, "clock": None, "late_at": None,
        "report_to": None,
    }  # fmt: skip
    return ReadTask(**{**plain, **changes})  # type: ignore[arg-type]


def test_markers_come_first_and_rows_have_none() -> None:
    first, rows = run_task(Given((batch(A, 1, 2),)), work(markers=(WATERMARK,)), SCHEMA)
    assert first.schema == rows.schema == arrow_schema(SCHEMA)
    assert (first.num_rows, first.column(2).null_count) == (1, 0)
    assert (rows.num_rows, rows.column(2).null_count) == (2, 2)


def test_a_pack_of_markers_alone_reads_nothing() -> None:
    (only,) = run_task(Given((batch(A, 1),)), work(ranges=(), markers=(WATERMARK,)), SCHEMA)
    assert only.column(2).to_pylist()[0]["type"] == "watermark"


def test_without_a_marker_column_no_marker_rows_come() -> None:
    (rows,) = run_task(Given((batch(A, 1),)), work(markers=(WATERMARK,)), SYSTEM)
    assert rows.schema == arrow_schema(SYSTEM)
    assert rows.num_rows == 1


def test_with_processing_time_every_row_has_the_clock_of_the_plan() -> None:
    (rows,) = run_task(Given((batch(A, 1, 2),)), work(clock=Millis(7)), SCHEMA)
    assert rows.column(1).cast(pa.int64()).to_pylist() == [7_000, 7_000]


def test_the_report_goes_out_when_the_last_row_has_been_taken_and_not_before() -> None:
    book = ReportBook()
    server = ReportServer(book)
    try:
        wanted = SplitRange(A, 0, 2)
        batches = run_task(Given((batch(A, 1_000), batch(A, 9_000))), work(report_to=server.address), SCHEMA)
        next(batches)
        next(batches)
        assert book.cover(wanted).missing == (wanted,)
        assert next(batches, None) is None
        assert book.cover(wanted).missing == ()
        assert book.cover(wanted).seen.highest == 9
    finally:
        server.close()


def test_a_reader_that_fails_reports_nothing() -> None:
    class Broken:
        def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
            yield batch(A, 1_000)
            raise OSError("gone")

    book = ReportBook()
    server = ReportServer(book)
    try:
        with pytest.raises(OSError, match="gone"):
            list(run_task(Broken(), work(report_to=server.address), SCHEMA))
        assert book.cover(SplitRange(A, 0, 2)).rows.read == 0
    finally:
        server.close()


def test_rows_at_or_before_the_watermark_of_the_batch_are_late() -> None:
    late_too = StructType([*SYSTEM.fields, StructField("late", BooleanType()), StructField(MARKER, MARKER_TYPE)])
    times = batch(A, 4_000, 5_000, 5_001, 9_000)
    first, rows = run_task(Given((times,)), work(markers=(WATERMARK,), late_at=Millis(5)), late_too)
    assert first.column(2).to_pylist() == [None]
    # As Spark has it: 5.001 ms are behind a watermark of 5 ms.
    assert rows.column(2).to_pylist() == [True, True, False, False]
    (rows,) = run_task(Given((times,)), work(), late_too)
    assert rows.column(2).to_pylist() == [False] * 4
