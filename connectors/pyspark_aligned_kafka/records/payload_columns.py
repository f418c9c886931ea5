"""The struct column of decoded values: JSON documents to Arrow, as Spark's ``from_json`` reads them.

Compiled code reads the plain documents of a block, and ``payload_exact`` each of the others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from pyspark_aligned_kafka.records.json_members import misplaced
from pyspark_aligned_kafka.records.payload import NO_ID, Decoded, IdHeader, PayloadChoice, Places, Values
from pyspark_aligned_kafka.records.payload_cells import CellColumns, CellKind, arrow_type, replaced
from pyspark_aligned_kafka.records.payload_exact import ExactReader, Reading
from pyspark_aligned_kafka.records.payload_schema import CORRUPT_MEMBER
from pyspark_aligned_kafka.records.payload_walk import STACK, walk_all
from pyspark_aligned_kafka.records.record_batches import Bytes
from pyspark_aligned_kafka.records.schema_ids import IdReader

_MOST_DOCUMENTS, _MOST_BYTES = 100, 1 << 18
"""Documents, and their bytes together, in which the members of a schema are looked for."""
_WITHOUT_ID = 2
"""Of a document: it is not behind an id, as others beside it are."""


class JsonReader:
    """``PayloadReader`` of JSON."""

    def __init__(self, choice: PayloadChoice) -> None:
        self._choice, self._ids = choice, IdReader()
        whole = choice.schema
        assert isinstance(whole, StructType)
        schema = StructType([field for field in whole.fields if field.name != CORRUPT_MEMBER])
        self._type, self._read_type = arrow_type(whole), arrow_type(schema)
        self._columns = CellColumns(schema, {BinaryType: CellKind.BASE64}, zone_is_utc=choice.zone == "UTC")
        self._located = -1 if choice.located is None else self._columns.node_at(schema, choice.located.steps)
        self._exact = ExactReader(schema, choice.zone)
        self._schema = schema
        self._is_looked_at = False
        """Whether the schema's members have been looked for in documents."""
        self._stack = np.zeros(STACK, np.int64)

    def read(self, values: Values, header: IdHeader = None) -> Decoded:
        """Decode documents; see ``PayloadReader``."""
        if self._choice.framed:
            ids = self._ids.read(values.data, values.starts, values.lengths, header)
            values, without_id = values._replace(starts=ids.starts, lengths=ids.lengths), ids.without
        _, data, starts, lengths, _ = values
        rows, made = len(starts), self._columns
        unusual = np.empty(rows, np.uint8)
        wanted = self._located
        found = np.empty((3, rows if wanted >= 0 else 0), np.int64)
        made.fill(
            rows,
            lambda: walk_all(
                data, starts, lengths, made.members, made.names, self._stack, unusual, *made.arrays, wanted, found
            ),
        )
        if self._choice.framed:
            unusual[without_id] = _WITHOUT_ID
        column, malformed = self._with_text(made.column(data, self._read_type), pa.nulls(rows, pa.string())), 0
        if unusual.any():
            column, malformed = self._with_unusual(values, column, unusual)
        if not self._is_looked_at:
            self._look_for_members(values, column)
        path = self._choice.located
        if path is None or wanted < 0:
            return Decoded(column, malformed)
        return Decoded(column, malformed, places=Places(path, found, np.flatnonzero(unusual)))

    def _look_for_members(self, values: Values, column: pa.Array) -> None:
        """Report, of the first block with documents, members of the schema that are null because they are elsewhere."""
        lengths = values.lengths
        rows = np.flatnonzero(lengths > 0)
        self._is_looked_at = len(rows) > 0
        if not self._is_looked_at or not _has_null([column.field(name) for name in self._schema.names]):
            return
        within = rows[np.cumsum(lengths[rows]) <= max(_MOST_BYTES, int(lengths[rows[0]]))][:_MOST_DOCUMENTS]
        if (wrong := misplaced([*map(values.document, within.tolist())], self._schema)) is not None:
            self._choice.report_misplaced(values, int(rows[0]), wrong)

    # Documents that are not plain.

    def _with_unusual(self, values: Values, made: pa.Array, unusual: Bytes) -> tuple[pa.Array, int]:
        rows = np.flatnonzero(unusual)
        documents = [*map(values.document, rows.tolist())]
        readings = [
            self._exact.read(document) if kind != _WITHOUT_ID else Reading({}, NO_ID)
            for document, kind in zip(documents, unusual[rows].tolist(), strict=True)
        ]
        bad = [number for number, reading in enumerate(readings) if reading.wrong is not None]
        if bad:
            first = bad[0]
            self._choice.report(values, int(rows[first]), readings[first].wrong or "", len(bad))
        made_exactly = pa.array([reading.row for reading in readings], self._read_type)
        texts = [document if reading.wrong is not None else None
                 for document, reading in zip(documents, readings, strict=True)]  # fmt: skip
        # The text of a bad document is in it as it is, if it is no UTF-8 either.
        others = self._with_text(made_exactly, pa.array(texts, pa.binary()).view(pa.string()))
        return replaced(made, rows, others), len(bad)

    def _with_text(self, read: pa.Array, texts: pa.Array) -> pa.Array:
        """Return a column of what was read, with the member that holds bad documents, if the schema has it."""
        members = {field.name: read.field(number) for number, field in enumerate(self._read_type)}
        children = [members.get(field.name, texts) for field in self._type]
        return pa.Array.from_buffers(self._type, len(read), [read.buffers()[0]], read.null_count, children=children)


def _has_null(members: list[pa.Array]) -> bool:
    """Return whether one of members, or in one of them, that is no struct is null in all rows."""
    return any(
        _has_null(each.flatten()) if pa.types.is_struct(each.type) else each.null_count == len(each) for each in members
    )
