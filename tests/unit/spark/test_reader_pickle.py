"""What Spark pickles, the stream reader and its tasks, is as good behind the pickle as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.spark.file_log import FileLogSource
from tests.spark.queries import write
from tests.unit.spark.runner_process import SYSTEM, TWO
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source.spark.stream_schema import stream_schema


def test_reader_and_packs_survive_the_pickle_and_building_them_connects_to_nothing(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, TWO)
    process = live()
    start = process.runner.initial_offset()
    tasks = process.runner.tasks(start, process.plan(start))
    assert all(isinstance(pack, ReadTask) for pack in tasks)
    assert cloudpickle.loads(cloudpickle.dumps(tasks)) == tasks

    def refuse(*_: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(FileLogSource, "open", refuse)
    schema = stream_schema(SYSTEM, process.options)
    reader = AlignedStreamReader(process.source, process.options, schema, max_rows=5)
    again = cloudpickle.loads(cloudpickle.dumps(reader))
    assert [b.num_rows for pack in tasks for b in again.read(pack)] == [2, 1]
    assert again.getDefaultReadLimit() == ReadMaxRows(5)
    with pytest.raises(AssertionError, match="connected"):
        again.initialOffset()


def test_a_reader_that_is_in_use_survives_the_pickle(log: Path, live: Any) -> None:
    write(log, TWO)
    process = live()
    schema = stream_schema(SYSTEM, process.options)
    reader = AlignedStreamReader(process.source, process.options, schema, max_rows=None)
    start = reader.initialOffset()
    again = cloudpickle.loads(cloudpickle.dumps(reader))
    assert again.initialOffset() == start
    reader.stop()
    again.stop()
