"""Options of where the event time of a record is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_aligned_kafka.options.subscription import (
    MOST_TOPIC_NAME,
    Subscribe,
    Subscription,
    announcements_of,
    is_topic_name,
    selection_text,
)
from pyspark_aligned_kafka.records.event_time_choice import (
    OPTION,
    Alternative,
    ByFunction,
    EventTimeChoice,
    FirstOf,
    Format,
    InColumn,
    InHeader,
    InJson,
    InTimestamp,
    Place,
    WithoutTime,
    is_written,
    places_of,
)
from pyspark_aligned_kafka.records.json_path import JsonPath, parse_path
from pyspark_aligned_kafka.records.payload import JSON, PayloadChoice
from watermark_source.errors import OptionError, listed, shortened
from watermark_source.option_table import Option, one_of, true_or_false
from watermark_source.spark.options import SourceOptions
from watermark_source.spark.strategy_rows import ANNOUNCED, PUNCTUATED, uses_marks

TIMESTAMP = "timestamp"
FORMAT, ERRORS = "eventTimeFormat", "eventTimeErrors"
SHOWS = "recordsInErrors"
MARKS = "watermarkColumn"
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)
_OR = re.compile(r"\s+or\s+(?=(?:value|key|header):|timestamp\s*$)", re.IGNORECASE)
"""Between places of which the first that is there counts."""
_ACCEPTED = (
    "must be timestamp, value: or key: and a path such as $.a.b, header: and a name, several of these with or between "
    "them and timestamp last, or module:function"
)
_MEMBER_TYPES = (DateType, DecimalType, IntegerType, LongType, StringType, TimestampNTZType, TimestampType)


def _place(text: str) -> Place | None:
    chosen = text.strip()
    if len(alternatives := _OR.split(chosen)) > 1:
        places = [_place(each) for each in alternatives]
        if None in places[:-1]:
            raise ValueError("timestamp is always there, and can only be the last one")
        return FirstOf(tuple(map(_alternative, places)))
    kind, colon, rest = chosen.partition(":")
    if chosen.lower() == TIMESTAMP:
        return None
    if colon and kind.lower() in ("key", "value"):
        return InJson("key" if kind.lower() == "key" else "value", parse_path(rest))
    if colon and kind.lower() == "header":
        if not rest:
            raise ValueError("names no header")
        return InHeader(rest)
    if (found := _FUNCTION.fullmatch(chosen)) is not None:
        return ByFunction(found[1], found[2])
    raise ValueError


def _alternative(place: Place | None) -> Alternative:
    if isinstance(place, ByFunction | FirstOf):
        raise ValueError(  # noqa: TRY004 - as every parser of options
            "only value:, key: and header: can be alternatives, and timestamp the last one"
        )
    return InTimestamp() if place is None else place


EVENT_TIME_OPTIONS = (
    Option(
        name=OPTION,
        parse=_place,
        default_text=TIMESTAMP,
        accepted=_ACCEPTED,
        example="value:$.order.created_at",
        doc="The event time of a row: the record's own `timestamp`; a member of the JSON document in its value or "
        "key, `value:$.a.b` or `key:$.a` (`value:$` is the document itself), or with `valueFormat` `avro` or "
        "`protobuf` of the decoded value, likewise for keys; a header, `header:NAME`; the first of several of these "
        "that is there, `value:$.after.at or value:$.before.at` (a member that is null is not there; the last one "
        "may be `timestamp`); or the result of a function, `package.module:function`. The function receives an Arrow "
        "record batch with the columns key, value, headers, timestamp and offset, and returns an Arrow array of "
        "timestamps, or of int64 milliseconds, with one element for each record. Watermarks, windows, idleness and "
        "alignment use it: see [event time](event-time.md).",
    ),
    one_of(
        name=FORMAT,
        choices=(each.value for each in Format),
        kind=Format,
        default=Format.AUTO.value,
        example=Format.MILLIS.value,
        doc="Format of the event time, and of the watermark in `watermarkColumn`. Numbers since 1970-01-01 UTC, "
        "also as strings and with fractions: `seconds`, "
        "`millis`, `micros`, `nanos`, and whole `days`, the Date of Debezium and Connect. `ticks`: 100 nanoseconds "
        "since the year 1 (.NET). `filetime`: since 1601 (Windows). `tso`: a timestamp of TiDB's oracle, milliseconds "
        "times 2^18. `iso8601`: a date, or a date and a time, with a zone or in UTC. `auto`: ISO 8601, RFC 1123, or "
        "a number whose size gives its unit: below 10^11 seconds, below 10^14 milliseconds, below 10^17 microseconds; "
        "digits that may be a date (20240507, 2024050710, 20240507103015) are refused: name the format.",
    ),
    one_of(
        name=ERRORS,
        choices=(each.value for each in WithoutTime),
        kind=WithoutTime,
        default=WithoutTime.FAIL.value,
        example=WithoutTime.TIMESTAMP.value,
        doc="What to do with a record without an event time. `fail`: the query ends with an error that names the "
        "record. `timestamp`: the record's own timestamp is its event time. `null`: the record is delivered without "
        "an event time and does not advance the watermark. Such records are counted in the status and in "
        "`undated_records_total`.",
    ),
    true_or_false(
        name=SHOWS,
        default=True,
        example="false",
        doc="Whether an error about a record without an event time, with an invalid watermark, or with a value that "
        "does not fit `valueSchema`, contains the first 80 bytes of the record's content, and the message of a "
        "function that failed. Errors are in the logs of the driver and the executors: see [security](security.md).",
    ),
)

_PLACES = "`value:$.a.b`, `key:$.a`, `header:NAME` or `package.module:function`"
WATERMARK_COLUMN = Option(
    name=MARKS,
    parse=_place,
    accepted=_ACCEPTED,
    example="header:watermark",
    doc=f"Where records carry a watermark, in the forms of `eventTimeColumn`: `timestamp`, {_PLACES}. A record "
    "without a value there, or with JSON's null, does not advance the watermark; any other value than a timestamp ends "
    "the query. Required with `watermarkStrategy` `punctuated`, and with a class of your own that has "
    "`reads_marks`; not allowed otherwise.",
)


_UNITED = 10
"""Topics that an error has the line for."""


def _sources_of(subscription: Subscription) -> str:
    """Return the line that reads each topic with a source of its own."""
    if not isinstance(subscription, Subscribe):
        return '.option("subscribe", "TOPIC") for each topic'
    sources = [f'follow_watermark(reader.option("subscribe", "{name}").load())' for name in sorted(subscription.topics)]
    return sources[0] + "".join(f".unionByName({each})" for each in sources[1:_UNITED])


def announced_topic(options: SourceOptions, subscription: Subscription) -> str | None:
    """Return the topic whose writers announce watermarks; ``None``: no strategy uses it.

    Raises:
        OptionError: the query reads anything but one whole topic, or one that can have no topic of announcements.
    """
    if options["watermarkStrategy"] != ANNOUNCED:
        return None
    if not isinstance(subscription, Subscribe) or len(subscription.topics) > 1:
        raise OptionError(
            "watermarkStrategy", ANNOUNCED,
            f"needs subscribe with one topic, and {selection_text(subscription)}: each topic has announcements of its "
            "own, about all of its partitions. Read each topic with a source of its own; in a union of them the lowest "
            f"watermark counts: {_sources_of(subscription)}",
        )  # fmt: skip
    (topic,) = subscription.topics
    if not is_topic_name(announcements_of(topic)):
        raise OptionError(
            "watermarkStrategy", ANNOUNCED,
            f"needs announcements in {announcements_of('<topic>')}, and with {shortened(topic)} that is longer than "
            f"the {MOST_TOPIC_NAME} characters of a topic's name", example="bounded",
        )  # fmt: skip
    return topic


def _placed(
    place: Place | None, payloads: Sequence[PayloadChoice], of_decoded: Callable[[InJson, PayloadChoice], Place]
) -> Place | None:
    """Return a place with the facts about the keys and values, whether they are framed, and how they are decoded.

    ``of_decoded`` returns the place of a member of others than JSON, or raises ``OptionError``.
    """
    if isinstance(place, FirstOf):
        return FirstOf(tuple(_alternative(_placed(each, payloads, of_decoded)) for each in place.places))
    if not isinstance(place, InJson) or not (chosen := [each for each in payloads if each.field == place.field]):
        return place
    (payload,) = chosen
    return replace(place, framed=payload.framed) if payload.format == JSON else of_decoded(place, payload)


def _in_column(text: str | None, place: InJson, payload: PayloadChoice) -> InColumn:
    """Return the place of event time in decoded keys or values.

    Raises:
        OptionError: it is no member of these, or has a type that holds no event time.
    """
    kind, names = payload.schema, f"{payload.field}Schema"
    for depth, name in enumerate(place.path.steps):
        if not isinstance(kind, StructType) or not isinstance(name, str) or name not in kind.names:
            within = f"{JsonPath(place.path.steps[:depth])} of {names}"
            has = f"has {listed(kind.names)}" if isinstance(kind, StructType) else f"is {_shown(kind)}, no struct"
            raise OptionError(OPTION, text, f"names no member of {names}: {within} {has}",
                              example=f"{place.field}:$.created_at")  # fmt: skip
        kind = kind[name].dataType
    if not isinstance(kind, _MEMBER_TYPES) or (isinstance(kind, DecimalType) and kind.scale):
        raise OptionError(
            OPTION, text, f"is {_shown(kind)} in {names}; an event time is of one of these types: TIMESTAMP, "
            "TIMESTAMP_NTZ (taken as UTC), DATE, INT, BIGINT, DECIMAL without a fraction, and STRING",
            example=f"{place.field}:$.created_at",
        )  # fmt: skip
    return InColumn(payload, place.path, kind)


def _shown(kind: DataType) -> str:
    return shortened(kind.simpleString().upper())


def _no_mark(text: str, _: InJson, payload: PayloadChoice) -> NoReturn:
    raise OptionError(
        MARKS, text, f"is a path into JSON, and {payload.field}Format is {payload.format}: let a function "
        "return the watermarks", example="my_package.times:watermark",
    )  # fmt: skip


def mark_choice(options: SourceOptions, payloads: Sequence[PayloadChoice] = ()) -> EventTimeChoice | None:
    """Return where records carry a watermark; ``None``: no strategy reads it.

    Raises:
        OptionError: options that mean nothing together.
    """
    strategy, text = options["watermarkStrategy"], options.text(MARKS)
    if not uses_marks(strategy):
        if text is not None:
            why = "belongs to watermarkStrategy punctuated, or a class with reads_marks, and the strategy is"
            raise options.refusal(MARKS, f"{why} {strategy}", example="leave it out")
        return None
    if text is None:
        why = "only what it names moves the watermark" if strategy == PUNCTUATED else "the class has reads_marks"
        needed = f"is needed because watermarkStrategy is {strategy}: {why}"
        raise options.refusal(MARKS, needed, example="header:watermark")
    place = _placed(options[MARKS], payloads, partial(_no_mark, text)) or InTimestamp()
    return EventTimeChoice(place, options[FORMAT], shows_records=options[SHOWS])


def event_time_choice(options: SourceOptions, payloads: Sequence[PayloadChoice] = ()) -> EventTimeChoice | None:
    """Return where the event time is, with the facts about decoded ``payloads``; ``None``: the record's timestamp.

    Raises:
        OptionError: options that mean nothing together.
    """
    place = _placed(options[OPTION], payloads, partial(_in_column, options.text(OPTION)))
    decoded = {each.payload.field for each in places_of(place) if isinstance(each, InColumn)}
    for payload in payloads:
        if payload.column is None and payload.field not in decoded:
            why = f"leaves nothing to decode: {OPTION} must name a member of the {payload.field}s"
            example = f"{OPTION} = {payload.field}:$.created_at"
            raise options.refusal(f"{payload.field}Column", why, example=example)
    whys = {
        type(None): "the record's timestamp is event time", ByFunction: "the function answers moments",
        InColumn: "the member's type is one of times", FirstOf: "the members' types are ones of times",
    }  # fmt: skip
    marks = uses_marks(options["watermarkStrategy"]) and options[MARKS] is not None
    has_format = is_written(place) or (marks and is_written(options[MARKS]))
    for name, needless in ((FORMAT, not has_format), (ERRORS, place is None)):
        if needless and options.text(name) is not None:
            why = f"has no meaning where {whys[type(place)]}; it goes with {OPTION}"
            raise options.refusal(name, why, example=f"{OPTION} = value:$.created_at")
    reads_content = place is not None or marks or options["valueFormat"] is not None
    if not reads_content and options.text(SHOWS) is not None:
        why = (
            f"has no meaning where times are the records' timestamps, and no content is read; it goes with {OPTION} or "
            f"{MARKS}, and with valueFormat"
        )
        raise options.refusal(SHOWS, why, example="leave it out")
    if place is None:
        return None
    if options["watermarkStrategy"] == "none":
        why = "has no meaning with watermarkStrategy none: event time is the clock"
        raise options.refusal(OPTION, why, example="leave it out")
    return EventTimeChoice(place, options[FORMAT], options[ERRORS], shows_records=options[SHOWS])
