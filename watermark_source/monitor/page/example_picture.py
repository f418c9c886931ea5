"""A picture of four partitions, which a page without queries shows so that its readers know the next one. Pure."""

from __future__ import annotations

from typing import Final

from watermark_source.monitor.page.event_time_picture import event_time_picture
from watermark_source.monitor.page.markup import Markup
from watermark_source.monitor.three_clocks import QueryClocks
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import Hold
from watermark_source.planning.split import Split
from watermark_source.spark.query_windows import Windows
from watermark_source.status_model.source_status import GroupStatus, SourceStatus, SplitBacklog, SplitView, Status
from watermark_source.words import Words

_BOUND: Final = 3_000
_DRIFT: Final = 58_000
_LATE: Final = 60_000
_ROWS: Final = (
    (Status.ACTIVE, HoldKind.BACKLOG, -32_000, 310, "still has records to read"),
    (Status.ACTIVE, HoldKind.READ, -_LATE, 0, "the slowest that counts: the watermark"),
    (Status.PAUSED, HoldKind.PAUSED, -4_000, 80, "too far ahead of example-1"),
    (Status.IDLE, HoldKind.LEFT_OUT, None, 0, "silent for longer than idleTimeout"),
)
"""Of each partition its status, its kind, where it is, what is unread, and why."""


def example_picture(now: int, level: int) -> Markup:
    """Return the picture. ``level``: of its heading, 2 for ``h2``."""
    views = tuple(
        SplitView(
            split=Split("example", number),
            backlog=SplitBacklog(0, unread),
            watermark=None if late is None else now + late,
            status=status,
            since=None,
            why=why,
            kind=kind,
            holds_back=late == -_LATE,
            newest_in_log=now - 5_000 if kind is HoldKind.BACKLOG else None,
        )
        for number, (status, kind, late, unread, why) in enumerate(_ROWS)
    )
    mark = now - _LATE
    source = SourceStatus(
        format_name="example",
        source_name="example",
        at=now,
        watermark=mark,
        processing_time=False,
        group=GroupStatus("example", _DRIFT, mark + _DRIFT, len(views), minimum=mark, holder="example-1"),
        splits=views,
        counts={Status.ACTIVE: 2, Status.PAUSED: 1, Status.IDLE: 1},
        lag=sum(view.lag or 0 for view in views),
        out_of_orderness=_BOUND,
        without_holder=now - 32_000,
        slowest=(Hold(name="example-1", kind=HoldKind.READ, watermark=mark),),
        words=Words(split="partition"),
    )
    clocks = QueryClocks(
        at=now, sources=(source,), input_watermark=mark, applied_watermark=mark, windows=Windows(10_000, 10_000)
    )
    return event_time_picture(clocks, level)
