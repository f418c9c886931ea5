"""When a watermark that closes no window is warned of, and what the warnings say."""

from __future__ import annotations

import pytest

from watermark_source.monitor.source_status import NO_ROWS, RowTotals
from watermark_source.monitor.watermark_warnings import (
    Holder,
    LateSplit,
    Stand,
    Standing,
    clock_text,
    clocks_behind,
    end_text,
    late_text,
    standing_text,
)
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split

MINUTE = 60_000
AT = 1_700_000_000_000
ORDERS = Split("orders", 2)
SILENT = Holder(ORDERS, "no record seen yet; holds the watermark", 0, NO_ROWS, None)


def begun(watermark: int | None = None) -> Standing:
    return Standing(watermark, since=0, rows=0, begun_with=watermark)


def test_no_first_watermark_is_warned_of_after_a_minute_and_once() -> None:
    standing = begun()
    assert not standing.is_due(rows=0, now=MINUTE - 1, patience=MINUTE)
    assert standing.is_due(rows=0, now=MINUTE, patience=MINUTE)
    assert not standing.warn().is_due(rows=9, now=9 * MINUTE, patience=MINUTE)


def test_a_watermark_that_stands_is_warned_of_only_where_rows_are_read() -> None:
    standing = begun().at(5, rows=10, now=MINUTE)
    assert not standing.is_due(rows=10, now=9 * MINUTE, patience=MINUTE)
    assert not standing.is_due(rows=11, now=2 * MINUTE - 1, patience=MINUTE)
    assert standing.is_due(rows=11, now=2 * MINUTE, patience=MINUTE)


def test_each_stand_is_warned_of_anew() -> None:
    standing = begun().warn().at(5, rows=10, now=MINUTE)
    assert standing.at(5, rows=20, now=9 * MINUTE) is standing
    assert standing.is_due(rows=20, now=2 * MINUTE, patience=MINUTE)


def test_a_run_is_warned_of_at_its_end_if_it_read_rows_and_its_watermark_did_not_move() -> None:
    assert begun().is_due_at_end(rows=1)
    assert begun(5).is_due_at_end(rows=1)
    assert not begun().is_due_at_end(rows=0)
    assert not begun(5).at(6, rows=1, now=1).is_due_at_end(rows=1)


def stand(*holders: Holder, watermark: int | None = None, rows: int = 1_200) -> Stand:
    return Stand(watermark, since=AT, lasted=MINUTE, rows=rows, holders=holders)


def test_the_warning_names_the_split_since_when_and_the_line() -> None:
    assert standing_text(stand(SILENT)) == (
        "there is no watermark since 2023-11-14 22:13:20.000 UTC (1 min), with 1 200 rows read since: no window "
        "closes, and no row leaves a join. It is held back by orders-2: no record seen yet; holds the watermark. To "
        'continue without a silent partition, write .option("idleTimeout", "30 seconds")'
    )
    assert standing_text(stand(SILENT, watermark=AT, rows=0)).startswith(
        "the watermark stands at 2023-11-14 22:13:20.000 UTC since 2023-11-14 22:13:20.000 UTC (1 min): no window"
    )


def test_the_warning_of_a_run_says_that_silence_counts_from_run_to_run() -> None:
    assert end_text(stand(SILENT)) == (
        "the run is over, and closed no window: 1 200 rows read, and there is no watermark yet. It is held back "
        "by orders-2: no record seen yet; holds the watermark. To continue without a silent partition, write "
        '.option("idleTimeout", "30 seconds"); its silence counts from one run to the next'
    )


@pytest.mark.parametrize(
    ("holder", "line"),
    [
        (SILENT._replace(idle_timeout=600_000), "silent for idleTimeout (10 min), orders-2 is left out"),
        (SILENT._replace(lag=7), "It is being read; maxOffsetsPerTrigger"),
        (SILENT._replace(lag=None), "Its log does not answer"),
        (
            SILENT._replace(rows=RowTotals(read=20, undated=20)),
            "Check eventTimeColumn and eventTimeFormat with: ",
        ),
        (SILENT._replace(rows=RowTotals(read=20, undated=5, future=15)), "Check the producer's clock"),
    ],
)
def test_the_line_to_write_follows_from_what_holds(holder: Holder, line: str) -> None:
    assert line in standing_text(stand(holder))


def test_a_snapshot_and_a_source_elsewhere_are_named() -> None:
    assert "The snapshot of shop.orders is read first" in standing_text(stand()._replace(snapshots=("shop.orders",)))
    assert "waits for clicks of the alignment group" in standing_text(stand()._replace(elsewhere="clicks"))


def test_of_many_splits_three_are_named() -> None:
    many = [SILENT._replace(split=Split("orders", n)) for n in range(6)]
    assert "orders-2: no record seen yet; holds the watermark; and 3 more. To" in standing_text(stand(*many))


LATE = LateRows((0, 0, 0, 3), longest=8_500)


def test_late_rows_within_a_split_ask_for_more_out_of_orderness() -> None:
    text = late_text([LateSplit(ORDERS, LATE)], WatermarkStrategy(out_of_orderness=5_000), None)
    assert text.startswith("3 rows of orders-2 came up to 8.5 s late: windows, joins and deduplication drop such rows.")
    assert text.endswith('maxOutOfOrderness is 5 s: write .option("maxOutOfOrderness", "14 seconds")')


def test_late_rows_of_a_split_that_was_idle_ask_for_a_longer_timeout() -> None:
    text = late_text([LateSplit(ORDERS, LATE, was_idle=True)], WatermarkStrategy(), 30_000)
    assert "of orders-2 came up to" in text
    assert 'longer than idleTimeout (30 s). To wait for it, write a longer one: .option("idleTimeout", "39 sec' in text


def test_late_rows_of_a_new_split_are_named_as_such() -> None:
    assert "found while the query ran" in late_text(
        [LateSplit(ORDERS, LATE, was_added=True)], WatermarkStrategy(), None
    )


@pytest.mark.parametrize(
    ("strategy", "line"),
    [
        (WatermarkStrategy(punctuated=True), "watermarkColumn"),
        (WatermarkStrategy(watermark_lag=10_000), '.option("maxEventTimeLag", "19 seconds")'),
        (WatermarkStrategy(looks_ahead=True), "lookaheadRows"),
    ],
)
def test_the_line_for_late_rows_follows_from_the_strategy(strategy: WatermarkStrategy, line: str) -> None:
    assert line in late_text([LateSplit(ORDERS, LATE)], strategy, None)


def test_a_clock_that_was_set_back_behind_the_watermark_is_named_with_the_moment_that_it_has_to_pass() -> None:
    behind = clocks_behind({ORDERS: AT - 5 * MINUTE}, AT)
    assert behind == {ORDERS: AT - 5 * MINUTE}
    text = clock_text(behind, AT)
    assert text.startswith("orders-2: the server's clock, which dates the rows, is 5 min behind the watermark")
    assert "Until it has passed 2023-11-14 22:13:20.000 UTC, the watermark stands, and rows have event times" in text


@pytest.mark.parametrize(("now", "watermark"), [(AT, AT), (AT - 900, AT), (AT, None), (AT, 2**63 - 1)])
def test_a_clock_at_the_watermark_or_slewed_and_a_watermark_that_is_no_time_are_nothing(
    now: int, watermark: int | None
) -> None:
    assert not clocks_behind({ORDERS: now}, watermark)
