"""Progress reports over a network that breaks: what was acknowledged has arrived as it was sent, and no task fails."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from services.tcp_proxy import CALM, Break, TcpProxy, random_fates
from tests.integration.broken_network import Figures, leaves_nothing
from watermark_source.planning.range_report import RangeReport, RowTotals
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark import report_protocol as protocol
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.executor import reading
from watermark_source.spark.executor.reading import send_reports
from watermark_source.spark.report_protocol import ReportAddress

_TASKS, _EACH = 12, 6
_SECONDS = 0.4


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(protocol, "TIMEOUT", _SECONDS)
    monkeypatch.setattr(reading, "_AVOIDED_SECONDS", 0.0)
    yield
    reading._avoided_until.clear()


def _reports(task: int, number: int, chance: random.Random) -> list[RangeReport]:
    """Return what a task has seen, sometimes of so many splits that it is sent in several pieces of the network."""
    splits = chance.choice((1, 3, 2_000))
    return [
        RangeReport(
            SplitRange(Split(f"log-{task}", split), 10 * number, 10 * number + 10),
            Millis(chance.randrange(10**12)), RowTotals(read=chance.randrange(11)),
        )
        for split in range(splits)
    ]  # fmt: skip


def _task(address: ReportAddress, book: ReportBook, seed: int, task: int) -> Figures:
    chance, errors, lost, wrong = random.Random(f"{seed} {task}"), 0, 0, []
    for number in range(_EACH):
        sent = _reports(task, number, chance)
        begun = time.monotonic()
        try:
            is_delivered = send_reports(address, sent)
        except Exception as error:  # noqa: BLE001 - what the test is about
            wrong.append(f"not declared: {type(error).__name__}: {error}")
            continue
        # Each of three attempts to connect and to send.
        if time.monotonic() - begun > 6 * _SECONDS + 60:
            wrong.append(f"a call took {time.monotonic() - begun:.1f} s")
        for report in sent:
            found = book.cover(report.range)
            arrived = not found.missing
            lost += is_delivered and not arrived
            if arrived and (found.seen.highest, found.rows) != (report.max_event_time, report.rows):
                wrong.append(f"{report} arrived as {found}")
        errors += not is_delivered
    return Figures(1, errors, lost, wrong=tuple(wrong))


def _run(seed: int) -> Figures:
    book = ReportBook()
    with (
        closing(ReportServer(book, host="127.0.0.1")) as server,
        closing(TcpProxy(("127.0.0.1", server.address.port))) as proxy,
    ):
        address = replace(server.address, port=proxy.port)
        proxy.fates = random_fates(seed, most_bytes=20_000, calm=0.3)
        with ThreadPoolExecutor(_TASKS) as threads:
            running = [threads.submit(_task, address, book, seed, task) for task in range(_TASKS)]
            figures = sum((each.result() for each in running), Figures())
        proxy.fates = lambda _: CALM
        proxy.break_open(Break.RESET)
        after = [RangeReport(SplitRange(Split("after", 0), 0, 10), Millis(1), RowTotals(read=10))]
        # On a busy machine an answer may take longer than these limits.
        if not any(send_reports(address, after) for _ in range(20)):
            figures += Figures(lost=1, wrong=("nothing arrives though the network is whole",))
    return figures


def _runs(seeds: range) -> Figures:
    with closing(TcpProxy()) as none, leaves_nothing(none):
        return sum(map(_run, seeds), Figures())


def test_what_is_acknowledged_over_a_broken_network_has_arrived_and_no_task_fails() -> None:
    figures = _runs(range(1, 3))
    figures.check()
    assert figures.errors > 0


@pytest.mark.long("test_what_is_acknowledged_over_a_broken_network_has_arrived_and_no_task_fails")
def test_however_often_the_network_breaks_no_acknowledged_report_is_lost(request: pytest.FixtureRequest) -> None:
    count, first = (request.config.getoption(f"--{name}") for name in ("broken-networks", "networks-seed"))
    total = _runs(range(first + 1, first + 1 + -(-count // _TASKS)))
    sys.stdout.write(f"{total}\n")
    total.check()
