"""StatusPage: a read-only page with the status of all running queries of a session, on the driver's loopback address.

The standard library's server is enough for a page, the same for programs and an event with it now and then, and adds no
dependency to a driver. It answers GET and HEAD alone, and only where the request's ``Host`` names this machine: a web
site that a user visits can neither read the page (no CORS header) nor reach it under a name of its own (DNS rebinding).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import logging
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from watermark_source.clock import Clock
from watermark_source.errors import UsageError, WatermarkSourceError
from watermark_source.monitor.failure import failure_of
from watermark_source.monitor.followed_queries import FollowedQuery, QueryReader, ended_view, query_view, slow_batch_of
from watermark_source.monitor.freshness import NO_BATCHES
from watermark_source.monitor.history import ChangeHistory
from watermark_source.monitor.listener import StatusListener
from watermark_source.monitor.page.document import SCRIPT, STYLE, page_html
from watermark_source.monitor.page.reader_choice import EVERY, Asked, asked_of
from watermark_source.monitor.page_content import Ended, Page, QueryView, page_json
from watermark_source.monitor.three_clocks import TOLERANCE
from watermark_source.spark.operator_watermarks import executed_batch

_log = logging.getLogger(__name__)

PORT: Final = 4_050
_FRESH_SECONDS = 1.0
"""Requests within this time share one reading of the queries, whose sources report once a second."""
_MOST_REQUESTS = 64
"""Requests at a time, those of open pages among them; more are refused."""
_REQUEST_SECONDS = 10.0
"""For a whole request with its answer, or with the next event of a page that is open."""
_EVENT_SECONDS = float(EVERY)
"""From one event to the next, at the same moments for all, so that all share one reading."""
_STOP_SECONDS = 5.0
_ENDED_SHOWN = 3_600_000
"""Milliseconds for which a query that has ended is named."""
_MOST_ENDED = 50
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _hash(text: str) -> str:
    """Return the source expression that allows an inline style or script, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class StatusPage:
    """Serves the status of the running queries of a session until ``stop()``, or the end of a ``with`` block::

        page = StatusPage(spark)
        print(page.url)

    The page is at ``/``, complete without JavaScript; ``/events`` sends it to those that are open, ``/status.json``
    has the same for programs, and ``python -m watermark_source watch URL`` for a terminal. It shows no option of a
    query, and no content of a row but what the error has that ended the query.

    Args:
        spark: the session whose queries are shown.
        port: of the driver; 0 takes a free one.
        host: the address to listen at. There is no login: where it is no loopback address, every client that reaches it
            can read the page.
        allowed_hosts: names, without port, by which a proxy requests the page.

    Raises:
        UsageError: the address cannot be used.
    """

    def __init__(
        self, spark: SparkSession, port: int = PORT, *, host: str = "127.0.0.1", allowed_hosts: Sequence[str] = ()
    ) -> None:
        self._spark = spark
        self._is_stopped = False
        self._queries = _Queries(spark)
        allowed = _LOOPBACK | {host.lower()} | {name.lower() for name in allowed_hosts}
        try:
            self._server = _Server((host, port), self._queries.page, allowed)
        except (OSError, OverflowError) as error:
            raise UsageError(f"the status page cannot listen at {_at(host, port)}: {error}; {_advice(error)}") from None
        try:
            spark.streams.addListener(self._queries)
        except BaseException:
            self._server.server_close()
            raise
        self._thread = threading.Thread(target=self._server.serve_forever, name="status-page", daemon=True)
        self._thread.start()
        _log.info("the status page is at %s", self.url)

    @property
    def url(self) -> str:
        """The address of the page."""
        return self._server.url

    def stop(self) -> None:
        """Stop serving the page, and following the queries. A second call does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_STOP_SECONDS)
        try:
            self._spark.streams.removeListener(self._queries)
        except Exception as error:  # noqa: BLE001  the session may have been stopped before
            _log.debug("the status page's listener could not be removed: %s", error)

    def __enter__(self) -> StatusPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"StatusPage({self.url})"


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _advice(error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError) or error.errno in (errno.EADDRINUSE, errno.EACCES):
        return "write StatusPage(spark, port=0) for a free port, or another one"
    return 'expected an address of this machine: write StatusPage(spark, host="127.0.0.1")'


class _Queries(StatusListener):
    """The session's queries: their present status from their handles, and their history from progress events."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._session = spark
        # The page reads the operators' watermarks itself, once for several requests.
        self.spark = None
        self._history = ChangeHistory()
        self._readers: dict[str, QueryReader] = {}
        self._ended: deque[Ended] = deque(maxlen=_MOST_ENDED)
        self._clock = Clock()
        self._lock = threading.Lock()
        self._made: Page | None = None
        self._made_until = 0.0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Record what changed."""
        super().onQueryProgress(event)
        name = event.progress.name or str(event.progress.id)
        for query in self.queries():
            if query.label == name:
                self._history.record(name, query.sources.values(), slow_batch_of(query))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Keep how the query ended, and how its last batch left it."""
        ended = {query.run: query for query in self.queries()}
        super().onQueryTerminated(event)
        if (query := ended.get(str(event.runId))) is not None:
            error = None if event.exception is None else failure_of(event.exception)
            at, reader = self._clock.wall(), self._readers.get(query.run)
            operators = None if reader is None else reader.operators
            view = ended_view(query, str(event.id), operators, at, self._history) if query.sources else None
            self._ended.append(Ended(query.label, at, executed_batch(query.progress), error, view))
            self._history.end(query.label)

    def page(self) -> Page:
        """Return the present status; requests within a second share it."""
        with self._lock:
            if self._made is None or time.monotonic() >= self._made_until:
                self._made = self._read()
                self._made_until = time.monotonic() + _FRESH_SECONDS
            return self._made

    def _read(self) -> Page:
        views: list[QueryView] = []
        unreadable: dict[str, str] = {}
        active = self._session.streams.active
        followed = {query.run: query for query in self.queries()}
        runs = {str(query.runId) for query in active}
        self._readers = {run: reader for run, reader in self._readers.items() if run in runs}
        for query in active:
            name = query.name or str(query.id)
            try:
                views.append(self._view(name, query, followed.get(str(query.runId))))
            except WatermarkSourceError as error:
                unreadable[name] = str(error)
            except Exception as error:  # noqa: BLE001  a query may end at any moment, and its JVM with it
                _log.debug("the status of query %s could not be read: %s", name, error)
                unreadable[name] = f"it ended, or its JVM did not answer ({type(error).__name__})"
        at, running = self._clock.wall(), {view.name for view in views}
        return Page(
            at=at,
            queries=tuple(sorted(views, key=lambda view: view.name)),
            ended=tuple(e for e in self._ended if at - e.at < _ENDED_SHOWN and e.name not in running),
            changes=self._history.changes(),
            unreadable=unreadable,
        )

    def _view(self, name: str, query: Any, followed: FollowedQuery | None) -> QueryView:
        run = str(query.runId)
        if run not in self._readers:
            self._readers[run] = QueryReader(query, TOLERANCE, self._clock.wall)
        status = self._readers[run].status(NO_BATCHES if followed is None else followed.recent)
        view = query_view(query, name, status, self._history)
        return view if followed is None else replace(view, dropped=followed.late_rows)


class _Drawn:
    """The bytes of the last page, each made once: many readers cost what one does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Page | None = None
        self._made: dict[tuple[_Form, Asked | None], bytes] = {}

    def body(self, of: Page, form: _Form, asked: Asked | None = None) -> bytes:
        """Return a page in a form."""
        with self._lock:
            if self._of is not of:
                self._of, self._made = of, {}
            if (form, asked) not in self._made:
                self._made[form, asked] = form(of, asked).encode("utf-8", "backslashreplace")
            return self._made[form, asked]


_Form: TypeAlias = Callable[[Page, Asked | None], str]


def _as_json(of: Page, _: Asked | None) -> str:
    return json.dumps(page_json(of))


def _as_event(of: Page, asked: Asked | None) -> str:
    # JSON has no line breaks, at which a field of an event ends.
    return f"data: {json.dumps(page_html(of, asked))}\n\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = _MOST_REQUESTS

    def __init__(self, address: tuple[str, int], page: Callable[[], Page], allowed: frozenset[str]) -> None:
        self.page = page
        self.drawn = _Drawn()
        self.allowed = allowed
        self._places = threading.BoundedSemaphore(_MOST_REQUESTS)
        self._ends: dict[socket.socket, float] = {}
        """When each connection is closed at the latest, by the monotonic clock."""
        self._is_stopped = threading.Event()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        return f"http://{_at(host if isinstance(host, str) else host.decode(), port)}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, unless too many requests are under way."""
        if self._places.acquire(blocking=False):
            self._ends[request] = time.monotonic() + _REQUEST_SECONDS
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # No thread can start.
                self._give_back(request)
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._give_back(request)

    def _give_back(self, request: socket.socket) -> None:
        del self._ends[request]
        self._places.release()

    def awaits_event(self, request: socket.socket) -> bool:
        """Wait for the moment of the next event, and let its connection last; return whether there is one."""
        wait = _EVENT_SECONDS - time.monotonic() % _EVENT_SECONDS
        self._ends[request] = time.monotonic() + wait + _REQUEST_SECONDS
        return not self._is_stopped.wait(wait)

    def server_close(self) -> None:
        """Stop listening, and close all connections: nothing looks after their time any more."""
        self._is_stopped.set()
        super().server_close()
        self._close_those_until(math.inf)

    def service_actions(self) -> None:
        """Close connections whose time is over, twice a second: a limit of each receive restarts with every byte."""
        self._close_those_until(time.monotonic())

    def _close_those_until(self, at: float) -> None:
        for request in [each for each, end in self._ends.copy().items() if end <= at]:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log instead of printing: a client may close its connection at any moment."""
        _log.debug("a request to the status page failed", exc_info=True)


_NOT_THIS_HOST: Final = (
    b"The request's Host is none of this page's. Behind a proxy: StatusPage(spark, allowed_hosts=[...])\n"
)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "StatusPage"
    sys_version = ""

    def do_GET(self) -> None:
        plain, url = "text/plain; charset=utf-8", urlsplit(self.path)
        if not self._names_this_machine():
            self._send(HTTPStatus.FORBIDDEN, plain, _NOT_THIS_HOST)
        elif url.path == "/status.json":
            body = self.server.drawn.body(self.server.page(), _as_json)
            self._send(HTTPStatus.OK, "application/json", body)
        elif url.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self._page(url.query, page_html))
        elif url.path == "/events":
            self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
            while self.command != "HEAD" and self.server.awaits_event(self.connection):
                self.wfile.write(self._page(url.query, _as_event))
        else:
            self._send(HTTPStatus.NOT_FOUND, plain, b"There are /, /events and /status.json\n")

    do_HEAD = do_GET  # noqa: N815 (the name of the base class)

    def _page(self, query: str, form: _Form) -> bytes:
        page = self.server.page()
        return self.server.drawn.body(page, form, asked_of(query, page.ids))

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, fields: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **fields}.items():
            self.send_header(name, value)
        self.end_headers()

    def _names_this_machine(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1:
            return False
        try:
            return (urlsplit(f"//{hosts[0]}").hostname or "") in self.server.allowed
        except ValueError:
            return False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log at DEBUG; the base class prints each request."""
        _log.debug(f"status page: {format}", *args)
