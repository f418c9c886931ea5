"""Messages of Protobuf behind the ids of their schemas and their indexes in these: Confluent's wire format."""

from __future__ import annotations

from uuid import UUID

import numpy as np

from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema
from pyspark_aligned_kafka.records.payload import IdHeader
from pyspark_aligned_kafka.records.protobuf_messages import MessageSchema, index_in_schema
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.writer_schemas import WriterSchemas, first_reasons
from watermark_source.errors import SchemaError
from watermark_source.machine_code.native import Word, address_of, compiled, inlined, signed_at

_BAD, _OTHER = np.int64(-1), np.int64(-2)
"""In place of where a message begins: the index before it is invalid, or that of another message."""


@inlined
def _after_index(data: Word, at: Word, stop: Word, index: Word) -> Word:
    """Return where the message begins after its index; -1 for an invalid index, -2 for that of another message."""
    count, at = signed_at(data, at, stop)
    if at < 0 or not 0 <= count <= stop - at:
        return _BAD
    wanted = index.shape[0]
    if count == 0:
        # An empty index means the single number 0.
        return at if wanted == 0 or (wanted == 1 and index[0] == 0) else _OTHER
    same = wanted in (0, count)
    for i in range(count):
        number, at = signed_at(data, at, stop)
        if at < 0 or number < 0:
            return _BAD
        same = same and (wanted == 0 or index[i] == number)
    return at if same else _OTHER


@compiled("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1])")
def _index_ends(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, stops: Word, entries: Word, spans: Word, numbers: Word, ends: Word
) -> None:
    """Write the ends of the indexes that begin at ``starts``, or ``_BAD`` or ``_OTHER``.

    The wanted index of a row is ``numbers`` from ``spans[entry, 0]`` to ``spans[entry, 1]``; an entry below zero is
    left out.
    """
    data = address_of(array)
    for row in range(starts.shape[0]):
        entry = entries[row]
        if entry >= 0:
            wanted = numbers[spans[entry, 0] : spans[entry, 1]]
            ends[row] = _after_index(data, starts[row], stops[row], wanted)


class MessageOpener:
    """Finds the messages behind the ids and the indexes of values."""

    def __init__(self, schema: MessageSchema, field: str) -> None:
        self._schema, self._field = schema, field
        name = schema.message.name
        self.reasons = [*first_reasons(schema.registry), "it has no valid index of a message behind the id",
                        f"by its index it is a message other than {name}"]  # fmt: skip
        # An entry is a row of the table of wanted indexes, or below zero the reason why values are not read.
        self._schemas = WriterSchemas(schema.registry, self._resolved, refused=-1, serialized=True)
        self._indexes: list[tuple[int, ...]] = [schema.index]

    def open(self, data: Bytes, starts: Longs, lengths: Longs, header: IdHeader) -> tuple[Longs, Longs, Longs]:
        """Return where messages begin, their lengths, and why values are not read.

        A length is below zero for a null, and for a value that is not read. Why: for each value 0, or one more than
        the number of the reason.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError, PayloadError: see ``schema_of``.
            MissingPackageError, UnsupportedFormatError: see ``index_in_schema``.
        """
        ids, entries = self._schemas.read(data, starts, lengths, header)
        stops = np.cumsum([0, *(len(index) for index in self._indexes)])
        spans = np.ascontiguousarray(np.stack([stops[:-1], stops[1:]], axis=1), np.int64)
        wanted, ends = np.array(sum(self._indexes, ()), np.int64), np.zeros(len(starts), np.int64)
        _index_ends(data, ids.at, ids.stop, entries, spans, wanted, ends)
        refused = np.where(entries < 0, -entries, np.where(ends < 0, np.where(ends == _OTHER, 4, 3), 0))
        refused[ids.lengths < 0] = 0
        in_value = ids.at == ids.starts
        begins, sizes = np.where(in_value, ends, ids.starts), np.where(in_value, ids.stop - ends, ids.lengths)
        sizes[(refused > 0) | (ids.lengths < 0)] = -1
        return begins, sizes, refused

    def _resolved(self, name: int | UUID, schema: RegisteredSchema | SchemaError) -> int:
        registry, message = self._schema.registry, self._schema.message
        assert registry is not None
        try:
            if isinstance(schema, SchemaError):
                raise schema
            index = index_in_schema(message, schema, registry)
        except SchemaError as error:
            what = f"its writer's schema {name} does not resolve to {message.name} of {self._field}Schema"
            self.reasons.append(f"{what}: {error}")
            return -len(self.reasons)
        if index not in self._indexes:
            self._indexes.append(index)
        return self._indexes.index(index)
