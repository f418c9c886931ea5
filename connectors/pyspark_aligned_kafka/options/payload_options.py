"""Options of keys and values that are decoded to a column."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry
from pyspark_aligned_kafka.options.event_time_options import SHOWS
from pyspark_aligned_kafka.records.event_time_choice import OPTION as EVENT_TIME
from pyspark_aligned_kafka.records.event_time_choice import paths_in
from pyspark_aligned_kafka.records.payload import JSON, KEY, VALUE, PayloadChoice
from pyspark_aligned_kafka.records.payload_formats import FORMATS
from pyspark_aligned_kafka.records.payload_schema import has_timestamp
from pyspark_aligned_kafka.records.payload_times import offset_of
from watermark_source.errors import OptionError, UsageError, reason_of
from watermark_source.option_table import Option, non_empty, one_of
from watermark_source.spark.options import SourceOptions

PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"
REGISTRY, LOGIN = "schemaRegistry", "schemaRegistryUserInfo"
MODE, ZONE = "valueMode", "timeZone"
CONFLUENT, PLAIN = "confluent", "none"
NO_COLUMN = "none"
_REGISTRY_MS = 30_000
"""Time limit for a schema, all retries included."""
_COLUMNS = {VALUE: "payload", KEY: "key_payload"}
_WORDS = tuple(FORMATS)


def _format(text: str) -> str:
    name = text.strip().lower()
    if name not in FORMATS:
        raise ValueError(f'"{text.strip()}" is not decoded')
    return name


def _column(text: str) -> str | None:
    name = non_empty(text)
    return None if name.strip().lower() == NO_COLUMN else name


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
            accepted=f"must be {' or '.join(_WORDS)}: {field}s in other formats are delivered as bytes in the column "
            f"{field}",
            example=JSON,
            doc=f"Format of the {field}s, which are decoded into the column `{field}Column`: "
            f"{', '.join(f'`{word}`' for word in _WORDS)}. The column `{field}` is then left out, unless `columns` "
            "names it. See [your payload as columns](payload.md).",
        ),
        Option(
            name=f"{field}Schema",
            parse=str.strip,
            accepted="must be a schema of the format",
            example=FORMATS[JSON].example,
            doc=f"Schema of the decoded {field}s. Only its members are decoded. "
            + (" ".join(row.doc for row in FORMATS.values()) if field == VALUE else "As `valueSchema`."),
        ),
        Option(
            name=f"{field}Column",
            parse=_column,
            default=_COLUMNS[field],
            accepted="must be a name that is not empty",
            example="order" if field == VALUE else "customer",
            doc=f"Name of the column with the decoded {field}s. `none`: there is none, and of Avro and Protobuf no "
            f"more is decoded than the member that `eventTimeColumn` names. The column `{field}` is then delivered as "
            f"without `{field}Format`.",
        ),
        one_of(
            name=f"{field}Framing",
            choices=(CONFLUENT, PLAIN),
            default_text="confluent with schemaRegistry, none without",
            example=CONFLUENT,
            doc=f"Where the id of the schema of a decoded {field} is. `confluent`: in the header "
            f"`__{field}_schema_id`, or without it before the {field}, a zero byte and four bytes, as serializers with "
            "a schema registry write them. `none`: there is no id. For `json` it is not looked up.",
        ),
    )


_OF_BOTH = (
    one_of(
        name=MODE,
        choices=(PERMISSIVE, FAILFAST),
        default=PERMISSIVE,
        example=FAILFAST,
        doc="What to do with a value that does not fit `valueSchema`, or a key that does not fit `keySchema`. "
        "`PERMISSIVE`: members that do not fit are null, and with a document that cannot be read all of them; the "
        "first one of a block of records is logged. `FAILFAST`: the query ends with an error that names the record.",
    ),
    Option(
        name=ZONE,
        parse=_zone,
        accepted="must be a time zone, such as UTC, +01:00 or Europe/Berlin",
        example="UTC",
        doc="Time zone of a TIMESTAMP of JSON that is written without one; `from_json` takes it from "
        "`spark.sql.session.timeZone`, which a Python source cannot read. Needed where `valueSchema` or `keySchema` "
        "has a TIMESTAMP.",
    ),
)
_EXAMPLES = {REGISTRY: "https://registry:8081", LOGIN: "user:password"}
_REGISTRY_OPTIONS = (
    Option(
        name=REGISTRY,
        parse=non_empty,
        accepted='must be the address of a schema registry, such as "https://registry:8081"',
        example=_EXAMPLES[REGISTRY],
        doc="Address of a schema registry with Confluent's API. Decoded keys and values then begin with the id of "
        "their writer's schema (`valueFraming`), which is requested once in each process.",
        secret=True,
    ),
    Option(
        name=LOGIN,
        parse=non_empty,
        accepted="must be user:password, with a colon between them, or Bearer and a token",
        example=_EXAMPLES[LOGIN],
        doc="Login for the schema registry: `user:password`, or `Bearer` and a token. It appears in no log, error, "
        "status or checkpoint, but Spark itself prints options in `explain(True)`: set "
        "`spark.sql.redaction.options.regex` to `(?i)url|schemaregistry`.",
        secret=True,
    ),
)
_OPTIONS = {field: _options_of(field) for field in (VALUE, KEY)}
PAYLOAD_OPTIONS = (*_OPTIONS[VALUE], *_OPTIONS[KEY], *_OF_BOTH, *_REGISTRY_OPTIONS)


def payload_choices(options: SourceOptions, taken: tuple[str, ...]) -> tuple[PayloadChoice, ...]:
    """Return how keys and values are decoded: none, one of them, or both.

    Args:
        options: all of the user's.
        taken: names of the other columns.

    Raises:
        OptionError: options that mean nothing together.
    """
    registry = _registry(options)
    choices: list[PayloadChoice] = []
    for field in (KEY, VALUE):
        choice = _choice(field, options, (*taken, *(each.column or "" for each in choices)), registry)
        choices += [] if choice is None else [choice]
    _check_of_both(options, choices)
    if registry is not None and not any(choice.framed or FORMATS[choice.format].uses_registry for choice in choices):
        raise OptionError(REGISTRY, None, "has no meaning here: no key and no value is decoded by its schemas",
                          example="valueFormat = avro")  # fmt: skip
    return tuple(choices)


def _registry(options: SourceOptions) -> SchemaRegistry | None:
    if options[REGISTRY] is None:
        if options[LOGIN] is not None:
            raise OptionError(LOGIN, "***", f"has no meaning without {REGISTRY}", example="leave it out")
        return None
    # The address alone, and with the login: an error is that of the option that was added.
    for name, login in ((REGISTRY, None), (LOGIN, options[LOGIN])):
        try:
            registry = SchemaRegistry.of(options[REGISTRY], login=login, timeout_ms=_REGISTRY_MS)
        except UsageError as error:
            raise OptionError(name, "***", str(error), example=_EXAMPLES[name]) from None
    return registry


def _choice(
    field: str, options: SourceOptions, taken: tuple[str, ...], registry: SchemaRegistry | None
) -> PayloadChoice | None:
    format_option, schema_option, column_option, framing_option = (row.name for row in _OPTIONS[field])
    name: str | None = options[format_option]
    if name is None:
        for other in (schema_option, column_option, framing_option):
            if options.text(other) is not None:
                raise options.refusal(
                    other, f"has no meaning without {format_option}", example=f"{format_option} = {JSON}"
                )
        return None
    row = FORMATS[name]
    text = options[schema_option]
    if text is None:
        raise options.refusal(schema_option, f"is needed because {format_option} is {name}", example=row.example)
    is_framed = (options[framing_option] or (CONFLUENT if registry is not None else PLAIN)) == CONFLUENT
    if is_framed and registry is None and row.needs_registry:
        why, example = f"needs {REGISTRY}, which has the schemas of {name}", f"{REGISTRY} = {_EXAMPLES[REGISTRY]}"
        raise options.refusal(framing_option, why, example=example)
    column: str | None = options[column_option]
    if column is None and name == JSON:
        why = f"has no meaning with {JSON}, of which event times are read without {format_option}"
        raise options.refusal(column_option, why, example=f"leave {format_option} out")
    if column is not None and column.lower() in {each.lower() for each in taken}:
        raise options.refusal(column_option, "is the name of another column of this source", example="order")
    try:
        found = row.parse(text, registry, paths_in(field, options[EVENT_TIME]) if column is None else ())
    except ValueError as error:
        raise options.refusal(schema_option, f"{row.accepted} ({reason_of(error)})", example=row.example) from None
    if options[ZONE] is None and name == JSON and has_timestamp(found.type):
        why = (
            f"is needed because {schema_option} has a TIMESTAMP: it is the zone of texts without one. from_json takes "
            "spark.sql.session.timeZone, which a source cannot read"
        )
        raise options.refusal(ZONE, why, example="UTC")
    return PayloadChoice(
        found.type,
        format=name,
        definition=found.definition,
        field=field,
        column=column,
        fail_fast=options[MODE] == FAILFAST,
        zone=options[ZONE] or "UTC",
        shows_records=options[SHOWS],
        framed=is_framed,
    )


def _check_of_both(options: SourceOptions, choices: Sequence[PayloadChoice]) -> None:
    """Refuse the options about keys and values where there is neither that they concern."""
    if not choices:
        for name in (MODE, ZONE):
            if options.text(name) is not None:
                why = "has no meaning without valueFormat or keyFormat"
                raise options.refusal(name, why, example=f"valueFormat = {JSON}")
    elif options[MODE] == FAILFAST and all(choice.column is None for choice in choices):
        why = (
            "has no meaning where there is no column of decoded keys or values: eventTimeErrors decides about "
            "records without an event time"
        )
        raise options.refusal(MODE, why, example="eventTimeErrors = fail")
    elif options[ZONE] is not None and not any(each.format == JSON and has_timestamp(each.schema) for each in choices):
        why = "has no meaning without a TIMESTAMP of JSON in valueSchema or keySchema"
        raise options.refusal(ZONE, why, example="leave it out")
