"""The rows of the picture: which partitions, writers and other sources a query shows, and what stands in each. Pure.

Of any number of partitions at most ``MOST`` are rows of their own: those that hold the watermark, then the lowest.
The others are one row by status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from watermark_source.durations import age_text, count_text, format_duration, short_count
from watermark_source.monitor.axis import read_up_to
from watermark_source.monitor.three_clocks import behind_clock, from_clock
from watermark_source.planning.group import Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import HeldBy
from watermark_source.planning.watermark import MIN, is_moment, watermark_text
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.source_status import (
    Quantiles,
    SourceStatus,
    SplitView,
    Status,
    WriterView,
    most_interesting,
)

MOST: Final = 20
"""Rows of one source."""
_LOWEST: Final = 10
"""Partitions that are rows of their own where there are more than ``MOST``."""


class Look(Enum):
    """How a row is drawn. The value is its class."""

    COUNTS = "counts"
    HOLDS = "holds"
    PAUSED = "paused"
    LEFT_OUT = "idle"
    SILENT = "silent"
    """Its log, or its driver, does not answer."""
    FAILED = "failed"
    """The error that ended the query names it."""
    OTHERS = "others"
    """Several, without a bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row. Times are milliseconds since 1970-01-01 UTC."""

    name: str
    word: str
    """Its status in a word or two."""
    look: Look
    watermark: int | None = None
    read: int | None = None
    """Highest event time that was read, where the watermark follows it."""
    newest: int | None = None
    """Event time of the newest record in its log, where that is known."""
    is_several: bool = False
    """Whether it is for all others of a status."""
    spread: Quantiles | None = None
    """Where their watermarks are."""
    note: str = ""
    """Why it is where it is, in a few words; of one that is on its way, none."""
    unread: int | None = None
    exact: str = ""
    """All that is known of it, exactly."""


def behind_text(late: int | None) -> str:
    """Return how far something is behind the clock, or ahead of it; ``late``: in milliseconds, ``None`` if unknown."""
    if late is None:
        return "–"
    return age_text(late) if late >= 0 else f"{age_text(-late)} ahead"


def unread_text(of: Lane) -> str:
    """Return how much of a row is unread; nothing for one that stands for several."""
    if of.is_several:
        return ""
    return "?" if of.unread is None else short_count(of.unread)


def lanes_of(source: SourceStatus, now: int) -> tuple[Lane, ...]:
    """Return the rows of a source: what holds it first, then by watermark, and at the end what is left out."""
    if source.processing_time:
        mark, unread = source.watermark, source.lag
        return (Lane(name="the clock", word="event time", look=Look.COUNTS, watermark=mark, unread=unread),)
    peers = () if source.group is None else source.group.peers
    others = sorted((_of_peer(peer, source, now) for peer in peers), key=_order)
    if source.is_announced:
        shown = (_of_writer(writer, source, now) for writer in source.writers[:MOST])
        return (*shown, *_more_writers(len(source.writers) - MOST), *others)
    few = source.splits_total <= MOST
    views = most_interesting(source.splits, MOST if few else _LOWEST)
    own = [_of_split(view, source, now) for view in views]
    return (*sorted([*own, *others], key=_order), *_rest(source, views))


def _order(lane: Lane) -> tuple[bool, bool, int]:
    return lane.look is not Look.HOLDS, lane.look is Look.LEFT_OUT, MIN if lane.watermark is None else lane.watermark


def _more_writers(n: int) -> Iterator[Lane]:
    if n > 0:
        yield Lane(name=count_text(n, "more writer"), word="", look=Look.OTHERS, is_several=True, note="in the table")


def _rest(source: SourceStatus, shown: list[SplitView]) -> Iterator[Lane]:
    """Yield a row for all others of a status."""
    left = Counter(source.counts) - Counter(view.status for view in shown)
    for status in (Status.ACTIVE, Status.PAUSED, Status.UNKNOWN, Status.FINISHED, Status.IDLE):
        if n := left[status]:
            is_idle = status is Status.IDLE
            spread = None if is_idle else _above(source.quantiles.get(status), status, shown)
            yield Lane(
                name=count_text(n, "other"),
                word=_status_word(status),
                look=Look.LEFT_OUT if is_idle else Look.OTHERS,
                watermark=None if spread is None else spread.median,
                is_several=True,
                spread=spread,
                note="idle, left out" if is_idle else "" if spread else "none of them is behind those above",
            )


def _above(of: Quantiles | None, status: Status, shown: list[SplitView]) -> Quantiles | None:
    """Return where the watermarks of a status are without those that are rows of their own, the lowest ones."""
    last = max((v.watermark for v in shown if v.status is status and v.watermark is not None), default=MIN)
    return None if of is None else Quantiles(*(max(last, mark) for mark in of))


def _of_split(view: SplitView, source: SourceStatus, now: int) -> Lane:
    look = _look(view)
    read = read_up_to(source, view)
    return Lane(
        name=str(view.split),
        word="holds the watermark" if look is Look.HOLDS else _status_word(view.status),
        look=look,
        watermark=view.watermark if is_moment(view.watermark) else None,
        read=read if is_moment(read) else None,
        newest=view.newest_in_log if is_moment(view.newest_in_log) else None,
        note="" if look is Look.COUNTS else _note(view.why),
        unread=view.lag,
        exact=f"{view.split}: {_status_word(view.status)}; {_exact(view.watermark, now)}; {view.why}",
    )


def _exact(watermark: int | None, now: int) -> str:
    late = behind_clock(now, watermark)
    return f"watermark {watermark_text(watermark)}" + ("" if late is None else f" UTC, {from_clock(late)}")


def _status_word(status: Status) -> str:
    return "no answer" if status is Status.UNKNOWN else status.name.lower()


def _look(view: SplitView) -> Look:
    if view.holds_back:
        return Look.HOLDS
    if view.kind is HoldKind.LEFT_OUT:
        return Look.LEFT_OUT
    return _LOOKS.get(view.status, Look.COUNTS)


_LOOKS: Final = {Status.PAUSED: Look.PAUSED, Status.IDLE: Look.LEFT_OUT, Status.UNKNOWN: Look.SILENT}


def _note(why: str) -> str:
    """Return the first part of a sentence, which has room beside a bar."""
    return why.partition(";")[0]


def _of_writer(writer: WriterView, source: SourceStatus, now: int) -> Lane:
    name = f"writer {writer.name}"
    holds = any(hold.by is HeldBy.WRITER and hold.name == writer.name for hold in source.holds)
    look = Look.HOLDS if holds else Look.LEFT_OUT if writer.kind is HoldKind.LEFT_OUT else Look.COUNTS
    return Lane(
        name=name,
        word="holds the watermark" if holds else writer.status,
        look=look,
        watermark=writer.watermark if is_moment(writer.watermark) else None,
        newest=writer.announced if is_moment(writer.announced) else None,
        note=_note(writer.why),
        unread=0 if source.lag == 0 else writer.rows_before_next,
        exact=f"{name}: {writer.status}; {_exact(writer.watermark, now)}; {writer.why}",
    )


def _of_peer(peer: Peer, source: SourceStatus, now: int) -> Lane:
    holds = any(hold.by is HeldBy.SOURCE and hold.name == peer.name for hold in source.holds)
    note = ""
    if peer.is_silent:
        until = "" if peer.time_to_live is None else f" until {short_time(now - peer.silent + peer.time_to_live, now)}"
        note = f"silent for {age_text(peer.silent)}; " + (f"waited for{until}" if peer.is_waited_for else "left out")
    look = Look.LEFT_OUT
    if peer.is_waited_for:
        look = Look.HOLDS if holds or peer.is_silent else Look.COUNTS
    return Lane(
        name=peer.name,
        word="holds the limit" if holds else "another source of the group",
        look=look,
        watermark=peer.watermark if is_moment(peer.watermark) else None,
        note=note,
        exact=f"{peer.name}: {peer.status}; watermark {watermark_text(peer.watermark)}; last report "
        f"{format_duration(peer.silent)} ago",
    )
