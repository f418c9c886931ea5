"""The formats of decoded values: a table, of which a row names the class that is a ``PayloadReader``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_aligned_kafka.records.payload import JSON, Paths, PayloadChoice, PayloadReader, PayloadSchema
from pyspark_aligned_kafka.records.payload_schema import ACCEPTED_TYPES, CORRUPT_MEMBER, parse_schema

if TYPE_CHECKING:
    from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadFormat:
    """A row of the table."""

    parse: Callable[[str, SchemaRegistry | None, Paths], PayloadSchema]
    """Reads a schema, or no more of it than some members, with the user's registry if there is one; raises
    ``ValueError`` with a reason for one that is not accepted."""
    accepted: str
    """The accepted schemas, as a phrase that continues "option valueSchema = x: "."""
    example: str
    """A schema."""
    doc: str
    """What `valueSchema` is, as a sentence of the docs."""
    reader: Callable[[PayloadChoice], PayloadReader]
    uses_registry: bool = False
    """Whether ids are looked up in a registry where there is one."""
    needs_registry: bool = False
    """Whether values with ids are read only with a registry."""


def _json_schema(text: str, _: SchemaRegistry | None, __: Paths) -> PayloadSchema:
    return PayloadSchema(parse_schema(text))


def _json_reader(choice: PayloadChoice) -> PayloadReader:
    from pyspark_aligned_kafka.records.payload_columns import JsonReader  # noqa: PLC0415

    return JsonReader(choice)


def _avro_schema(text: str, registry: SchemaRegistry | None, paths: Paths) -> PayloadSchema:
    from pyspark_aligned_kafka.records.avro_columns import avro_schema  # noqa: PLC0415

    return avro_schema(text, registry, paths)


def _avro_reader(choice: PayloadChoice) -> PayloadReader:
    from pyspark_aligned_kafka.records.avro_columns import AvroReader  # noqa: PLC0415

    return AvroReader(choice)


def _protobuf_schema(text: str, registry: SchemaRegistry | None, paths: Paths) -> PayloadSchema:
    from pyspark_aligned_kafka.records.protobuf_messages import message_schema  # noqa: PLC0415

    return PayloadSchema(*message_schema(text, registry, paths))


def _protobuf_reader(choice: PayloadChoice) -> PayloadReader:
    from pyspark_aligned_kafka.records.payload_protobuf import ProtobufReader  # noqa: PLC0415

    return ProtobufReader(choice)


FORMATS: Final[Mapping[str, PayloadFormat]] = {
    JSON: PayloadFormat(
        parse=_json_schema,
        accepted="must be a schema in Spark's DDL or in its JSON",
        example="id STRING, at BIGINT, amount DOUBLE",
        doc=f"For `json`, as `from_json` takes it. Types: {ACCEPTED_TYPES}. A member `{CORRUPT_MEMBER} STRING` "
        "receives the text of a document that does not fit.",
        reader=_json_reader,
    ),
    "avro": PayloadFormat(
        parse=_avro_schema,
        accepted="must be a schema of Avro in JSON, or with schemaRegistry a version of a subject there",
        example="orders-value:3",
        doc="For `avro`, the reader's schema in JSON, or with `schemaRegistry` a subject and its version there, "
        "`orders-value:3`.",
        reader=_avro_reader,
        uses_registry=True,
        needs_registry=True,
    ),
    "protobuf": PayloadFormat(
        parse=_protobuf_schema,
        accepted="must be the path of a descriptor set, a colon, and a message in it, or with schemaRegistry a version "
        "of a subject there",
        example="schemas/orders.desc:shop.Order",
        doc="For `protobuf`, the path of a descriptor set where the driver runs, as `protoc --include_imports "
        "--descriptor_set_out` writes it, and the full name of a message in it, `schemas/orders.desc:shop.Order`; or "
        "with `schemaRegistry` a subject and its version there, with the message where there are several, "
        "`orders-value:3:shop.Order`.",
        reader=_protobuf_reader,
        uses_registry=True,
    ),
}


def payload_reader(choice: PayloadChoice) -> PayloadReader:
    """Return what decodes as the user chose."""
    return FORMATS[choice.format].reader(choice)
