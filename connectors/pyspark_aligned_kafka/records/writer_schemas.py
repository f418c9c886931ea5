"""The schemas that values were written with, by the ids before them: each is requested and resolved once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

import numpy as np

from pyspark_aligned_kafka.client.kept_schemas import schema_of
from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_aligned_kafka.records.payload import NO_ID, IdHeader
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.schema_ids import NOT_FRAMED, IdReader, Ids
from watermark_source.errors import SchemaError

Resolve: TypeAlias = Callable[[int | UUID, RegisteredSchema | SchemaError], int]
"""Returns the entry of a schema by its id or GUID, or of an error that it cannot be read; below zero: its values are
not read."""


def first_reasons(registry: SchemaRegistry | None) -> list[str]:
    """Return why values are not read: they have no id, and the registry does not have their schema."""
    return [NO_ID, f"the schema registry {registry} has no schema of its id"]


class WriterSchemas:
    """Finds the entries of values, by which a walk reads them.

    Without a registry that of each value with an id is 0. Values that are not read for the ``first_reasons`` have the
    entry ``refused``, and the one below it. ``serialized``: see ``SchemaRegistry.schema``.
    """

    def __init__(
        self, registry: SchemaRegistry | None, resolve: Resolve, *, refused: int, serialized: bool = False
    ) -> None:
        self._registry, self._resolve, self._serialized, self._refused = registry, resolve, serialized, refused
        self._ids = IdReader()
        self._entries: dict[int, int] = {}

    def read(self, data: Bytes, starts: Longs, lengths: Longs, header: IdHeader) -> tuple[Ids, Longs]:
        """Return the values without their ids, and the entry of each.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError, PayloadError: see ``schema_of``.
        """
        ids = self._ids.read(data, starts, lengths, header)
        numbers, places = np.unique(ids.numbers, return_inverse=True)
        return ids, np.array([self._entry(number) for number in numbers.tolist()], np.int64)[places]

    def _entry(self, number: int) -> int:
        if number == NOT_FRAMED or self._registry is None:
            return self._refused if number == NOT_FRAMED else 0
        if number not in self._entries:
            name = self._ids.name(number)
            schema: RegisteredSchema | SchemaError | None
            try:
                schema = schema_of(self._registry, name, serialized=self._serialized)
            except SchemaError as error:
                schema = error
            if schema is None:
                return self._refused - 1
            self._entries[number] = self._resolve(name, schema)
        return self._entries[number]
