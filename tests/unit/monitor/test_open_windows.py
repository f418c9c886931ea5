"""Why a window is open: the sentence names each cause and the line to write, from a status or from a checkpoint."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.unit.monitor.example_status import KAFKA, NOON, checkout, checkpoint, source_status, split_view
from watermark_source import why_open
from watermark_source.command_line import main
from watermark_source.errors import OffsetError, UsageError
from watermark_source.monitor.open_windows import OpenWindow, WindowVerdict, open_window
from watermark_source.monitor.window_clauses import clauses
from watermark_source.monitor.window_facts import QueryAt
from watermark_source.planning.announcement import NO_WRITER
from watermark_source.planning.group import Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.range_report import BOUNDS_MS, LateRows
from watermark_source.planning.strategy import Bounded, Ingestion, LookAhead, Percentile
from watermark_source.planning.watermark import MAX
from watermark_source.status_model.hold_texts import as_sentence
from watermark_source.status_model.source_status import (
    GroupStatus,
    SnapshotProgress,
    SourceStatus,
    Status,
    TimeInStatus,
    WriterView,
)

COMPAT = Path(__file__).parents[2] / "compat"
CHECKPOINT = COMPAT / "0.1" / "checkpoint"
OFFSETS = sorted(COMPAT.glob("*/offsets/*.json"))
MINUTE = 60_000
END = NOON + MINUTE
"""Of the window [12:00, 12:01)."""


def explained(*sources: SourceStatus, end: int | None = END, **fields: Any) -> OpenWindow:
    given: dict[str, Any] = {"batch": 7, "applied": NOON} | fields
    return open_window(QueryAt(sources=sources, **given), end)


def behind(number: int, **fields: Any) -> Any:
    """Return a partition that is 17 minutes short of the window's end."""
    return split_view(number, watermark=END - 17 * MINUTE, **fields)


PASSED = split_view(0, watermark=END)
SILENT_LINE = 'to do: to continue without a silent partition, write .option("idleTimeout", "30 seconds")'
NEVER = split_view(2, watermark=None, position=0, end=0, why="no record seen yet; holds the watermark")


@pytest.mark.parametrize("kind", [kind for kind in HoldKind if kind not in (HoldKind.SNAPSHOT, HoldKind.LEFT_OUT)])
def test_every_kind_has_a_clause_about_one_split_and_one_about_two(kind: HoldKind) -> None:
    one, other = (behind(number, kind=kind, why="", status=Status.ACTIVE) for number in (1, 2))
    about_one, about_two = (list(clauses(source_status(PASSED, *some), END, END))[1] for some in ([one], [one, other]))
    assert about_one.startswith("orders-1 ")
    assert about_two.startswith("orders-1 and orders-2 ")
    assert not re.search(r"\b(its|was|has|does)\b", about_two)
    assert "{" not in about_one


def test_the_sentence_has_who_has_passed_who_is_behind_and_who_never_had_a_record() -> None:
    found = explained(source_status(PASSED, behind(1), NEVER, watermark=None))
    assert found.sentence == (
        "the window that ends at 2026-11-21 12:01:00 UTC closes when every active partition has passed that time: "
        "orders-0 has; orders-1 is 17 min behind, with 50 records to read; orders-2 has never had a record"
    )
    assert found.remarks == (SILENT_LINE,)
    assert found.verdict is WindowVerdict.SOURCES
    assert [(row.name, row.hold) for row in found.rows] == [
        ("orders-2", HoldKind.NEVER),
        ("orders-1", HoldKind.BACKLOG),
        ("orders-0", None),
    ]


def test_with_an_idle_timeout_it_is_stated_when_a_silent_partition_is_left_out() -> None:
    quiet = behind(1, end=100, quiet=7_000, why="nothing to read for 7 s; idle after 30 s")
    found = explained(source_status(PASSED, quiet, NEVER, watermark=None, idle_timeout=30_000))
    assert found.sentence.endswith("orders-1 is 17 min behind, with nothing to read; orders-2 has never had a record")
    assert found.remarks == (
        "to do: once it has been silent for 30 s, in 23 s, orders-1 is left out",
        "to do: once it has been silent for 30 s, orders-2 is left out",
    )


def test_a_partition_that_waits_for_its_idle_timeout_is_not_advised_to_shorten_the_bound() -> None:
    """Its records have passed the window's end, and its watermark has not: left out, it holds nothing."""
    quiet = behind(1, end=100, quiet=3_500)
    late = {"idle_timeout": 10_000, "out_of_orderness": 20 * MINUTE}
    found = explained(source_status(PASSED, quiet, **late))
    left_out = "once it has been silent for 10 s, in 6.5 s, orders-1 is left out"
    assert found.remarks == (f"to do: {left_out}",)


def test_a_partition_that_is_being_read_or_was_just_now_is_not_silent() -> None:
    found = explained(source_status(PASSED, behind(1, end=100, why="caught up", quiet=3)))
    assert found.sentence.endswith("orders-1 is 17 min behind, and was read to the end just now")
    read = explained(source_status(PASSED, behind(1, end=100, why="caught up", unobserved=5)))
    assert read.sentence.endswith("orders-1 is 17 min behind without the 5 records of the last batch")
    backlog = explained(source_status(PASSED, behind(1, unobserved=5)))
    assert backlog.sentence.endswith("orders-1 is 17 min behind, with 50 records to read")
    ordered = explained(source_status(PASSED, behind(1, end=100, why="caught up", unobserved=5, uncounted=True)))
    assert ordered.sentence.endswith("orders-1 is 17 min behind without the records of the last batch")
    assert found.remarks == read.remarks == backlog.remarks == ordered.remarks == ()


def test_idle_partitions_are_left_out_and_named_so() -> None:
    idle = split_view(3, Status.IDLE, watermark=None, position=0, end=0, why="nothing to read for 5 min")
    assert explained(source_status(PASSED, behind(1), idle)).sentence.endswith("orders-3 is idle and left out")


def test_a_partition_that_its_group_pauses_has_the_reason_and_the_slowest_source() -> None:
    why = "2 min ahead of payments (alignmentMaxDrift 1 min)"
    paused = behind(1, status=Status.PAUSED, why=why)
    group = GroupStatus("checkout", MINUTE, NOON, 2, others=1, slowest="payments", trouble="the store is away")
    found = explained(source_status(PASSED, paused, group=group))
    assert (
        f"orders-1 is 17 min behind and paused by the alignment group: {why}; the slowest other source is payments"
        in (found.sentence)
    )
    assert "source orders: the store is away" in found.remarks


def test_a_source_of_the_group_that_is_silent_is_named_with_what_follows() -> None:
    peers = (Peer("gone", "active", None, 60_000, is_waited_for=False), Peer("frozen", "active", None, 2_500, True))
    group = GroupStatus("checkout", MINUTE, NOON, 2, others=1, peers=(*peers, Peer("well", "active", None, 900, True)))
    group = replace(group, store="driver")
    gone, frozen = explained(source_status(PASSED, behind(1), group=group)).remarks
    assert gone == (
        "source gone of the alignment group checkout has reported nothing for 1 min (it was stopped, or its driver is "
        "frozen, gone, or does not reach the store): longer than its alignmentTimeToLive, so that the group does not "
        "wait for it"
    )
    assert frozen.startswith("source frozen of the alignment group checkout has reported nothing for 2.5 s")
    assert frozen.endswith("the group waits for it until its alignmentTimeToLive has passed")
    # What a command can reach has the line to write.
    peer = Peer("two words", "active", None, 2_500, is_waited_for=True)
    (named,) = explained(
        source_status(PASSED, behind(1), group=replace(group, store="SQLite a.sqlite", peers=(peer,)))
    ).remarks
    line = "python -m watermark_source group --alignmentGroup checkout leave 'two words'"
    assert named.endswith(f"has passed; if it does not start again: {line}")


def test_a_partition_whose_log_does_not_answer_is_named_so() -> None:
    unknown = split_view(1, Status.UNKNOWN, watermark=END - MINUTE, end=None, why="no answer about its log")
    assert explained(source_status(PASSED, unknown)).sentence.endswith(
        "orders-1 is 1 min behind, and its log does not answer"
    )


def test_records_without_an_event_time_send_to_the_options_that_name_it() -> None:
    why = "20 records, none with an event time; holds the watermark, and is never idle without idleTimeout"
    undated = split_view(1, watermark=None, position=20, end=20, why=why, kind=HoldKind.UNDATED)
    found = explained(source_status(PASSED, undated, watermark=None))
    assert f"orders-1 has no watermark yet: {why}" in found.sentence
    assert any("eventTimeColumn and eventTimeFormat" in remark for remark in found.remarks)


@pytest.mark.parametrize("kind", HoldKind)
def test_the_sentence_names_a_partition_whatever_it_waits_for(kind: HoldKind) -> None:
    found = explained(source_status(PASSED, split_view(1, watermark=NOON, why="this is why", kind=kind)))
    assert re.search(r"; orders-1 (is|has) ", found.sentence)


def test_partitions_that_wait_for_the_same_in_several_ways_have_an_example() -> None:
    several = [
        split_view(
            n, watermark=None, position=n, end=n, why=f"{n} records, none with an event time", kind=HoldKind.UNDATED
        )
        for n in (1, 2)
    ]
    assert explained(source_status(PASSED, *several, watermark=None)).sentence.endswith(
        "orders-1 and orders-2 have no watermark yet: for example orders-1: 1 records, none with an event time"
    )


def test_where_no_partition_has_come_so_far_no_idle_timeout_is_proposed_but_a_later_record() -> None:
    """Left out or not, no partition would close the window: the last one of a topic that has fallen silent."""
    quiet = [split_view(n, watermark=NOON, position=100, end=100, why="nothing to read for 7 s") for n in range(2)]
    found = explained(source_status(*quiet, out_of_orderness=10_000))
    (remark,) = found.remarks
    assert "idleTimeout" not in remark
    assert remark.startswith(
        "to do: no other partition has a later event time, as is normal while rows are still coming and after the last "
        "ones: a record with an event time later than 2026-11-21 12:01:10.000 UTC (maxOutOfOrderness 10 s) moves it. "
        "If no more come: "
    )
    assert '.option("watermarkStrategy", "ingestion")' in remark
    assert '.option("finalWatermark", "true")' in remark


def test_of_any_window_it_is_normal_that_the_next_one_is_open() -> None:
    quiet = split_view(0, watermark=NOON, position=100, end=100)
    (remark,) = explained(source_status(quiet, watermark=NOON), end=None).remarks
    assert "as is normal while rows are still coming and after the last ones: a record with a later event" in remark


def test_a_window_that_waits_for_records_without_an_event_time_is_not_called_normal() -> None:
    why = "20 records, none with an event time; holds the watermark, and is never idle without idleTimeout"
    undated = split_view(0, watermark=None, position=20, end=20, why=why, kind=HoldKind.UNDATED)
    found = explained(source_status(undated, watermark=None, rows=20, undated_rows=20)).remarks
    assert found[0].startswith("to do: check eventTimeColumn and eventTimeFormat, with python -m watermark_source prof")
    assert not any("normal" in remark for remark in found)


def test_records_of_an_open_transaction_get_no_idle_timeout_but_the_producer() -> None:
    opened = behind(
        1, end=100, why="its next records are in a transaction that is open", kind=HoldKind.OPEN_TRANSACTION
    )
    found = explained(source_status(PASSED, opened))
    assert found.rows[0].hold is HoldKind.OPEN_TRANSACTION
    assert found.sentence.endswith("orders-1 is 17 min behind, and its next records are in a transaction that is open")
    (remark,) = found.remarks
    assert remark.startswith("to do: let the producer commit or abort its transaction: no idleTimeout leaves such a")


def test_a_bound_that_is_longer_than_the_rows_are_late_is_named() -> None:
    read = [split_view(n, watermark=END - 17 * MINUTE, position=100, end=100, why="caught up") for n in range(2)]
    found = explained(source_status(*read, out_of_orderness=60 * MINUTE))
    assert found.sentence.endswith(
        "orders-0 and orders-1 have records that late, and their watermarks are maxOutOfOrderness (1 h) behind them"
    )
    assert found.remarks == ("to do: if rows come less late, write a shorter maxOutOfOrderness",)
    short = explained(source_status(*read, out_of_orderness=MINUTE))
    assert "are up to 17 min behind, with nothing to read" in short.sentence


def test_a_query_that_began_at_the_ends_of_its_logs_is_named_as_such() -> None:
    why = "no record seen yet; holds the watermark"
    new = [split_view(n, watermark=None, position=2, end=2, why=why) for n in range(2)]
    found = explained(source_status(*new, watermark=None, rows=0))
    assert any('.option("startingOffsets", "earliest") with a new checkpoint' in remark for remark in found.remarks)
    assert not any("ingestion" in remark for remark in found.remarks)
    running = [split_view(n, watermark=None, position=2, end=2, why=why, unobserved=2) for n in range(2)]
    assert not any("startingOffsets" in r for r in explained(source_status(*running, watermark=None, rows=0)).remarks)
    mixed = explained(source_status(new[0], NEVER, watermark=None, rows=0))
    assert mixed.sentence.endswith(f"orders-2 has never had a record; orders-0 has no watermark: {why}")
    never = [split_view(n, watermark=None, position=0, end=0, why=why) for n in range(2)]
    assert not any("startingOffsets" in r for r in explained(source_status(*never, watermark=None, rows=0)).remarks)


LATE = LateRows((0,) * len(BOUNDS_MS) + (3,), longest=20 * MINUTE, total=30 * MINUTE)


def test_late_rows_of_a_closed_window_are_named_with_the_line_that_waits_for_them() -> None:
    was_idle = TimeInStatus(active=10, idle=10, paused=0)
    learns = Percentile(950_000, 1_000, 600_000, learned=2_000)
    for strategy, times, idle_timeout, line in (
        (Bounded(5_000), was_idle, 30_000, 'advanced without them: .option("idleTimeout", "1230 seconds")'),
        (Bounded(5_000), None, None, 'than maxOutOfOrderness (5 s): .option("maxOutOfOrderness", "1206 seconds")'),
        (Ingestion(10_000), None, None, "maxWatermarkLag (10 s), or are out of order by more than maxOutOfOrder"),
        (learns, None, None, "on time, and the others are late. For fewer late rows, raise watermarkPercentile"),
        (LookAhead(rows_ahead=10), None, None, "They came behind what was looked at ahead: see lookaheadRows"),
    ):
        late = split_view(1, watermark=END, late_rows=3, times=times)
        status = source_status(
            PASSED, late, watermark=END, late=LATE, idle_timeout=idle_timeout,
            late_cause=strategy.cause_of_late_rows(LATE.longest),
        )  # fmt: skip
        found = explained(status, applied=END)
        assert found.verdict is WindowVerdict.CLOSED
        (remark,) = found.remarks
        assert remark.startswith("3 rows of orders-1 came up to 20 min late in this run: windows, joins and ")
        assert line in remark
        assert remark.endswith('to keep them apart: .option("includeLate", "true")')


def test_rows_that_are_in_no_window_are_counted_with_what_to_check() -> None:
    status = source_status(PASSED, watermark=END, future_rows=1, undated_rows=20, malformed_rows=2)
    future, undated, malformed = explained(status, applied=END).remarks
    assert future.startswith("1 row of this run is too far in the future (maxFutureSkew)")
    assert undated.startswith("20 rows of this run have no event time, and are in no window: check eventTimeColumn")
    assert malformed == "2 rows of this run are not as valueSchema or keySchema has it (see valueMode)"


def test_a_watermark_an_hour_ahead_less_a_delay_may_be_of_another_zone_and_one_ahead_by_minutes_is_not() -> None:
    zone, minutes = (NOON + 5_000 + n * MINUTE for n in (57, 40))
    (remark,) = explained(source_status(split_view(0, watermark=zone), watermark=zone), applied=zone).remarks
    assert remark.startswith("rows of now are late: The watermark is 57 min in the future")
    assert "1 h may be the difference of a time zone" in remark
    writer = WriterView(name="a", status="active", why="", kind=HoldKind.READ)
    announced = source_status(split_view(0, watermark=zone), watermark=zone, writers=(writer,))
    (remark,) = explained(announced, applied=zone).remarks
    assert remark.startswith(
        "rows of now are late: The watermark is 57 min in the future: a writer of the topic announ"
    )
    assert explained(source_status(split_view(0, watermark=minutes), watermark=minutes), applied=minutes).remarks == ()


def test_a_watermark_of_the_future_is_named_where_windows_close_too_early() -> None:
    ahead = NOON + 5_000 + 120 * MINUTE
    (remark,) = explained(source_status(split_view(0, watermark=ahead), watermark=ahead), applied=ahead).remarks
    assert remark.startswith("rows of now are late: The watermark is 2 h in the future: a row with a wrong event time")
    assert "2 h may be the difference of a time zone" in remark
    assert 'write .option("maxFutureSkew", "1 hour")' in remark


def test_the_batch_that_a_window_waits_for_is_under_way_or_waits_for_the_trigger() -> None:
    passed = source_status(PASSED, watermark=END)
    assert explained(passed, running=12_000).sentence.endswith("the batch under way has been running for 12 s")
    assert explained(passed, waits_for_trigger=True).sentence.endswith("begins at the interval of the trigger")


def test_a_run_that_is_over_is_named_so() -> None:
    done = split_view(
        1, Status.FINISHED, watermark=END - MINUTE, position=100, end=100, why="read to the end of this run"
    )
    found = explained(source_status(PASSED, done))
    assert found.sentence.endswith("orders-1 is 1 min behind and read to the end of this run")
    assert found.remarks == (SILENT_LINE,)


def test_a_window_that_a_batch_has_emitted_is_closed() -> None:
    found = explained(source_status(PASSED, watermark=END), applied=END)
    assert found.verdict is WindowVerdict.CLOSED
    assert (
        "is closed: batch 7 and earlier ones emitted all windows that end by 2026-11-21 12:01:00 UTC" in found.sentence
    )


def test_one_millisecond_short_of_its_end_a_window_is_open() -> None:
    assert (
        explained(source_status(split_view(0, watermark=END - 1), watermark=END - 1)).verdict is WindowVerdict.SOURCES
    )


def test_a_watermark_that_the_sources_have_sent_is_applied_one_batch_later() -> None:
    found = explained(source_status(PASSED, watermark=END + 5_000))
    assert found.verdict is WindowVerdict.BATCH
    assert "Spark applies a watermark one batch later" in found.sentence
    assert "start the query again" not in found.sentence
    assert "start the query again" in explained(source_status(PASSED, watermark=END), has_ended=True).sentence


def test_all_sources_have_to_pass_and_with_the_policy_max_one() -> None:
    orders = source_status(PASSED, watermark=END)
    payments = source_status(behind(1), source_name="payments", watermark=END - 17 * MINUTE)
    found = explained(orders, payments)
    assert (
        "every active partition has passed that time in each of 2 sources: of source orders, orders-0 has; of source "
        in (found.sentence)
    )
    assert "of source payments, orders-1 is 17 min behind" in found.sentence
    assert explained(orders, payments, takes_highest=True).verdict is WindowVerdict.BATCH


def test_a_source_of_another_project_is_named_and_nothing_is_promised_of_it() -> None:
    found = explained(source_status(PASSED, watermark=END), foreign=("DeltaSource[/x]",))
    assert found.verdict is WindowVerdict.SOURCES
    assert any("DeltaSource[/x]: Spark's watermark is the lowest of all" in remark for remark in found.remarks)


def test_a_snapshot_comes_first() -> None:
    tables = [SnapshotProgress(log="shop.orders", rows=5, chunks=1, expected=10, rate=None, done=False)]
    status = source_status(split_view(1, watermark=None, position=4, end=4), watermark=None, snapshots=tables)
    assert (
        "the snapshot of shop.orders is read before the changes, and rows of a snapshot have no watermark"
        in explained(status).sentence
    )


def test_the_snapshot_of_a_checkpoint_comes_first(tmp_path: Path) -> None:
    splits = {"shop.orders": {"0": [4, 0]}, "binlog": {"0": [900, 0]}}
    offset = {"v": 1, "name": "orders", "source": "mysql-cdc-wm", "run": 1, "splits": splits}
    folder = checkpoint(tmp_path, [json.dumps(offset | {"snapshot": {"shop.orders": [[100]]}, "complete": []})], [0])
    found = why_open(folder)
    assert found.sentence == (
        "no window has closed yet, because there is no watermark: the snapshot of shop.orders is read before the "
        "changes, and rows of a snapshot have no watermark"
    )
    assert found.remarks[0].startswith("as of batch 0 (committed")


def test_a_group_that_lets_no_source_read_is_named(tmp_path: Path) -> None:
    group = GroupStatus("checkout", MINUTE, None, 2, hold=True, others=1, slowest="payments")
    found = explained(source_status(split_view(0, watermark=None, position=0), watermark=None, group=group))
    assert "its alignment group lets no source read yet: the slowest source is payments" in found.sentence
    (remark,) = found.remarks
    assert remark.startswith("to do: the limit advances once payments does, and the watermark with it: ask why(query)")
    assert remark.endswith("ask why(query) of the query that reads payments")
    missing = replace(group, others=0, slowest=None)
    found = explained(source_status(split_view(0, watermark=None, position=0), watermark=None, group=missing))
    assert any("start the other sources of the alignment group" in remark for remark in found.remarks)
    paused = split_view(0, Status.PAUSED, watermark=None, position=0, why="waits for payments")
    assert "orders-0 has no watermark yet, and is paused by the alignment group: waits for payments" in (
        explained(source_status(paused, watermark=None, group=group)).sentence
    )
    folder = checkpoint(tmp_path, [offset_of(None, wm=None, limit=-(2**63))], [0])
    assert "its alignment group lets no source read yet" in why_open(folder).sentence


def test_without_batches_that_have_no_rows_the_setting_is_named() -> None:
    found = explained(source_status(PASSED, watermark=END), waits_for_rows=True)
    assert "spark.sql.streaming.noDataMicroBatches.enabled is false" in found.sentence


def test_what_is_read_first_comes_first() -> None:
    silent = split_view(1, watermark=None, position=4, end=4)
    status = source_status(silent, watermark=None, first_reading="it is read to its end first, 5 records to go")
    assert "it is read to its end first, 5 records to go" in explained(status).sentence


def test_announced_watermarks_wait_for_writers() -> None:
    writers = [
        WriterView(
            name="carts",
            status="active",
            kind=HoldKind.SILENT,
            why="has announced nothing for 4 min",
            watermark=NOON,
            holds_back=True,
        ),
        WriterView(name="sessions", status="active", kind=HoldKind.READ, why="announces", watermark=END),
        WriterView(name="old", status="ended", kind=HoldKind.LEFT_OUT, why="announced that it writes no more"),
    ]
    found = explained(source_status(split_view(0, watermark=None), writers=writers))
    assert found.sentence == (
        "the window that ends at 2026-11-21 12:01:00 UTC closes when every writer of the topic has announced that "
        "time: writer carts is at 2026-11-21 12:00:00 UTC: has announced nothing for 4 min; writer sessions has"
    )
    gone = GONE.replace(f"drop carts {SEE}", f"{KAFKA.watermarks} drop carts")
    assert found.remarks == (f"to do: start writer carts; {gone}",)


SEE = "(see python -m watermark_source watermarks --help)"
GONE = (
    'if it is gone for good: .option("writerTimeToLive", "10 minutes") waits for it no longer; or '
    f"drop carts {SEE}, and remove its name from announcedBy, if it is there"
)


def test_a_topic_for_which_none_announces_has_no_writer_to_drop() -> None:
    silent = source_status(split_view(0, watermark=None), watermark=None, unannounced=f"topic x: {NO_WRITER}")
    (remark,) = explained(silent).remarks
    assert remark.startswith("to do: start the query that writes the topic, with announce_watermark(query, topic=…)")
    assert 'leave .option("watermarkStrategy", "announced") out' in remark
    unread = source_status(
        split_view(0, watermark=None), watermark=None, unannounced="the announcements are being read"
    )
    assert explained(unread).remarks == ()


def test_a_writer_that_announces_is_not_to_be_started_or_dropped() -> None:
    live = WriterView(
        name="carts", status="active", kind=HoldKind.READ, why="announces", watermark=NOON, since=NOON, holds_back=True
    )
    (remark,) = explained(source_status(split_view(0, watermark=None), writers=[live])).remarks
    assert remark == "to do: see why(query) in the job of carts, which announced less than a minute ago"


def test_processing_time_waits_for_the_clock() -> None:
    found = explained(source_status(split_view(0), processing_time=True))
    assert "closes when the clock has passed that time: event time is the clock" in found.sentence
    assert found.remarks == ()


def test_without_an_end_it_is_about_the_lowest_partition() -> None:
    found = explained(checkout(), end=None)
    assert found.sentence.startswith(
        "windows that end by 2026-11-21 12:00:00 UTC close, later ones are open: orders-3 is "
    )
    assert "no window has closed yet, because there is no watermark: orders-2 has never had a record" in (
        explained(source_status(PASSED, NEVER, watermark=None), end=None).sentence
    )


def test_before_the_first_batch_there_is_nothing_to_explain() -> None:
    assert explained(batch=None, applied=None).sentence.endswith("waits for the first batch: none has been planned yet")
    assert "reads no source of this project" in explained(applied=None, foreign=("rate",)).sentence


def test_of_many_partitions_three_are_named_and_a_hundred_are_in_the_table() -> None:
    many = [split_view(n, watermark=END - n * 1_000) for n in range(1, 400)]
    found = explained(source_status(PASSED, *many))
    assert len(str(found).splitlines()) < 110
    assert "orders-399, orders-398, orders-397 and 97 more are up to 6 min 39 s behind" in found.sentence
    assert str(found).endswith("and 300 more")


def test_the_end_of_time_has_closed_every_window() -> None:
    status = source_status(split_view(0, watermark=NOON), watermark=MAX)
    assert explained(status).verdict is WindowVerdict.BATCH
    assert "end of time" in explained(status).sentence


# Of a checkpoint.


def offset_of(*watermarks: int | None, wm: int | None, **keys: Any) -> str:
    splits = {str(n): [5, 0, None if mark is None else mark - (wm or 0), "a", 0] for n, mark in enumerate(watermarks)}
    offset = {
        "v": 1,
        "name": "orders",
        "source": "aligned-kafka",
        "run": 1,
        "since": NOON,
        "splits": {"orders": splits},
    }
    return json.dumps(offset | ({} if wm is None else {"wm": wm}) | keys)


def test_positions_of_a_checkpoint_that_count_no_records_are_not_called_records(tmp_path: Path) -> None:
    splits = {"binlog": {"0": [91_000, 1_000, 0]}, "shop.orders": {"0": [7, 3]}}
    offset = {"v": 1, "name": "orders", "source": "mysql-cdc-wm", "run": 1, "wm": NOON, "splits": splits}
    keys = {"snapshot": {"shop.orders": [[100]]}, "complete": []}
    found = why_open(checkpoint(tmp_path, [json.dumps(offset | keys)], [NOON]), END)
    why = {row.name: row.why for row in found.rows}
    assert why["binlog-0"] == (
        "its log from position 90 000 to 91 000, how many records is not counted, in the last batch, not yet in its "
        "watermark"
    )
    assert why["shop.orders-0"] == "3 chunks in the last batch, not yet in its watermark"
    read = json.dumps(offset | {"splits": {"binlog": {"0": [91_000, 1_000, 0]}}, "complete": ["shop.orders"]})
    after = why_open(checkpoint(tmp_path / "after", [read], [NOON]), END)
    assert after.sentence.endswith("binlog-0 is 1 min behind without the records of the last batch")


def test_a_recorded_checkpoint_of_spark_names_the_partition_that_is_silent() -> None:
    """Its last batch was planned and not committed; partition 1 had nothing left to read."""
    found = why_open(CHECKPOINT, "2023-11-14T22:18:20Z")
    assert found.verdict is WindowVerdict.SOURCES
    assert (
        "compat-orders-2 has; compat-orders-0 is 10 s behind without the 27 records of the last batch" in found.sentence
    )
    assert found.sentence.endswith("compat-orders-1 is 35 s behind, with nothing to read")
    assert found.remarks[0] == 'to do: write .option("idleTimeout", "30 seconds"), if the query does not have it'
    assert "as of batch 2 (not committed, planned at 2026-11-21 13:18:37.044 UTC)" in found.remarks[1]
    assert "a checkpoint does not hold options such as idleTimeout" in found.remarks[1]


@pytest.mark.parametrize(
    ("end", "verdict", "words"),
    [
        (
            1_700_000_100_000,
            WindowVerdict.BATCH,
            "closes with batch 2, which has the watermark 2023-11-14 22:15:09.999 UTC",
        ),
        (
            1_700_000_110_000,
            WindowVerdict.BATCH,
            "closes with the batch after the one that carries the sources' watermark",
        ),
        (1_700_000_264_999, WindowVerdict.BATCH, "if it does not run"),
        (1_700_000_265_000, WindowVerdict.SOURCES, "compat-orders-1 is 1 ms behind"),
    ],
)
def test_a_recorded_checkpoint_distinguishes_what_waits_for_a_batch(
    end: int, verdict: WindowVerdict, words: str
) -> None:
    found = why_open(str(CHECKPOINT), end)
    assert (found.verdict, words in found.sentence) == (verdict, True), found.sentence


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("recorded", OFFSETS, ids=lambda file: f"{file.parent.parent.name}-{file.stem}")
def test_every_recorded_offset_is_explained_with_all_its_splits(tmp_path: Path, recorded: Path, version: str) -> None:
    example = json.loads(recorded.read_text())
    folder = checkpoint(tmp_path, [example["offset"]], [], version=version)
    found = why_open(f"file://{folder}")
    names = sorted(f"{split['log']}-{split['number']}" for split in example["state"]["splits"])
    assert sorted(row.name for row in found.rows) == names
    assert found.sentence


def test_the_commit_log_shows_what_is_closed_and_what_the_next_batch_closes(tmp_path: Path) -> None:
    first, second = offset_of(NOON, wm=NOON), offset_of(END, wm=END)
    folder = checkpoint(tmp_path, [first, second], [NOON, END])
    assert why_open(folder, NOON).verdict is WindowVerdict.CLOSED
    found = why_open(folder, END)
    assert found.verdict is WindowVerdict.BATCH
    assert "for which Spark has committed the watermark 2026-11-21 12:01:00 UTC" in found.sentence


def test_a_batch_that_is_not_committed_has_closed_nothing(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [offset_of(NOON, wm=NOON)] * 2, [NOON])
    assert "closes with batch 1, which has the watermark" in why_open(folder, NOON).sentence


def test_a_query_that_does_not_follow_the_source_is_found_out(tmp_path: Path) -> None:
    """What Spark committed is not what the source sent."""
    none = why_open(checkpoint(tmp_path / "none", [offset_of(NOON, wm=NOON)], [0]), END)
    assert none.verdict is WindowVerdict.UNFOLLOWED
    assert "put follow_watermark(stream) in front of the aggregation" in none.sentence
    ahead = why_open(checkpoint(tmp_path / "ahead", [offset_of(NOON, wm=NOON)], [END - 1]), END)
    assert ahead.sentence == (
        "the window that ends at 2026-11-21 12:01:00 UTC closes before the sources' watermark has passed it, because "
        "Spark's own watermark, 2026-11-21 12:00:59.999 UTC, is ahead of that of the sources, 2026-11-21 12:00:00 UTC, "
        "and rows of orders-0 behind it are dropped as late, without an error: the query takes its watermark from a "
        "withWatermark, or WATERMARK in SQL, or began with a checkpoint of Spark's own source; use "
        "follow_watermark(stream) instead of withWatermark; for SQL "
        'follow_watermark(spark.readStream.table(…)).createOrReplaceTempView("followed"), and FROM followed without '
        "WATERMARK"
    )
    every = why_open(tmp_path / "ahead").sentence
    assert every.startswith("any window closes before the sources' watermark has passed it, because Spark's own")
    early = why_open(checkpoint(tmp_path / "early", [offset_of(NOON, wm=None)] * 2, [END, END]), END)
    assert early.verdict is WindowVerdict.UNFOLLOWED
    assert "is ahead of that of the sources, which have none yet" in early.sentence
    assert "and rows that come for it now are dropped" in early.sentence


def test_a_partition_that_never_had_a_record_is_named_from_a_checkpoint(tmp_path: Path) -> None:
    offset = json.loads(offset_of(NOON, None, wm=None))
    offset["splits"]["orders"]["1"][0] = 0
    found = why_open(checkpoint(tmp_path, [json.dumps(offset)], [0]), NOON)
    assert found.sentence.endswith("orders-0 has; orders-1 has never had a record")
    assert found.remarks[0] == 'to do: write .option("idleTimeout", "30 seconds"), if the query does not have it'


def test_the_writers_of_a_checkpoint_are_named_with_what_it_does_not_know(tmp_path: Path) -> None:
    offset = offset_of(None, wm=NOON, announced={"at": 4, "log": "Yk2", "writers": ["carts"]})
    found = why_open(checkpoint(tmp_path, [offset], [NOON]), END)
    assert "writer carts: what it has announced is in the topic of announcements, not in a checkpoint" in found.sentence
    list_them = f"what each writer announced last: list {SEE}"
    assert found.remarks[0] == f"to do: {list_them}; {GONE}"


def test_an_offset_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OffsetError, match="newer version"):
        why_open(checkpoint(tmp_path, [offset_of(NOON, wm=NOON, v=99)], []))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none", "there is no folder .*none; expected what the query has as checkpointLocation"),
        ("checkpoint/metadata", "is a file; expected"),
        ("checkpoint/offsets", "is a part of a checkpoint; .*: write .*checkpoint$"),
        ("", "is not a checkpoint, it contains checkpoint; .*: write .*checkpoint$"),
    ],
)
def test_a_wrong_path_is_an_error_with_what_was_seen_and_what_to_write(
    tmp_path: Path, given: str, message: str
) -> None:
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")
    with pytest.raises(UsageError, match=message):
        why_open(tmp_path / given)


@pytest.mark.parametrize("location", ["s3a://bucket/a", "hdfs://host:8020/a", "dbfs:/a", "abfss://a@b.c/d"])
def test_a_remote_checkpoint_is_refused_with_the_line_that_copies_it(location: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"hadoop fs -get {location} checkpoint")):
        why_open(location)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("offsets/2", "v3\n{}\n{}", "version 'v3' of Spark's offset log; this release reads v1 and v2"),
        ("offsets/2", "", "version '' of Spark's offset log"),
        ("offsets/2", "v1\nx\n{}", "is damaged: 'x', where Spark writes a JSON object"),
        ("offsets/2", 'v1\n{"batchWatermarkMs": "x"}\n-', "batchWatermarkMs is 'x'"),
        ("commits/1", "v1\n[]", "is damaged"),
        ("metadata", "\x00", "is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_an_error_that_names_the_file(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    folder = shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")
    if file == "commits/1":
        (folder / "offsets" / "2").unlink()
    (folder / file).write_text(text)
    with pytest.raises(UsageError, match=f"{file}.*{message}" if file in message else message) as error:
        why_open(folder)
    assert str(folder / file) in str(error.value)


def test_a_folder_that_may_not_be_read_is_an_error_and_no_empty_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")

    def refused(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(UsageError, match=r"checkpoint cannot be read: .*Permission denied"):
        why_open(folder)


@pytest.mark.parametrize("given", [42, None, object()])
def test_what_is_neither_a_query_nor_a_checkpoint_is_named(given: object) -> None:
    with pytest.raises(UsageError, match=f"a {type(given).__name__}; it takes what start.. returned, or the query's"):
        why_open(given)


def test_a_query_that_has_not_begun_has_nothing_to_explain(tmp_path: Path) -> None:
    found = why_open(checkpoint(tmp_path, [], []))
    assert found.sentence == "any window waits for the first batch: none has been planned yet"


# The end of a window.


@pytest.mark.parametrize(
    "given",
    [
        "2026-11-21T12:01:00Z",
        "2026-11-21 12:01",
        "2026-11-21T13:01:00+01:00",
        END,
        str(END),
        dt.datetime(2026, 11, 21, 12, 1, tzinfo=dt.UTC),
        dt.datetime.fromtimestamp(END / 1_000),  # noqa: DTZ006 - as Spark collects it
    ],
)
def test_a_window_end_may_be_a_datetime_a_text_or_milliseconds(tmp_path: Path, given: Any) -> None:
    folder = checkpoint(tmp_path, [offset_of(NOON, wm=NOON)], [NOON])
    assert why_open(folder, given).end == END


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("20:09", "window_end = '20:09' is not a time; expected a datetime, ISO 8601 text"),
        (1_700_000_000, "1700000000 looks like seconds; write 1700000000000"),
        (True, "is not a time"),
        (1.5, "is not a time"),
        (10**15, "is not a time"),
    ],
)
def test_a_window_end_that_is_no_time_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        why_open(CHECKPOINT, given)


# The command.


def test_the_command_prints_the_sentence_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--checkpoint", str(CHECKPOINT), "--window-end", "2023-11-14T22:18:20Z"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == why_open(CHECKPOINT, "2023-11-14T22:18:20Z").sentence
    assert "partition        holds  watermark                status  position  why" in lines


def test_the_answer_is_a_file_with_a_picture_too(tmp_path: Path) -> None:
    file = tmp_path / "why.html"
    assert main(["explain", "--checkpoint", str(CHECKPOINT), "--html", str(file)]) == 0
    shown = file.read_text()
    assert '<figure class="picture' in shown
    sentence = as_sentence(escape(why_open(CHECKPOINT, html=tmp_path / "again.html").sentence))
    assert sentence in shown.replace("\u00a0", " ")
    assert (tmp_path / "again.html").read_text() == shown
    assert not [each for each in ("<script", "href=", "src=") if each in shown]


@pytest.mark.parametrize(
    "words",
    [
        ["--checkpoint", "/none"],
        ["--checkpoint", str(CHECKPOINT), "--window-end", "x"],
        ["--checkpoint", str(CHECKPOINT), "--html", "/none/why.html"],
    ],
)
def test_a_wrong_command_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
