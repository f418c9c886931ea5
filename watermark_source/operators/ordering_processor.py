"""The state operator that orders rows: its state is pieces of rows and their index, and one timer a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from watermark_source.errors import UsageError
from watermark_source.operators.bucketed_batches import gathered
from watermark_source.operators.state_calls import value_of
from watermark_source.operators.waiting_rows import Buffer, MapPieces, RowLayout, Waiting, from_bytes, to_bytes

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues, ValueState

_INDEX = StructType([StructField("columns", StringType()), StructField("pieces", BinaryType())])


class OrderingProcessor(StatefulProcessor):
    """Orders the rows of a bucket; takes packs and yields packs, for ``transformWithStateInPandas``.

    Args:
        layout: the rows' columns.
        described: those and what else the state depends on, as text.
    """

    def __init__(self, layout: RowLayout, described: str) -> None:
        self._layout = layout
        self._described = described

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        self._index: ValueState = handle.getValueState("index", _INDEX)
        self._pieces = MapPieces(handle, "pieces")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        """Keep what has come; rows that are late leave at once."""
        packs = sorted(
            pack
            for frame in rows
            for pack in zip(frame["task"].tolist(), frame["number"].tolist(), frame["rows"].tolist(), strict=True)
        )
        millis = timerValues.getCurrentWatermarkInMs()
        # Before the first watermark Spark tells 0, and nothing is late then, a snapshot's rows of 1970 neither.
        watermark = millis * 1_000 if millis > 0 else None
        buffer = self._open()
        alarm = buffer.waiting.alarm
        for arrived in gathered(from_bytes(data, self._layout.columns) for _, _, data in packs):
            late = buffer.take_in(arrived, watermark)
            if late.num_rows:
                yield _left(late, is_late=True)
        buffer.merge_small()
        self._keep(buffer.waiting)
        if (new := buffer.waiting.alarm) != alarm:
            if alarm is not None:
                self._handle.deleteTimer(alarm)
            if new is not None:
                self._handle.registerTimer(new)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[pd.DataFrame]:
        """Let go what the watermark has passed."""
        buffer = self._open()
        for leaving in buffer.release(timerValues.getCurrentWatermarkInMs() * 1_000):
            yield _left(leaving, is_late=False)
        self._keep(buffer.waiting)
        # Spark takes the timer that has expired away by itself.
        if (new := buffer.waiting.alarm) is not None:
            self._handle.registerTimer(new)

    def close(self) -> None:
        """Nothing is held open."""

    def _open(self) -> Buffer:
        found = value_of(self._index)
        if found is None:
            return Buffer(self._layout, self._pieces)
        waiting = Waiting.decode(bytes(found[1]))
        if waiting.pieces and found[0] != self._described:
            raise UsageError(
                f"order_by_event_time: in this checkpoint rows wait that are {found[0]}; the query's are now "
                f"{self._described}. While rows wait, all of this stays as it is: change it back, or begin with a new "
                "checkpoint"
            )
        return Buffer(self._layout, self._pieces, waiting)

    def _keep(self, waiting: Waiting) -> None:
        self._index.update((self._described, waiting.encode()))


def _left(rows: pa.RecordBatch, *, is_late: bool) -> pd.DataFrame:
    # Spark's stateful operators have loaded it by now; the driver need not.
    import pandas as pd  # noqa: PLC0415 - see above

    return pd.DataFrame({"late": [is_late], "rows": [to_bytes(rows)]})
