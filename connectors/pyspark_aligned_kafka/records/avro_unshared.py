"""Fields that a writer of Avro has where the reader's schema has none of them: all of its columns are defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark_aligned_kafka.records.avro_names import fields_of
from pyspark_aligned_kafka.records.avro_schema import AvroType, aliases_of
from pyspark_aligned_kafka.records.json_members import Misplaced
from watermark_source.errors import listed

_AS_DEEP: Final = 3
"""Records within each other in which a field is looked for."""


def unshared(writer: AvroType, reader: AvroType) -> Misplaced | None:
    """Return the fields of a reader's record of which its writer has none, and what the writer has.

    The two schemas resolve to each other.
    """
    if writer.kind != "record" or reader.kind != "record":
        return None
    fields, paths = fields_of(reader.json), [*_paths(writer, "", _AS_DEEP)]
    names = {str(name) for field in fields for name in (field["name"], *aliases_of(field))}
    if names & set(paths):
        return None
    there = [path for path in paths if "." not in path or path.rpartition(".")[2] in names]
    return Misplaced(
        listed(str(field["name"]) for field in fields),
        f"the fields of the schema with which they were written are {listed(there)}",
        reads="the defaults",
    )


def _paths(kind: AvroType, within: str, deep: int) -> Iterator[str]:
    """Yield the paths of a record's fields, those of records in it behind them."""
    if kind.kind == "union":
        for branch in kind.branches:
            yield from _paths(branch, within, deep)
    elif kind.kind == "record" and deep:
        fields = fields_of(kind.json)
        yield from (f"{within}{field['name']}" for field in fields)
        for field in fields:
            yield from _paths(kind.inner(field["type"]), f"{within}{field['name']}.", deep - 1)
