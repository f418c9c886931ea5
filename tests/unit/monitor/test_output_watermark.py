"""What follows from the operators' statements and the sources' offsets for the rows that a query writes later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from watermark_source.planning.watermark import LAST, MAX, Millis
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    OperatorWatermark,
    Why,
    newest,
    output_of,
)

WINDOWS = OperatorWatermark(
    name="StateStoreSave", operator=0, late=Millis(100), eviction=Millis(200), output_before=Millis(100),
    output=Millis(200), promises=True, is_last=True,
)  # fmt: skip
JOIN = replace(WINDOWS, name="StreamingSymmetricHashJoin", output_before=Millis(70), output=Millis(170))
BY_HAND = replace(WINDOWS, name="FlatMapGroupsWithState", output_before=None, output=None, promises=False)
INNER = replace(WINDOWS, name="StreamingDeduplicate", output=Millis(1), is_last=False)


def batch(*operators: OperatorWatermark, number: int = 7, stateless: bool = False) -> BatchWatermarks:
    return BatchWatermarks(number, operators, is_complete=False, has_stateless_rows=stateless)


def progress(*watermarks: int | None, number: int = 7, foreign: bool = False, idle: bool = False) -> dict[str, Any]:
    def offset(watermark: int | None) -> Mapping[str, Any]:
        known = {"name": "", "run": 1, "source": "aligned-kafka", "splits": {}, "v": 1}
        return known if watermark is None else {**known, "wm": watermark}

    sources = [{"description": "ours", "endOffset": offset(watermark)} for watermark in watermarks]
    others = [{"description": "KafkaV2[x]", "endOffset": '{"x": {"0": 5}}'}] if foreign else []
    durations = {"latestOffset": 3, "triggerExecution": 4} if idle else {"addBatch": 20, "triggerExecution": 25}
    return {"batchId": number, "durationMs": durations, "sources": [*sources, *others]}


def test_the_last_operators_count_and_of_several_branches_the_lowest() -> None:
    assert output_of(batch(WINDOWS, INNER), progress(5)) == 200
    assert output_of(batch(WINDOWS, JOIN), progress(5)) == 170


def test_of_a_later_batch_what_it_dropped_as_late_counts() -> None:
    assert output_of(batch(WINDOWS, JOIN, number=8), progress(5)) == 70


def test_what_an_earlier_batch_states_counts_while_spark_plans_the_next() -> None:
    former, planning = batch(WINDOWS, number=6), NoWatermark(Why.PLANNING)
    assert output_of(former, progress(5)) == 200
    assert newest(former, planning, 7) == former
    assert newest(None, planning, 7) == newest(NoWatermark(Why.NO_BATCH), planning, 7) == planning
    assert newest(former, batch(WINDOWS), 7) == batch(WINDOWS)
    assert newest(former, None, 7) is None
    alone = replace(batch(WINDOWS, number=8), has_late=False)
    assert newest(former, alone, 7) == former
    assert newest(former, alone, 8) == alone


def test_the_next_batch_that_an_idle_query_names_is_not_committed() -> None:
    assert output_of(batch(WINDOWS, JOIN), progress(5, number=8, idle=True)) == 170
    # It has been planned since: its rows are not written yet.
    assert output_of(batch(WINDOWS, JOIN, number=8), progress(5, number=8, idle=True)) == 70
    assert output_of(batch(WINDOWS, number=0), progress(5, number=0, idle=True)) == NoWatermark(Why.NO_BATCH)


def test_a_batch_with_one_watermark_for_late_rows_and_eviction_states_nothing_before_its_commit() -> None:
    alone = replace(batch(WINDOWS, number=8), has_late=False)
    assert output_of(alone, progress(5)) == NoWatermark(Why.PLANNING)
    assert output_of(alone, progress(5, number=8)) == 200


def test_without_operators_or_past_them_the_lowest_source_counts() -> None:
    assert output_of(batch(), progress(300, 250)) == 250
    assert output_of(batch(WINDOWS), progress(150)) == 200
    assert output_of(batch(WINDOWS, stateless=True), progress(150)) == 150
    assert output_of(batch(WINDOWS, stateless=True), progress(None)) == NoWatermark(Why.NO_WATERMARK)
    assert output_of(batch(), progress(MAX)) == MAX
    assert output_of(batch(), progress(LAST)) == MAX


def test_a_foreign_source_or_an_operator_without_a_promise_is_named() -> None:
    assert output_of(batch(), progress(300, foreign=True)) == NoWatermark(Why.FOREIGN_SOURCE, "KafkaV2[x]")
    assert output_of(batch(WINDOWS), progress(300, foreign=True)) == 200
    assert output_of(batch(WINDOWS, BY_HAND), progress(5)) == NoWatermark(Why.NO_PROMISE, "FlatMapGroupsWithState")
    assert output_of(batch(JOIN, BY_HAND), progress(5), is_bounded=True) == 170
    assert output_of(batch(BY_HAND, number=8), progress(5), is_bounded=True) == 100


def test_there_is_no_watermark_before_the_first_and_in_complete_mode() -> None:
    assert output_of(batch(replace(WINDOWS, output=None)), progress(5)) == NoWatermark(Why.NO_WATERMARK)
    assert output_of(batch(WINDOWS), None) == NoWatermark(Why.NO_BATCH)
    assert output_of(NoWatermark(Why.PLANNING), progress(5)) == NoWatermark(Why.PLANNING)
    complete = replace(batch(WINDOWS), is_complete=True)
    assert output_of(complete, progress(5)) == NoWatermark(Why.COMPLETE_MODE)
    assert str(NoWatermark(Why.NO_PROMISE, "Deduplicate")).endswith("later rows: Deduplicate")
