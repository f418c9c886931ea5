"""An event-time timer on transformWithState: counts the rows of a key, and shows when its time has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType


def counted_after(milliseconds: int, rows: DataFrame, key: str) -> DataFrame:
    """Return how many rows a key has when event time is so much later than its first row."""
    out = StructType([rows.schema[key], StructField("n", LongType())])
    return rows.groupBy(key).transformWithState(CountUntilTimer(key, milliseconds), out, "append", "eventTime")


class CountUntilTimer(StatefulProcessor):
    """Counts until the timer that the first row has set."""

    def __init__(self, key: str, milliseconds: int) -> None:
        self._key, self._milliseconds = key, milliseconds

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", StructType([StructField("n", LongType())]))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's
        taken = list(rows)
        if not self._count.exists():
            first = min(row.event_time for row in taken)
            self._handle.registerTimer(int(first.timestamp() * 1_000) + self._milliseconds)
        self._count.update((self._known() + len(taken),))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's
        count = self._known()
        self._count.clear()
        yield Row(**{self._key: key[0], "n": count})

    def _known(self) -> int:
        found = self._count.get() if self._count.exists() else None
        return 0 if found is None else int(found[0])

    def close(self) -> None:
        pass
