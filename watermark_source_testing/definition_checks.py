"""Checks of what is built from options: format, schema, definition, readers, and their pickles."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping

from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from watermark_source.errors import OptionError, SchemaError, SourceError, UnknownOptionError, UsageError
from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.data_source import AlignedDataSource
from watermark_source.spark.stream_schema import MARKER_TYPE
from watermark_source_testing.driven_stream import (
    OpenLogs,
    Stream,
    declared_by,
    reader_of,
    streaming,
    values,
    values_of,
    write,
)
from watermark_source_testing.harness import Ability, Harness, check, expect, expect_equal, expect_error
from watermark_source_testing.support import behind_pickle, logged, no_connections

_WRONG = {"idleTimeout": "soon"}
_UNKNOWN = {"noSuchOption": "1"}


def _source(harness: Harness, **more: str) -> AlignedDataSource:
    return harness.source({**harness.options, **more})


def _schema(harness: Harness, **more: str) -> StructType:
    return reader_of(harness, {**harness.options, **more})[0]


@check()
def the_definition_has_the_name_of_the_format(harness: Harness) -> None:
    """Offsets hold the definition's name, and users the format's: both are the same."""
    logs = OpenLogs.of(harness)
    expect_equal(logs.definition.name, harness.source.name(), "the name of the definition")


@check()
def the_schema_ends_in_event_time_and_marker(harness: Harness) -> None:
    """After the system's own columns come ``event_time`` and ``marker``."""
    last = [(field.name, field.dataType) for field in _schema(harness).fields[-2:]]
    expect_equal(last, [(EVENT_TIME, TimestampType()), (MARKER, MARKER_TYPE)], "the last columns")


@check()
def the_schema_is_the_same_each_time(harness: Harness) -> None:
    """Spark requests the schema in several processes, and compares them."""
    expect_equal(_source(harness).schema(), _source(harness).schema(), "the schema the second time")


@check()
def names_of_options_ignore_case(harness: Harness) -> None:
    """Spark passes options in lower case."""
    lower = harness.source({name.lower(): text for name, text in harness.options.items()})
    expect_equal(lower.schema(), _source(harness).schema(), "the schema with names of options in lower case")


@check()
def an_unknown_option_is_refused(harness: Harness) -> None:
    """A misspelt option is an error, and is not ignored."""
    with expect_error(UnknownOptionError, "an option noSuchOption"):
        _source(harness, **_UNKNOWN).schema()


@check()
def a_wrong_value_is_an_error_of_the_option(harness: Harness) -> None:
    """The options of every source are checked by their table."""
    with expect_error(OptionError, 'idleTimeout = "soon"'):
        _source(harness, **_WRONG).schema()


@check()
def late_rows_are_marked_with_include_late(harness: Harness) -> None:
    """With ``includeLate`` there is a column ``late`` after the event time."""
    schema = _schema(harness, includeLate="true")
    expect_equal([field.dataType for field in schema if field.name == "late"], [BooleanType()], "the column late")


@check()
def a_schema_of_the_users_is_refused(harness: Harness) -> None:
    """The columns are the format's: the first call of the reader refuses others."""
    with expect_error(SchemaError, "a schema of the user's"):
        _source(harness).streamReader(StructType([StructField("own", BooleanType())])).initialOffset()


@check(Ability.BUILT_OFFLINE)
def building_connects_to_nothing(harness: Harness) -> None:
    """Options are checked, and readers are created, without the system."""
    with no_connections():
        reader = reader_of(harness, harness.options)[1]
        _ = reader.definition.range_reader, reader.definition.observing_reader


@check()
def a_definition_survives_the_pickle_and_connects_to_nothing(harness: Harness) -> None:
    """Spark pickles it to each process of a query, and most of those need no connection."""
    logs = OpenLogs.with_rows(harness)
    with no_connections():
        again = behind_pickle(logs.definition)
        _ = again.range_reader, again.observing_reader
    rows = logs.read(logs.ranges(), again.range_reader)
    expect_equal(sorted(row.value for row in rows), values(logs.written), "the rows of a definition from a pickle")


@check()
def readers_of_ranges_survive_the_pickle(harness: Harness) -> None:
    """Both readers run in tasks."""
    logs = OpenLogs.with_rows(harness)
    for reader in (logs.definition.range_reader, logs.definition.observing_reader):
        again = behind_pickle(reader)
        count = sum(batch.rows for batch in again.read(logs.ranges()))
        expect_equal(count, len(values(logs.written)), f"the rows of a {type(reader).__name__} from a pickle")


@check()
def a_reader_in_use_survives_the_pickle(harness: Harness) -> None:
    """A stream's reader is pickled for the tasks after its driver side has connected."""
    written = write(harness)
    with streaming(harness) as stream:
        start = stream.initial()
        end = stream.plan(start)
        batch = stream.read(start, end)
        again = behind_pickle(stream.reader)
        try:
            expect_equal(
                again.initialOffset(), stream.reader.initialOffset(), "initialOffset of a reader from a pickle"
            )
        finally:
            again.stop()
        expect_equal(sorted(values_of(harness, batch)), values(written), "the rows")


@check(Ability.REMOTE)
def an_unreachable_system_is_an_error_within_a_time_limit(harness: Harness) -> None:
    """No call waits without limit, and its error is one of the project's."""
    begun = time.monotonic()
    with expect_error(SourceError, "a system out of reach"):
        stream = Stream(harness, {**harness.options, **harness.unreachable_options})
        stream.plan(stream.initial())
    took = time.monotonic() - begun
    expect(took <= harness.patience, f"the error came after {took:.0f} s; within {harness.patience:.0f} s is expected")


@check(Ability.SECRETS)
def secrets_are_shown_nowhere(harness: Harness) -> None:
    """No ``repr``, error, offset, status or log line contains one."""
    write(harness)
    with logged() as lines, streaming(harness) as stream:
        definition = stream.reader.definition
        shown = [repr(definition), str(definition), repr(definition.range_reader), repr(definition.observing_reader)]
        start = stream.initial()
        end = stream.plan(start)
        shown += [json.dumps(end), json.dumps(stream.reader.reportLatestOffset()), str(stream.schema.json())]
        shown += [_refusal(harness, wrong) for wrong in (_WRONG, _UNKNOWN, harness.unreachable_options)]
    for secret in harness.secrets:
        found = [text for text in (*shown, *(line.text for line in lines)) if secret in text]
        expect(not found, f"a secret is shown in: {[text.replace(secret, '(the secret)')[:300] for text in found[:3]]}")


def _refusal(harness: Harness, wrong: Mapping[str, str]) -> str:
    """Return the error that a user sees for wrong options."""
    try:
        other = Stream(harness, {**harness.options, **wrong})
        return str(other.plan(other.initial()))
    except Exception:  # noqa: BLE001 - no error may contain a secret
        return traceback.format_exc()


@check()
def the_harness_names_all_parts_of_the_connector(harness: Harness) -> None:
    """A part that a harness does not name would not be checked."""
    write(harness)
    connector = OpenLogs.of(harness).connector
    marks = True if declared_by(harness, **harness.mark_options).marks else None
    for ability, part in (
        (Ability.MARKS, marks),
        (Ability.TIME_INDEX, connector.time_index), (Ability.PREVIEW, connector.preview),
        (Ability.ROW_INDEX, connector.row_index), (Ability.CUTTER, connector.cutter),
    ):  # fmt: skip
        named = ability in harness.abilities
        expect(named == (part is not None), f"{ability.name}: in abilities is {named}, the connector has {part!r}")
    if Ability.BATCHES not in harness.abilities:
        with expect_error(UsageError, "BATCHES: the harness does not name it, and a batch read"):
            source = _source(harness)
            source.reader(source.schema()).partitions()
