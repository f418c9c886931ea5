"""Where the pieces of the rows that wait are kept: a map of Spark's state, of the bucket that Spark is at."""

from __future__ import annotations

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

_NUMBER = StructType([StructField("number", LongType())])
_ROWS = StructType([StructField("rows", BinaryType())])


class MapPieces:
    """A ``PieceStore`` in the state of this name: its keys are one number, its values one binary cell."""

    def __init__(self, handle: StatefulProcessorHandle, name: str) -> None:
        self._state = handle.getMapState(name, _NUMBER, _ROWS)

    def read(self, number: int) -> bytes:
        """Return a piece."""
        return bytes(self._state.getValue((number,))[0])  # type: ignore[index]

    def write(self, number: int, data: bytes) -> None:
        """Keep a piece."""
        self._state.updateValue((number,), (data,))

    def remove(self, number: int) -> None:
        """Forget a piece."""
        self._state.removeKey((number,))
