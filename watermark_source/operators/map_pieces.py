"""Where the pieces of the rows that wait are kept: a map of Spark's state, of the bucket that Spark is at."""

from __future__ import annotations

from pyspark.sql.streaming.stateful_processor import MapState


class MapPieces:
    """A ``PieceStore`` whose keys are one number, and whose values one binary cell."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, number: int) -> bytes:
        """Return a piece."""
        return bytes(self._state.getValue((number,))[0])  # type: ignore[index]

    def write(self, number: int, data: bytes) -> None:
        """Keep a piece."""
        self._state.updateValue((number,), (data,))

    def remove(self, number: int) -> None:
        """Forget a piece."""
        self._state.removeKey((number,))
