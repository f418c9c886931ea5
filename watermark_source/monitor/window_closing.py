"""When the next window of a query closes, and what closes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.holder import holders_text, holding, slow_batch
from watermark_source.monitor.three_clocks import DelayVerdict, Diagnosis, QueryClocks, behind_clock
from watermark_source.planning.group import Peer
from watermark_source.planning.group_limit import STORE, TO_COME
from watermark_source.planning.holds import HeldBy, Hold
from watermark_source.planning.watermark import MIN, is_moment
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.source_status import SnapshotProgress, SourceStatus

_HALF_SECOND: Final = 500
"""Milliseconds: a moment is shown to the nearest second."""


class Closing(NamedTuple):
    """When a window closes, and the rest of the sentence."""

    when: str
    about: str = ""
    condition: str = ""
    """What closes it, as a clause of its own; empty if a batch or the clock does."""


def _once(condition: str, about: str = "") -> Closing:
    return Closing(f"once {condition}", about, condition)


def next_closing(of: QueryClocks, why: Diagnosis, until_read: int | None) -> Closing:
    """Return which window of a running query closes next, and when.

    Args:
        of: its clocks.
        why: what ``diagnose`` found.
        until_read: in how many milliseconds nothing is unread at the present pace; ``None`` if unknown.
    """
    applied, which, end = of.applied_watermark, "", None
    if not of.has_windows:
        return Closing("none", "; the query has no windows, and writes each row with its batch")
    if of.unfollowed is not None and of.unfollowed.spark is None:
        return Closing("none ever closes", "; Spark has no watermark")
    if applied is not None and is_moment(applied):
        which = f"one that ends after {short_time(applied, of.at)}"
        if of.windows is not None:
            end = of.windows.next_end(applied)
            which = f"{short_time(end - of.windows.size, of.at)} to {short_time(end, of.at)}"
    elif of.input_watermark is not None and not is_moment(of.input_watermark):
        return _ALL_CLOSED
    closing = _of_batches(of, why, end)
    if closing is None:
        held = of.held
        by = None if until_read is None or not _is_read_late(of) else of.at + until_read
        pace = "" if by is None else f", by about {short_time(by, of.at)} at the pace of the last minutes"
        closing = _once(f"the watermark {_further(end, of.at)}", pace)
        if held is not None:
            closing = _once_further(*held, of, end, pace)
        elif of.input_watermark is None:
            closing = _once("each source has a watermark", pace)
    if which:
        return closing._replace(when=f"{which} closes {closing.when}")
    if closing.condition:
        return closing._replace(when=f"none closes before {closing.condition}")
    return closing._replace(when=f"none has closed; the first closes {closing.when}")


def closing_after_end(of: QueryClocks | None, now: int) -> Closing:
    """Return which windows a query that has ended has left open."""
    if of is not None and not of.has_windows:
        return Closing("none", "; the query has no windows")
    if of is not None and of.input_watermark is not None and not is_moment(of.input_watermark):
        return _ALL_CLOSED
    applied, rows = (None, 0) if of is None else (of.applied_watermark, of.state_rows)
    wait = f"{count_text(rows, 'row')} wait{'s' if rows == 1 else ''} in " if rows else ""
    after = "" if applied is None else f"; {wait}those that end after {short_time(applied, now)}"
    return Closing("none closes until the query runs again", f"{after}{' are open' if after and not rows else ''}")


_ALL_CLOSED: Final = Closing("none", "; all have closed")


def _of_batches(of: QueryClocks, why: Diagnosis, end: int | None) -> Closing | None:
    """Return what closes a window where batches alone do; ``None`` where the watermark has to move on first.

    ``end``: of the window; ``None`` if that is unknown.
    """
    if of.unfollowed is not None:
        return Closing("by Spark's own watermark", ", before the sources have passed its end")
    batch, late = slow_batch(of, why), behind_clock(of.at, of.applied_watermark)
    if of.held is None and why.verdict is DelayVerdict.FRESH and late is not None and late >= 0:
        about = f"about {age_text(late)} after its end"
        if end is None:
            return Closing(about)
        return Closing(f"at {short_time(end + late + _HALF_SECOND, of.at)}", f", {about}")
    if batch is not None:
        return Closing(f"in a batch after {batch.name}")
    if end is not None and of.input_watermark is not None and of.input_watermark >= end:
        return Closing("with the next batch", ", which applies what the sources have sent")
    return None


def _is_read_late(of: QueryClocks) -> bool:
    """Return whether results wait for rows that are being read."""
    held = of.held
    return of.unprocessed is not None and of.unprocessed.is_older if held is None else held[1].kind.is_being_read


def _once_further(source: SourceStatus, hold: Hold, of: QueryClocks, end: int | None, pace: str) -> Closing:
    """Return when the watermark of a source that is held has passed the end of a window.

    ``pace``: until when all is read.
    """
    if hold.by is HeldBy.READING:
        left = [snapshot.left for snapshot in snapshots_of(of) if snapshot.left]
        about = f", about {short_time(of.at + max(left), of.at)}" if left else ""
        return _once(f"{hold.name} is read to its end", about)
    if hold.by is HeldBy.SOURCE:
        return _WITHOUT_A_LIMIT.get(hold.name, _once_limit(source, hold, of.at, end))
    is_one, further = len(holding(source)) + source.more_holds < 2, _further(end, of.at)
    passes = f"the watermark of {holders_text(source)} {further}"
    otherwise = f"once {'its watermark' if is_one else 'theirs'} {further}"
    if source.watermark is None:
        passes = f"{holders_text(source)} {'has' if is_one else 'have'} a watermark"
        otherwise = f"once {'it has' if is_one else 'they have'} one"
    then, is_silent = source.without_holder, all(each.kind.is_silence for each in holding(source))
    if source.more_holds or not is_silent or then is None or then < (end or MIN):
        return _once(passes, pace)
    return _once_left_out(source, passes, otherwise, of.at)


def _further(end: int | None, now: int) -> str:
    return "moves on" if end is None else f"passes {short_time(end, now)}"


def _once_limit(source: SourceStatus, hold: Hold, now: int, end: int | None) -> Closing:
    """Return when the limit of the alignment group is further, which another source of it holds."""
    drift, given_up = None if source.group is None else source.group.max_drift, _given_up(source, hold, now)
    if end is None or drift is None:
        return _once(f"the watermark of {hold.name} moves on", given_up)
    limit = f"; the limit is {age_text(drift)} ahead of it"
    return _once(f"the watermark of {hold.name} passes {short_time(end - drift, now)}", f"{given_up}{limit}")


_WITHOUT_A_LIMIT: Final[Mapping[str, Closing]] = {
    str(STORE): _once("the store of the group answers"),
    str(TO_COME): _once("the other sources of the group have joined"),
}
"""What closes a window while the group's limit is held by no source."""


def snapshots_of(of: QueryClocks) -> list[SnapshotProgress]:
    """Return the snapshots that are being read, and those of the same sources that are done."""
    return [each for source in of.sources if any(not s.done for s in source.snapshots) for each in source.snapshots]


def silent_peer(source: SourceStatus, hold: Hold) -> Peer | None:
    """Return the source of the group which holds if it has stopped reporting; ``None`` if it has not."""
    silent = () if source.group is None or hold.by is not HeldBy.SOURCE else source.group.silent
    return next((peer for peer in silent if peer.name == hold.name), None)


def _given_up(source: SourceStatus, hold: Hold, now: int) -> str:
    """Return when a source of the group that has stopped reporting is waited for no more."""
    peer = silent_peer(source, hold)
    if peer is None or peer.time_to_live is None:
        return ""
    at = short_time(source.at - peer.silent + peer.time_to_live, now)
    return f", or at {at}, when {hold.name} is waited for no more"


def _once_left_out(source: SourceStatus, passes: str, otherwise: str, now: int) -> Closing:
    """Return when a window closes that all who hold a source keep open by their silence.

    Args:
        source: what they hold.
        passes: when it closes if they are never left out.
        otherwise: when it closes if they do not stay silent.
        now: the present.
    """
    held = holding(source)
    it, stay = ("it", "stays") if len(held) == 1 else ("them", "stay")
    if any(hold.timeout is None for hold in held):
        return _once(passes, f", or a restart with idleTimeout leaves {it} out")
    left = [hold.timeout - hold.quiet for hold in held if hold.timeout is not None and hold.quiet is not None]
    if len(left) < len(held):
        return _once(passes)
    # The times are as of the plan; the next one leaves out whose time is over.
    at = source.at + max(left)
    when = f"soon after {short_time(at, now)}" if at > now else "with the next batch"
    return Closing(when, f" if {holders_text(source)} {stay} silent, else {otherwise}")
