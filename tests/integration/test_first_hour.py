"""The first hour of a new user: whatever goes wrong, the console names cause and line to write.

One program does it all, as ``python job.py`` of an environment that is not activated; see ``first_hour_job.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topics
from services.spark_start import quick_spark

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("first_hour_job.py")
PARTITIONS = {"orders": 3, "even": 2, "disorder": 1, "undated": 2}
NOW = int(time.time() * 1_000)
LONGEST_ERROR = 20
"""Lines of an error of ours at ``load()``, Spark's own included; the first is the traceback's title."""


def fill(bootstrap: str) -> dict[str, str]:
    """Write the topics that the program reads; return their names."""
    names = {name: f"first-hour-{name}-{NOW}" for name in PARTITIONS}
    for name, partitions in PARTITIONS.items():
        create_topics(bootstrap, [names[name]], partitions)
    minutes = NOW - 600_000 + 10_000 * np.arange(60, dtype=np.int64)
    dated = np.frombuffer(b"".join(b'{"at": %d}' % t for t in minutes), dtype=np.uint8).reshape(60, -1)
    back = np.concatenate([minutes[50:], minutes[:50]])
    written = {
        "orders": {0: PartitionRecords(minutes), 1: PartitionRecords(minutes)},
        "even": {0: PartitionRecords(minutes), 1: PartitionRecords(minutes)},
        "disorder": {0: PartitionRecords(back)},
        "undated": {0: PartitionRecords(minutes, values=dated), 1: PartitionRecords(minutes)},
    }
    for name, records in written.items():
        bulk_produce_partitions(bootstrap, names[name], records)
    return names


@dataclass(frozen=True)
class Hour:
    """What a user sees on the console."""

    said: Mapping[str, str]
    """By the program itself, of each thing that it tried."""
    log: Sequence[str]
    """Lines of Spark and of ours, whichever process they came from, and the error with which the program ended."""

    def warnings(self, query: str) -> list[str]:
        """The lines of ours about a query."""
        return [line for line in self.log if f" WARN watermark_source: [query {query}, " in line]


@pytest.fixture(scope="module")
def hour(kafka: Kafka) -> Hour:
    names = fill(kafka.bootstrap)
    inherited = {k: v for k, v in os.environ.items() if k in ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "SPARK_LOCAL_IP")}
    # The project's own folders are on the path of the test's interpreter alone where it is not installed.
    environment = {**inherited, "PATH": "/usr/local/bin:/usr/bin:/bin", "JDK_JAVA_OPTIONS": quick_spark()}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "connectors")])
    done = subprocess.run(
        [sys.executable, str(JOB), kafka.bootstrap, *(f"{name}={topic}" for name, topic in names.items())],
        env=environment, capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    _, *parts = f"\n{done.stdout}".split("\n== ")
    said = {name: text for name, _, text in (part.partition("\n") for part in parts)}
    return Hour(said, done.stderr.splitlines())


def test_an_environment_that_is_not_activated_works(hour: Hour) -> None:
    assert not any("DATA_SOURCE_NOT_FOUND" in text for text in (*hour.said.values(), *hour.log))


def test_a_run_that_closes_nothing_ends_with_cause_and_line(hour: Hour) -> None:
    (line,) = hour.warnings("silent")
    moment, rest = line[:17], line[17:]
    assert time.strptime(moment, "%y/%m/%d %H:%M:%S")
    assert rest.startswith(
        " WARN watermark_source: [query silent, source aligned-kafka] the run is over, and the source's "
        "watermark closed no window: 120 "
    )
    assert "-2: no record seen yet" in rest
    assert 'write .option("idleTimeout", "30 seconds")' in rest


def test_a_live_query_that_closes_nothing_is_warned_of_once(hour: Hour) -> None:
    (line,) = hour.warnings("silent_live")
    assert "] there is no watermark since " in line
    assert "-2: no record seen yet" in line
    assert 'write .option("idleTimeout", "30 seconds")' in line


def test_the_first_late_rows_name_how_many_how_late_and_the_bound_to_write(hour: Hour) -> None:
    line, *_ = hour.warnings("disorder")
    assert " rows of " in line
    assert " late: windows, joins and deduplication drop such rows." in line
    assert 'maxOutOfOrderness (0 ms): write .option("maxOutOfOrderness", "' in line


def test_a_partition_without_event_times_is_named(hour: Hour) -> None:
    (line,) = hour.warnings("undated")
    assert "-1: 60 records, none with an event time" in line
    assert "Check eventTimeColumn and eventTimeFormat, with python -m watermark_source profile" in line


def test_a_table_is_read_as_a_batch_and_as_a_stream(hour: Hour) -> None:
    assert "rows 120 120" in hour.said["streamed_table"]


def test_a_checkpoint_of_another_topic_is_named_as_such(hour: Hour) -> None:
    text = hour.said["another_topic"]
    assert "this checkpoint was written for first-hour-even-" in text
    assert ", and subscribe is first-hour-orders-" in text
    assert "did you mean another checkpointLocation?" in text
    assert "data was lost" not in text + "".join(hour.warnings("another_topic"))


def test_an_error_in_a_query_begins_with_its_sentence(hour: Hour) -> None:
    first = next(line for line in hour.said["no_such_topic"].splitlines() if line.startswith("StreamingQueryException"))
    assert "UnknownSplitError: topic there-is-none does not exist" in first
    assert "watermark_source/" not in hour.said["no_such_topic"]


def test_a_second_watermark_is_refused_when_the_query_starts(hour: Hour) -> None:
    assert "UsageError: withWatermark(" in hour.said["second_watermark"]
    assert 'write .option("maxOutOfOrderness", "1 seconds")' in hour.said["second_watermark"]


def test_a_missing_extra_is_named_with_a_command(hour: Hour) -> None:
    assert "MissingPackageError: LiveStatus needs the package rich" in hour.said["missing_extra"]
    assert "pip install 'prometheus-client" in hour.said["missing_extra"]


def test_an_error_at_load_is_short_and_begins_with_its_sentence(hour: Hour) -> None:
    # What others log may come within it and after it.
    lines = [line for line in hour.log if not re.match(r"\d\d/\d\d/\d\d ", line)]
    first = next(i for i, line in enumerate(lines) if "there is no such option; the nearest is idleTimeout" in line)
    assert lines[first].startswith("pyspark.errors.exceptions.captured.AnalysisException: [PYTHON_DATA_SOURCE_ERROR]")
    # So may the traceback of a Python process whose connection ends with the program.
    after = (n for n, line in enumerate(lines) if n > first and line.startswith("Traceback"))
    rest = lines[first + 1 : next(after, len(lines))]
    assert len(rest) < LONGEST_ERROR, "\n".join(lines[first:])
    # Behind the sentence Spark's own words alone.
    assert not any("watermark_source" in line for line in rest)
