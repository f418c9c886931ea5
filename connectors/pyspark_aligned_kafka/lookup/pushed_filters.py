"""What the filters of a batch leave of its topics: of which partitions, between which offsets, from which time on.

Rows that pass are among them; others may be. Filters that say nothing about these are passed over.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql import datasource as spark

from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

Interval: TypeAlias = tuple[int, int | None]
"""From an offset on, up to but without another; ``None``: to the end."""

_NEAR: Final = 10_000
"""Single offsets no further apart than this are read in one go, with all between them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: Final[Mapping[type[spark.Filter], Callable[[Any, Any], bool]]] = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: operator.contains,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is left to be read. Picklable."""

    of_splits: tuple[spark.Filter, ...] = ()
    """Filters on ``topic`` and ``partition``."""
    offsets: tuple[Interval, ...] = ((0, None),)
    """In order, none of them touching another."""
    since: Millis | None = None
    """The lowest timestamp."""

    def takes(self, split: Split) -> bool:
        """Return whether rows of a partition can pass."""
        values: Mapping[str, Any] = {"topic": split.log, "partition": split.number}
        return bool(self.offsets) and all(_truth(f, values[_column(f)]) is not False for f in self.of_splits)


EVERYTHING = Wanted()


def wanted_by(filters: Iterable[spark.Filter], *, event_time_is_timestamp: bool) -> Wanted:
    """Return what passes all of the filters, and perhaps more."""
    times = {"timestamp", "event_time"} if event_time_is_timestamp else {"timestamp"}
    of_splits: list[spark.Filter] = []
    offsets: Sequence[Interval] = EVERYTHING.offsets
    since: Millis | None = None
    for each in filters:
        column = _column(each)
        if column in ("topic", "partition"):
            of_splits.append(each)
        elif column == "offset":
            offsets = _common(offsets, _intervals(each))
        elif column in times and (lowest := _lowest(each)) is not None:
            since = lowest if since is None else max(since, lowest)
    return Wanted(tuple(of_splits), tuple(offsets), since)


def _column(given: spark.Filter) -> str:
    """Return the name of the column that a filter is about; nothing if it is a field of one."""
    if isinstance(given, spark.Not):
        return _column(given.child)
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _truth(given: spark.Filter, value: Any) -> bool | None:
    """Return whether a value that is not null passes a filter, ``None`` if that is not known or null."""
    if isinstance(given, spark.Not):
        denied = _truth(given.child, value)
        return None if denied is None else not denied
    if isinstance(given, spark.IsNull | spark.IsNotNull):
        return isinstance(given, spark.IsNotNull)
    if isinstance(given, spark.In):
        return True if value in given.value else None if None in given.value else False
    compare = _COMPARISONS.get(type(given))
    other = getattr(given, "value", None)
    return None if compare is None or type(other) is not type(value) else compare(value, other)


def _intervals(given: spark.Filter) -> Sequence[Interval]:
    """Return which offsets pass a filter on the offset, and perhaps more."""
    if isinstance(given, spark.In):
        return _near_each_other(offset for offset in given.value if offset is not None)
    offset = getattr(given, "value", None)
    if type(offset) is not int:
        return EVERYTHING.offsets
    if isinstance(given, spark.EqualTo | spark.EqualNullSafe):
        return [(offset, offset + 1)]
    if isinstance(given, spark.GreaterThan | spark.GreaterThanOrEqual):
        return [(offset + isinstance(given, spark.GreaterThan), None)]
    if isinstance(given, spark.LessThan | spark.LessThanOrEqual):
        return [(0, offset + isinstance(given, spark.LessThanOrEqual))]
    return EVERYTHING.offsets


def _near_each_other(offsets: Iterable[int]) -> Sequence[Interval]:
    found: list[Interval] = []
    for offset in sorted(offsets):
        if found and (stop := found[-1][1]) is not None and offset - stop < _NEAR:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def _common(some: Sequence[Interval], others: Sequence[Interval]) -> Sequence[Interval]:
    found = []
    for a, b in some:
        for c, d in others:
            start = max(a, c)
            stop = d if b is None else b if d is None else min(b, d)
            if stop is None or start < stop:
                found.append((start, stop))
    return found


def _lowest(given: spark.Filter) -> Millis | None:
    """Return the lowest timestamp that passes a filter on a timestamp, ``None`` if any may."""
    value = getattr(given, "value", None)
    if isinstance(given, spark.In):
        times = [micros for each in given.value if each is not None and (micros := _micros(each)) is not None]
        # Without a time that is known nothing is known: a list of nulls alone is no filter that Spark pushes.
        return _millis(min(times)) if len(times) == len(given.value) - given.value.count(None) and times else None
    if isinstance(given, spark.EqualTo | spark.EqualNullSafe | spark.GreaterThanOrEqual | spark.GreaterThan):
        micros = _micros(value)
        return None if micros is None else _millis(micros + isinstance(given, spark.GreaterThan))
    return None


def _micros(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _millis(micros: int) -> Millis:
    """Return the first millisecond that is not before a moment: Kafka's timestamps have no more than that."""
    return Millis(-(-micros // 1_000))
