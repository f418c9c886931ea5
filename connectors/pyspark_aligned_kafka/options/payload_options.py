"""Options of values that are decoded to a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_aligned_kafka.options.event_time_options import SHOWS
from pyspark_aligned_kafka.records.payload_schema import (
    ACCEPTED_TYPES,
    CORRUPT_MEMBER,
    PayloadChoice,
    has_timestamp,
    parse_schema,
)
from pyspark_aligned_kafka.records.payload_times import offset_of
from watermark_source.errors import OptionError
from watermark_source.option_table import Option, given_text, non_empty, one_of

FORMAT, SCHEMA, COLUMN, MODE, ZONE = "valueFormat", "valueSchema", "valueColumn", "valueMode", "valueTimeZone"
JSON, PERMISSIVE, FAILFAST = "json", "PERMISSIVE", "FAILFAST"
_COLUMN = "payload"


def _format(text: str) -> str:
    if text.strip().lower() != JSON:
        raise ValueError(f'"{text.strip()}" is not decoded')
    return JSON


def _zone(text: str) -> str:
    zone = non_empty(text)
    if offset_of(zone, 0) is None:
        raise ValueError("there is no such zone")
    return "UTC" if zone in ("Z", "UTC", "GMT", "UT", "+00:00", "Etc/UTC") else zone


PAYLOAD_OPTIONS = (
    Option(
        name=FORMAT,
        parse=_format,
        default_text="none",
        accepted="must be json: values in other formats, such as Avro and Protobuf, are delivered as bytes in the "
        "column value",
        example=JSON,
        doc="Format of the values, which are decoded into the struct column `valueColumn`: `json`, as Spark's "
        "`from_json` reads it with `valueSchema`. The column `value` is then left out, unless `columns` names it. See "
        "[your payload as columns](payload.md).",
    ),
    Option(
        name=SCHEMA,
        parse=parse_schema,
        default_text="none",
        accepted="must be a schema in Spark's DDL or in its JSON",
        example="id STRING, at BIGINT, amount DOUBLE",
        doc=f"Schema of the decoded values, as `from_json` takes it. Types: {ACCEPTED_TYPES}. Only its members are "
        f"decoded. A member `{CORRUPT_MEMBER} STRING` receives the text of a document that does not fit.",
    ),
    Option(
        name=COLUMN,
        parse=non_empty,
        default=_COLUMN,
        accepted="must be a name that is not empty",
        example="order",
        doc="Name of the struct column with the decoded values.",
    ),
    one_of(
        name=MODE,
        choices=(PERMISSIVE, FAILFAST),
        default=PERMISSIVE,
        example=FAILFAST,
        doc="What to do with a document that does not fit `valueSchema`. `PERMISSIVE`: members that do not fit are "
        "null, and with a document that is not JSON all of them; the first one of a block of records is logged. "
        "`FAILFAST`: the query ends with an error that names the record.",
    ),
    Option(
        name=ZONE,
        parse=_zone,
        default_text="none",
        accepted="must be a time zone, such as UTC, +01:00 or Europe/Berlin",
        example="UTC",
        doc="Time zone of a TIMESTAMP that is written without one; `from_json` takes it from "
        "`spark.sql.session.timeZone`, which a Python source cannot read. Needed where `valueSchema` has a TIMESTAMP.",
    ),
)


def payload_choice(values: Mapping[str, Any], given: Mapping[str, str], taken: tuple[str, ...]) -> PayloadChoice | None:
    """Return how values are decoded; ``None``: they are not.

    Args:
        values: of all options.
        given: the user's texts.
        taken: names of the other columns.

    Raises:
        OptionError: options that mean nothing together.
    """
    if values[FORMAT] is None:
        for name in (name for name in (SCHEMA, COLUMN, MODE, ZONE) if given_text(given, name) is not None):
            raise OptionError(
                name, given_text(given, name), f"has no meaning without {FORMAT}", example=f"{FORMAT} = {JSON}"
            )
        return None
    schema = values[SCHEMA]
    if schema is None:
        raise OptionError(
            SCHEMA, None, f"is needed because {FORMAT} is {JSON}", example="id STRING, at BIGINT, amount DOUBLE"
        )
    column: str = values[COLUMN]
    if column.lower() in {name.lower() for name in taken}:
        raise OptionError(COLUMN, column, "is the name of another column of this source", example="order")
    if has_timestamp(schema) != (values[ZONE] is not None):
        raise OptionError(
            ZONE, given_text(given, ZONE),
            "has no meaning without a TIMESTAMP in valueSchema" if values[ZONE] is not None else "is needed because "
            "valueSchema has a TIMESTAMP: it is the zone of texts without one. from_json takes "
            "spark.sql.session.timeZone, which a source cannot read",
            example="leave it out" if values[ZONE] is not None else "UTC",
        )  # fmt: skip
    return PayloadChoice(
        schema,
        column=column,
        fail_fast=values[MODE] == FAILFAST,
        zone=values[ZONE] or "UTC",
        shows_records=values[SHOWS],
    )
