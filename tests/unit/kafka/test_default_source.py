"""What Spark sees of ``aligned-kafka``: a module that is light to import, a schema, and a reader that pickles."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType, TimestampType

import pyspark_aligned_kafka
from pyspark_aligned_kafka import DefaultSource
from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_COLUMNS, OPTION_TABLE
from pyspark_aligned_kafka.source import WORDS, kafka_columns
from watermark_source.errors import OffsetError, OptionError, SchemaError
from watermark_source.planning.watermark import WatermarkCharacteristic
from watermark_source.spark.source_time import SourceTime
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source.spark.stream_schema import MARKER_TYPE
from watermark_source.words import Words

GIVEN = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
RECORD_TIMES = ("event_time", "timestamp")
SAID = Words(dated_by=WORDS.dated_by, reads_first=WORDS.reads_first, undated_delete=WORDS.undated_delete)
DECLARED = SourceTime(
    "aligned-kafka",
    WatermarkCharacteristic.ANY_WATERMARK,
    processing_time=False,
    default_times=RECORD_TIMES,
    words=SAID,
)
ENGINES = [
    StructField("event_time", TimestampType()),
    StructField("marker", MARKER_TYPE, metadata=DECLARED.metadata),
]


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_module_imports_no_client_and_no_compiler() -> None:
    heavy = ("kafka", "numba", "pyarrow", "numpy", "pyspark_aligned_kafka.source")
    assert run(f"import sys, pyspark_aligned_kafka; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_reading_options_and_planning_tasks_loads_no_client() -> None:
    """Spark starts processes for just that with every query."""
    heavy = ("kafka", "numba", "pandas")
    assert run(f"import sys, pyspark_aligned_kafka.source; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_only_the_process_of_a_source_loads_what_plans() -> None:
    """The processes that check options and plan a read, and tasks, have no use for it, and the first none for Arrow."""
    driver_side = (
        "watermark_source.spark.driver",
        "watermark_source.status_model",
        "watermark_source.planning.planner",
        "watermark_source.planning.holds",
    )
    program = f"""
import sys
from pyspark import cloudpickle
from pyspark_aligned_kafka import DefaultSource
source = DefaultSource({{"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}})
schema = source.schema()
print([name for name in ("numpy", "pyarrow") if name in sys.modules])
reader = cloudpickle.loads(cloudpickle.dumps(source.streamReader(schema)))
print([name for name in sys.modules if name.startswith({driver_side})])
reader.getDefaultReadLimit()
print("watermark_source.spark.driver.group_membership" in sys.modules)
"""
    assert run(program).splitlines() == ["[]", "[]", "True"]


@pytest.mark.parametrize(
    "keys", [{"complete": []}, {"snapshot": {"t": [None]}}, {"system": "a"}, {"forgotten": {"t": 1}}]
)
def test_an_offset_with_what_no_topic_has_is_refused_before_anything_is_asked(keys: dict[str, Any]) -> None:
    source = DefaultSource({**GIVEN, "sourceName": "orders"})
    offset = {"name": "orders", "run": 1, "source": "aligned-kafka", "splits": {"t": {"0": [7, 0]}}, "v": 1, **keys}
    reader = cast(AlignedStreamReader, source.streamReader(source.schema()))
    try:
        with pytest.raises(OffsetError, match=f"unknown .*{next(iter(keys))}"):
            reader.latestOffset(offset, ReadAllAvailable())
    finally:
        reader.stop()


def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    program = f"""
import sys
sys.modules["kafka"] = sys.modules["kafka.errors"] = None
from pyspark_aligned_kafka import DefaultSource
try:
    DefaultSource({GIVEN}).schema()
except Exception as error:
    print(type(error).__name__, error)
"""
    logged = run(program)
    assert logged.startswith('MissingPackageError format("aligned-kafka") needs the package kafka')
    assert "'kafka-python<3.1,>=" in logged


def test_every_package_the_connector_imports_is_looked_for() -> None:
    texts = [path.read_text() for path in Path(pyspark_aligned_kafka.__file__).parent.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)}
    if any("watermark_source.machine_code" in text for text in texts):
        # The engine compiles for its connectors, and asks for no compiler by itself.
        found.add("numba")
    # What comes with Python, with Spark, or with another of those that are looked for.
    always = sys.stdlib_module_names | {
        "pyspark",
        "watermark_source",
        "pyspark_aligned_kafka",
        "numpy",
        "llvmlite",
        "py4j",
    }
    assert found - always == {"pyarrow", *DefaultSource.needed_packages}


def test_the_formats_name() -> None:
    assert DefaultSource.name() == "aligned-kafka"


@pytest.mark.parametrize(("extra", "columns"), [
    ({}, KAFKA_COLUMNS[:-1]),
    ({"includeHeaders": "true"}, KAFKA_COLUMNS),
    ({"columns": "event_time,value"}, ("value",)),
    ({"columns": "value"}, ("value",)),
])  # fmt: skip
def test_the_schema_is_the_chosen_columns_then_event_time_and_marker(
    extra: dict[str, str], columns: tuple[str, ...]
) -> None:
    schema = DefaultSource({**GIVEN, **extra}).schema()
    assert schema == StructType([*kafka_columns(columns).fields, *ENGINES])


@pytest.mark.parametrize(("extra", "declared"), [
    ({"watermarkStrategy": "none"}, (True, None, (), ())),
    (
        {"alignmentGroup": "g", "alignmentMaxDrift": "1 minute", "alignmentStore": "none"},
        (False, None, RECORD_TIMES, ()),
    ),
    ({"eventTimeColumn": "value:$.at"}, (False, None, (), ("event_time",))),
    ({"alignmentGroup": "g", "watermarkStrategy": "none"}, (True, "g", (), ())),
])  # fmt: skip
def test_the_schema_declares_the_sources_time_and_whom_it_meets(
    extra: dict[str, str], declared: tuple[bool, str | None, tuple[str, ...], tuple[str, ...]]
) -> None:
    marker = DefaultSource({**GIVEN, **extra, "sourceName": "clicks"}).schema()["marker"]
    reported = SourceTime.of_metadata(json.loads(json.dumps(marker.metadata)))
    processing_time, group, default_times, named_times = declared
    assert reported == SourceTime(
        "clicks",
        WatermarkCharacteristic.ANY_WATERMARK,
        processing_time,
        group,
        default_times=default_times,
        named_times=named_times,
        words=SAID,
    )
    assert reported.metadata == marker.metadata


def test_options_are_checked_without_connecting() -> None:
    with pytest.raises(OptionError):
        DefaultSource({**GIVEN, "startingOffsets": "soon"}).schema()
    DefaultSource(GIVEN).schema()


def test_a_schema_of_the_users_is_refused() -> None:
    source = DefaultSource(GIVEN)
    other = StructType([*source.schema().fields, StructField("mine", TimestampType())])
    with pytest.raises(SchemaError, match="takes none from the user"):
        source.reader(other)
    with pytest.raises(SchemaError, match="takes none from the user"):
        source.streamReader(other).initialOffset()


def test_the_readers_are_picklable() -> None:
    source = DefaultSource({**GIVEN, "maxOffsetsPerTrigger": "7", "kafka.security.protocol": "SSL"})
    reader = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
    assert reader.getDefaultReadLimit().max_rows == 7
    assert isinstance(pickle.loads(pickle.dumps(source.reader(source.schema()))), DataSourceReader)


@pytest.mark.parametrize("name", ["endingOffsets", "ENDINGTIMESTAMP", "endingOffsetsByTimestamp"])
def test_an_end_is_a_batchs_alone_and_a_stream_says_so_when_it_starts(name: str) -> None:
    text = {"endingOffsets": "latest", "ENDINGTIMESTAMP": "9"}.get(name, '{"t":{"0":9}}')
    source = DefaultSource({**GIVEN, name: text})
    schema = source.schema()
    refused = source.streamReader(schema)
    with pytest.raises(OptionError, match=f"(?i)option {name} = .*: not supported in a stream"):
        refused.latestOffset({}, ReadAllAvailable())
    source.reader(schema)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at the end"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the beginning"),
    ],
)
def test_what_only_a_stream_may_have_a_batch_refuses(given: dict[str, str], message: str) -> None:
    source = DefaultSource({**GIVEN, **given})
    with pytest.raises(OptionError, match=message):
        source.reader(source.schema())


def test_a_batch_names_in_one_warning_what_it_ignores(logged: Callable[[], list[str]]) -> None:
    source = DefaultSource({
        **GIVEN, "MAXOFFSETSPERTRIGGER": "7", "idletimeout": "5 s", "alignmentGroup": "g", "alignmentMaxDrift": "1 s",
        "includeMarkers": "false", "minPartitions": "3", "maxRecordsPerPartition": "9", "failOnDataLoss": "false",
    })  # fmt: skip
    source.reader(source.schema())
    assert logged() == ["A batch read ignores maxOffsetsPerTrigger, idleTimeout, alignmentGroup, alignmentMaxDrift"]


def test_a_batch_with_nothing_to_ignore_warns_of_nothing(logged: Callable[[], list[str]]) -> None:
    source = DefaultSource(GIVEN)
    source.reader(source.schema())
    assert logged() == []


def test_what_only_a_stream_does_is_among_what_a_batch_ignores() -> None:
    limits = ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"]
    others = ["fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "commitGroupId"]
    assert OPTION_TABLE.ignored_in_batch([name.upper() for name in (*limits, *others)]) == [*limits, *others]
