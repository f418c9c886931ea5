"""``python -m watermark_source complete``: whether a table is complete up to a time, and who holds it if it is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from enum import IntEnum
from typing import Final, TextIO

from watermark_source.errors import SourceError, UserError, reason_of
from watermark_source.monitor.checkpoint import query_of_checkpoint
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.window_facts import time_text
from watermark_source.publishing.database import shown
from watermark_source.publishing.mark import Holder, or_least
from watermark_source.publishing.places import holder_at

_POLL_S: Final = 2.0


class Completeness(IntEnum):
    """What is known of a table and a time. The value is the exit status of the command."""

    COMPLETE = 0
    NOT_YET = 1
    NO_WRITER = 2
    """None has stated anything, or the one that holds the table has ended."""


def state_of(holder: Holder | None, end: int) -> Completeness:
    """Return what is known of a table whose time is held by a writer, and a time in milliseconds. Pure."""
    if holder is None or holder.mark is None:
        return Completeness.NO_WRITER
    if or_least(holder.mark.watermark) >= end:
        return Completeness.COMPLETE
    return Completeness.NO_WRITER if holder.mark.ended else Completeness.NOT_YET


def complete(
    place: str, end: int, writers: Collection[str], out: TextIO, *, seconds: float, sleep: Callable[[float], None]
) -> Completeness:
    """Print in a line whether a table is complete up to a time, once it is or ``seconds`` have passed.

    A writer that has ended is waited for as long: its next run may be due, and a place that does not answer may answer.

    Raises:
        UsageError: the place is not accepted.
        SourceError: it could not be read at the end.
    """
    until = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() >= until
        try:
            holder = holder_at(place, writers)
        except SourceError:
            if is_last:
                raise
        else:
            state = state_of(holder, end)
            if is_last or state is Completeness.COMPLETE:
                out.write(f"{_sentence(shown(place), end, holder, state)}\n")
                return state
        sleep(max(0.0, min(_POLL_S, until - time.monotonic())))


def _sentence(place: str, end: int, holder: Holder | None, state: Completeness) -> str:
    if holder is None:
        return (
            f"{place}: no writer has stated anything; start one: publish_completeness(query, to=…, writer=…), or "
            "completeness_of in its foreachBatch"
        )
    if holder.mark is None:
        return f"{place}: writer {holder.writer} has stated nothing yet"
    reached = f"writer {holder.writer} is complete until {time_text(holder.mark.watermark)}"
    if state is Completeness.COMPLETE:
        return f"{place} is complete until {time_text(end)}: {reached}"
    ended = " and has ended" if holder.mark.ended else ""
    return f"{place} is not complete until {time_text(end)}: {reached}{ended}; {_why(holder.mark.checkpoint, end)}"


def _why(checkpoint: str, end: int) -> str:
    """Return who holds a query, by its checkpoint: of a query that has ended, or runs in another process."""
    try:
        return open_window(query_of_checkpoint(checkpoint), end).sentence
    except UserError as error:
        return f"why is not known: {reason_of(error)}"
