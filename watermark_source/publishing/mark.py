"""Mark: what one writer states of a table, and what follows for the table from the marks of all its writers. Pure.

A mark is JSON of this form::

    {"completeness": 1,            version of this form
     "writer": "hourly-counts",    name of the writer, unique among the writers of the table
     "query": "5b1d0c2e-…",        id of its checkpoint
     "batch": 17,                  its last batch whose rows are in the table; null: none yet
     "until": 1700000000000,       milliseconds; null: nothing is known to be complete; "end": it writes no more
     "ended": false,               whether the query has ended, and may be started again
     "checkpoint": "file:/…"}      its checkpointLocation

It promises: each row of this writer with an event time before ``until`` that is on time for its query is in the table.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from watermark_source.errors import CorruptDataError, shortened
from watermark_source.planning.announcement import is_name
from watermark_source.planning.watermark import LAST_MOMENT, MAX, MIN, Millis

_VERSION: Final = 1
_KEY: Final = "completeness"
_END: Final = "end"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a writer states of a table after a batch. ``str`` returns its JSON."""

    writer: str
    query: str
    batch: int | None
    watermark: Millis | None
    ended: bool = False
    checkpoint: str

    @property
    def until(self) -> dt.datetime | None:
        """Up to when the rows of this writer are complete, in UTC."""
        return moment_of(self.watermark)

    def __str__(self) -> str:
        fields = asdict(self)
        until = fields.pop("watermark")
        return json.dumps({_KEY: _VERSION, **fields, "until": _END if until == MAX else until}, ensure_ascii=False)


def moment_of(until: int | None) -> dt.datetime | None:
    """Return a time as a ``datetime`` in UTC: the last that there is for the end of time."""
    if until is None:
        return None
    try:
        return _EPOCH + dt.timedelta(milliseconds=until)
    except OverflowError:
        return _FIRST if until < 0 else _LAST


def decoded(text: str | bytes, where: str) -> Mark | None:
    """Return the mark that a text is; ``None`` for what another program wrote, such as its ``userMetadata``.

    Raises:
        CorruptDataError: it is a mark, and cannot be read: it is damaged, or of a newer release.
    """
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping) or type(found.get(_KEY)) is not int or "writer" not in found:
        return None
    try:
        return _mark(found)
    except (KeyError, ValueError) as error:
        raise CorruptDataError(
            f"{where} is not a mark of version {_VERSION}: {error}; seen: {shortened(text)}. Read it with the release "
            "that wrote it; with its next batch the writer states another"
        ) from None


def _mark(found: Mapping[str, Any]) -> Mark:
    given = dict(found)
    version, until = given.pop(_KEY), given.pop("until")
    watermark = MAX if until == _END else until
    if version != _VERSION or given.keys() != Mark.__dataclass_fields__.keys() - {"watermark"}:
        raise ValueError(f"version {shortened(version)}, keys {shortened(sorted(found))}")
    mark = Mark(**given, watermark=watermark)
    is_time = watermark in (None, MAX) or (type(watermark) is int and MIN < watermark <= LAST_MOMENT)
    is_right = is_time and is_name(mark.writer) and type(mark.batch) in (int, type(None)) and type(mark.ended) is bool
    if not (is_right and is_name(mark.query) and isinstance(mark.checkpoint, str)):
        raise ValueError("a value that no writer writes")
    return mark


def refusal_after_end(query: str, standing: Mark) -> str | None:
    """Return why a query cannot state under a name of which another has stated the end; ``None`` if it can."""
    if standing.watermark != MAX or standing.query == query:
        return None
    return (
        f"writer {standing.writer}: the query of {standing.checkpoint} has stated under this name that it writes no "
        "more, so that readers count on every row. Give this query another name"
    )


def newest(marks: Iterable[Mark]) -> Mapping[str, Mark]:
    """Return what counts of each writer: the latest time, of the newest run of several with the same one.

    What was promised by an earlier run, or before a new checkpoint, is still true of the table.
    """
    found: dict[str, Mark] = {}
    for mark in marks:
        other = found.get(mark.writer)
        if other is None or _order(mark) >= _order(other):
            found[mark.writer] = mark
    return found


def _order(mark: Mark) -> tuple[int, bool, int]:
    return or_least(mark.watermark), not mark.ended, mark.batch or 0


def or_least(watermark: Millis | None) -> Millis:
    """Return a time to compare with others; nothing known is before all of them."""
    return MIN if watermark is None else watermark


class Holder(NamedTuple):
    """The writer whose time is that of the table: the lowest."""

    writer: str
    mark: Mark | None
    """``None``: it has stated nothing yet."""


def holder_of(marks: Mapping[str, Mark], writers: Collection[str] = ()) -> Holder | None:
    """Return the writer that holds the time of a table; ``None`` without a writer.

    Args:
        marks: by writer.
        writers: names of writers that are waited for, beside those that have a mark.
    """
    every = [Holder(name, marks.get(name)) for name in sorted({*marks, *writers})]
    return min(every, key=lambda each: or_least(each.mark.watermark if each.mark else None), default=None)
