"""The runner against a log in files, without Spark around it."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Set
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.spark.file_log import FileLog, FileLogReader
from tests.spark.queries import START as QUERIES_START
from tests.spark.queries import write
from tests.unit.spark.runner_process import SYSTEM, TWO, wm
from watermark_source.contract.stream import Ends
from watermark_source.errors import DataLossError, GeneratorError, OffsetError
from watermark_source.planning.planner import plan
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark import report_protocol
from watermark_source.spark.driver import runner
from watermark_source.spark.executor.reading import run_task
from watermark_source.spark.stream_schema import stream_schema


def test_watermark_is_the_lowest_of_the_splits_one_batch_after_their_rows(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live()
    first = process.runner.initial_offset()
    data = process.plan(first)
    assert process.read(first, data) == ([1, 2, 3], [])
    marker = process.plan(data)
    assert process.read(data, marker) == ([], ["6999"])
    assert process.plan(marker) == marker


def test_where_no_report_comes_through_both_sides_say_so_and_the_driver_reads_again(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a closed firewall: no connection ever comes about, and none is refused."""
    monkeypatch.setattr(report_protocol, "TIMEOUT", 0.3)
    with ExitStack() as held:
        hole = held.enter_context(socket.create_server(("127.0.0.9", 0), backlog=0)).getsockname()
        for _ in range(3):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(hole)
        write(log, TWO)
        process = live(reportAddress=f"{hole[0]}:{hole[1]}")
        marker = process.run(process.runner.initial_offset())
    assert wm(marker) == 6_999
    where = f"to {hole[0]}, port {hole[1]}"
    assert f"no progress report could be delivered {where}; the source will look at up to " in caplog.text
    assert f"no task reported what it read {where}, so the driver reads it again by itself. If " in caplog.text


def test_each_batch_has_a_line_at_debug(log: Path, live: Any, caplog: pytest.LogCaptureFixture) -> None:
    write(log, TWO)
    process = live()
    with caplog.at_level(logging.DEBUG, "watermark_source.spark.driver.status"):
        marker = process.run(process.runner.initial_offset())
        process.plan(marker)
    first, second = (r.getMessage() for r in caplog.records if r.getMessage().startswith("watermark "))
    assert first.startswith("watermark none yet, held by log-0; rows up to ")
    assert second.startswith("watermark 2023-11-14 22:13:06.999, held by log-1; rows up to ")
    assert second.endswith(" are processed; splits: 2 active")


def test_what_spark_does_with_offsets_between_two_looks_is_part_of_their_price(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, TWO)
    process = live()
    marker = process.run(process.runner.initial_offset())

    def pause(used: float) -> float:
        monkeypatch.setattr(time, "thread_time", lambda: used)
        assert process.plan(marker) == marker
        return float(process.runner._last.pace.next_look - time.monotonic())

    pause(100.0)
    pause(100.0)
    assert pause(100.03) <= 0.1, "one look may do more"
    assert 0.1 < pause(100.06) < 1.0


def test_at_rest_nothing_is_planned_again_until_a_row_comes_or_a_split_turns_idle(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, TWO)
    process = live(idleTimeout="2 seconds")
    at = process.run(process.runner.initial_offset())
    plans: list[object] = []
    monkeypatch.setattr(runner, "plan", lambda *given, **named: plans.append(given) or plan(*given, **named))
    assert [process.plan(at) for _ in range(5)] == [at] * 5
    assert len(plans) <= 1, "the first look after the batch may find since when it is quiet"
    write(log, {1: [(8, 4)]})
    rows = process.plan(at)
    assert process.read(at, rows)[0] == [4]
    at = process.run(rows)
    while (idle := process.plan(at)) == at:
        pass
    assert "idle" in process.read(at, idle)[1]


def test_a_log_created_again_is_seen_at_rest_where_a_connector_changes_the_ids_that_it_returned(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {"log": "first"}
    monkeypatch.setattr(FileLog, "ids", lambda _: ids)
    monkeypatch.setattr(FileLogReader, "of_logs", lambda self, _: self, raising=False)
    write(log, TWO)
    process = live()
    at = process.run(process.runner.initial_offset())
    assert [process.plan(at) for _ in range(3)] == [at] * 3
    ids["log"] = "second"
    with pytest.raises(DataLossError, match="deleted and created again"):
        process.plan(at)


def test_a_clock_of_a_log_is_followed_at_rest_where_a_connector_changes_the_times_that_it_returned(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: dict[Split, Millis] = {}
    monkeypatch.setattr(FileLog, "current_ends", lambda self, splits: Ends(self.end_positions(splits), reached=reached))
    write(log, TWO)
    process = live()
    at = process.run(process.runner.initial_offset())
    assert [process.plan(at) for _ in range(3)] == [at] * 3
    reached |= dict.fromkeys((Split("log", 0), Split("log", 1)), Millis(QUERIES_START + 500_000))
    deadline = time.monotonic() + 60
    while (moved := process.plan(at)) == at:
        assert time.monotonic() < deadline
    assert wm(moved) == 499_999


def test_a_strategy_of_the_users_that_never_returns_ends_the_query(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LONGEST_S", 0.2)
    write(log, TWO)
    process = live(watermarkStrategy="tests.unit.planning.generators:NeverReturns")
    with pytest.raises(GeneratorError, match="NeverReturns has not returned for "):
        process.run(process.runner.initial_offset())


def test_a_lost_report_is_made_up_for_by_looking_again(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live()
    first = process.runner.initial_offset()
    data = process.plan(first)
    # No task of the batch reports.
    assert wm(process.plan(data)) == 6_999


def test_missing_reports_are_reported_once_and_not_after_a_restart(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, TWO)
    first = live()
    data = first.plan(first.runner.initial_offset())
    process = live(reportAddress="nobody.invalid")
    # What was reported to the process before is gone with it.
    end = process.run(data)
    assert "reportAddress" not in caplog.text
    for second in (200, 300):
        write(log, {0: [(second, second)]})
        end = process.plan(end)
    process.plan(end)
    (received,) = [r.getMessage() for r in caplog.records if "set reportAddress" in r.getMessage()]
    assert "to nobody.invalid, port " in received


def test_idle_connections_at_the_port_cost_no_batch_its_reports(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    port = process.runner._reports.server.address.port
    with ExitStack() as held:
        for second in range(200, 208):
            for _ in range(70):
                held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            write(log, {0: [(second, second)]})
            end = process.run(end)
    assert wm(end) == 7_000 - 1
    assert "was refused" in caplog.text
    assert "reads it again" not in caplog.text


def test_batches_done_again_as_one_read_all_their_rows(log: Path, live: Any) -> None:
    write(log, {0: [(1, 1), (2, 2)]})
    process = live()
    first = process.runner.initial_offset()
    second = process.plan(first)
    write(log, {0: [(3, 3)], 1: [(4, 4)]})
    third = process.plan(second)
    assert sorted(process.read(second, third)[0]) == [3, 4]
    # As after a restart with asynchronous progress tracking, whose log lacks the offset between.
    assert sorted(live().read(first, third)[0]) == [1, 2, 3, 4]


def test_a_part_of_a_range_no_one_reported_is_looked_at_alone(log: Path, live: Any) -> None:
    write(log, {0: [(n, n) for n in range(10)]})
    process = live(minPartitions="5")
    first = process.runner.initial_offset()
    data = process.plan(first)
    tasks = process.runner.tasks(first, data)
    assert len(tasks) == 5
    for pack in tasks[:2] + tasks[3:4]:
        list(run_task(process.source.range_reader, pack, stream_schema(SYSTEM, process.options)))
    covered = process.runner._reports._book.cover(SplitRange(Split("log", 0), 0, 10))
    assert [(r.start, r.end) for r in covered.missing] == [(4, 6), (8, 10)]
    assert wm(process.plan(data)) == 8_999


def test_the_next_process_gets_the_watermark_of_the_one_before(log: Path, live: Any) -> None:
    write(log, TWO)
    first_life = live()
    first = first_life.runner.initial_offset()
    data = first_life.plan(first)
    first_life.read(first, data)

    undisturbed = first_life.plan(data)
    after_a_kill = live().plan(data)
    # Up to the run's number and the moment the splits were seen caught up.
    assert after_a_kill["wm"] == undisturbed["wm"]
    splits, others = (o["splits"]["log"] for o in (after_a_kill, undisturbed))
    assert {n: fields[:4] for n, fields in splits.items()} == {n: fields[:4] for n, fields in others.items()}


def test_each_process_sends_the_watermark_once_without_rows(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    for _ in range(3):
        process = live()
        again = process.plan(end)
        assert again != end
        assert process.read(end, again) == ([], ["6999"])
        assert process.plan(again) == again
        end = again


def test_a_batch_gives_the_same_rows_and_markers_in_any_process(log: Path, live: Any) -> None:
    write(log, {0: [(n, n) for n in range(100)], 1: [(50 + n, 1_000 + n) for n in range(30)], 2: []})
    options = {"idleTimeout": "50 ms", "maxFutureSkew": "1 minute"}
    process = live(**options)
    start, offsets = process.runner.initial_offset(), []
    for round_ in range(3):
        while (end := process.plan(start, ReadMaxRows(40))) != start:
            offsets.append((start, end, process.read(start, end)))
            start = end
        time.sleep(0.06)
        write(log, {round_ % 3: [(200 + round_, round_)]})
    assert len(offsets) > 4
    other = live(**options)
    assert [other.read(a, b) for a, b, _ in offsets] == [seen for _, _, seen in offsets]
    assert any("idle" in markers for _, _, (_, markers) in offsets)
    assert any("active" in markers for _, _, (_, markers) in offsets)


def test_batch_0_from_the_end_is_the_same_after_the_log_has_grown(log: Path, live: Any) -> None:
    write(log, {0: [(0, 1)]})
    process = live(startingOffsets="latest")
    start = process.runner.initial_offset()
    write(log, {0: [(1, 2)]})
    end = process.plan(start)
    assert process.read(start, end) == ([2], [])
    # Batch 0 was logged, not committed: another process is asked for the start again, and answers later in the log.
    write(log, {0: [(2, 3)], 1: [(0, 4)]})
    later = live(startingOffsets="latest")
    assert later.runner.initial_offset() != start
    assert later.read(later.runner.initial_offset(), end) == ([2], [])


def test_a_start_at_the_end_is_asked_once_a_process(log: Path, live: Any) -> None:
    write(log, {0: [(0, 1)]})
    process = live(startingOffsets="latest")
    start = process.runner.initial_offset()
    write(log, {0: [(1, 2)]})
    assert process.runner.initial_offset() == start


@pytest.mark.parametrize("reported", [True, False])
def test_an_event_from_the_future_moves_no_watermark_reported_or_looked_at_again(
    log: Path, live: Any, *, reported: bool
) -> None:
    write(log, {0: [(100, 1), (10**9, 2)]})
    process = live(maxFutureSkew="1 minute")
    start = process.runner.initial_offset()
    end = process.plan(start)
    if reported:
        assert process.read(start, end)[0] == [1, 2]
    assert wm(process.plan(end)) == 99_999


def test_offsets_do_not_change_while_nothing_happens(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live(idleTimeout="1 hour", maxFutureSkew="1 minute", alignmentGroup="g", alignmentMaxDrift="10 seconds")
    end = process.run(process.runner.initial_offset())
    for _ in range(30):
        assert process.plan(end) == end


def test_a_split_is_idle_after_the_timeout_across_processes(log: Path, live: Any) -> None:
    write(log, {0: [(100, 1)], 1: []})
    process = live(idleTimeout="300 ms")
    process.runner.freeze()
    end = process.run(process.runner.initial_offset())
    assert wm(end) is None
    time.sleep(0.35)
    process = live(idleTimeout="300 ms")
    process.runner.freeze()
    assert wm(process.run(end)) == 99_999


def test_rows_that_come_while_other_logs_are_still_asked_keep_a_split_active(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, {0: [(0, 1)], 1: [(100, 2)]})
    process = live(idleTimeout="2 seconds")
    end = process.run(process.runner.initial_offset())
    ask = FileLog.end_positions

    def slowly(self: FileLog, splits: Set[Split]) -> Mapping[Split, int]:
        ends = ask(self, splits)
        write(log, {0: [(1, 3)]})
        time.sleep(2.5)
        return ends

    with monkeypatch.context() as slow:
        slow.setattr(FileLog, "end_positions", slowly)
        seen = process.plan(end)
    # Split 0 had been read to its end for less than the timeout when it was asked.
    assert wm(seen) == wm(end) == -1


def test_rows_that_come_between_the_freeze_and_the_first_question_are_no_data_loss(log: Path, live: Any) -> None:
    write(log, {0: [(0, 1)]})
    process = live(startingOffsets="latest")
    process.runner.freeze()
    write(log, {0: [(1, 2)], 1: [(1, 3)]})
    start = process.runner.initial_offset()
    process.run(start)


def test_a_split_with_rows_beyond_the_ends_of_the_run_is_not_idle(log: Path, live: Any) -> None:
    write(log, {0: [(0, 1)], 1: [(n, n) for n in range(10, 100)]})
    process = live(idleTimeout="200 ms")
    process.runner.freeze()
    start = process.runner.initial_offset()
    end = process.run(start, ReadMaxRows(50))
    write(log, {0: [(1, 2)]})
    time.sleep(0.25)
    end = process.run(end, ReadMaxRows(50))
    # The log continues after position 1; the row at 1 s belongs to the next run, and is not late.
    assert wm(end) == -1


def test_newest_event_times_are_asked_for_only_when_a_split_is_ahead(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Set[Split]] = []
    newest = FileLog.newest
    monkeypatch.setattr(FileLog, "newest", lambda self, splits: asked.append(splits) or newest(self, splits))
    write(log, {0: [(0, 1)], 1: [(1, 2)], 2: []})
    process = live(alignmentGroup="g", alignmentMaxDrift="10 seconds")
    end = process.run(process.runner.initial_offset())
    asked.clear()
    for at in (5, 9):
        write(log, {0: [(at, 3)], 1: [(at + 1, 4)]})
        end = process.run(end)
    assert asked == []
    write(log, {0: [(9, 5)], 1: [(10, 6), (20, 7)]})
    end = process.plan(end)
    assert asked == [{Split("log", 0), Split("log", 1)}]
    assert [fields[0] for fields in end["splits"]["log"].values()] == [4, 4, 0]


def test_trigger_once_reads_everything_whatever_the_limits(log: Path, live: Any) -> None:
    write(log, {0: [(n * 100, n) for n in range(50)], 1: [(0, 99)]})
    process = live(alignmentGroup="g", alignmentMaxDrift="1 second")
    start = process.runner.initial_offset()
    end = process.plan(start, ReadAllAvailable())
    assert len(process.read(start, end)[0]) == 51


def test_an_unknown_end_is_neither_lost_nor_idle_and_keeps_no_one_waiting(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, {0: [(100, 1)], 1: [(100, 2)]})
    process = live(idleTimeout="1 second")
    end = process.run(process.runner.initial_offset())
    silent, long_ago = Split("log", 0), 1
    time.sleep(1.1)
    write(log, {0: [(150, 3)], 1: [(200, 4)]})

    def without_0(self: FileLog, splits: Set[Split]) -> Ends:
        ends = self.end_positions(splits)
        return Ends({s: e for s, e in ends.items() if s != silent}, {silent: long_ago})

    with monkeypatch.context() as one_broker_is_down:
        one_broker_is_down.setattr(FileLog, "current_ends", without_0)
        after = process.plan(end)
        assert process.read(end, after)[0] == [4]
        after = process.run(after)
        # Except for the moment since when it has been quiet: no one could write to it.
        assert after["splits"]["log"]["0"][:3] == end["splits"]["log"]["0"][:3]
        assert wm(after) == 99_999
        status = process.runner.status()
        assert status is not None
        assert status["counts"] == {"a": 1, "u": 1}
        # An answer came at last: it is of a while ago, but there are rows.
        long_ago = 2
        rows = process.plan(after)
        assert process.read(after, rows)[0] == [3]
    assert wm(process.run(rows)) == 149_999


def test_a_new_split_is_read_from_its_first_row(log: Path, live: Any) -> None:
    write(log, {0: [(0, 1)]})
    process = live(startingOffsets="latest")
    start = process.run(process.runner.initial_offset())
    write(log, {7: [(5, 2), (6, 3)]})
    end = process.plan(start)
    assert process.read(start, end)[0] == [2, 3]


def test_a_split_that_joins_when_there_is_a_watermark_is_reported_with_it(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, {0: [(1, 100)]})
    process = live()
    end = process.run(process.run(process.runner.initial_offset()))
    assert "found while the query runs" not in caplog.text
    write(log, {1: [(2, 50)]})
    process.plan(end)
    assert "-1: found while the query runs" in caplog.text
    assert "the watermark, 2023-11-14 22:13:00.999, are late" in caplog.text


def test_the_watermark_never_goes_back_when_a_split_joins_late(log: Path, live: Any) -> None:
    write(log, {0: [(100, 1)]})
    process = live()
    end = process.run(process.runner.initial_offset())
    write(log, {1: [(5, 2)]})
    end = process.run(end)
    assert wm(end) == 99_999
    write(log, {1: [(200, 3)]})
    assert wm(process.run(end)) == 99_999
    write(log, {0: [(300, 3)]})
    assert wm(process.run(process.run(end))) == 199_999


def test_a_log_that_got_shorter_is_data_loss(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    (log / "log-0.jsonl").write_bytes(b"")
    with pytest.raises(DataLossError, match="log-0"):
        live().plan(end)
    assert live(failOnDataLoss="false").plan(end) != end


def test_a_split_that_is_gone_is_data_loss(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    (log / "log-0.jsonl").unlink()
    with pytest.raises(DataLossError, match="log-0 is gone"):
        live().plan(end)
    process = live(failOnDataLoss="false")
    assert "0" not in process.run(end)["splits"]["log"]


def test_a_checkpoint_of_another_source_is_refused(log: Path, live: Any) -> None:
    write(log, TWO)
    end = live().runner.initial_offset()
    with pytest.raises(OffsetError, match="other"):
        live(sourceName="other").plan(end)


def test_with_processing_time_there_is_one_batch_without_rows_an_interval(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live(watermarkStrategy="none", watermarkInterval="300 ms")
    start = process.runner.initial_offset()
    end = process.plan(start)
    values, (watermark,) = process.read(start, end)
    assert values == [1, 2, 3]
    assert end["pt"] is True
    assert int(watermark) == wm(end)
    began, batches = time.monotonic(), 0
    while time.monotonic() - began < 1:
        after = process.plan(end)
        batches += after != end
        end = after
    assert 2 <= batches <= 4


def test_a_watermark_of_the_future_is_reported_once_unless_it_cannot_be(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = round(time.time() - QUERIES_START / 1_000)
    write(log, {0: [(ahead + 3_000, 1)]})
    process = live()
    end = process.run(process.runner.initial_offset())
    assert "in the future" not in caplog.text
    for later in (7_200, 8_000):
        write(log, {0: [(ahead + later, 2)]})
        end = process.run(end)
    (received,) = [r.getMessage() for r in caplog.records if "in the future" in r.getMessage()]
    assert "maxFutureSkew" in received
    caplog.clear()
    capped = live(maxFutureSkew="1 hour")
    capped.run(capped.runner.initial_offset())
    assert "in the future" not in caplog.text
