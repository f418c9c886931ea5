"""Rows in event-time order as one writes it by hand: a list of rows and a timer for each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class ByHand(StatefulProcessor):
    """Keeps the rows of a key and lets go those that the watermark has passed."""

    def __init__(self, rows: Any) -> None:
        self._schema = rows

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._rows = handle.getListState("rows", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        new = [tuple(row) for row in rows]
        self._rows.appendList(new)
        self._handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 1)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        watermark = timerValues.getCurrentWatermarkInMs()
        at = self._schema.fieldNames().index("event_time")
        rows = sorted(self._rows.get(), key=lambda row: row[at])
        due = [row for row in rows if row[at].timestamp() * 1_000 <= watermark]
        stays = rows[len(due) :]
        if stays:
            self._rows.put(stays)
            self._handle.registerTimer(watermark + 1)
        else:
            self._rows.clear()
        made = Row(*self._schema.fieldNames())
        yield from (made(*row) for row in due)

    def close(self) -> None:
        pass


def ordered_by_hand(df: DataFrame, key: str) -> DataFrame:
    """Return the rows in order; late ones are dropped by Spark."""
    return df.groupBy(key).transformWithState(ByHand(df.schema), df.schema, "append", "eventTime")
