"""The status page and the docs site in a real browser: without scripts, by keyboard, in light and dark, and by axe."""

from __future__ import annotations

import functools
import http.server
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request

from docs import site
from services.browser import browser_of_debian, usable_browser
from tests.unit.monitor.example_pages import PAGES
from tests.unit.monitor.example_status import CHECKOUT, NOON, checkout, page, view
from watermark_source.monitor.history import Change, ChangeKind
from watermark_source.monitor.page_content import Page as StatusOf
from watermark_source.monitor.status_page import _Server
from watermark_source.planning.group import Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.watermark import Millis
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.source_status import GroupStatus, WriterView

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

_log = logging.getLogger(__name__)
PATIENCE_MS = 200_000
"""For what takes a second, on the slowest machine."""
NARROW = {"width": 400, "height": 800}
LONG = "projects-with-names-that-nobody-would-choose.orders_of_the_european_shops.v17"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One start for the file."""
    program, _ = usable_browser()
    with program.started() as started:
        yield started


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Open an address in a context of its own, in which every request to elsewhere fails the test."""
    contexts: list[BrowserContext] = []
    strangers: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:")):
            strangers.append(request.url)

    def open_at(url: str, **given: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1_280, "height": 900}, **given})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        context.on("request", note)
        tab = context.new_page()
        tab.on("pageerror", lambda error: strangers.append(f"a script failed: {error}"))
        tab.goto(url)
        return tab

    yield open_at
    for context in contexts:
        context.close()
    assert strangers == []


class Shown:
    """A status page whose content a test changes."""

    def __init__(self, server: _Server) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"

    def show(self, of: StatusOf) -> None:
        self.server.page = lambda: of


@contextmanager
def serving(server: http.server.HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    monkeypatch.setattr("watermark_source.monitor.status_page._EVENT_SECONDS", 0.5)
    server = _Server(("127.0.0.1", 0), lambda: FULL, frozenset({"127.0.0.1"}))
    with serving(server):
        yield Shown(server)


def full() -> StatusOf:
    """A page with all that it can have, some of it with long names."""
    peers = (Peer("payments", "active", None, 2_500, is_waited_for=True), Peer(LONG, "idle", Millis(NOON), 900, True))
    group = GroupStatus("checkout", 120_000, NOON, 9, others=2, peers=peers)
    writer = WriterView(
        name="jobs",
        status="active",
        kind=HoldKind.READ,
        why="its newest announcement is in force",
        holds_back=True,
        query="1",
        watermark=NOON,
    )
    reader = replace(view(checkout(writers=[writer], source_name=LONG), name=f"reader of {LONG}"), id="2")
    changes = tuple(
        Change(at=NOON + n, query="sales", source="orders", kind=ChangeKind.HOLDER, subject="watermark",
               before=f"orders-{n}", after=f"orders-{n + 1}", why="behind by 112 344 records")
        for n in range(80)
    )  # fmt: skip
    first = CHECKOUT.queries[0]
    grouped = replace(view(checkout(group=group), name="in a group"), id="3", points=first.points)
    return page(first, reader, grouped, changes=changes, unreadable={LONG: "it has ended"})


FULL = full()


def wrong(tab: Page) -> list[str]:
    """Return what axe finds serious or critical, with the elements."""
    found = Axe().run(tab).response["violations"]
    return [
        f"{each['impact']} {each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


TEXTS_OUTSIDE = """
(() => {
  const outside = [];
  for (const figure of document.querySelectorAll("figure")) {
    const frame = figure.getBoundingClientRect();
    for (const text of figure.querySelectorAll("text")) {
      const at = text.getBoundingClientRect();
      if (at.width && !text.closest(".point") && (at.left < frame.left - 1 || at.right > frame.right + 1))
        outside.push(text.textContent);
    }
  }
  return outside;
})()
"""


def is_wider_than_its_window(tab: Page) -> bool:
    return bool(tab.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1_280, "height": 900}, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing_serious_on_any_state_of_the_status_page(
    opened: Open, served: Shown, scheme: str, size: dict[str, int]
) -> None:
    tab = opened(f"{served.url}?refresh=0", color_scheme=scheme, viewport=size)
    back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(247, 247, 245)" if scheme == "light" else "rgb(14, 16, 20)")
    for name, of in {"full": FULL, **PAGES}.items():
        served.show(of)
        tab.reload()
        assert wrong(tab) == [], name
        assert not is_wider_than_its_window(tab), name


@pytest.mark.parametrize("width", [360, 1_280, 3_840])
def test_no_text_of_the_picture_leaves_it(opened: Open, served: Shown, width: int) -> None:
    tab = opened(f"{served.url}?refresh=0", viewport={"width": width, "height": 900})
    for name, of in PAGES.items():
        served.show(of)
        tab.reload()
        assert tab.evaluate(TEXTS_OUTSIDE) == [], name


def test_axe_finds_what_is_wrong(opened: Open, served: Shown) -> None:
    tab = opened(f"{served.url}?refresh=0")
    tab.evaluate("document.documentElement.removeAttribute('lang')")
    assert [each.split(":")[0] for each in wrong(tab)] == ["serious html-has-lang"]


def test_without_scripts_the_page_is_complete_and_loads_itself_again(opened: Open, served: Shown) -> None:
    with_scripts = opened(f"{served.url}?refresh=0").inner_text("main")
    tab = opened(f"{served.url}?refresh=5", java_script_enabled=False)
    assert tab.inner_text("main") == with_scripts
    served.show(page(view(checkout(), name="another")))
    tab.get_by_role("heading", name="another", exact=True).wait_for(timeout=PATIENCE_MS)


def test_what_a_reader_has_unfolded_and_where_they_are_stays_when_the_page_loads_again(
    opened: Open, served: Shown
) -> None:
    tab = opened(f"{served.url}?refresh=5")
    changes = "The last 80 changes of holder, status and limit"
    tab.get_by_text(changes, exact=True).press("Enter")
    last = tab.get_by_role("cell", name="orders-0", exact=True).last
    assert last.is_visible()
    tab.evaluate("window.scrollTo(0, 300); window.stays = true")
    later = replace(FULL.queries[2], name="later")
    served.show(replace(FULL, queries=(*FULL.queries[:2], later)))
    tab.get_by_role("link", name="later", exact=True).wait_for(timeout=PATIENCE_MS)
    assert last.is_visible()
    assert tab.evaluate("document.activeElement.textContent") == changes
    assert tab.evaluate("[window.scrollY, window.stays]") == [300, True]


def test_a_page_whose_driver_is_gone_says_so_until_it_answers_again(opened: Open, served: Shown) -> None:
    tab = opened(f"{served.url}?refresh=5")
    lost = tab.get_by_text("The driver has not answered")
    assert not lost.is_visible()
    # A browser that is set offline keeps the connection that it has.
    served.server._is_stopped.set()
    lost.wait_for(timeout=PATIENCE_MS)
    assert tab.get_by_role("link", name="sales", exact=True).is_visible()
    assert tab.evaluate("document.body.className") == "stale"
    served.server._is_stopped.clear()
    lost.wait_for(state="hidden", timeout=PATIENCE_MS)
    assert tab.evaluate("document.body.className") == ""


def test_a_page_whose_connection_was_lost_in_silence_opens_another(
    opened: Open, served: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaits, is_lost, is_over = served.server.awaits_event, threading.Event(), threading.Event()

    def never_of_the_first(request: socket.socket) -> bool:
        if is_lost.is_set():
            return awaits(request)
        # The server ends it no more than a network that has lost it.
        served.server._ends[request] = math.inf
        is_lost.set()
        is_over.wait()
        return False

    monkeypatch.setattr(served.server, "awaits_event", never_of_the_first)
    tab = opened(f"{served.url}?refresh=5")
    assert is_lost.wait(60)
    served.show(page(view(checkout(), name="later")))
    tab.evaluate("(now => { Date.now = () => now() + 30_000 })(Date.now)")
    tab.get_by_role("heading", name="later", exact=True).wait_for(timeout=PATIENCE_MS)
    is_over.set()


def test_the_keyboard_reaches_all_in_the_order_of_the_page_and_shows_where_it_is(opened: Open, served: Shown) -> None:
    tab = opened(f"{served.url}?refresh=0")
    # What is folded is not reached.
    found = "[...document.querySelectorAll('a, summary, [tabindex]')].filter((e) => e.checkVisibility()).length"
    reachable = tab.evaluate(found)
    seen: list[tuple[float, str]] = []
    for _ in range(reachable):
        tab.keyboard.press("Tab")
        top, outline = tab.evaluate(
            "(() => { const e = document.activeElement, r = e.getBoundingClientRect();"
            " return [r.top + scrollY, getComputedStyle(e).outlineStyle] })()"
        )
        seen.append((top, outline))
    assert {outline for _, outline in seen} == {"solid"}
    tops = [round(top) for top, _ in seen]
    assert tops == sorted(tops)
    assert reachable == len(seen) >= 8
    # A link of the list leads to its query.
    tab.get_by_role("link", name="in a group").first.press("Enter")
    tab.get_by_role("heading", name="in a group", exact=True).wait_for(timeout=PATIENCE_MS)


def shown_within(opened: Open, served: Shown) -> float:
    """Return the seconds from the request until the browser has laid out ten thousand partitions."""
    served.show(PAGES["ten-thousand"])
    begun = time.monotonic()
    tab = opened(f"{served.url}?refresh=0")
    laid_out = tab.evaluate("[document.querySelectorAll('.row').length, document.body.offsetHeight > 1000]")
    took = time.monotonic() - begun
    assert laid_out == [12, True]
    assert tab.get_by_text("9 968 others", exact=True).is_visible()
    return took


def test_ten_thousand_partitions_can_be_read(opened: Open, served: Shown) -> None:
    _log.info("ten thousand partitions are there after %.2f s", shown_within(opened, served))


@pytest.mark.long("test_ten_thousand_partitions_can_be_read")
def test_ten_thousand_partitions_are_there_within_half_a_second(opened: Open, served: Shown) -> None:
    took = [shown_within(opened, served) for _ in range(5)]
    tab = opened(f"{served.url}?refresh=0")
    # The browser states it once it has painted.
    first = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    # The page's policy refuses what Playwright waits with.
    while (painted := tab.evaluate(first)) is None:
        tab.wait_for_timeout(10)
    _log.info("ten thousand partitions are there after %s s, and painted after %.0f ms", took, painted)
    assert min(took) < 0.5
    assert painted < 500


@pytest.mark.long("test_ten_thousand_partitions_can_be_read")
def test_an_open_page_of_ten_thousand_partitions_takes_a_twentieth_of_a_core(
    opened: Open, served: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watermark_source.monitor.status_page._EVENT_SECONDS", 5.0)
    (first,) = PAGES["ten-thousand"].queries
    shown = [
        page(replace(first, clocks=replace(first.clocks, at=at)), at=at)
        for at in range(first.clocks.at, first.clocks.at + 14 * 5_000, 5_000)
    ]
    left, sent = iter(shown), threading.Semaphore(0)

    def next_page() -> StatusOf:
        sent.release()
        return next(left)

    served.server.page = next_page
    tab = opened(f"{served.url}?refresh=5")
    sent.acquire()
    before, begun = cpu_of_browser(), time.monotonic()
    # Nothing asks the browser meanwhile.
    for _ in range(12):
        assert sent.acquire(timeout=60)
    share = (cpu_of_browser() - before) / (time.monotonic() - begun)
    at = shown[12].at
    tab.get_by_text(f"As of {short_time(at, at)} UTC").wait_for(timeout=PATIENCE_MS)
    _log.info("a page of ten thousand partitions that is open takes %.1f %% of a core", 100 * share)
    assert share < 0.05


def cpu_of_browser() -> float:
    """Return the seconds of CPU that all processes of the browser have used."""
    return sum(
        sum(each.cpu_times()[:2]) for each in psutil.Process().children(recursive=True) if "node" not in each.name()
    )


# The site.


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, which is built strictly."""
    folder = site.build(tmp_path_factory.mktemp("site"))
    assert folder is not None
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    with serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Prints no requests."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        _log.debug(format, *args)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["README.md", "docs/monitoring.md", "docs/options.md"])
def test_axe_finds_nothing_serious_on_a_page_of_the_site(opened: Open, built: str, name: str, scheme: str) -> None:
    tab = opened(f"{built}{site.address(name)}", color_scheme=scheme)
    assert wrong(tab) == []


@pytest.mark.long("test_axe_finds_nothing_serious_on_a_page_of_the_site")
@pytest.mark.parametrize("name", [path.relative_to(site.ROOT).as_posix() for path in site.pages()])
def test_axe_finds_nothing_serious_on_any_page_of_the_site(opened: Open, built: str, name: str) -> None:
    assert wrong(opened(f"{built}{site.address(name)}")) == []


@pytest.mark.long("test_axe_finds_nothing_serious_on_any_state_of_the_status_page")
def test_debians_browser_shows_a_page(served: Shown, tmp_path: Path) -> None:
    program = browser_of_debian()
    program.check()
    with program.started() as started:
        tab = started.new_page()
        tab.goto(served.url)
        picture = tab.screenshot(path=tmp_path / "page.png")
    # One colour, without any text, would be a few thousand bytes.
    assert len(picture) > 20_000
