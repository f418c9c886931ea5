"""Every way to write a stream of a file log: exact, refused or warned of, none silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.surface_table import cells
from examples.file_log.pyspark_file_log import DefaultSource
from tests.spark.file_log import append
from tests.spark.queries import START
from tests.spark.surfaces import ROOT, ROWS, Rows, judged, surfaces, through_connect

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

OF_THE_DAY = ("DataFrame", "SQL with `WATERMARK` over a view of the DataFrame")


def file_log(folder: Path) -> Rows:
    for split, rows in ROWS.items():
        append(folder, split, [(START + second * 1_000, value) for second, value in rows])
    options = {
        "folder": str(folder), "columns": "value long", "startingOffsets": "earliest", "maxRowsPerTrigger": "2",
        # The last windows close as well.
        "finalWatermark": "true",
    }  # fmt: skip
    return Rows(source="file log", format="file-log", options=options)


@pytest.fixture(scope="module")
def judge(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Any, Any]]]:
    spark.dataSource.register(DefaultSource)
    with judged(spark, file_log(tmp_path_factory.mktemp("rows")), tmp_path_factory.mktemp("sinks")) as judge:
        yield judge


@pytest.mark.parametrize("surface", surfaces(*OF_THE_DAY))
def test_a_stream_is_exact_or_refused_or_warned_of(judge: Callable[[str], tuple[Any, Any]], surface: str) -> None:
    seen, reported = judge(surface)
    assert seen == reported


@pytest.mark.long("test_windows_through_connect_are_the_same")
@pytest.mark.usefixtures("connect_port")
def test_connect_and_pipelines_are_exact_or_refused_or_warned_of(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = file_log(tmp_path / "data")
    seen = through_connect(rows, tmp_path, ROOT / "examples" / "file_log")
    assert seen == {name: cells(name, rows.source) for name in seen}
