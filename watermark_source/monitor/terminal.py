"""Terminal view: the picture of event time, live while a query runs or from its page; and the table behind it."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from watermark_source.clock import Clock
from watermark_source.connection_deadline import HttpsUntil, HttpUntil
from watermark_source.errors import UsageError, printable, shortened
from watermark_source.installation import lacking
from watermark_source.monitor.followed_queries import (
    QueryReader,
    QueryStatus,
    query_view,
    recent_batches,
    reported_query,
    view_of,
)
from watermark_source.monitor.freshness import NO_BATCHES, RecentBatches
from watermark_source.monitor.history import ChangeHistory
from watermark_source.monitor.lanes import Look
from watermark_source.monitor.page.document import framed_html
from watermark_source.monitor.page_content import Page, clock_rows, page_json
from watermark_source.monitor.status_table import join_pieces, render_text
from watermark_source.monitor.terminal_picture import Line, Shown, picture_lines, shown_of_page
from watermark_source.monitor.three_clocks import TOLERANCE
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.status_model.status_json import status_from_json

try:
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.text import Text
except ModuleNotFoundError as missing:
    raise lacking("LiveStatus", missing.name, "monitor") from None

_log = logging.getLogger(__name__)

_STYLES = {Look.COUNTS: "blue", Look.HOLDS: "bold dark_orange", Look.SILENT: "bold red"}
"""Of rows; all others are dim."""
_REFRESH_SECONDS = 0.25
_STOP_SECONDS = 5.0
_STEADY_SNAPSHOT_MS = 60_000
_CHANGE_SNAPSHOT_MS = 10_000


def table_lines(
    of: Shown, clocks: Sequence[str], width: int, height: int | None, *, now: int | None, raw: bool = False
) -> list[Line]:
    """Return the tables of a query's sources, below its verdict.

    Args:
        of: the query.
        clocks: texts about its clocks.
        width: characters of a line.
        height: limit on the lines.
        now: the reader's clock, for ages; by default the time of each report.
        raw: whether to show watermarks as milliseconds.
    """
    head = [line for text in (*of.words, " | ".join(clocks)) for line in join_pieces([printable(text)], width)]
    lines = None if height is None else max(6, (height - len(head)) // max(1, len(of.sources)))
    tables = (render_text(source, width=width, now=now, raw=raw, lines=lines).split("\n") for source in of.sources)
    return [Line(line) for line in chain(head, *tables)]


def snapshot_is_due(printed: Sequence[SourceStatus], latest: Sequence[SourceStatus], since_printed: int | None) -> bool:
    """Return whether to print another picture, ``since_printed`` milliseconds after the last one.

    One is due every minute, and after 10 s if a split's status has changed or another split holds back: an
    alignment group that pauses and resumes with every batch must not fill the log.
    """
    if not latest:
        return False
    if since_printed is None or since_printed >= _STEADY_SNAPSHOT_MS:
        return True
    return since_printed >= _CHANGE_SNAPSHOT_MS and _shape(printed) != _shape(latest)


def _shape(statuses: Sequence[SourceStatus]) -> object:
    return [[(view.split, view.status, view.holds_back) for view in status.splits] for status in statuses]


class LiveStatus:
    """Follows a query while the ``with`` block runs::

        with LiveStatus(query):
            query.awaitTermination(60)

    On a terminal the picture of event time is redrawn in place four times a second; with ``table`` the table behind it,
    which has why each partition is where it is. Elsewhere it is printed when a status changes, at most once in 10 s and
    at least once a minute. The last state is printed at the end of the block. Switch off
    ``spark.ui.showConsoleProgress``: Spark's progress bar writes into the same lines.

    As the last line of a notebook's cell, ``LiveStatus(query)`` is shown as a picture: the query's part of the page of
    ``StatusPage``, as of now. An object that is kept, ``view = LiveStatus(query)``, has its lines over time from
    when it was first shown.
    """

    def __init__(
        self,
        query: Any,
        *,
        console: Console | None = None,
        table: bool = False,
        raw: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._console = Console() if console is None else console
        self._table = table or raw
        self._raw = raw
        self._now = Clock().now if clock is None else clock
        self._query = query
        self._reader = QueryReader(query, TOLERANCE, self._now)
        self._history = ChangeHistory()
        self._status: QueryStatus | None = None
        self._name = ""
        self._latest: tuple[SourceStatus, ...] = ()
        self._printed: tuple[SourceStatus, ...] = ()
        self._printed_at: int | None = None
        self._warned = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live-status", daemon=True)
        live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._live = live if self._console.is_terminal else None

    def __enter__(self) -> LiveStatus:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_STOP_SECONDS)
        if self._live is not None:
            self._live.stop()

    def _repr_html_(self) -> str:
        """Return the picture for a notebook."""
        self._latest = self._read(recent_batches) or self._latest
        if self._status is None or not self._latest:
            return "<p>waiting for the query's first batch</p>"
        view = query_view(self._query, self._name, self._status, self._history)
        return framed_html(Page(at=self._now(), queries=(view,), changes=self._history.changes()))

    def _follow(self) -> None:
        while not self._stop.wait(_REFRESH_SECONDS):
            self._refresh(last=False)
        self._refresh(last=True)

    def _refresh(self, *, last: bool) -> None:
        self._latest = self._read() or self._latest
        if self._live is None:
            self._print_snapshot(last=last)
        else:
            self._live.update(self._picture(self._now()), refresh=True)

    def _read(self, recent: Callable[[Any], RecentBatches] = lambda _: NO_BATCHES) -> tuple[SourceStatus, ...]:
        try:
            self._name = self._name or self._query.name or str(self._query.id)
            self._status = self._reader.status(recent(self._query))
        except UsageError as error:
            if not self._warned:
                _log.warning("the status of the query cannot be shown: %s", error)
            self._warned = True
        except Exception as error:  # noqa: BLE001  the view must not fail when the query's JVM has ended
            _log.debug("the progress of the query could not be read: %s", error)
        else:
            self._history.record(self._name, self._status.sources)
            return self._status.sources
        return ()

    def _picture(self, now: int) -> RenderableType:
        if self._status is None or not self._latest:
            return Text("waiting for the query's first batch", style="dim")
        width, height = self._console.size
        return _coloured(self._lines(self._status, width, now, height - 1))

    def _lines(self, of: QueryStatus, width: int, now: int | None, height: int | None) -> list[Line]:
        """Return what is shown of the query in at most ``height`` lines; ``now``: the reader's clock, for ages."""
        view = view_of("", self._name, of, reported_query(of), self._history)
        page = Page(at=of.clocks.at, queries=(view,), changes=self._history.changes())
        shown = shown_of_page(page_json(page)["queries"][0], of.sources, page.at)
        if self._table:
            clocks = [str(row) for row in clock_rows(of.clocks)]
            return table_lines(shown, clocks, width, height, now=now, raw=self._raw)
        return picture_lines(shown, width, height)

    def _print_snapshot(self, *, last: bool) -> None:
        now = self._now()
        passed = None if self._printed_at is None else now - self._printed_at
        has_changed = self._latest != self._printed
        if not (last and has_changed) and not snapshot_is_due(self._printed, self._latest, passed):
            return
        for line in [] if self._status is None else self._lines(self._status, max(80, self._console.width), None, None):
            self._console.out(line.text, highlight=False)
        self._printed, self._printed_at = self._latest, now


# A status page, in the terminal.


_ANSWER_SECONDS = 10.0
_MOST_BYTES = 64 * 1_024 * 1_024


def watch(url: str, console: Console | None = None, *, seconds: float = 1.0, table: bool = False) -> None:
    """Show a status page (``StatusPage``) until Ctrl-C; once where the output is not a terminal.

    Args:
        url: the page's address, ``http://localhost:4050`` for example.
        console: where to show it.
        seconds: between two requests.
        table: whether to show the table of partitions in place of the picture.

    Raises:
        UsageError: at the first request: no status page answers there.
    """
    console = Console() if console is None else console
    # What is no status page may accept a connection, and say nothing.
    with console.status(f"waits for an answer of {shortened(url)}"):
        page = read_page(url)
    shown = _page_picture(page, console, table=table)
    if not console.is_terminal:
        console.print(shown)
        return
    with contextlib.suppress(KeyboardInterrupt), Live(shown, console=console, auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(seconds)
            try:
                live.update(_page_picture(read_page(url), console, table=table), refresh=True)
            except UsageError as error:
                live.update(Text(str(error), style="bold red"), refresh=True)


def read_page(url: str) -> Mapping[str, Any]:
    """Return the JSON of a status page.

    Raises:
        UsageError: no status page answers there.
    """
    address = url if "://" in url else f"http://{url}"
    expected = "expected the address that StatusPage(spark).url has, such as http://localhost:4050"
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"{shortened(url)} is not the address of a status page; {expected}")
    # The page is on loopback, where a proxy cannot reach it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), HttpUntil(), HttpsUntil())
    try:
        with opener.open(urllib.parse.urljoin(f"{address}/", "status.json"), timeout=_ANSWER_SECONDS) as answer:
            page = json.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UsageError(f"no status page answers at {shortened(url)}: {error}; {expected}") from None
    if not isinstance(page, Mapping) or not isinstance(page.get("queries"), list):
        raise UsageError(f"what answers at {shortened(url)} is not a status page; {expected}")
    return page


def _page_picture(page: Mapping[str, Any], console: Console, *, table: bool) -> RenderableType:
    width, height = console.size
    room = max(12, (height - 2) // max(1, len(page["queries"]))) if console.is_terminal else None
    lines: list[Line] = []
    for query in page["queries"]:
        shown = shown_of_page(query, [status_from_json(report) for report in query["sources"]], page["at"])
        lines += [Line(printable(query["name"]))]
        lines += table_lines(shown, (), width, room, now=shown.at) if table else picture_lines(shown, width, room)
        lines.append(Line(""))
    others = {ended["name"]: ended["sentences"] for ended in page["ended"]}
    others |= {name: [why] for name, why in page["unreadable"].items()}
    for name, words in others.items():
        lines += [Line(line) for text in (name, *words) for line in join_pieces([printable(text)], width)]
    return _coloured(lines) if lines else Text("no query runs", style="dim")


def _coloured(lines: Sequence[Line]) -> RenderableType:
    texts = (
        Text(text, style="bold" if i == 0 else "" if look is None else _STYLES.get(look, "dim"), no_wrap=True)
        for i, (text, look) in enumerate(lines)
    )
    return Group(*texts)
