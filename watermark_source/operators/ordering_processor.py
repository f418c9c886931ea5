"""OrderingProcessor: the stateful operator of ``order_by_event_time``, with one timer for each bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from watermark_source.errors import UsageError
from watermark_source.operators.state_calls import value_of
from watermark_source.operators.waiting_rows import (
    Buffer,
    RowLayout,
    Waiting,
    from_bytes,
    piece_state,
    to_bytes,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues, ValueState

_INDEX = StructType().add("columns", "string").add("pieces", "binary")


class OrderingProcessor(StatefulProcessor):
    """Orders the rows of a bucket; reads packs and emits packs, for ``transformWithStateInPandas``.

    A bucket's state is pieces of sorted rows, and an index of the pieces.

    Args:
        layout: the rows' columns.
        described: a text of everything the state depends on, which a checkpoint's text must equal.
    """

    def __init__(self, layout: RowLayout, described: str) -> None:
        self._layout = layout
        self._described = described

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._index: ValueState = handle.getValueState("index", _INDEX)
        self._pieces = piece_state(handle, "pieces")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Add new rows to the state; emit late rows at once."""
        packs = sorted(
            pack
            for frame in rows
            for pack in zip(frame["task"].tolist(), frame["number"].tolist(), frame["rows"].tolist(), strict=True)
        )
        arrived = (from_bytes(data, self._layout.columns) for _, _, data in packs)
        buffer = self._read()
        old = buffer.waiting.alarm
        for late in buffer.take_in(arrived, timerValues.getCurrentWatermarkInMs()):
            yield _emitted(late, is_late=True)
        self._write(buffer.waiting)
        if (new := buffer.waiting.alarm) != old:
            if old is not None:
                self._handle.deleteTimer(old)
            if new is not None:
                self._handle.registerTimer(new)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Emit the rows that the watermark has passed."""
        buffer = self._read()
        for rows in buffer.release(timerValues.getCurrentWatermarkInMs() * 1_000):
            yield _emitted(rows, is_late=False)
        self._write(buffer.waiting)
        # Spark deletes the expired timer.
        if (new := buffer.waiting.alarm) is not None:
            self._handle.registerTimer(new)

    def close(self) -> None:
        """Close nothing: Spark closes the state."""

    def _read(self) -> Buffer:
        index = value_of(self._index)
        if index is None:
            return Buffer(self._layout, self._pieces)
        described, encoded = index
        waiting = Waiting.decode(bytes(encoded))
        if waiting.pieces and described != self._described:
            raise UsageError(
                f"order_by_event_time: the rows that wait in this checkpoint are {described}; the query's rows are now "
                f"{self._described}. None of this may change while rows wait: change it back, or start with a new "
                "checkpointLocation"
            )
        return Buffer(self._layout, self._pieces, waiting)

    def _write(self, waiting: Waiting) -> None:
        self._index.update((self._described, waiting.encode()))


def _emitted(rows: pa.RecordBatch, *, is_late: bool) -> pd.DataFrame:
    # Spark's stateful operators import pandas; the driver does not need it.
    import pandas as pd  # noqa: PLC0415 - see above

    return pd.DataFrame({"late": [is_late], "rows": [to_bytes(rows)]})
