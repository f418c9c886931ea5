"""Options of keys and values that are decoded to a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_aligned_kafka.options.event_time_options import SHOWS
from pyspark_aligned_kafka.records.payload_formats import FORMATS, KEY, VALUE, PayloadChoice
from pyspark_aligned_kafka.records.payload_schema import has_timestamp
from pyspark_aligned_kafka.records.payload_times import offset_of
from watermark_source.errors import OptionError, shortened
from watermark_source.option_table import Option, given_text, non_empty, one_of

PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"
_JSON = "json"
_COLUMNS = {VALUE: "payload", KEY: "key_payload"}
_WORDS = tuple(FORMATS)


def _format(text: str) -> str:
    name = text.strip().lower()
    if name not in FORMATS:
        raise ValueError(f'"{text.strip()}" is not decoded')
    return name


def _zone(text: str) -> str:
    zone = non_empty(text)
    if offset_of(zone, 0) is None:
        raise ValueError("there is no such zone")
    return "UTC" if zone in ("Z", "UTC", "GMT", "UT", "+00:00", "Etc/UTC") else zone


def _options_of(field: str) -> tuple[Option, ...]:
    """Return the rows for ``key`` or ``value``."""
    return (
        Option(
            name=f"{field}Format",
            parse=_format,
            default_text="none",
            accepted=f"must be {' or '.join(_WORDS)}: {field}s in other formats are delivered as bytes in the column "
            f"{field}",
            example=_JSON,
            doc=f"Format of the {field}s, which are decoded into the column `{field}Column`: "
            f"{', '.join(f'`{word}`' for word in _WORDS)}. The column `{field}` is then left out, unless `columns` "
            "names it. See [your payload as columns](payload.md).",
        ),
        Option(
            name=f"{field}Schema",
            parse=str.strip,
            default_text="none",
            accepted="must be a schema of the format",
            example=FORMATS[_JSON].example,
            doc=f"Schema of the decoded {field}s. Only its members are decoded. "
            + (" ".join(row.doc for row in FORMATS.values()) if field == VALUE else "As `valueSchema`."),
        ),
        Option(
            name=f"{field}Column",
            parse=non_empty,
            default=_COLUMNS[field],
            accepted="must be a name that is not empty",
            example="order" if field == VALUE else "customer",
            doc=f"Name of the column with the decoded {field}s.",
        ),
        one_of(
            name=f"{field}Mode",
            choices=(PERMISSIVE, FAILFAST),
            default=PERMISSIVE,
            example=FAILFAST,
            doc=f"What to do with a {field} that does not fit `{field}Schema`. `PERMISSIVE`: members that do not fit "
            "are null, and with a document that cannot be read all of them; the first one of a block of records is "
            "logged. `FAILFAST`: the query ends with an error that names the record.",
        ),
        Option(
            name=f"{field}TimeZone",
            parse=_zone,
            default_text="none",
            accepted="must be a time zone, such as UTC, +01:00 or Europe/Berlin",
            example="UTC",
            doc="Time zone of a TIMESTAMP of JSON that is written without one; `from_json` takes it from "
            f"`spark.sql.session.timeZone`, which a Python source cannot read. Needed where `{field}Schema` has a "
            "TIMESTAMP.",
        ),
    )


PAYLOAD_OPTIONS = (*_options_of(VALUE), *_options_of(KEY))


def payload_choices(
    values: Mapping[str, Any], given: Mapping[str, str], taken: tuple[str, ...]
) -> tuple[PayloadChoice, ...]:
    """Return how keys and values are decoded: none, one of them, or both.

    Args:
        values: of all options.
        given: the user's texts.
        taken: names of the other columns.

    Raises:
        OptionError: options that mean nothing together.
    """
    choices: list[PayloadChoice] = []
    for field in (KEY, VALUE):
        choice = _choice(field, values, given, (*taken, *(each.column for each in choices)))
        choices += [] if choice is None else [choice]
    return tuple(choices)


def _choice(
    field: str, values: Mapping[str, Any], given: Mapping[str, str], taken: tuple[str, ...]
) -> PayloadChoice | None:
    format_option, *others = (row.name for row in _options_of(field))
    name: str | None = values[format_option]
    if name is None:
        for other in others:
            if (text := given_text(given, other)) is not None:
                raise OptionError(other, text, f"has no meaning without {format_option}",
                                  example=f"{format_option} = {_JSON}")  # fmt: skip
        return None
    row = FORMATS[name]
    text = values[f"{field}Schema"]
    if text is None:
        raise OptionError(f"{field}Schema", None, f"is needed because {format_option} is {name}", example=row.example)
    try:
        found = row.parse(text)
    except ValueError as error:
        raise OptionError(f"{field}Schema", text, f"{row.accepted} ({shortened(error)})", example=row.example) from None
    column: str = values[f"{field}Column"]
    if column.lower() in {each.lower() for each in taken}:
        raise OptionError(f"{field}Column", column, "is the name of another column of this source", example="order")
    zone_option = f"{field}TimeZone"
    zone: str | None = values[zone_option]
    if (name == _JSON and has_timestamp(found.type)) != (zone is not None):
        raise OptionError(
            zone_option, given_text(given, zone_option),
            f"has no meaning without a TIMESTAMP of JSON in {field}Schema" if zone is not None else "is needed because "
            f"{field}Schema has a TIMESTAMP: it is the zone of texts without one. from_json takes "
            "spark.sql.session.timeZone, which a source cannot read",
            example="leave it out" if zone is not None else "UTC",
        )  # fmt: skip
    return PayloadChoice(
        found.type,
        format=name,
        definition=found.definition,
        field=field,
        column=column,
        fail_fast=values[f"{field}Mode"] == FAILFAST,
        zone=zone or "UTC",
        shows_records=values[SHOWS],
    )
