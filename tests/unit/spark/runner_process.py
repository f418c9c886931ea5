"""A source's runner process, driven as Spark drives it, over a log in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.file_log import TABLE, source_of
from tests.spark.queries import START, Rows
from watermark_source.planning.policy import OnLoss
from watermark_source.planning.strategy import Abilities
from watermark_source.spark.driver.runner import SourceRunner
from watermark_source.spark.executor.reading import run_task
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.stream_schema import stream_schema

ABILITIES = Abilities(row_positions=True, rows_ahead=True)
ALL = ReadMaxRows(2**63 - 1)
SYSTEM = StructType([StructField("split", LongType()), StructField("value", LongType())])
TWO: Rows = {0: [(100, 1), (101, 2)], 1: [(7, 3)]}


class Process:
    """One life of a source's runner process, driven as Spark drives it."""

    def __init__(self, directory: Path, **given: str) -> None:
        values = TABLE.parse({"startingOffsets": "earliest", "directory": str(directory), **given})
        self.options = EngineOptions.of(values, format_name="file-log", given=given, abilities=ABILITIES)
        self.source = source_of(values)
        policy = replace(self.options.policy, on_loss=OnLoss(fails=values["failOnDataLoss"]))
        self.runner = SourceRunner(self.source, replace(self.options, policy=policy))

    def plan(self, start: Mapping[str, Any], limit: ReadLimit = ALL) -> Mapping[str, Any]:
        return self.runner.latest_offset(start, limit)

    def read(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[list[int], list[str | None]]:
        """Run the tasks of a batch; return the values of its rows, and its markers' splits or types."""
        values: list[int] = []
        markers: list[str | None] = []
        for task in self.runner.tasks(start, end):
            for batch in run_task(self.source.range_reader, task, stream_schema(SYSTEM, self.options)):
                if "marker" not in batch.schema.names:
                    values += batch["value"].to_pylist()
                    continue
                about = batch["marker"]
                # As numbers: the end of time is none that Python has.
                reported = pc.struct_field(about, "watermark").cast(pa.int64()).to_pylist()
                statuses, are_data = pc.struct_field(about, "status").to_pylist(), about.is_null().to_pylist()
                for value, status, micros, is_data in zip(
                    batch["value"].to_pylist(), statuses, reported, are_data, strict=True
                ):
                    if is_data:
                        values.append(value)
                    else:
                        markers.append(status or str(round(micros / 1_000) - START))
        return values, markers

    def run(self, start: Mapping[str, Any], limit: ReadLimit = ALL) -> Mapping[str, Any]:
        """Continue until there is nothing new."""
        while (end := self.plan(start, limit)) != start:
            self.read(start, end)
            start = end
        return start


def wm(offset: Mapping[str, Any]) -> int | None:
    """Return an offset's combined watermark, in milliseconds after ``START``."""
    return None if offset.get("wm") is None else offset["wm"] - START


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def live(log: Path) -> Iterator[Any]:
    """``live(**options)`` starts a runner process's life."""
    made: list[Process] = []

    def start(**given: str) -> Process:
        made.append(Process(log, **given))
        return made[-1]

    yield start
    for process in made:
        process.runner.close()
