"""The present status of queries: of one, read from its handle; and of all that a listener follows."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from watermark_source.clock import Clock
from watermark_source.durations import ACCEPTED, parse_duration, parse_time
from watermark_source.errors import UsageError
from watermark_source.monitor.checkpoint import WATERMARK_POLICY, query_of_checkpoint
from watermark_source.monitor.failure import failure_of
from watermark_source.monitor.freshness import NO_BATCHES, NO_FRESHNESS, Freshness, RecentBatches, committed_at
from watermark_source.monitor.history import ChangeHistory, HolderSpan
from watermark_source.monitor.holder import slow_batch
from watermark_source.monitor.open_windows import OpenWindow, open_window
from watermark_source.monitor.page_content import QueryView
from watermark_source.monitor.three_clocks import Diagnosis, QueryClocks, diagnose, moment_of, query_clocks
from watermark_source.monitor.window_facts import QueryAt, Unfollowed, unfollowed
from watermark_source.monitor.window_file import write_window
from watermark_source.planning.offset import own_offset
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    executed_batch,
    newest,
    read_watermarks,
)
from watermark_source.status_model.hold_texts import holder_name
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.status_model.status_json import late_rows, parse_progress, parse_report
from watermark_source.supported_spark import spark_internals

_log = logging.getLogger(__name__)

Operators = BatchWatermarks | NoWatermark | None
"""What the stateful operators of a query state; ``None`` under Spark Connect, which shows no plan."""


# One query, read from its handle.


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A query at one moment."""

    clocks: QueryClocks
    why: Diagnosis
    """Why its results are as far behind the clock as they are."""
    freshness: Freshness = NO_FRESHNESS
    """How fresh its results were over the last minutes."""

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        """The sources of this project, in the query's order."""
        return self.clocks.sources


def status(query: Any, *, tolerance: str = "10 seconds") -> QueryStatus:
    """Return the status of a running query: its sources, its three clocks, and why its results are behind the clock.

    Args:
        query: what ``start()`` returned. Under Spark Connect the sources are as of the last progress event, and the
            operators' watermarks are missing.
        tolerance: up to this, a delay needs no cause.

    Raises:
        UsageError: ``tolerance`` is not a duration, or a source runs with another release of this project.
    """
    return QueryReader(query, _tolerance(tolerance)).status(recent_batches(query))


def why(query: Any, *, tolerance: str = "10 seconds") -> str:
    """Return in one sentence why the results of a running query are behind the clock.

    It begins with one of: "the data are old", "rows wait for time", "the batch is slow", "rows wait for the trigger",
    "no window can close", "no later window can close", "no rows arrive", "the data are fresh", "rows are processed"
    (only the output watermark is late), "the query does not follow its sources"; at the start "the query is starting",
    "the first batch is running"; without a report "no source of this project has reported". Arguments and errors are
    those of ``status``.
    """
    return str(QueryReader(query, _tolerance(tolerance)).status().why)


def why_open(
    query_or_checkpoint: Any, window_end: dt.datetime | str | int | None = None, *, html: str | Path | None = None
) -> OpenWindow:
    """Return why a window of a query is still open: print it, or read its ``sentence``, ``verdict`` and ``rows``.

    Args:
        query_or_checkpoint: what ``start()`` returned; or, of a query that has ended or runs in another process, its
            ``checkpointLocation``: a local folder or its ``file:`` URI. A checkpoint does not hold options, the ends of
            the logs, or what happened after its last batch.
        window_end: the end of the window: a ``datetime`` (without a zone it is local time, as in rows that Spark
            collects), ISO 8601 text (without a zone it is UTC), or milliseconds since 1970-01-01 UTC. By default
            all windows that are open.
        html: a file to which the answer is written with the picture of the query, as a page that needs nothing else.

    Raises:
        UsageError: ``window_end`` is no time, ``html`` cannot be written, the folder is no checkpoint, the first
            argument is neither, or a source runs with another release of this project.
        OffsetError: an offset in the checkpoint cannot be read.
    """
    end = None if window_end is None else window_end_of(window_end)
    if isinstance(query_or_checkpoint, (str, Path)):
        known = query_of_checkpoint(query_or_checkpoint)
    elif hasattr(query_or_checkpoint, "lastProgress"):
        known = query_of_status(query_or_checkpoint, status(query_or_checkpoint).clocks)
    else:
        raise UsageError(
            f"why_open was given a {type(query_or_checkpoint).__name__}; it takes what start() returned, or the "
            "query's checkpointLocation"
        )
    found = open_window(known, end)
    if html is not None:
        write_window(known, found, html)
    return found


def window_end_of(given: object) -> int:
    """Return the end of a window in milliseconds; raises ``UsageError`` if it is no time."""
    try:
        return parse_time(given)
    except ValueError as error:
        raise UsageError(f"window_end = {error}") from None


def query_of_status(query: Any, clocks: QueryClocks) -> QueryAt:
    """Return the facts of a query, which may have ended, from which follows why a window is open.

    ``clocks``: as they have just been read.
    """
    progress: Mapping[str, Any] = query.lastProgress or {}
    others = (source for source in progress.get("sources", ()) if own_offset(source.get("endOffset")) is None)
    # Operators may state what they have in the batch under way, which has emitted nothing yet.
    emitted = [clocks.applied_watermark, *(operator.eviction for operator in clocks.operators if operator.is_last)]
    known = [watermark for watermark in emitted if watermark is not None]
    has_ended = not query.isActive
    return QueryAt(
        sources=clocks.sources,
        foreign=tuple(str(source.get("description")) for source in others),
        batch=executed_batch(progress),
        applied=min(known) if len(known) == len(emitted) else None,
        takes_highest=_conf(query, WATERMARK_POLICY, "min") == "max",
        unfollowed=clocks.unfollowed,
        waits_for_rows=_conf(query, "spark.sql.streaming.noDataMicroBatches.enabled", "true") == "false",
        running=None if clocks.batch is None else clocks.batch.running,
        waits_for_trigger=clocks.waits_for_trigger,
        has_ended=has_ended,
        remarks=(_ended(query),) if has_ended else (),
    )


def query_view(query: Any, name: str, of: QueryStatus, history: ChangeHistory) -> QueryView:
    """Return a query as the page shows it: its status, why its windows are open, and what the history has of it."""
    return view_of(str(query.id), name, of, query_of_status(query, of.clocks), history)


def ended_view(query: FollowedQuery, id_: str, operators: Operators, at: int, history: ChangeHistory) -> QueryView:
    """Return a query that has ended as its last batch left it; ``at``: when it ended."""
    # No window is the next to close.
    clocks = replace(replace(query, operators=operators).clocks(at), windows=None)
    status = QueryStatus(clocks, diagnose(clocks), query.recent.freshness(at))
    facts = replace(reported_query(status), has_ended=True)
    return replace(view_of(id_, query.label, status, facts, history), dropped=query.late_rows)


def reported_query(of: QueryStatus) -> QueryAt:
    """Return the facts of a query by what its sources reported alone, without another look at its handle."""
    number = None if of.clocks.batch is None else of.clocks.batch.number
    return QueryAt(sources=of.sources, batch=number, applied=of.clocks.applied_watermark)


def view_of(id_: str, name: str, of: QueryStatus, at: QueryAt, history: ChangeHistory) -> QueryView:
    """Return a query as a view shows it; ``at``: the facts from which follows why its windows are open."""
    held = {source.source_name: holder_name(source.holds[0]) for source in of.sources if source.holds}
    since = {source: history.held_since(name, source, holder) for source, holder in held.items()}
    return QueryView(
        name=name,
        id=id_,
        clocks=of.clocks,
        why=of.why,
        open=open_window(at, None),
        held_since={source: at for source, at in since.items() if at is not None},
        points={source.source_name: history.points_until(of.clocks.at, name, source) for source in of.sources},
        freshness=of.freshness,
    )


def _ended(query: Any) -> str:
    """Return that a query has ended, and the error that ended it."""
    left = "this is how it was left"
    error = query.exception()
    if error is None:
        return f"the query has ended: {left}"
    return f"the query has failed, and emits nothing more: {failure_of(str(error)).text.rstrip('.')}; {left}"


def _conf(query: Any, name: str, default: str) -> str:
    """Return a setting of Spark's that a query runs with; the default where it cannot be asked (Spark Connect)."""
    handle = getattr(query, "_jsq", None)
    execution = None if handle is None else handle.streamingQuery().lastExecution()
    return default if execution is None else str(execution.sparkSession().conf().get(name, default))


def _unfollowed(progress: Mapping[str, Any], *, takes_highest: bool) -> Unfollowed | None:
    """Return that Spark's watermark in the last batch is not what the sources sent with the batch before."""
    if "addBatch" not in progress.get("durationMs", {}):
        return None
    starts = [own_offset(source.get("startOffset")) for source in progress.get("sources", ())]
    begun = [start for start in starts if start is not None]
    if len(begun) < len(starts):
        return None
    spark = moment_of(progress.get("eventTime", {}).get("watermark"))
    return unfollowed(spark, [start.get("wm") for start in begun], takes_highest=takes_highest)


def _tolerance(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(f"tolerance = {text!r} is not a duration: {ACCEPTED}, for example 10 seconds") from None


class QueryReader:
    """Reads the status of one query, as often as wanted; its operators are asked once a batch."""

    def __init__(self, query: Any, tolerance: int, clock: Callable[[], int] | None = None) -> None:
        self._query = query
        self._tolerance = tolerance
        self._now = Clock().wall if clock is None else clock
        self.operators: Operators = None
        """What its stateful operators stated last."""
        self._asked_after: int | None = None
        """The committed batch after which the operators were asked."""

    @spark_internals()
    def status(self, recent: RecentBatches = NO_BATCHES) -> QueryStatus:
        """Return the status as of now; ``recent``: the batches of the last minutes, for its ``freshness``."""
        progress: Mapping[str, Any] = self._query.lastProgress or {}
        sources = {source.source_name: source for source in parse_progress(progress)}
        handle = getattr(self._query, "_jsq", None)
        execution = None if handle is None else handle.streamingQuery()
        in_batch, running, now = False, None, self._now()
        several = len(progress.get("sources", ())) > 1
        takes_highest = several and _conf(self._query, WATERMARK_POLICY, "min") == "max"
        if execution is not None:
            in_batch = not execution.committedOffsets().equals(execution.availableOffsets())
            sources |= {source.source_name: source for source in _reports(execution)}
            running = _running(execution, executed_batch(progress), now) if in_batch else None
        operators = None if execution is None else self._asked(executed_batch(progress))
        clocks = query_clocks(
            progress,
            tuple(sources.values()),
            now,
            in_batch=in_batch,
            running=running,
            operators=operators,
            waits_for_trigger=self._query.status["message"] == "Waiting for next trigger",
            unfollowed=_unfollowed(progress, takes_highest=takes_highest),
        )
        return QueryStatus(clocks, diagnose(clocks, self._tolerance), recent.freshness(now))

    def _asked(self, committed: int | None) -> Operators:
        if self._asked_after != committed or not isinstance(self.operators, BatchWatermarks):
            read = read_watermarks(self._query, self.operators)
            self.operators = newest(self.operators, read, committed)
            # While Spark plans, the next look asks again.
            self._asked_after = committed if self.operators is read else None
        return self.operators


def _reports(execution: Any) -> Iterable[SourceStatus]:
    """Yield what the sources reported with the plan of the batch under way, or with the last plan without a batch."""
    offsets = execution.latestOffsets().iterator()
    while offsets.hasNext():
        offset = offsets.next()._2()  # noqa: SLF001 - the second part of a pair in Scala
        report = None if offset is None else parse_report(offset.json())
        if report is not None:
            yield report


def _running(execution: Any, committed: int | None, now: int) -> int | None:
    """Return since how many milliseconds the batch under way was planned; ``None`` before Spark executes it."""
    last = execution.lastExecution()
    if last is None or (committed is not None and int(last.currentBatchId()) <= committed):
        return None
    return max(0, now - int(last.offsetSeqMetadata().batchTimestampMs()))


def recent_batches(query: Any) -> RecentBatches:
    """Return the batches that Spark still has the progress of: of a query that no listener follows."""
    recent = NO_BATCHES
    for progress in query.recentProgress:
        recent = with_batch(recent, progress, parse_progress(progress), None)
    return recent


def with_batch(
    recent: RecentBatches, progress: Mapping[str, Any], reported: Sequence[SourceStatus], operators: Operators
) -> RecentBatches:
    """Return the recent batches with that of a progress event, if it is of one."""
    clocks = _at_commit(progress, reported, operators)
    return recent if clocks is None else recent.after(clocks)


def _at_commit(
    progress: Mapping[str, Any], reported: Sequence[SourceStatus], operators: Operators
) -> QueryClocks | None:
    """Return the clocks when the batch of a progress event was committed; ``None`` where it is of no batch."""
    at = committed_at(progress)
    return None if at is None else query_clocks(progress, reported, at, in_batch=True, operators=operators)


def slow_batch_of(query: FollowedQuery) -> HolderSpan | None:
    """Return the batch of a query's last progress event, if results waited for it."""
    clocks = _at_commit(query.progress, tuple(query.sources.values()), query.operators)
    return None if clocks is None else slow_batch(clocks, diagnose(clocks), is_committed=True)


# All queries that a listener follows.


@dataclass(frozen=True, slots=True)
class FollowedQuery:
    """One running query."""

    run: str
    """Id of the run. A restarted query keeps its query id, and events of two runs may overlap."""
    label: str
    late_rows: int = 0
    """Rows that its stateful operators dropped as late while the listener followed it; see ``late_rows``."""
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)
    """The last progress event."""
    operators: Operators = None
    idle_at: int | None = None
    """When Spark last reported that it had nothing to do."""
    recent: RecentBatches = NO_BATCHES

    def clocks(self, now: int) -> QueryClocks:
        """Return its clocks as of the last event."""
        sources = tuple(self.sources.values())
        return query_clocks(self.progress, sources, now, idle_at=self.idle_at, operators=self.operators)

    def after(
        self, event: Mapping[str, Any], reported: Sequence[SourceStatus], operators: Operators = None
    ) -> FollowedQuery:
        """Return it after a progress event, with what its sources and its operators state in it."""
        return replace(
            self,
            late_rows=self.late_rows + late_rows(event),
            recent=with_batch(self.recent, event, reported, operators),
            sources={**self.sources, **{status.source_name: status for status in reported}},
            progress=event,
            operators=newest(self.operators, operators, executed_batch(event)),
            idle_at=None,
        )


def last_reports(query: Any) -> Mapping[str, SourceStatus]:
    """Return what the sources of a running query reported last, by name: of a plan since its last progress event too.

    Empty where they cannot be asked, as under Spark Connect.
    """
    handle = None if query is None else getattr(query, "_jsq", None)
    if handle is None:
        return {}
    try:
        return {source.source_name: source for source in _reports(handle.streamingQuery())}
    except Exception as error:  # noqa: BLE001  a scrape must not fail when the query's JVM has ended
        _log.debug("the sources of a query could not be asked for their status: %s", error)
        return {}


def operators_of(query: Any, before: Operators) -> Operators:
    """Return what the operators of a running query state; ``None`` where they cannot be asked.

    Args:
        query: its handle; ``None`` for one that has ended.
        before: what the operators of the same run stated last.
    """
    if query is None:
        return None
    try:
        return read_watermarks(query, before)
    except UsageError:
        return None
    except Exception as error:  # noqa: BLE001  a listener must not fail when the query's JVM has ended
        _log.debug("the operators of a query could not be asked for their watermarks: %s", error)
        return None
