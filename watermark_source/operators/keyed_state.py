"""The state of many keys of one bucket: Python values by the keys' bytes, read and written together."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from watermark_source.operators.state_calls import MapCalls, OneByOne

_KEY = StructType([StructField("key", BinaryType())])
_VALUE = StructType([StructField("value", BinaryType())])


class KeyValues:
    """A map state of pickled values: what Python wrote itself, and nobody else can."""

    def __init__(self, handle: StatefulProcessorHandle, name: str) -> None:
        state = handle.getMapState(name, _KEY, _VALUE)
        self._state: MapCalls | OneByOne
        try:
            self._state = MapCalls(state)
        except (AttributeError, ImportError):  # another Spark's client
            self._state = OneByOne(state)

    def read(self, keys: Iterable[bytes]) -> list[Any]:
        """Return the value of each key, ``None`` where there is none."""
        found = self._state.read((key,) for key in keys)
        return [None if value is None else pickle.loads(value[0]) for value in found]  # noqa: S301 - written below

    def write(self, values: Mapping[bytes, Any]) -> None:
        """Set values of keys."""
        self._state.write(((key,), (pickle.dumps(value, pickle.HIGHEST_PROTOCOL),)) for key, value in values.items())

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove keys, whether they are there or not."""
        self._state.remove((key,) for key in keys)
