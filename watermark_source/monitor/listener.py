"""StatusListener: keeps the latest status of every source of the running queries, for programs and for Prometheus."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from watermark_source.errors import UsageError
from watermark_source.monitor.followed_queries import FollowedQuery, last_reports, operators_of
from watermark_source.monitor.three_clocks import moment_of
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.status_model.status_json import event_of, parse_progress

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_log = logging.getLogger(__name__)


class QuerySource(NamedTuple):
    """One source of one query. Sources of one query need different names (``sourceName``)."""

    query: str
    """The query's name, or its id if it has none."""
    source: str


class StatusListener(StreamingQueryListener):
    """Follows all queries of a session: ``spark.streams.addListener(StatusListener())``.

    With a ``prometheus_client`` registry it also serves the metrics of ``prometheus.StatusCollector`` there; expose
    them with ``prometheus_client.start_http_server(9400, registry=registry)`` in the program that runs the queries.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        # Spark Classic does not state it: by it the listener asks the operators of queries for their watermarks.
        self.spark = SparkSession.getActiveSession()
        self._queries_lock = threading.Lock()
        self._queries: dict[str, FollowedQuery] = {}
        """By id. Spark calls ``onQueryStarted`` in the thread of each query, all else in that of its event bus;
        threads that serve metrics read it."""
        self._refused: set[str] = set()
        if registry is not None:
            # prometheus_client is an optional dependency.
            from watermark_source.monitor.prometheus import StatusCollector  # noqa: PLC0415

            registry.register(StatusCollector(self.queries))

    def queries(self) -> tuple[FollowedQuery, ...]:
        """Return the running queries with their sources as of now.

        While nothing is read Spark reports progress rarely, so that the sources' last plans are asked for. Where that
        is not possible, as under Spark Connect, the sources are as of the last progress event.
        """
        with self._queries_lock:
            running = dict(self._queries)
        return tuple(
            replace(query, sources={**query.sources, **last_reports(self._handle(id_))})
            for id_, query in running.items()
        )

    def statuses(self) -> dict[QuerySource, SourceStatus]:
        """Return the latest status of every source of the running queries."""
        return {
            QuerySource(query.label, name): status for query in self.queries() for name, status in query.sources.items()
        }

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Begin to follow the query."""
        query = str(event.id)
        with self._queries_lock:
            self._queries[query] = FollowedQuery(str(event.runId), event.name or query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        """Record the progress; log an unreadable report once for each run."""
        progress = event.progress
        query, run = str(progress.id), str(progress.runId)
        try:
            statuses = parse_progress(progress)
        except UsageError as error:
            if run not in self._refused:
                _log.warning("query %s: %s", progress.name or query, error)
            self._refused.add(run)
            return
        # A query that started before the listener is followed from here on; events of an earlier run may come late.
        unknown, last = FollowedQuery(run, progress.name or query), event_of(progress)
        before = self._queries.get(query, unknown)
        # It takes a while, in which other queries start.
        operators = operators_of(self._handle(query), before.operators if before.run == run else None)
        with self._queries_lock:
            followed = self._queries.get(query, unknown)
            if followed.run == run:
                self._queries[query] = followed.after(last, statuses, operators)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        """Record that there was nothing to do; the last status remains valid, and its age is a metric."""
        query = str(event.id)
        with self._queries_lock:
            followed = self._queries.get(query)
            if followed is not None and followed.run == str(event.runId):
                self._queries[query] = replace(followed, idle_at=moment_of(event.timestamp))

    def _handle(self, query: str) -> Any:
        """Return the handle of a running query; ``None`` if the listener does not know its session, or it has ended."""
        try:
            return None if self.spark is None else self.spark.streams.get(query)
        except Exception as error:  # noqa: BLE001  the session may have been stopped
            _log.debug("the handle of query %s could not be had: %s", query, error)
            return None

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Stop following the query, unless another run of it has begun."""
        query = str(event.id)
        with self._queries_lock:
            followed = self._queries.get(query)
            if followed is not None and followed.run == str(event.runId):
                del self._queries[query]
