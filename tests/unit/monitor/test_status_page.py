"""The page is complete without JavaScript, escapes what it shows, and answers this machine alone."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent
from rich.console import Console

from services.wait_until import wait_until
from tests.unit.monitor.example_pages import HOUR, MINUTE, NOW, PAGES, announced, many
from tests.unit.monitor.example_status import (
    CHECKOUT,
    NOON,
    checkout,
    page,
    progress_of,
    source_status,
    split_view,
    view,
)
from watermark_source.command_line import main
from watermark_source.errors import UsageError
from watermark_source.monitor.facts import Seen
from watermark_source.monitor.failure import Failure
from watermark_source.monitor.followed_queries import _ended
from watermark_source.monitor.history import MOST_CHANGES, MOST_POINTS, Change, ChangeHistory, ChangeKind, HolderSpan
from watermark_source.monitor.holder import Since, since_text
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.page.chain_picture import chain_picture, chains_of
from watermark_source.monitor.page.document import SCRIPT, STYLE, page_html
from watermark_source.monitor.page.reader_choice import Asked
from watermark_source.monitor.page_content import Ended, QueryView, page_json
from watermark_source.monitor.status_page import StatusPage, _Queries, _Server
from watermark_source.monitor.terminal import _page_picture, read_page, watch
from watermark_source.monitor.three_clocks import QueryClocks, diagnose
from watermark_source.monitor.verdict import State, verdict_of
from watermark_source.monitor.window_facts import QueryAt, Unfollowed
from watermark_source.planning.group import OwnSilence, Peer
from watermark_source.planning.group_limit import STORE, TO_COME
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import NOTABLE, Hold
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.strategy import Bounded
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.status_model.source_status import GroupStatus, SourceStatus, Status, Unprocessed, WriterView
from watermark_source.status_model.status_json import status_from_json

HOSTILE = "<script>alert('x')</script>\"&"
VOID = {"meta", "link", "br", "polyline"}


class Outline(HTMLParser):
    """The elements of a page, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data.replace("\u00a0", " ")

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def test_the_sentence_comes_first_then_the_picture_then_the_tables() -> None:
    text = Outline(page_html(PAGES["held-back"])).text
    lead = text.index("Results are 10 min behind the clock: the newest record in orders-2 is from 12:00:05.")
    held = text.index(
        "Held by" + "orders-2 since 12:00:05: its newest record is from 12:00:05; nothing to read for 4 s"
    )
    picture = text.index("How far each partition has come, in event time")
    assert (
        lead < held < picture < text.index("The last 15 min") < text.index("orders-by-minute: 4 partitions of orders")
    )


def test_the_page_has_what_the_watermark_would_be_without_its_holder() -> None:
    shown = Outline(page_html(page(view(checkout(without_holder=NOON + 3_000))))).text
    assert (
        "Without orders-3 the watermark would be 3 s later, at 12:00:03, and windows that end by then would close."
        in shown
    )
    assert "Without orders-3" not in Outline(page_html(CHECKOUT)).text
    first = Outline(page_html(page(view(checkout(watermark=None, without_holder=NOON))))).text
    assert "Without orders-3 the watermark would be 12:00:00, and windows that end by then would close." in first
    elsewhere = replace(PAGES["frozen-source"].queries[0].clocks.sources[0], without_holder=NOON + HOUR)
    assert "Without" not in Outline(page_html(page(view(elsewhere)))).text


def test_what_the_watermark_would_be_names_all_that_hold_it() -> None:
    first = Hold(name="orders-3", kind=HoldKind.SILENT, watermark=NOON)
    held = (first, replace(first, name="orders-4"))
    for more, who in ((0, "orders-3 and orders-4"), (7, "orders-3 and 8 more")):
        source = checkout(without_holder=NOON + 3_000, slowest=held, more_holds=more)
        assert f"Without {who} the watermark would be" in Outline(page_html(page(view(source)))).text


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2, of ``#rgb`` or ``#rrggbb``."""
    digits = colour.lstrip("#")
    parts = [int(c * 2, 16) for c in digits] if len(digits) == 3 else [int(digits[i : i + 2], 16) for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (p / 255 for p in parts))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "grounds"),
    [
        ("ink", ("ground", "panel", "done", "hold-done", "paused-ground", "code", "bad-ground", "earlier-2")),
        ("soft", ("ground", "panel", "complete")),
        ("mark", ("ground", "panel", "complete")),
        ("hold", ("ground", "panel")),
        ("panel", ("hold",)),
        ("bad", ("ground", "panel")),
    ],
)
def test_each_text_has_the_contrast_of_wcag_on_each_ground(mode: str, text: str, grounds: tuple[str, ...]) -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", light if mode == "light" else dark.partition("}\n}")[0]))
    for ground in grounds:
        lower, higher = sorted(luminance(colours[name]) for name in (text, ground))
        assert (higher + 0.05) / (lower + 0.05) >= 4.5, ground


def test_the_page_needs_no_script_and_nothing_from_elsewhere() -> None:
    found = Outline(page_html(CHECKOUT))
    assert {"link", "img", "iframe", "form", "button", "input"} & {tag for tag, _ in found.elements} == set()
    assert found.count("script") == 1
    assert re.findall(r"https?:", SCRIPT) == []
    attributes = [(name, value) for _, attrs in found.elements for name, value in attrs.items()]
    assert not [name for name, _ in attributes if name.startswith("on") or name in ("style", "src")]
    links = {value for name, value in attributes if name == "href"}
    assert links == {"status.json", "?refresh=0", "?refresh=5"}
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page_html(CHECKOUT)
    assert "<h1>sales</h1>" in page_html(CHECKOUT)
    assert (
        'updates: <a href="?refresh=5" aria-current="true">every 5 s</a> or <a href="?refresh=0">off</a>'
        in page_html(CHECKOUT)
    )
    once = page_html(CHECKOUT, Asked(refresh=0))
    assert '<a href="?refresh=0" aria-current="true">off</a>' in once
    assert once.count("aria-current=") == 1
    assert not [each for each in ("<script", "<noscript", "http-equiv", "data-refresh") if each in once]


def test_a_screen_reader_has_a_language_headings_captions_and_scopes() -> None:
    found = Outline(page_html(CHECKOUT))
    assert ("html", {"lang": "en", "data-refresh": "5"}) in found.elements
    levels = [int(tag[1]) for tag, _ in found.elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert found.count("caption") == found.count("table") == 1
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in found.elements if tag == "th")
    drawn = [attrs for tag, attrs in found.elements if tag == "svg" and "x" not in attrs and "y" not in attrs]
    # What is drawn is in the rows as text, too.
    assert {attrs.get("aria-hidden", "true") for attrs in drawn} == {"true"}
    assert found.count("ol") == 1
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    assert "prefers-color-scheme: dark" in page_html(CHECKOUT)


def test_everything_from_outside_is_escaped() -> None:
    group = GroupStatus(HOSTILE, 1_000, None, 1, others=1, slowest=HOSTILE, trouble=HOSTILE)
    source = source_status(split_view(0, why=HOSTILE, holds_back=True), source_name=HOSTILE, group=group)
    change = Change(
        at=NOON, query=HOSTILE, source=HOSTILE, kind=ChangeKind.HOLDER, subject=HOSTILE, before=HOSTILE, after=""
    )
    shown = page_html(page(view(source, name=HOSTILE), changes=(change,), unreadable={HOSTILE: HOSTILE}))
    found = Outline(shown)
    assert shown.count("<script") == found.count("script") == 1
    assert found.text.count(HOSTILE) > 8


def test_ten_thousand_partitions_are_twelve_rows_and_the_page_as_long_as_with_a_hundred() -> None:
    shown, fewer = page_html(PAGES["ten-thousand"]), page_html(many(1_000))
    found = Outline(shown)
    assert abs(len(shown) - len(fewer)) < 200
    assert len(shown) < 200_000
    rows = [attrs for tag, attrs in found.elements if tag == "li" and (attrs.get("class") or "").startswith("row")]
    assert [row["class"] for row in rows] == ["row holds", *["row counts"] * 9, "row others", "row idle"]
    assert "9 968 others" in found.text
    assert "22 others" in found.text
    assert "The last change of holder, status and limit" in found.text


def test_the_other_sources_of_the_group_have_a_table_with_the_silent_one_marked_and_named() -> None:
    peers = (Peer("payments", "active", None, 2_500, is_waited_for=True), Peer("users", "idle", None, 900, True))
    group = GroupStatus("checkout", 120_000, NOON, 9, others=2, peers=peers)
    shown = page_html(page(view(checkout(group=group))))
    found = Outline(shown)
    assert "sales: other sources of the alignment group checkout, the most silent first" in found.text
    assert "silent for 2.5 s; waited for" in found.text
    assert '<tr class="held"><th scope="row">payments</th><td>active</td><td>none yet</td><td>2.5 s ago</td>' in shown
    assert '<tr><th scope="row">users</th><td>idle</td>' in shown
    assert found.text.lower().count("source payments of the alignment group checkout has reported nothing") == 1
    read = json.loads(json.dumps(page_json(page(view(checkout(group=group))))))
    assert status_from_json(read["queries"][0]["sources"][0]).group == group


def test_a_source_that_was_frozen_itself_names_for_how_long_and_what_followed() -> None:
    silence = OwnSilence(Millis(NOON), 60_000, was_waited_for=False)
    shown = page(view(checkout(group=GroupStatus("checkout", 120_000, NOON, 9, own_silence=silence))))
    text = "this source itself reported nothing for 1 min until 2026-11-21 12:00:00.000 UTC (its driver was frozen, or "
    assert f"{text}the store did not answer): longer than its alignmentTimeToLive, so" in Outline(page_html(shown)).text
    (source,) = json.loads(json.dumps(page_json(shown)))["queries"][0]["sources"]
    assert status_from_json(source) == shown.queries[0].clocks.sources[0]


def test_without_a_query_the_page_names_the_command_for_those_that_have_ended() -> None:
    assert "python -m watermark_source explain --checkpoint DIR" in Outline(page_html(page())).text


def test_of_several_queries_each_has_a_line_and_the_chosen_one_a_picture() -> None:
    shown = page(view(checkout()), replace(view(checkout(), name="other"), id="2"))
    found = Outline(page_html(shown))
    assert {"?refresh=5&query=1", "?refresh=5&query=2"} <= {
        attrs.get("href") for tag, attrs in found.elements if tag == "a"
    }
    assert found.count("figure") == 1
    assert "sales: 6 partitions of orders" in found.text
    assert "other: 6 partitions of orders" in Outline(page_html(shown, Asked(query="2"))).text
    unknown = Outline(page_html(shown, Asked(query="none such")))
    assert unknown.count("figure") == 1


def test_results_are_as_late_as_what_operators_have_applied_where_their_output_is_not_known() -> None:
    (shown,) = PAGES["held-back"].queries
    unknown = replace(shown.clocks, output_watermark=None, no_output="the plan cannot be read now")
    found = Outline(page_html(page(replace(shown, clocks=unknown), at=shown.clocks.at))).text
    assert "Results are 10 min behind the clock: the newest record in orders-2" in found
    assert "complete up to 12:00:00" in found


@pytest.mark.parametrize("name", PAGES)
def test_each_state_is_well_formed_and_has_one_sentence_before_its_picture(name: str) -> None:
    found = Outline(page_html(PAGES[name]))
    leads = [attrs for tag, attrs in found.elements if tag == "p" and attrs.get("class") == "lead"]
    assert len(leads) == (2 if name == "chain" else 1)
    assert "None" not in found.text.replace("None of", "")


@pytest.mark.parametrize(
    ("name", "lead"),
    [
        ("ten-thousand", "Results are 2 min 43 s behind the clock: clicks-0 still has 1 204 332 records to read."),
        ("on-time", "Results are 3.5 s behind the clock."),
        ("no-watermark", "There are no results yet: orders-3 has had no record yet."),
        (
            "snapshot",
            "There are no results yet: the snapshot of all 3 tables is 59 % read, with about 7 min 34 s to go, until",
        ),
        ("failed", "The query failed 3 min 12 s ago, after batch 812."),
        ("frozen-source", "Results are 15 s behind the clock: source payments has reported nothing for 42 s."),
        ("two-sources", "Results are 1 min 19 s behind the clock: the newest record in shop-0 is from 12:08:53."),
        ("replay", "Results are 2 d 03 h behind the clock: the query is still reading history"),
        ("chain", "One of 6 queries has failed, and 2 are held back: both wait for orders-2."),
        ("ended", "The query ended 3 min 12 s ago, after batch 812."),
        ("on-the-clock", "Results are 1.9 s behind the clock."),
        (
            "announced",
            "Results are 10 min behind the clock: writer sessions has announced nothing newer than 11:59:58.",
        ),
        ("nothing", "No query runs in this session."),
    ],
)
def test_the_sentence_names_how_late_and_why(name: str, lead: str) -> None:
    assert lead in Outline(page_html(PAGES[name])).text


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        (
            "held-back",
            (
                "Held by" + "orders-2 since 12:00:05: its newest record is from 12:00:05; nothing to read for 4 s",
                "Option" + "none is needed; once it has been silent for 10 s, in 6 s, orders-2 is left",
                "Without orders-2 the watermark would be 9 min 47 s later, at 12:09:47, and windows that end by then",
                "Next window" + "12:00:00 to 12:01:00 closes soon after 12:10:17 if orders-2 stays silent, else once",
                "its watermark passes 12:01:00",
                "Rows lost" + "none of 12 157 rows read",
            ),
        ),
        (
            "frozen-source",
            (
                "Held by" + "payments (limit of the group) since 12:10:00: it has reported nothing for 42 s; orders-0",
                "closes once the watermark of payments passes 12:09:00, or at 12:11:29, when payments",
                "is waited for no more; the limit is 1 min ahead of it",
                "Option" + "none is needed here: the limit advances once payments does, and the watermark with it",
                "Who held it" + "longest: payments (limit of the group), 11 s",
                "the group waits for it until its alignmentTimeToLive (2 min) has passed, in 1 min 18 s.",
            ),
        ),
        (
            "announced",
            (
                "Held by" + "writer sessions since 12:00:11: has announced nothing for 10 min 10 s",
                "Option" + "writerTimeToLive: start writer sessions; if it is gone for good",
                # Where all is read, nothing of it is unknown.
                "10 min behind" + "0 unread",
                "11:59:00 to 12:00:00 closes once the watermark of writer sessions passes 12:00:00",
                "--kafka.bootstrap.servers HOST:9092 --topic TOPIC drop sessions, and remove its name from announcedBy",
            ),
        ),
        (
            "on-time",
            (
                "Next window" + "12:10:07 to 12:10:08 closes at 12:10:12, about 3.5 s after its end",
                "Held by" + "nothing; all 8 active partitions are within 0.7 s of each other",
                "Option" + "none is needed" + "Rows lost",
            ),
        ),
        (
            "two-sources",
            (
                "Held by" + "shop-0 of source customers since 12:09:03: its newest record is from 12:08:53; nothing to",
                'OptionidleTimeout for source customers: to continue without a silent partition, write .option("idleTi',
                "Next window" + "one that ends after 12:08:52 closes once the watermark of shop-0 moves on, or a",
                "restart with idleTimeout leaves it out",
            ),
        ),
        ("replay", ("Held by" + "nothing; the query is still reading history, with 36 000 000 records to go",)),
        (
            "snapshot",
            (
                "shop.orders_us31 % 62 000 of about 199 128 rows",
                "none closes before the snapshot of shop.orders_us is read to its end, about 12:17",
            ),
        ),
        (
            "no-watermark",
            (
                "none closes before orders-3 has a watermark, or a restart with idleTimeout leaves it out",
                'to continue without a silent partition, write .option("idleTimeout", "30 seconds")',
            ),
        ),
        (
            "ended",
            (
                "Held by" + "nothing; the query ended at 12:06:59 (3 min 12 s ago)",
                "none closes until the query runs again; 87 rows wait in those that end after 12:06:55",
                "none is needed; start the query again with its checkpoint location: it continues with batch 813",
                "Its results were complete up to 12:06:55. The rest of the page shows how the query left it at 12:06",
                "Rows lost" + "none of 488 310 rows read",
            ),
        ),
        (
            "failed",
            (
                "data was lost: invoices-4 was read only up to 81400",
                "Option" + "failOnDataLoss, as the error states; then start the query again with its checkpoint",
                "Rows lostthose that the error names, deleted before they were read; of those that were read: none",
                "3 s behind" + "? unread",
            ),
        ),
        (
            "on-the-clock",
            (
                "Held by" + "nothing; event time is the clock",
                "12:10:10 closes at 12:10:12",
                "event time0.9 s behind" + "4 unread",
                "12:10:10 0.9 s behind the clock",
            ),
        ),
        # Its furthest partition is ahead of the clock.
        ("chain", ("furthest of 4 partitions" + "0 s behind",)),
    ],
)
def test_who_holds_why_since_when_which_option_when_windows_close_and_whether_rows_are_lost(
    name: str, answers: tuple[str, ...]
) -> None:
    text = Outline(page_html(PAGES[name])).text
    for answer in answers:
        assert answer in text


def classes(of: str, kind: str) -> list[str]:
    """Return the classes of the rectangles in elements of a class, in their order."""
    inside = re.findall(rf'<svg class="{kind}".*?</svg>', of)
    return [name for each in inside for name in re.findall(r'<rect class="([\w-]+)"', each)]


def test_windows_are_cells_up_to_the_clock_and_the_next_to_close_is_named() -> None:
    shown = page_html(PAGES["held-back"])
    assert classes(shown, "cells") == ["closed"] * 3 + ["next"] + ["open"] * 10
    text = Outline(shown).text
    assert "windows 1 minoutlined, the next to close: ends 12:01:00" in text
    sliding = Outline(page_html(PAGES["ten-thousand"])).text
    assert "windows 1 min every 10 soutlined, the next to close: ends 12:07:30" in sliding
    # Of a join no windows are known.
    assert classes(page_html(PAGES["two-sources"]), "cells") == ["closed"]


def test_without_a_query_an_example_shows_how_to_read_the_picture() -> None:
    shown = page_html(PAGES["nothing"])
    found = Outline(shown)
    assert "No query runs in this session." in found.text
    assert "example-1 holds the watermark back, example-2 is paused, and example-3 left out" in found.text
    rows = [attrs["class"] for tag, attrs in found.elements if (attrs.get("class") or "").startswith("row ")]
    assert rows == ["row holds", "row counts", "row paused", "row idle"]
    assert "<code>python -m watermark_source explain --checkpoint DIR</code>" in shown


def test_the_row_that_the_error_of_a_query_names_is_set_off_and_no_other() -> None:
    shown = page_html(PAGES["failed"])
    rows = re.findall(r'<li class="row (\w+)"><div class="who"><b>([^<]+)</b>', shown)
    assert [name for kind, name in rows if kind == "failed"] == ["invoices-4"]
    assert len(rows) == 6
    assert "The data are fresh" not in shown
    text = Outline(shown).text
    (gone,) = PAGES["failed"].ended
    for other in ("eu.invoices-4", "invoices-4.eu-0", "invoices-40"):
        text = page_html(replace(PAGES["failed"], ended=(gone._replace(error=Failure(f"{other} is gone")),)))
        assert '<li class="row failed">' not in text


def test_of_an_ended_query_it_is_stated_what_waits_for_windows_that_are_open_alone_and_who_held_it() -> None:
    (gone,) = PAGES["failed"].ended
    assert gone.query is not None
    clocks, none = gone.query.clocks, "none closes until the query runs again"
    for changed, answer in (
        (replace(clocks, has_windows=False), "none; the query has no windows"),
        (replace(clocks, input_watermark=MAX), "none; all have closed"),
        (replace(clocks, applied_watermark=None), none),
        (replace(clocks, state_rows=0), f"{none}; those that end after 12:06:55 are open"),
    ):
        ended = gone._replace(query=replace(gone.query, clocks=changed))
        assert f"Next window: {answer}." in ended.verdict(NOW).lines
    assert "the query failed at 2026-11-21 12:06:59 (1 d ago)" in str(gone.verdict(NOW + 24 * HOUR).facts[0])
    (held,) = PAGES["held-back"].queries
    ended = gone._replace(error=None, query=held)
    assert str(ended.verdict(NOW).facts[0]).endswith("(3 min 12 s ago); orders-2 held the watermark then")
    assert ("Rows lost", "none", "; none was read") in gone._replace(query=None, error=None).verdict(NOW).facts


def test_of_a_query_that_another_error_ended_it_is_stated_how_to_go_on_and_that_no_row_is_lost() -> None:
    (gone,) = PAGES["failed"].ended
    failed = gone._replace(error=Failure("ValueError: disk is full"))
    again = "once the cause of the error is gone, start the query again with its checkpoint location"
    _, _, option, lost = failed.verdict(NOW).facts
    assert str(option) == f"Option: none is needed; {again}: it continues with batch 813"
    repeated = "the batch that failed is repeated from the checkpoint"
    assert str(lost) == f"Rows lost: none of 488 310 rows read; {repeated}"
    _, _, option, lost = failed._replace(batch=None, query=None).verdict(NOW).facts
    assert str(option) == f"Option: none is needed; {again}"
    assert str(lost) == f"Rows lost: none; none was read; {repeated}"
    unreachable = failed._replace(error=Failure("no answer; check the broker", "UnreachableError")).verdict(NOW)
    assert str(unreachable.facts[2]).startswith("Option: see the error, which states what to do; then start the query")
    assert str(unreachable.facts[3]).startswith("Rows lost: none of 488 310 rows read; the batch that failed")
    purged = "transactions were purged, failOnDataLoss cannot help. Begin a new query"
    facts = failed._replace(error=Failure(purged, "UnskippableLossError")).verdict(NOW).facts
    assert str(facts[2]).startswith("Option: see the error, which states what to do")
    assert str(facts[3]).startswith("Rows lost: those that the error names")


def test_why_open_has_the_error_that_ended_a_query() -> None:
    python = "Traceback (most recent call last):\n  File\nValueError: disk is full.\n\n=== Streaming Query ==="
    left = "this is how it was left"
    for error, sentence in (
        (None, f"the query has ended: {left}"),
        (python, f"the query has failed, and emits nothing more: ValueError: disk is full; {left}"),
    ):
        query = SimpleNamespace(exception=lambda error=error: error)
        assert _ended(query) == sentence


def test_an_ended_query_is_started_again_to_end_what_ends_by_itself_while_it_runs() -> None:
    (query,) = PAGES["ten-thousand"].queries
    at = QueryAt(sources=query.clocks.sources, batch=812, applied=query.clocks.applied_watermark, has_ended=True)
    for end in (None, NOW):
        to_do = open_window(at, end).to_do
        assert to_do[0] == "to do: start the query again: what holds the watermark ends while it runs"
        assert "being read" not in "".join(to_do)
    assert "to do: it is being read; maxOffsetsPerTrigger" in open_window(replace(at, has_ended=False), None).to_do[0]


def test_what_waits_is_not_called_fresh_beside_results_that_are_late() -> None:
    for name, of in PAGES.items():
        text = Outline(page_html(of)).text
        assert not re.search(r"Results are \d+ (min|h|d)\b.*The data are fresh", text), name


def test_a_slow_batch_is_what_results_are_held_by() -> None:
    (shown,) = PAGES["on-time"].queries
    assert shown.clocks.batch is not None
    slow = Unprocessed(shown.clocks.at - MINUTE, "orders-0")
    clocks = replace(shown.clocks, batch=replace(shown.clocks.batch, running=MINUTE), unprocessed=slow)
    for why, who, longest in (
        (diagnose(clocks), "batch 8, running since 12:09:11 (1 min); the one before took 0.6 s", "batch 8, 1 min"),
        (shown.why, "nothing", "nothing all the time"),
    ):
        text = Outline(page_html(page(replace(shown, clocks=clocks, why=why)))).text
        assert f"Held by{who}" in text
        assert longest in text.partition("Who held it")[2]
    verdict = verdict_of(clocks, diagnose(clocks))
    assert (verdict.state, verdict.word) == (State.HELD, "slow batch")
    assert [str(fact) for fact in verdict.facts[1:3]] == [
        "Next window: 12:10:07 to 12:10:08 closes in a batch after batch 8",
        "Option: none is needed; Spark's UI shows what takes long, its tasks or the sink",
    ]


def test_a_first_batch_that_takes_long_is_named_as_such_and_holds_nothing_back() -> None:
    (shown,) = PAGES["on-time"].queries
    slow = Unprocessed(shown.clocks.at - MINUTE, "orders-0")
    for sources in (shown.clocks.sources, PAGES["ten-thousand"].queries[0].clocks.sources):
        clocks = replace(shown.clocks, sources=sources, batch=None, first_batch=MINUTE, unprocessed=slow)
        verdict = verdict_of(clocks, diagnose(clocks))
        assert (verdict.state, verdict.word) == (State.WAITS, "starting")
    starting = replace(shown, clocks=replace(clocks, sources=shown.clocks.sources), why=diagnose(clocks))
    assert "Held by" + "the first batch, running since 12:09:11 (1 min)" in Outline(page_html(page(starting))).text


@pytest.mark.parametrize(
    ("name", "closes"),
    [
        (str(STORE), "closes once the store of the group answers"),
        (str(TO_COME), "closes once the other sources of the group have joined"),
    ],
)
def test_where_no_source_holds_the_limit_of_the_group_what_closes_a_window_is_named(name: str, closes: str) -> None:
    frozen = PAGES["frozen-source"].queries[0].clocks
    (source,) = frozen.sources
    clocks = replace(frozen, sources=(replace(source, slowest=(replace(source.holds[0], name=name),)),))
    assert window_of(clocks).endswith(closes)


def window_of(clocks: QueryClocks) -> str:
    """Return what is said of the next window."""
    return str(verdict_of(clocks, diagnose(clocks)).facts[1])


def test_when_silence_closes_a_window_is_stated_if_it_leaves_out_all_that_hold_it_and_by_the_plan() -> None:
    (shown,) = PAGES["held-back"].queries
    (source,) = shown.clocks.sources
    (first,) = source.slowest
    second = replace(first, name="orders-4", quiet=1_000)
    endless = (replace(first, timeout=None), replace(second, timeout=None))
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({}, 5_000, "soon after 12:10:17 if orders-2 stays silent, else once its watermark passes 12:01:00"),
        ({}, 6_000, "with the next batch if orders-2 stays silent, else once its watermark passes 12:01:00"),
        ({"slowest": (first, second)}, 0, "if orders-2 and orders-4 stay silent, else once theirs passes 12:01:00"),
        ({"slowest": endless}, 0, "idleTimeout leaves them out"),
        ({"slowest": (first, replace(second, kind=HoldKind.BACKLOG))}, 0, "orders-2 and orders-4 passes 12:01:00"),
        ({"more_holds": 1}, 0, "orders-2 and 1 more passes 12:01:00"),
    ]
    for fields, later, closes in cases:
        clocks = replace(shown.clocks, sources=(replace(source, **fields),), at=shown.clocks.at + later)
        assert window_of(clocks).endswith(closes)
    frozen = PAGES["frozen-source"].queries[0].clocks
    assert "or at 12:11:29, when payments is waited for no more" in window_of(replace(frozen, at=frozen.at + 5_000))


def test_of_two_sources_the_slower_one_holds_the_query_although_its_partitions_take_turns() -> None:
    (shown,) = PAGES["two-sources"].queries
    shop, orders = shown.clocks.sources
    turn = replace(shop, slowest=(replace(shop.slowest[0], takes_turns=True, timeout=2 * MINUTE),))
    for behind, who in ((NOTABLE + 1, "shop-0 of source customers"), (NOTABLE, "nothing")):
        near = replace(orders, watermark=(shop.watermark or 0) + behind)
        clocks = replace(shown.clocks, sources=(turn, near))
        assert str(verdict_of(clocks, diagnose(clocks)).facts[0]).startswith(f"Held by: {who}")
        assert ("soon after 12:11:01 if shop-0 stays silent" in window_of(clocks)) == (behind > NOTABLE)


def test_where_no_rows_come_the_options_are_named_by_which_the_last_windows_close() -> None:
    (shown,) = PAGES["on-time"].queries
    (source,) = shown.clocks.sources
    silent = replace(source, slowest=(replace(source.slowest[0], kind=HoldKind.SILENT, is_last=True),))
    clocks = replace(shown.clocks, sources=(silent,), rows_at=NOW - 4 * MINUTE, newest=NOW - 4 * MINUTE)
    option = str(verdict_of(clocks, diagnose(clocks)).facts[2])
    assert option.startswith("Option: none is needed while rows come: no other partition has a later event time")
    assert '.option("finalWatermark", "true") closes all windows at the end of a last run' in option


def test_at_the_pace_of_the_last_minutes_it_is_stated_when_all_is_read() -> None:
    clocks = PAGES["ten-thousand"].queries[0].clocks
    verdict = verdict_of(clocks, diagnose(clocks), Seen(until_read=4 * MINUTE))
    assert str(verdict.facts[1]).endswith("passes 12:07:30, by about 12:14:11 at the pace of the last minutes")


def test_a_holder_that_was_there_when_the_page_began_to_look_may_have_held_before() -> None:
    (shown,) = PAGES["held-back"].queries
    first = shown.points["orders"][0].at
    text = Outline(page_html(page(replace(shown, held_since={"orders": first})))).text
    assert "Held by" + "orders-2 since 11:55:11 or before: its newest record" in text
    assert since_text(Since(first, is_least=True), first + 999) == "since 11:55:11 or before"


def test_a_batch_that_took_long_is_in_the_history_of_who_held() -> None:
    queries = _Queries(SimpleNamespace(streams=SimpleNamespace(active=[])))  # type: ignore[arg-type]
    views = [split_view(n, watermark=NOON - 100 + n, end=100, quiet=0) for n in range(2)]
    for batch, minutes in enumerate((1, 0, 3, 0)):
        begin = NOON + 4 * batch * MINUTE
        waits = Unprocessed(begin - 1_000, "orders-0")
        event = progress_of(
            source_status(*views, at=begin, newest=begin - 1_000, unprocessed=waits),
            batchId=batch,
            durationMs={"addBatch": 1, "triggerExecution": minutes * MINUTE},
            timestamp=f"2026-11-21T12:{4 * batch:02d}:00.000Z",
        )
        queries.onQueryProgress(QueryProgressEvent.fromJson({"progress": event}))
    changes = [change for change in queries.page().changes if change.kind is ChangeKind.HOLDER]
    assert [(change.at, change.before, change.after) for change in changes] == [
        (NOON, "nothing", "batch 0"),
        (NOON + MINUTE, "batch 0", "nothing"),
        (NOON + 8 * MINUTE, "nothing", "batch 2"),
        (NOON + 11 * MINUTE, "batch 2", "nothing"),
    ]


def test_rows_that_operators_dropped_are_told_from_rows_that_were_late() -> None:
    (shown,) = PAGES["on-time"].queries
    (source,) = shown.clocks.sources
    cause = Bounded(1_999).cause_of_late_rows(1_000)
    late = replace(source, rows=replace(source.rows, late=LateRows((5,), 1_000, 1)), late_cause=cause)
    clocks = replace(shown.clocks, sources=(late,))
    late = replace(late, splits=(replace(late.splits[0], late_rows=5), *late.splits[1:]))
    clocks = replace(shown.clocks, sources=(late,))
    for dropped, lost in ((0, "up to 5 late"), (3, "at least 3 dropped as late")):
        text = Outline(page_html(page(replace(shown, clocks=clocks, dropped=dropped)))).text
        assert f"Rows lost{lost}; 5 rows of orders-0 came up to 1 s late in this run: windows, joins and" in text
        assert 'Optionnone is needed for the watermark; for the rows below: .option("maxOutOfOrderness", "3 s' in text
        assert "● on time, with late rows" in text
    (gone,) = PAGES["failed"].ended
    assert gone.query is not None
    ended = gone._replace(query=replace(gone.query, dropped=3))
    assert str(ended.verdict(NOW).facts[3]).endswith("were read: at least 3 dropped as late, of 488 310 rows read")
    lost = str(ended._replace(error=Failure("ValueError: disk is full")).verdict(NOW).facts[3])
    repeated = "the batch that failed is repeated from the checkpoint"
    assert lost == f"Rows lost: at least 3 dropped as late, of 488 310 rows read; {repeated}"


def test_rows_without_an_event_time_are_lost_and_what_to_check_is_said_once() -> None:
    (shown,) = PAGES["no-watermark"].queries
    (source,) = shown.clocks.sources
    undated = replace(source, rows=replace(source.rows, undated=905))
    hold = replace(source.slowest[0], kind=HoldKind.UNDATED)
    for slowest, checks in ((source.slowest, 1), ((hold,), 1), ((), 1)):
        clocks = replace(shown.clocks, sources=(replace(undated, slowest=slowest),))
        facts = verdict_of(clocks, diagnose(clocks)).facts
        assert str(facts[3]) == "Rows lost: 905 undated; 905 rows of this run have no event time, and are in no window"
        assert str(facts[2]).count("check eventTimeColumn") == checks


def test_rows_behind_a_watermark_that_is_not_that_of_the_sources_are_lost() -> None:
    (shown,) = PAGES["on-time"].queries
    for spark, lost, closes in (
        (NOW, "those behind Spark's own watermark", "by Spark's own watermark, before the sources have passed its end"),
        (None, "none", "none ever closes; Spark has no watermark"),
    ):
        clocks = replace(shown.clocks, unfollowed=Unfollowed(spark, NOON))
        facts = verdict_of(clocks, diagnose(clocks)).facts
        assert facts[3].value == lost
        assert str(facts[1]).endswith(closes)
        assert str(facts[2]) == "Option: no option helps; the query has to follow the watermark of its sources"


def test_what_the_first_batch_reads_holds_nothing_back() -> None:
    (shown,) = CHECKOUT.queries
    starting = replace(shown.clocks, first_batch=2_000)
    verdict = verdict_of(starting, diagnose(starting))
    assert (verdict.state, verdict.word) == (State.WAITS, "starting")
    assert "orders-3" not in "".join(verdict.lines)


def test_the_sentence_about_all_queries_agrees_with_their_lines() -> None:
    never = replace(PAGES["no-watermark"].queries[0], id="2", name="never")
    shown = Outline(page_html(page(PAGES["on-time"].queries[0], never))).text
    assert "One of 2 queries is held back." in shown
    assert "no watermark yet: orders-3 has had no record yet" in shown
    waits = replace(PAGES["replay"].queries[0], id="3")
    shown = Outline(page_html(page(PAGES["on-time"].queries[0], waits))).text
    assert "None of 2 queries is held back, and 1 waits." in shown
    assert "holds the" not in shown


def test_readers_of_a_query_that_is_on_time_wait_for_its_writer() -> None:
    (first,) = PAGES["on-time"].queries
    (reader,) = announced(first.id, kind=HoldKind.READ, quiet=900, why="its newest announcement is in force").queries
    readers = [replace(reader, id=name, name=name) for name in ("daily", "hourly")]
    shown = Outline(page_html(page(first, *readers, at=first.clocks.at))).text
    assert "Two of 3 queries are held back: both wait for writer sessions." in shown


def test_the_json_has_the_reports_of_the_sources() -> None:
    found = json.loads(json.dumps(page_json(CHECKOUT)))
    (query,) = found["queries"]
    assert query["why"] == str(CHECKOUT.queries[0].why)
    assert query["open"] == CHECKOUT.queries[0].open.sentence
    assert status_from_json(query["sources"][0]) == checkout()
    assert query["points"]["orders"][2] == {"at": NOON + 2_000, "behind": 10_000, "lag": 2}
    assert query["freshness"] == {"event_time_lag": None, "commit_latency": None}


# Queries in a row.


def job(name: str, *, held_by: str | None = None, source: SourceStatus | None = None) -> QueryView:
    """Return a query whose watermark is held by the writer that another one is, or else by its own partition."""
    query = f"id of {held_by}"
    writer = WriterView(
        name=f"w-{held_by}", status="active", kind=HoldKind.READ, why="announces", holds_back=True, query=query,
        announced=NOON, since=NOON + 1_000,
    )  # fmt: skip
    status = source or checkout(writers=[] if held_by is None else [writer])
    return replace(view(status, name=name), id=f"id of {name}")


def test_the_query_that_announces_what_holds_a_reader_is_linked_and_so_is_what_holds_that_one() -> None:
    shown = page(job("a"), job("b", held_by="a"), job("c", held_by="b"))
    chosen = page_html(shown, Asked(query="id of c"))
    assert (
        'Writer w-b is the query <a href="?refresh=5&amp;query=id+of+b">b</a>: its watermark is held by writer w-a'
        in chosen
    )
    nearest, first = page_json(shown)["queries"][2]["upstream"]
    announced = {"announced": NOON, "since": NOON + 1_000}
    why = "its watermark is held by writer w-a: announces"
    assert nearest == {"writer": "w-b", "number": 1, "query": "b", **announced, "why": why}
    why = "its watermark is held by orders-3: behind by 112 344 records"
    assert first == {"writer": "w-a", "number": 0, "query": "a", **announced, "why": why}
    assert page_json(shown)["queries"][0]["upstream"] == []
    # Each has its own; c has both.
    assert chosen.count('is the query <a href="?refresh=5&amp;query=id+of+a">a</a>') == 1


def test_a_writer_of_another_session_and_one_that_holds_nothing_are_linked_to_nothing() -> None:
    elsewhere = page(job("b", held_by="a"))
    assert page_json(elsewhere)["queries"][0]["upstream"] == []
    passed = WriterView(name="w", status="active", kind=HoldKind.READ, why="announces", query="id of a")
    assert page_json(page(job("a"), job("b", source=checkout(writers=[passed]))))["queries"][1]["upstream"] == []


def test_queries_that_announce_to_each_other_are_named_once() -> None:
    ring = page(job("a", held_by="b"), job("b", held_by="a"))
    assert [len(query["upstream"]) for query in page_json(ring)["queries"]] == [1, 1]


def test_what_several_jobs_read_is_above_the_first_of_them_alone() -> None:
    (writer,), (other,) = (job("b", held_by=name).clocks.sources[0].writers for name in ("a", "c"))
    other_topic = replace(job("d", source=checkout(source_name="refunds")), id="id of d")
    writers = (writer, other, replace(writer, name="w-d", query="id of d"))
    (chain,) = chains_of(page(job("a"), job("c"), other_topic, job("b", source=checkout(writers=writers))))
    drawn = chain_picture(chain, NOON, 2)
    assert re.findall(r'<div class="who"><b>([^<]+)</b>', drawn) == ["orders", "a", "refunds", "d", "c", "b"]


# What changed.


def held_by(number: int, at: int, **fields: Any) -> SourceStatus:
    """Return the status of three partitions of which one holds the watermark."""
    splits = [split_view(n, watermark=NOON if n == number else NOON + 1_000, holds_back=n == number) for n in range(3)]
    return source_status(*splits, at=at, **fields)


def test_a_batch_that_took_long_is_kept_in_the_first_report_and_where_the_holder_changed_with_its_plan() -> None:
    history = ChangeHistory()
    calm, minutes = replace(held_by(0, NOON), slowest=()), [NOON + n * MINUTE for n in range(6)]
    history.record("sales", [calm], HolderSpan("batch 0", minutes[0], minutes[1]))
    history.record("sales", [held_by(0, minutes[2])])
    history.record("sales", [replace(calm, at=minutes[3])], HolderSpan("batch 2", minutes[3] - 100, minutes[5]))
    assert [(change.at, change.before, change.after) for change in history.changes()] == [
        (minutes[0], "nothing", "batch 0"),
        (minutes[1], "batch 0", "nothing"),
        (minutes[2], "nothing", "orders-0"),
        (minutes[3], "orders-0", "nothing"),
        (minutes[3], "nothing", "batch 2"),
        (minutes[5], "batch 2", "nothing"),
    ]


def test_an_hour_with_forty_changes_of_the_holder_has_those_in_their_order() -> None:
    """A report every ten seconds, with a limit that advances in each, and a partition that is idle now and then."""
    history, every, holders = ChangeHistory(), 10_000, [n % 3 for n in range(41)]
    for n in range(41 * 9):
        at = NOON + n * every
        idle = split_view(3, Status.IDLE if n % 50 > 25 else Status.ACTIVE, watermark=at, since=at)
        group = GroupStatus("g", 60_000, at + 60_000, 4)
        held = held_by(holders[n // 9], at)
        history.record("sales", [source_status(*held.splits, idle, at=at, group=group)])
    changes = history.changes()
    assert [(c.at, c.before, c.after) for c in changes if c.kind is ChangeKind.HOLDER] == [
        (NOON + 9 * n * every, f"orders-{holders[n - 1]}", f"orders-{holders[n]}") for n in range(1, 41)
    ]
    assert [c.subject for c in changes if c.kind is ChangeKind.STATUS] == ["orders-3"] * 14
    assert sum(c.times for c in changes if c.kind is ChangeKind.LIMIT) == 41 * 9 - 1
    assert len(changes) < 100
    assert history.held_since("sales", "orders", f"orders-{holders[-1]}") == NOON + 9 * 40 * every
    assert history.held_since("sales", "orders", "orders-9") is None


def test_a_change_of_a_status_has_its_reason_and_when_it_began() -> None:
    history = ChangeHistory()
    history.record("sales", [source_status(split_view(0), split_view(1))])
    idle = split_view(1, Status.IDLE, since=NOON + 4_000, why="nothing to read for 30 s")
    history.record("sales", [source_status(split_view(0), idle, at=NOON + 6_000)])
    (change,) = history.changes()
    assert (change.at, change.kind, change.subject) == (NOON + 4_000, ChangeKind.STATUS, "orders-1")
    assert (change.before, change.after, change.why) == ("ACTIVE", "IDLE", "nothing to read for 30 s")


def test_a_limit_that_advances_is_one_change_and_one_that_ends_another() -> None:
    history = ChangeHistory()
    for n in range(10):
        group = GroupStatus("g", 1_000, NOON + n, 1)
        history.record("sales", [source_status(split_view(0), at=NOON + n, group=group)])
    history.record("sales", [source_status(split_view(0), at=NOON + 20, group=GroupStatus("g", 1_000, None, 1))])
    advanced, ended = history.changes()
    assert (advanced.at, advanced.times, advanced.before, advanced.after) == (
        NOON + 1,
        9,
        "2026-11-21 12:00:00.000",
        "2026-11-21 12:00:00.009",
    )
    assert ended.after == "none"


def test_the_history_has_an_end_and_a_query_that_ended_leaves_its_changes() -> None:
    history = ChangeHistory()
    for n in range(3 * MOST_CHANGES):
        history.record("sales", [held_by(n % 2, NOON + n)])
    assert len(history.changes()) == MOST_CHANGES
    assert len(history.points("sales", "orders")) <= MOST_POINTS
    history.end("sales")
    assert history.points("sales", "orders") == ()
    assert len(history.changes()) == MOST_CHANGES


def test_many_changes_of_one_query_displace_none_of_another() -> None:
    history = ChangeHistory()
    for n in range(2):
        history.record("quiet", [held_by(n, NOON + n)])
    for n in range(2 * MOST_CHANGES):
        history.record("busy", [held_by(n % 2, NOON + n)])
    first, *others = history.changes()
    assert (first.query, {change.query for change in others}) == ("quiet", {"busy"})


def test_a_query_that_failed_stays_on_the_page_for_an_hour_with_its_error_unless_it_runs_again() -> None:
    queries = _Queries(SimpleNamespace(streams=SimpleNamespace(active=[])))  # type: ignore[arg-type]
    about = {"id": "1d9a4d76-0c0b-4a1c-b6a4-5f0c4d8f0b11", "runId": "7f2d6f0e-6a44-4d0e-9f52-3f5ac5a4a0de"}
    event = progress_of(checkout(), durationMs={"addBatch": 5})
    queries.onQueryProgress(QueryProgressEvent.fromJson({"progress": event}))
    trace = "Traceback (most recent call last):\n  File\nOSError: the broker is gone\n\n\tat org.apache"
    error = {"exception": trace, "errorClassOnException": None}
    queries.onQueryTerminated(QueryTerminatedEvent.fromJson(about | error))
    (ended,) = queries.page().ended
    assert (ended.name, ended.batch, ended.error) == ("sales", 7, Failure("OSError: the broker is gone"))
    shown = Outline(page_html(page(ended=(ended._replace(at=NOON),)))).text
    assert "The query failed 5 s ago, after batch 7." in shown
    assert "the broker is gone" in shown
    (shown_ended,) = page_json(page(ended=(ended,)))["ended"]
    assert (shown_ended["name"], shown_ended["batch"], shown_ended["error"]) == (
        "sales",
        7,
        "OSError: the broker is gone",
    )
    assert status_from_json(shown_ended["query"]["sources"][0]) == checkout()
    assert ended.query is not None
    assert ended.query.held_since == {"orders": checkout().at}
    assert ended.query.clocks.at == ended.at
    queries._ended[0] = ended._replace(at=ended.at - 3_600_001)
    queries._made = None
    assert queries.page().ended == ()


def test_a_source_that_reports_nothing_falls_behind_all_the_same() -> None:
    history = ChangeHistory()
    for n in range(2):
        history.record("sales", [source_status(split_view(0, end=100), at=NOON + n * 1_000)])
    standing = source_status(split_view(0, end=100), at=NOON + 1_000)
    assert [point.behind for point in history.points_until(NOON + MINUTE, "sales", standing)] == [0, 1_000, MINUTE]
    assert len(history.points_until(NOON + 1_000, "sales", standing)) == 2


def test_of_too_many_points_the_worst_of_two_neighbours_remains() -> None:
    history = ChangeHistory()
    for n in range(MOST_POINTS + 1):
        lag = 7_000 if n == 11 else 1
        history.record("sales", [source_status(split_view(0, end=100 + lag), at=NOON + n * 1_000)])
    points = history.points("sales", "orders")
    assert len(points) == MOST_POINTS // 2 + 1
    assert max(p.lag or 0 for p in points) == 7_000
    assert points[-1].at == NOON + MOST_POINTS * 1_000
    # Of a holder that came after the first report it is known since when it holds.
    shown = view(checkout(), points={"orders": points}, held_since={"orders": NOON + 500})
    assert shown.since == (NOON + 500, False)


# The server.


@pytest.fixture
def served() -> Iterator[_Server]:
    yield from serving("127.0.0.1")


def serving(host: str) -> Iterator[_Server]:
    server = _Server((host, 0), lambda: CHECKOUT, frozenset({"localhost", host, "proxy.example"}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def request(
    server: _Server, method: str = "GET", path: str = "/", host: str | None = "localhost:1"
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.putrequest(method, path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_a_request_for_which_no_thread_can_start_takes_no_place_for_good(
    served: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    for _ in range(100):
        with monkeypatch.context() as patched, socket.socket() as accepted:
            patched.setattr(threading.Thread, "start", refuses)
            with pytest.raises(RuntimeError):
                served.process_request(accepted, ("127.0.0.1", 1))
    assert served._ends == {}
    assert request(served)[0].status == 200


def test_the_page_is_never_cached_and_may_load_nothing(served: _Server) -> None:
    answer, body = request(served)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert body.decode() == page_html(CHECKOUT)


def test_head_has_the_headers_of_get_and_no_body(served: _Server) -> None:
    got, head = request(served), request(served, "HEAD")
    assert head[1] == b""
    assert head[0].headers["Content-Length"] == str(len(got[1]))
    events, none = request(served, "HEAD", "/events")
    assert (events.status, events.headers["Content-Type"], none) == (200, "text/event-stream", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_no_other_method_is_answered(served: _Server, method: str) -> None:
    assert request(served, method)[0].status == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4050", "localhost.evil.example", "", "[", None])
def test_a_request_that_names_another_host_is_refused(served: _Server, host: str | None) -> None:
    """By DNS rebinding a web site gives this machine a name of its own."""
    answer, body = request(served, host=host)
    assert answer.status == 403
    assert b"orders" not in body


@pytest.mark.parametrize("host", ["127.0.0.1:9", "LOCALHOST", "proxy.example:8443"])
def test_this_machine_and_a_named_proxy_are_answered(served: _Server, host: str) -> None:
    assert request(served, host=host)[0].status == 200


@pytest.mark.parametrize("path", ["/x", "/../etc/passwd", "/status.json/", "//evil.example/", "/%00"])
def test_there_are_three_paths_and_no_file(served: _Server, path: str) -> None:
    answer, body = request(served, path=path)
    assert (answer.status, body) == (404, b"There are /, /events and /status.json\n")


def test_a_reader_chooses_how_often_the_page_loads_again(served: _Server) -> None:
    assert b'content="5"' in request(served, path="/?refresh=5")[1]
    assert b'http-equiv="refresh"' not in request(served, path="/?refresh=0")[1]
    assert b'content="5"' in request(served, path='/?refresh="><script>')[1]


def test_a_page_is_drawn_once_for_all_that_ask_the_same(served: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = request(served)[1]
    monkeypatch.setattr("watermark_source.monitor.page.document._whole", lambda *_: "drawn again")
    assert request(served)[1] == first
    assert request(served, path="/?query=of+no+page")[1] == first
    assert request(served, path="/?refresh=0")[1] == b"drawn again"
    served.page = lambda: page()
    assert request(served)[1] == b"drawn again"


@pytest.fixture
def quick_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watermark_source.monitor.status_page._EVENT_SECONDS", 0.05)


@contextlib.contextmanager
def events_of(server: _Server, path: str = "/events") -> Iterator[Iterator[str]]:
    """Return the pages that an open page receives."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request("GET", path, headers={"Host": "localhost"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    try:
        # The server may stop within an event.
        whole = (line for line in answer if line.startswith(b"data: ") and line.endswith(b"\n"))
        yield (json.loads(line.removeprefix(b"data: ")) for line in whole)
    finally:
        answer.close()
        connection.close()


def test_an_open_page_receives_what_is_new_until_the_server_stops(served: _Server, quick_events: None) -> None:
    with events_of(served, "/events?refresh=5&query=1") as events:
        assert next(events) == page_html(CHECKOUT, Asked(query="1"))
        served.page = lambda: page()
        wait_until(lambda: next(events) == page_html(page()), 60, "the new page")
        served.server_close()
        assert len(list(events)) < 1_000


def test_twenty_open_pages_share_one_drawing(
    served: _Server, quick_events: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def draw(name: str, *_: object) -> str:
        drawn.append(name)
        return "drawn"

    monkeypatch.setattr("watermark_source.monitor.page.document._whole", draw)
    with contextlib.ExitStack() as stack:
        for events in [stack.enter_context(events_of(served)) for _ in range(20)]:
            assert next(events) == "drawn"
        assert request(served)[0].status == 200
    assert len(drawn) == 2


def test_an_open_page_outlasts_the_limit_of_a_request_and_one_that_takes_nothing_in_does_not(
    served: _Server, quick_events: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watermark_source.monitor.status_page._REQUEST_SECONDS", 1.0)
    large = "x" * 1_000_000
    with events_of(served) as events, connected(served) as stuck:
        stuck.sendall(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: len(served._ends) == 2, 60, "both pages")
        monkeypatch.setattr("watermark_source.monitor.page.document._whole", lambda *_: large)
        served.page = lambda: page()
        wait_until(lambda: next(events) == large and len(served._ends) == 1, 60, "the end of one of them")


def test_a_connection_that_takes_nothing_in_is_closed_when_the_server_stops(
    served: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watermark_source.monitor.page.document._whole", lambda *_: "x" * 20_000_000)
    with connected(served) as stuck:
        stuck.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert stuck.recv(1) == b"H"
        served.shutdown()
        served.server_close()
        wait_until(lambda: not served._ends, 20, "its end")


def test_silent_connections_do_not_keep_others_out(served: _Server) -> None:
    silent = [connected(served) for _ in range(20)]
    assert request(served)[0].status == 200
    for each in silent:
        each.close()


def test_more_than_the_most_connections_are_refused_until_some_end(served: _Server) -> None:
    silent = [connected(served) for _ in range(64)]
    with pytest.raises(ConnectionError):
        request(served)
    for each in silent:
        each.close()
    wait_until(lambda: _is_answered(served), 60, "an answer")


def test_connections_that_send_a_byte_now_and_then_are_closed_all_the_same(
    served: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watermark_source.monitor.status_page._REQUEST_SECONDS", 0.5)
    dripping = [connected(served) for _ in range(64)]

    def is_answered() -> bool:
        for each in dripping:
            with contextlib.suppress(OSError):
                each.send(b"G")
        return _is_answered(served)

    wait_until(is_answered, 8, "an answer")
    for each in dripping:
        each.close()


@pytest.fixture
def served_by_ipv6() -> Iterator[_Server]:
    yield from serving("::1")


def test_a_page_at_an_address_of_ipv6_is_reached_by_its_url(served_by_ipv6: _Server) -> None:
    assert served_by_ipv6.url == f"http://[::1]:{served_by_ipv6.server_address[1]}/"
    assert read_page(served_by_ipv6.url)["queries"]


@pytest.mark.parametrize(
    ("host", "port", "advice"),
    [("192.0.2.1", 0, 'host="127.0.0.1"'), ("no such host", 0, 'host="127.0.0.1"'), ("127.0.0.1", 99_999, "port=0")],
)
def test_an_address_that_cannot_be_used_is_named_with_the_argument_to_write(host: str, port: int, advice: str) -> None:
    no_session: Any = None
    with pytest.raises(UsageError, match=re.escape(f"write StatusPage(spark, {advice})")):
        StatusPage(no_session, port=port, host=host)


def connected(server: _Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_address[1]))


def _is_answered(server: _Server) -> bool:
    try:
        return request(server)[0].status == 200
    except (OSError, http.client.HTTPException):
        return False


# The terminal.


def address(server: _Server) -> str:
    return f"127.0.0.1:{server.server_address[1]}"


def test_watch_prints_the_page_once_where_the_output_is_no_terminal(
    served: _Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", f"http://{address(served)}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sales"
    assert any(re.match("orders-3 +HOLDS +█", line) for line in lines)
    assert main(["watch", "--table", f"http://{address(served)}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("orders-3") and "behind by 112 344 records" in line for line in lines)


def test_watch_names_queries_that_have_failed_and_those_that_cannot_be_read() -> None:
    of = page(
        ended=(Ended("sales", NOON, 7, Failure("the broker is gone")),), unreadable={"clicks": "of another release"}
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(_page_picture(json.loads(json.dumps(page_json(of))), console, table=False))
    text = console.export_text().splitlines()
    assert text[0] == "sales"
    assert text[1].startswith("■ failed  The query failed 5 s ago, after batch 7")
    assert "the broker is gone" in text
    assert text[-2:] == ["clicks", "of another release"]


def test_watch_shows_the_page_in_a_terminal_until_it_is_interrupted(
    served: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(force_terminal=True, width=120, height=40, record=True)
    seen: list[float] = []
    sleep, own = time.sleep, threading.get_ident()

    def interrupted(seconds: float) -> None:
        if threading.get_ident() != own:
            # Of a client that an earlier test left behind.
            sleep(seconds)
            return
        seen.append(seconds)
        if len(seen) >= 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    watch(address(served), console)
    assert seen == [1.0] * 3
    assert "orders-3" in console.export_text()


def test_an_address_where_no_page_answers_is_one_sentence(
    capsys: pytest.CaptureFixture[str], served: _Server, unused: Callable[[], int]
) -> None:
    for url, words in [
        (f"http://127.0.0.1:{unused()}", "no status page answers at "),
        (f"http://{address(served)}/x/", "no status page answers at "),
        ("ftp://localhost/", "is not the address of a status page"),
    ]:
        assert main(["watch", url]) == 2
        shown = capsys.readouterr().err
        assert words in shown
        assert "such as http://localhost:4050" in shown
        assert len(shown.splitlines()) == 1


def test_what_accepts_a_connection_and_says_nothing_is_named_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("watermark_source.monitor.terminal._ANSWER_SECONDS", 0.3)
    shown = io.StringIO()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"no status page answers at .*timed out"):
            watch(url, Console(file=shown, force_terminal=True, width=80))
    assert f"waits for an answer of {url}" in shown.getvalue()


@pytest.fixture
def unused() -> Callable[[], int]:
    """A port at which nothing listens."""

    def port() -> int:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return int(listener.getsockname()[1])

    return port


def test_what_is_no_status_page_is_named_so(monkeypatch: pytest.MonkeyPatch, served: _Server) -> None:
    monkeypatch.setattr("watermark_source.monitor.status_page.page_json", lambda _: ["x"])
    with pytest.raises(UsageError, match="is not a status page; expected the address"):
        watch(address(served))
