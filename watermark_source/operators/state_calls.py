"""Questions to a state of Spark's: many at once, where Spark's own client waits for each answer before it asks on.

The server of a task's state takes one message after the other from a socket, and answers in that order. So messages are
sent in groups, and their answers read after that. A group is small enough to fit into the sockets' buffers: neither
side ever waits for the other to read.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import BinaryType, StructField, StructType

from watermark_source.errors import InternalError

_MOST_QUESTIONS, _MOST_BYTES = 128, 32_768
_OK, _NOT_THERE = 0, 2
_HEAD, _VERSION = struct.Struct("!ii"), 0
"""Of each message: the protocol's version, and the message's length."""


Cells = tuple[Any, ...]


def value_of(state: ValueState) -> Cells | None:
    """Return a state's value, ``None`` if it has none; Spark writes a warning to its log for each that is only read."""
    value: Cells | None = state.get() if state.exists() else None
    return value


class OneByOne:
    """The same by Spark's public interface."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, keys: Iterable[Cells]) -> Iterator[Cells | None]:
        """Yield the value of each key, ``None`` where there is none."""
        yield from map(self._state.getValue, keys)

    def write(self, pairs: Iterable[tuple[Cells, Cells]]) -> None:
        """Set the values of keys."""
        for key, value in pairs:
            self._state.updateValue(key, value)

    def remove(self, keys: Iterable[Cells]) -> None:
        """Remove keys."""
        for key in keys:
            self._state.removeKey(key)


class MapCalls:
    """Reads, sets and removes keys of a map state. Keys and values are tuples, as for Spark's ``MapState``."""

    def __init__(self, state: Any) -> None:
        """Take over a ``MapState``; raises ``AttributeError`` where Spark's client is not made as it is known."""
        import pyspark.sql.streaming.proto.StateMessage_pb2 as messages  # noqa: PLC0415 - where Spark has protobuf

        self._messages = messages
        self._name = state._stateName  # noqa: SLF001 - Spark has no other way to it
        map_client = state._mapStateClient  # noqa: SLF001 - as above
        self._key_type, self._value_type = map_client.user_key_schema, map_client.value_schema
        self._client = map_client._stateful_processor_api_client  # noqa: SLF001 - as above
        self._encode, self._decode = self._client._serialize_to_bytes, self._client._deserialize_from_bytes  # noqa: SLF001
        self._answer, self._file = self._client._receive_proto_message, self._client.sockfile  # noqa: SLF001

    def read(self, keys: Iterable[Cells]) -> Iterator[Cells | None]:
        """Yield the value of each key, ``None`` where there is none."""
        get = self._messages.GetValue
        for value in self._asked(self._call(getValue=get(userKey=self._key(key))) for key in keys):
            yield self._decode(value) if value else None

    def write(self, pairs: Iterable[tuple[Cells, Cells]]) -> None:
        """Set the values of keys."""
        update = self._messages.UpdateValue
        for _ in self._asked(
            self._call(updateValue=update(userKey=self._key(key), value=self._encode(self._value_type, value)))
            for key, value in pairs
        ):
            pass

    def remove(self, keys: Iterable[Cells]) -> None:
        """Remove keys."""
        remove = self._messages.RemoveKey
        for _ in self._asked(self._call(removeKey=remove(userKey=self._key(key))) for key in keys):
            pass

    def _key(self, key: Cells) -> bytes:
        encoded: bytes = self._encode(self._key_type, key)
        return encoded

    def _call(self, **call: Any) -> bytes:
        of_map = self._messages.MapStateCall(stateName=self._name, **call)
        request = self._messages.StateVariableRequest(mapStateCall=of_map)
        message: bytes = self._messages.StateRequest(stateVariableRequest=request).SerializeToString()
        return message

    def _asked(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        for group in groups(messages):
            for message in group:
                self._file.write(_HEAD.pack(_VERSION, len(message)))
                self._file.write(message)
            self._file.flush()
            for _ in group:
                status, error, value = self._answer()
                if status not in (_OK, _NOT_THERE):
                    raise InternalError(f"Spark's state server refused a question about {self._name}: {error}")
                yield value


def groups(messages: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield messages that may be sent together; one that is too large for that is alone."""
    taken: list[bytes] = []
    size = 0
    for message in messages:
        if taken and (len(taken) == _MOST_QUESTIONS or size + len(message) > _MOST_BYTES):
            yield taken
            taken, size = [], 0
        taken.append(message)
        size += len(message)
    if taken:
        yield taken


# The state of many keys of one bucket: Python values by the keys' bytes, read and written together.


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
