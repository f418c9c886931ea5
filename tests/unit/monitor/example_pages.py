"""The states that a page can show, each as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.monitor.example_status import NOON, page, progress_of, source_status, split_view
from watermark_source.durations import count_text
from watermark_source.monitor.failure import Failure
from watermark_source.monitor.history import Change, ChangeKind, Point
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.page_content import Ended, Page, QueryView
from watermark_source.monitor.three_clocks import diagnose, query_clocks
from watermark_source.monitor.window_facts import QueryAt
from watermark_source.planning.group import Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import HeldBy, Hold
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis, watermark_text
from watermark_source.spark.query_windows import Windows
from watermark_source.status_model.hold_texts import holder_name
from watermark_source.status_model.source_status import (
    GroupStatus,
    Outline,
    SnapshotProgress,
    SourceStatus,
    Status,
    Unprocessed,
    WriterView,
    reported_splits,
)

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NOW = NOON + 10 * MINUTE + 11 * SECOND
MINUTES = Windows(MINUTE, MINUTE)


def iso(at: int) -> str:
    """A time as Spark's progress has it."""
    return f"{watermark_text(at).replace(' ', 'T')}Z"


def query(
    name: str,
    *sources: SourceStatus,
    applied: int | None = None,
    rows: int = 17,
    at: int = NOW,
    windows: Windows | None = MINUTES,
    **fields: Any,
) -> QueryView:
    """Return a query whose operators have applied this watermark and hold so many rows."""
    operators = [] if rows < 0 else [{"operatorName": "stateStoreSave", "numRowsTotal": rows}]
    event = progress_of(
        *sources,
        stateOperators=operators,
        durationMs={"addBatch": 400, "triggerExecution": 600},
        eventTime={} if applied is None else {"watermark": iso(applied)},
    )
    clocks = query_clocks(event, sources, at, idle_at=at - SECOND)
    if operators:
        clocks = replace(clocks, output_watermark=applied, windows=windows)
    known = QueryAt(sources=sources, batch=812, applied=applied)
    given: dict[str, Any] = {"id": name} | fields
    return QueryView(name=name, clocks=clocks, why=diagnose(clocks), open=open_window(known, None), **given)


def over_time(of: SourceStatus, since: int | None = None, *, lasted: int = 15 * MINUTE) -> Mapping[str, Any]:
    """Return a source over time up to its report: it was on time up to a moment, or always.

    Its watermark is where it is since then, and what is unread has come since then.
    """
    mark, lag = of.watermark or 0, of.lag or 0
    low, usual = (of.at - mark, max(0, lag - 2)) if since is None else (4_200, 0)
    points = []
    for n, t in enumerate(range(of.at - lasted, of.at, 20 * SECOND)):
        unread = usual + n % 5
        if since is not None and t >= since:
            unread = lag * (t - since) // (of.at - since)
        points.append(Point(t, max(low + round(600 * math.sin(n)), t - mark), unread))
    return {of.source_name: [*points, Point(of.at, of.at - mark, lag)]}


def holder(at: int, before: str, after: str, *, name: str = "orders-by-minute", source: str = "orders") -> Change:
    return Change(at, name, source, ChangeKind.HOLDER, "watermark", before, after, "its newest record is the oldest")


def held(of: QueryView) -> Page:
    """Return a page whose history has since when each source of a query is held."""
    changes = [
        holder(since, "nothing", holder_name(source.holds[0]), name=of.name, source=source.source_name)
        for source in of.clocks.sources
        if (since := of.held_since.get(source.source_name)) is not None
    ]
    return page(of, at=NOW, changes=tuple(changes))


def read(**fields: Any) -> dict[str, Any]:
    """Return the fields of a source whose rows are all read."""
    caught_up = Unprocessed(NOW - SECOND)
    return {
        "at": NOW,
        "unread": caught_up,
        "unprocessed": caught_up,
        "out_of_orderness": 5_000,
        "rows": 12_157,
    } | fields


def held_back() -> Page:
    """One partition holds, two are paused, one is idle."""
    newest = NOON + 5 * SECOND
    hold = Hold(
        name="orders-2", kind=HoldKind.SILENT, watermark=NOON, lag=0, quiet=4 * SECOND, timeout=10 * SECOND,
        newest=newest, why="nothing to read for 4 s; idle after 10 s",
    )  # fmt: skip
    source = source_status(
        split_view(0, Status.PAUSED, watermark=NOON + 68 * MINUTE, position=3_528, end=4_385, drift=68 * MINUTE,
                   since=NOW - 606 * SECOND, why="1 h 08 min ahead of orders-2 (alignmentMaxDrift 10 min)"),
        split_view(1, Status.PAUSED, watermark=NOON + 9 * MINUTE + 47 * SECOND, position=4_244, end=4_385,
                   since=NOW - 17 * SECOND, drift=587_000,
                   why="next record over 10 min ahead of orders-2 (alignmentMaxDrift)"),
        split_view(2, watermark=NOON, position=4_385, end=4_385, quiet=4 * SECOND, holds_back=True, drift=0,
                   kind=HoldKind.SILENT, why=hold.why),
        split_view(3, Status.IDLE, watermark=None, position=0, end=0, quiet=16 * MINUTE, since=NOW - 950 * SECOND,
                   why="nothing to read for 16 min (idleTimeout 10 s)"),
        **read(
            group=GroupStatus("checkout", 10 * MINUTE, NOON + 10 * MINUTE, 4, minimum=NOON, holder="orders-2"),
            slowest=(hold,), without_holder=NOON + 9 * MINUTE + 47 * SECOND, idle_timeout=10 * SECOND,
            unread=Unprocessed(NOW - 605 * SECOND, "orders-0"), newest=NOON + 68 * MINUTE,
        ),
    )  # fmt: skip
    changes = (
        holder(NOW - 808 * SECOND, "nothing", "orders-1"), holder(NOW - 750 * SECOND, "orders-1", "nothing"),
        holder(NOW - 699 * SECOND, "nothing", "orders-0"), holder(NOW - 606 * SECOND, "orders-0", "orders-2"),
    )  # fmt: skip
    shown = query(
        "orders-by-minute", source, applied=NOON, rows=5_214, held_since={"orders": NOW - 606 * SECOND},
        points=over_time(source, NOW - 606 * SECOND),
    )  # fmt: skip
    return page(shown, at=NOW, changes=changes)


def many(partitions: int = 10_000) -> Page:
    """Of so many partitions one holds, and ten are behind the others."""
    behind = [162, 120, 74, 61, 44, 31, 22, 19, 15, 12]
    lags = [1_204_332, 803_110, 40_112, 22_040, 9_876, 4_020, 1_933, 1_204, 877, 640]
    hold = Hold(
        name="clicks-0", kind=HoldKind.BACKLOG, watermark=NOW - 162 * SECOND, lag=lags[0],
        why="behind by 1 204 332 records",
    )  # fmt: skip
    views = {}
    for n in range(partitions):
        late = behind[n] * SECOND if n < len(behind) else 1_000 + 37 * n % 9_000
        lag = lags[n] if n < len(lags) else n % 9
        status = Status.IDLE if n >= partitions - 22 else Status.ACTIVE
        view = split_view(n, status, watermark=NOW - late, position=1_000, end=1_000 + lag, holds_back=n == 0,
                          newest_in_log=NOW - 500 if lag else None,
                          why=f"behind by {count_text(lag, 'record')}")  # fmt: skip
        view = replace(view, split=Split("clicks", n))
        views[view.split] = view
    outlines = [Outline(v.split, v.status, v.lag, v.holds_back, v.watermark) for v in views.values()]
    reported = reported_splits(outlines, lambda outline: views[outline.split])
    source = replace(
        source_status(split_view(0), **read(watermark=NOW - 162 * SECOND, source_name="clicks", slowest=(hold,),
                                            without_holder=NOW - 121 * SECOND, rows=2_000_000_000,
                                            unread=Unprocessed(NOW - 100 * SECOND, "clicks-0"))),
        **reported._asdict(),
    )  # fmt: skip
    shown = query("clicks-per-user", source, applied=NOW - 163 * SECOND, windows=Windows(MINUTE, 10 * SECOND),
                  points=over_time(source, NOW - 150 * SECOND),
                  held_since={"clicks": NOW - 150 * SECOND})  # fmt: skip
    return held(shown)


def on_time() -> Page:
    """Eight partitions take turns."""
    views = [
        split_view(n, watermark=NOW - 2_900 + 100 * n, position=1_519, end=1_519 + n % 4,
                   newest_in_log=NOW - 1_401 + 100 * n + 170 * (n % 4) if n % 4 else None)
        for n in range(8)
    ]  # fmt: skip
    turn = Hold(name="orders-0", kind=HoldKind.READ, watermark=NOW - 2_900, takes_turns=True, why="caught up")
    source = source_status(*views, **read(watermark=NOW - 2_900, slowest=(turn,), out_of_orderness=1_499, rows=12_152))
    shown = query("orders-by-minute", source, applied=NOW - 3_500, rows=46, windows=Windows(SECOND, SECOND),
                  points=over_time(source))  # fmt: skip
    return page(shown, at=NOW)


def no_watermark() -> Page:
    """A partition has never had a record, and none becomes idle."""
    hold = Hold(name="orders-3", kind=HoldKind.NEVER, why="no record seen yet; holds the watermark")
    views = [
        split_view(0, watermark=NOW - 31 * SECOND, end=100), split_view(1, watermark=NOW - 9 * SECOND, end=104),
        split_view(2, watermark=NOW - 6 * SECOND, end=100),
        split_view(3, watermark=None, position=0, end=0, holds_back=True, kind=HoldKind.NEVER, why=hold.why),
    ]  # fmt: skip
    source = source_status(
        *views, **read(watermark=None, slowest=(hold,), without_holder=NOW - 31 * SECOND, newest=NOW - SECOND, rows=300)
    )
    began = NOW - 240 * SECOND
    points = [Point(began + n * 20 * SECOND, None, n % 8) for n in range(13)]
    return held(query("orders-by-minute", source, rows=300, points={"orders": points}, held_since={"orders": began}))


def snapshot() -> Page:
    """Three tables are copied before the first watermark."""
    hold = Hold(by=HeldBy.READING, name="the snapshot of shop.orders_us", kind=HoldKind.SNAPSHOT,
                why="it is read before the changes, and rows of a snapshot have no watermark")  # fmt: skip
    began = NOW - 11 * MINUTE
    tables = (
        SnapshotProgress(log="shop.customers", rows=12_500, chunks=3, expected=12_500, rate=None, done=True),
        SnapshotProgress(log="shop.orders_eu", rows=125_128, chunks=31, expected=125_128, rate=None, done=True),
        SnapshotProgress(log="shop.orders_us", rows=62_000, chunks=15, expected=199_128, rate=302, done=False,
                         began=began),
    )  # fmt: skip
    changes = split_view(0, watermark=None, uncounted=True, holds_back=True, kind=HoldKind.SNAPSHOT, why=hold.why)
    changes = replace(changes, split=Split("shop", 0))
    source = source_status(changes, **read(watermark=None, slowest=(hold,), snapshots=tables, source_name="shop",
                                          rows=199_628, format_name="mysql-cdc-wm"))  # fmt: skip
    source = replace(source, lag=None)
    return held(query("revenue", source, rows=199_628, held_since={"shop": began}))


def failed() -> Page:
    """A query that failed three minutes ago, as its last batch left it."""
    at = NOW - 192 * SECOND
    read_to = [81_382, 81_382, 81_382, 81_382, 81_400, 81_382]
    views = [
        split_view(n, watermark=at - 3_000 + 300 * ((n + 2) % 6), position=each, end=each + n)
        for n, each in enumerate(read_to)
    ]
    views = [replace(view, split=Split("invoices", view.split.number)) for view in views]
    source = source_status(*views, **read(watermark=at - 3_000, at=at, slowest=(), out_of_orderness=999,
                                          source_name="invoices", rows=sum(read_to)))  # fmt: skip
    shown = query("invoices", source, applied=at - 4_000, at=at, rows=87, windows=None,
                  points=over_time(source))  # fmt: skip
    error = (
        "data was lost: invoices-4 was read only up to 81400, and begins at 81404 now: what was between, up to 4 "
        "rows, was deleted before it was read. Set failOnDataLoss to false to continue with the rest (what is skipped "
        "is then logged)."
    )
    return page(at=NOW, ended=(Ended("invoices", at, 812, Failure(error, "DataLossError"), shown),))


def ended() -> Page:
    """A query that was stopped two minutes ago, as its last batch left it."""
    (failed_query,) = failed().ended
    return page(at=NOW, ended=(failed_query._replace(error=None),))


def on_the_clock() -> Page:
    """Event time is the clock of the batch."""
    source = source_status(split_view(0, watermark=None, end=104), **read(
        watermark=NOW - 900, processing_time=True, slowest=(), out_of_orderness=None))  # fmt: skip
    return page(query("alarms", source, applied=NOW - 1_900, rows=40, windows=Windows(SECOND, SECOND)), at=NOW)


def frozen_source() -> Page:
    """Another source of the group is silent, and all wait for it."""
    hold = Hold(by=HeldBy.SOURCE, name="payments", kind=HoldKind.PAUSED, watermark=NOW - 14 * SECOND,
                why="orders-0 is paused: next record over 1 min ahead of payments (alignmentMaxDrift)")  # fmt: skip
    peers = (
        Peer("payments", "active", Millis(NOW - 73 * SECOND), 42 * SECOND, is_waited_for=True, time_to_live=120_000),
        Peer("refunds", "active", Millis(NOW - 14 * SECOND), 600, is_waited_for=True, time_to_live=120_000),
    )
    group = GroupStatus("checkout", MINUTE, NOW - 13 * SECOND, 2, others=2, slowest="payments", peers=peers,
                        minimum=NOW - 73 * SECOND, holder="payments", store="driver")  # fmt: skip
    views = [
        split_view(n, Status.PAUSED, watermark=NOW - 14 * SECOND + 900 * n, position=90_000,
                   end=91_190 + n, drift=59_000,
                   newest_in_log=NOW - SECOND, why="next record over 1 min ahead of payments (alignmentMaxDrift)")
        for n in range(2)
    ]  # fmt: skip
    waits = Unprocessed(NOW - 12 * SECOND, "orders-0")
    source = source_status(*views, **read(
        watermark=NOW - 14 * SECOND, group=group, slowest=(hold,), out_of_orderness=2_000, unread=waits,
        rows=180_000))  # fmt: skip
    return held(query("orders-with-payments", source, applied=NOW - 15 * SECOND, rows=1_840,
                      windows=Windows(10 * SECOND, 10 * SECOND), points=over_time(source, NOW - 11 * SECOND),
                      held_since={"orders": NOW - 11 * SECOND}))  # fmt: skip


def two_sources() -> Page:
    """One source of a join holds the other."""
    newest = NOW - 78 * SECOND
    hold = Hold(name="shop-0", kind=HoldKind.SILENT, watermark=newest, lag=0, quiet=70 * SECOND, newest=newest,
                why="nothing to read for 1 min 10 s; never idle without idleTimeout")  # fmt: skip
    of_shop = split_view(0, watermark=newest, end=100, quiet=70 * SECOND, kind=HoldKind.SILENT, holds_back=True,
                         why=hold.why)  # fmt: skip
    shop = source_status(
        replace(of_shop, split=Split("shop", 0)),
        **read(watermark=newest, source_name="customers", slowest=(hold,), without_holder=NOW - 4_400,
               format_name="mysql-cdc-wm", out_of_orderness=0),
    )  # fmt: skip
    orders = source_status(
        *(split_view(n, watermark=NOW - 4_400 + 600 * n, end=107 + n, newest_in_log=NOW - 300) for n in range(3)),
        **read(watermark=NOW - 4_400, slowest=(), out_of_orderness=1_000),
    )
    return held(query("orders-with-customers", shop, orders, applied=newest - SECOND, rows=4_310, windows=None,
                      held_since={"customers": NOW - 68 * SECOND},
                      points={**over_time(shop, NOW - 68 * SECOND), **over_time(orders)}))  # fmt: skip


def replay() -> Page:
    """History of two days ago is read."""
    then, pace = NOW - 51 * HOUR - 30 * MINUTE, 440_000
    views = [
        split_view(n, watermark=then + 40 * SECOND * n, position=15 * pace // 4, end=15 * pace // 4 + 9_000_000)
        for n in range(4)
    ]
    old = Unprocessed(NOW - 15 * MINUTE, "orders-0", is_older=True)
    source = source_status(*views, **read(watermark=then, slowest=(), newest=then + 200 * SECOND, unread=old,
                                          rows=15 * pace))  # fmt: skip
    points = [Point(NOW - m * MINUTE, NOW - then + 41 * m * MINUTE, 36_000_000 + pace * m) for m in range(15, -1, -1)]
    return page(query("backfill-2025", source, applied=then - 5 * SECOND, rows=12_000, points={"orders": points},
                      windows=Windows(10 * SECOND, 10 * SECOND)), at=NOW)  # fmt: skip


def announced(
    query_id: str | None = None,
    *,
    kind: HoldKind = HoldKind.SILENT,
    quiet: int = 610 * SECOND,
    why: str = "has announced nothing for 10 min 10 s",
) -> Page:
    """A writer of another job, or a query of the page, holds the reader of what it announces."""
    last = NOON - 2 * SECOND
    writer = WriterView(name="sessions", status="active", holds_back=True, query=query_id, watermark=last,
                        announced=last, since=NOW - quiet, kind=kind, why=why)  # fmt: skip
    hold = Hold(by=HeldBy.WRITER, name="sessions", watermark=last, quiet=quiet, kind=kind, why=why)
    topic = source_status(split_view(0, watermark=None, end=100), **read(
        watermark=last, writers=(writer,), slowest=(hold,), source_name="sessions-topic", newest=last,
        rows=3_918))  # fmt: skip
    return held(query("daily-revenue", topic, applied=last, rows=612, points=over_time(topic, NOW - 10 * MINUTE),
                      held_since={"sessions-topic": NOW - 10 * MINUTE}))  # fmt: skip


def chain() -> Page:
    """Six queries: one has failed, one is held, and holds another."""
    held = held_back()
    sessions = replace(held.queries[0], name="sessions", id="sessions")
    (daily,) = announced("sessions", kind=HoldKind.READ, quiet=900, why="its newest announcement is in force").queries
    calm, gone = on_time().queries[0], failed().ended
    others = [replace(calm, name=name, id=name) for name in ("alarms", "fraud-join")]
    return page(sessions, daily, *others, replay().queries[0], at=NOW, ended=gone, changes=held.changes)


PAGES: Mapping[str, Page] = {
    "nothing": page(at=NOW),
    "held-back": held_back(),
    "ten-thousand": many(),
    "on-time": on_time(),
    "no-watermark": no_watermark(),
    "snapshot": snapshot(),
    "failed": failed(),
    "ended": ended(),
    "on-the-clock": on_the_clock(),
    "frozen-source": frozen_source(),
    "two-sources": two_sources(),
    "replay": replay(),
    "announced": announced(),
    "chain": chain(),
}
"""Each state by its name."""
