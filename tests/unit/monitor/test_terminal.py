from __future__ import annotations

import html
import io
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from rich.console import Console

from tests.unit.monitor.example_status import NOON, checkout, progress_of, source_status, split_view
from watermark_source.monitor.status_table import render_text
from watermark_source.monitor.terminal import LiveStatus, snapshot_is_due
from watermark_source.status_model.source_status import SourceStatus, Status


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_the_table_is_no_wider_than_its_width(width: int) -> None:
    assert max(map(len, render_text(checkout(), width=width).splitlines())) <= width


def test_plain_text_at_eighty_columns() -> None:
    assert render_text(checkout(), width=80, now=NOON + 8_000).splitlines() == [
        "orders (aligned-kafka) | watermark 2026-11-21 12:00:00.000 UTC | as of 3 s ago",
        "group checkout: limit 12:02:00.000, max drift 2 min, 9 members",
        "6 partitions: 2 active, 1 idle, 2 paused, 1 unknown | lag 1 408 352",
        "rows too far in the future: 3",
        "partition  watermark     status   why                                holds back",
        "--------------------------------------------------------------------------------",
        "orders-0   12:01:59.000  PAUSED   next record over 2 min ahead of",
        "                                  orders-3 (alignmentMaxDrift)",
        "orders-1   12:00:03.000  ACTIVE   nothing to read for 1.2 s; idle",
        "                                  after 30 s",
        "orders-2   none yet      IDLE     nothing to read for 5 min 32 s",
        "                                  (idleTimeout 30 s)",
        "orders-3   12:00:00.000  ACTIVE   behind by 112 344 records          yes, 2 wait",
        "orders-4   12:02:37.000  PAUSED   2 min 37 s ahead of orders-3",
        "                                  (alignmentMaxDrift 2 min)",
        "orders-10  12:00:07.000  UNKNOWN  no answer about its log",
    ]


@pytest.mark.parametrize("lines", range(8, 20))
def test_the_table_keeps_within_its_lines(lines: int) -> None:
    assert len(render_text(checkout(), width=100, lines=lines).splitlines()) <= lines


def test_what_is_hidden_is_counted() -> None:
    assert render_text(checkout(), lines=9).splitlines()[-1] == "and 4 more"


def test_the_row_that_holds_stands_out_in_colour_and_those_that_wait_are_dim() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=40, force_terminal=True, color_system="standard")
    query = Played(None, progress_of(checkout()))
    with LiveStatus(query, console=console, clock=lambda: NOON + 8_000):
        assert query.asked.wait(60)
    shown = out.getvalue()
    assert "\x1b[1;91morders-3  HOLDS" in shown
    assert "\x1b[34morders-1  active" in shown
    assert "\x1b[2morders-0  paused" in shown


def test_names_are_not_read_as_rich_markup() -> None:
    status = source_status(split_view(0, holds_back=True), source_name="[bold]x[/]")
    both = progress_of(status, checkout())
    assert "[bold]x[/]" in follow(Played(None, both), terminal=True)


def test_plain_text_has_no_control_characters() -> None:
    evil = source_status(split_view(0, why="a\x1b[31m\tb"), source_name="x\x07")
    assert render_text(evil).replace("\n", "").isprintable()


CALM = (source_status(split_view(0)),)
MOVED = (source_status(split_view(0, position=140, watermark=NOON + 1)),)
PAUSED = (source_status(split_view(0, Status.PAUSED)),)
HOLDING = (source_status(split_view(0, holds_back=True)),)


@pytest.mark.parametrize(
    ("printed", "latest", "passed", "due"),
    [
        ((), (), None, False),
        ((), CALM, None, True),
        (CALM, MOVED, 59_999, False),
        (CALM, CALM, 60_000, True),
        (CALM, PAUSED, 9_999, False),
        (CALM, PAUSED, 10_000, True),
        (CALM, HOLDING, 10_000, True),
        (CALM, (*CALM, *CALM), 10_000, True),
    ],
)
def test_a_log_gets_a_snapshot_a_minute_or_on_a_change(
    printed: tuple[SourceStatus, ...], latest: tuple[SourceStatus, ...], passed: int | None, due: bool
) -> None:
    assert snapshot_is_due(printed, latest, passed) is due


class Idle:
    """A query between two batches."""

    status: ClassVar[dict[str, Any]] = {"message": "Waiting for data to arrive"}
    recentProgress: ClassVar[list[Any]] = []  # noqa: N815
    name, id = "sales", "1"
    isActive = True  # noqa: N815

    def exception(self) -> None:
        return None


class Played(Idle):
    """A query that goes through the given progresses, one each time it is asked; the last one stays."""

    def __init__(self, *progresses: Any) -> None:
        self._left = list(progresses)
        self.asked = threading.Event()

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        progress = self._left[0] if len(self._left) == 1 else self._left.pop(0)
        if len(self._left) == 1:
            self.asked.set()
        if isinstance(progress, Exception):
            raise progress
        return progress


def framed(shown: str) -> str:
    """Return the document in the frame of a picture."""
    (document,) = re.findall(
        r'^<iframe sandbox="" title="[^"<>]*" style="[^"<>]*" srcdoc="([^"<>]*)"></iframe>$', shown
    )
    return html.unescape(document)


def test_in_a_notebook_the_status_is_the_page_in_a_frame_that_changes_nothing_outside() -> None:
    later = replace(checkout(), at=checkout().at + 5_000)
    view = LiveStatus(Played(None, progress_of(checkout()), progress_of(later)), clock=lambda: NOON + 8_000)
    while (first := view._repr_html_()) == "<p>waiting for the query's first batch</p>":
        pass
    page = framed(first)
    assert "<h1>sales</h1>" in page
    assert "<dt>Held by</dt><dd><b>orders-3</b> since 12:00:05" in page
    assert '<th scope="row">orders-10</th>' in page
    assert not re.findall(r"<a |<script|http-equiv", page), "what a frame without an address cannot follow"
    assert "<polyline" not in page
    assert "<polyline" in framed(view._repr_html_()), "shown again, it has lines over time"


def test_a_picture_in_a_notebook_escapes_names() -> None:
    query = Played(progress_of(source_status(split_view(0), source_name="<script>\"'")))
    query.name = '</iframe>"><script>'
    shown = LiveStatus(query, clock=lambda: NOON)._repr_html_()
    assert "<script" not in framed(shown)


def follow(query: Played, *, terminal: bool, height: int = 40, table: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, height=height, force_terminal=terminal, color_system=None)
    with LiveStatus(query, console=console, table=table, clock=lambda: NOON + 8_000):
        assert query.asked.wait(60)
    return out.getvalue()


def test_a_live_view_on_a_terminal_ends_with_the_last_state() -> None:
    text = follow(Played(None, progress_of(source_status(split_view(0))), progress_of(checkout())), terminal=True)
    assert "waiting for the query's first batch" in text
    last = text[text.rindex("unread") :]
    assert "orders-10" in last


def test_a_table_on_a_terminal_has_ages_by_the_readers_clock() -> None:
    text = follow(Played(None, progress_of(checkout())), terminal=True, table=True)
    assert "as of 3 s ago" in text


def test_a_live_view_shows_every_source_and_fits_the_terminal() -> None:
    both = progress_of(checkout(), checkout(source_name="refunds"))
    text = follow(Played(None, both), terminal=True, height=27, table=True)
    last = text[text.rindex("orders (aligned-kafka)") :]
    assert "refunds (aligned-kafka)" in last
    assert len(re.findall(r"and \d more", last)) == 2


def test_a_live_view_elsewhere_prints_plain_snapshots() -> None:
    text = follow(Played(None, progress_of(checkout())), terminal=False, table=True)
    assert text.endswith("\n" + render_text(checkout(), width=100) + "\n")
    picture = follow(Played(None, progress_of(checkout())), terminal=False)
    assert picture.count("behind  unread") == 1
    assert picture.splitlines()[-1].strip().startswith("12:00")


def test_the_last_state_is_printed_even_within_the_quiet_time() -> None:
    first, last = source_status(split_view(0)), checkout()
    text = follow(Played(progress_of(first), progress_of(last)), terminal=False, table=True)
    shown = [text.index(render_text(each, width=100) + "\n") for each in (first, last)]
    assert shown == sorted(shown)


def test_a_live_view_outlives_a_query_that_stops_answering() -> None:
    text = follow(
        Played(progress_of(checkout()), ConnectionRefusedError("gateway is gone")), terminal=False, table=True
    )
    assert text.endswith("\n" + render_text(checkout(), width=100) + "\n")


def test_a_report_that_cannot_be_read_is_reported_once(
    caplog: pytest.LogCaptureFixture, logged: Callable[[], list[str]]
) -> None:
    broken = progress_of(checkout())
    broken["sources"][1]["latestOffset"]["v"] = 2
    with caplog.at_level(logging.WARNING):
        assert follow(Played(broken, broken, broken), terminal=False) == ""
    (text,) = logged()
    assert text.startswith("the status of the query cannot be shown: status report of version 2;")


def test_leaving_does_not_wait_for_a_query_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watermark_source.monitor.terminal._STOP_SECONDS", 0.2)
    release = threading.Event()
    entered = threading.Event()

    class Hanging(Idle):
        @property
        def lastProgress(self) -> None:  # noqa: N802
            entered.set()
            release.wait(120)

    begun = time.monotonic()
    with LiveStatus(Hanging(), console=Console(file=io.StringIO())):
        assert entered.wait(60)
    assert time.monotonic() - begun < 60
    release.set()


def test_the_view_reads_the_clock_by_itself() -> None:
    out = io.StringIO()
    status = source_status(at=int(time.time() * 1_000) - 60_000)
    query = Played(None, progress_of(status))
    with LiveStatus(query, console=Console(file=out, width=100, force_terminal=True), table=True):
        assert query.asked.wait(60)
    assert "as of 1 min" in out.getvalue()
