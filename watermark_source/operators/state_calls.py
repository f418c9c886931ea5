"""Pipelined requests to Spark's state server, where Spark's own client waits for each response.

The state server of a task reads messages from a socket one by one, and responds in the same order. So requests are sent
in groups, and the responses are read after each group. A group fits into the sockets' buffers, so that neither side
ever blocks on the other.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import BinaryType, StructField, StructType

from watermark_source.errors import InternalError
from watermark_source.grouping import grouped

_MOST_REQUESTS, _MOST_BYTES = 128, 32_768
_OK, _NO_VALUE = 0, 2
_HEAD, _VERSION = struct.Struct("!ii"), 0
"""Head of each message: the protocol's version, and the message's length in bytes."""
_KEY = StructType([StructField("key", BinaryType())])
VALUE = StructType([StructField("value", BinaryType())])

Cells = tuple[Any, ...]


def value_of(state: ValueState) -> Cells | None:
    """Return a state's value, ``None`` if it has none; Spark logs a warning for a missing value that is just read."""
    value: Cells | None = state.get() if state.exists() else None
    return value


class KeyValues:
    """A map state from bytes to Python values, which are pickled: no other program writes the state."""

    def __init__(self, handle: StatefulProcessorHandle, name: str) -> None:
        state = handle.getMapState(name, _KEY, VALUE)
        self._state: MapCalls | OneByOne
        try:
            self._state = MapCalls(state)
        except (AttributeError, ImportError):  # another version of Spark's client
            self._state = OneByOne(state)

    def read(self, keys: Iterable[bytes]) -> list[Any]:
        """Return the value of each key, ``None`` for a key without a value."""
        values = self._state.read((key,) for key in keys)
        return [None if value is None else pickle.loads(value[0]) for value in values]  # noqa: S301 - written below

    def write(self, values: Mapping[bytes, Any]) -> None:
        """Set values of keys."""
        self._state.write(((key,), (pickle.dumps(value, pickle.HIGHEST_PROTOCOL),)) for key, value in values.items())

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove keys, with or without a value."""
        self._state.remove((key,) for key in keys)


class OneByOne:
    """The interface of ``MapCalls`` through Spark's public client, one request at a time."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, keys: Iterable[Cells]) -> Iterator[Cells | None]:
        """Yield the value of each key, ``None`` for a key without a value."""
        for key in keys:
            yield self._state.getValue(key) if self._state.containsKey(key) else None

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
        """Use a ``MapState``'s connection; raises ``AttributeError`` for a Spark client with other internals."""
        import pyspark.sql.streaming.proto.StateMessage_pb2 as messages  # noqa: PLC0415 - needs protobuf

        self._messages = messages
        self._name = state._stateName  # noqa: SLF001 - Spark has no public accessor
        map_client = state._mapStateClient  # noqa: SLF001 - as above
        self._key_type, self._value_type = map_client.user_key_schema, map_client.value_schema
        self._client = map_client._stateful_processor_api_client  # noqa: SLF001 - as above
        self._encode, self._decode = self._client._serialize_to_bytes, self._client._deserialize_from_bytes  # noqa: SLF001
        self._response, self._file = self._client._receive_proto_message, self._client.sockfile  # noqa: SLF001

    def read(self, keys: Iterable[Cells]) -> Iterator[Cells | None]:
        """Yield the value of each key, ``None`` for a key without a value."""
        # Spark logs a warning for each missing value that is just read.
        contains, get = self._messages.ContainsKey, self._messages.GetValue
        wanted = [self._key(key) for key in keys]
        answers = self._responses(self._call(containsKey=contains(userKey=key)) for key in wanted)
        is_there = [status == _OK for status, _ in answers]
        present = (key for key, there in zip(wanted, is_there, strict=True) if there)
        values = self._responses(self._call(getValue=get(userKey=key)) for key in present)
        for there in is_there:
            yield self._decode(next(values)[1]) if there else None

    def write(self, pairs: Iterable[tuple[Cells, Cells]]) -> None:
        """Set the values of keys."""
        update = self._messages.UpdateValue
        for _ in self._responses(
            self._call(updateValue=update(userKey=self._key(key), value=self._encode(self._value_type, value)))
            for key, value in pairs
        ):
            pass

    def remove(self, keys: Iterable[Cells]) -> None:
        """Remove keys."""
        remove = self._messages.RemoveKey
        for _ in self._responses(self._call(removeKey=remove(userKey=self._key(key))) for key in keys):
            pass

    def _key(self, key: Cells) -> bytes:
        encoded: bytes = self._encode(self._key_type, key)
        return encoded

    def _call(self, **call: Any) -> bytes:
        of_map = self._messages.MapStateCall(stateName=self._name, **call)
        request = self._messages.StateVariableRequest(mapStateCall=of_map)
        message: bytes = self._messages.StateRequest(stateVariableRequest=request).SerializeToString()
        return message

    def _responses(self, messages: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        for group in groups(messages):
            for message in group:
                self._file.write(_HEAD.pack(_VERSION, len(message)))
                self._file.write(message)
            self._file.flush()
            for _ in group:
                status, error, value = self._response()
                if status not in (_OK, _NO_VALUE):
                    raise InternalError(f"Spark's state server refused a request for {self._name}: {error}")
                yield status, value


def groups(messages: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    """Return groups of messages that fit into the sockets' buffers; a larger message is a group by itself."""
    # So many requests at most, however short each is.
    return grouped(messages, lambda message: max(len(message), _MOST_BYTES // _MOST_REQUESTS), _MOST_BYTES)
