"""Watermarks as texts for people: dates, or words where a watermark is no time."""

from __future__ import annotations

import datetime as dt

from watermark_source.eventtime.watermark import MAX, MIN

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def is_moment(watermark: int | None) -> bool:
    """Return whether a watermark is one at all, and neither the start nor the end of time."""
    return watermark not in (None, MIN, MAX)


def watermark_text(watermark: int | None, *, raw: bool = False) -> str:
    """Return a watermark as UTC date and time, or ``raw`` as milliseconds; in words where it is no time."""
    if watermark is None:
        return "none yet"
    if raw:
        return str(watermark)
    if not is_moment(watermark):
        return "start of time" if watermark == MIN else "end of time"
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=watermark)
    except OverflowError:
        return str(watermark)
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
