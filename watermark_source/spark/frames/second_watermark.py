"""``withWatermark`` above ``follow_watermark``, refused when it is called.

Spark accepts it, and then a run with an end closes nothing, and a live query fails after some batches with advice that
makes it worse. A DataFrame that is derived from another one is of Spark's own class: so the method of that class checks
what it is called on. What calls Spark without Python's DataFrame (SQL, Scala) is not seen.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from watermark_source.errors import UsageError

_CHECKED = "_checked_by_watermark_source"


def refuse_second_watermark(of: type[DataFrame], clock: str) -> None:
    """Let ``withWatermark`` of a class of DataFrames raise ``UsageError`` where the column ``clock`` has one below."""
    spark_own = of.withWatermark
    if hasattr(spark_own, _CHECKED):
        return

    @functools.wraps(spark_own)
    def checked(self: DataFrame, eventTime: str, delayThreshold: str) -> DataFrame:  # noqa: N803 (Spark's names)
        if _has_watermark_of(self, clock):
            raise UsageError(
                f'withWatermark("{eventTime}", "{delayThreshold}"): this stream has the source\'s own watermark by '
                "follow_watermark, and Spark takes no second one: leave it out. To allow for disorder, write "
                f'.option("maxOutOfOrderness", "{delayThreshold}") where the source is read'
            )
        return spark_own(self, eventTime, delayThreshold)

    setattr(checked, _CHECKED, True)
    of.withWatermark = checked  # type: ignore[method-assign]


def _has_watermark_of(df: DataFrame, clock: str) -> bool:
    if (java := getattr(df, "_jdf", None)) is not None:
        return any(clock in str(node.eventTime()) for node in _java_nodes(java.queryExecution().logical()))
    return any(clock == getattr(node, "_event_time", None) for node in _connect_nodes(getattr(df, "_plan", None)))


def _java_nodes(node: Any) -> Iterator[Any]:
    """Yield the watermark nodes of a plan."""
    if node.getClass().getSimpleName() == "EventTimeWatermark":
        yield node
    children = node.children()
    for i in range(children.size()):
        yield from _java_nodes(children.apply(i))


def _connect_nodes(node: Any) -> Iterator[Any]:
    """Yield a plan of Spark Connect's client and all plans that it is made of."""
    if node is None:
        return
    yield node
    for part in vars(node).values():
        if isinstance(part, _plan_class()):
            yield from _connect_nodes(part)


@functools.cache
def _plan_class() -> type:
    from pyspark.sql.connect.plan import LogicalPlan  # noqa: PLC0415 - needs the packages of Connect

    return LogicalPlan
