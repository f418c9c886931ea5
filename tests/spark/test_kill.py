"""Kill -9 of the processes Spark runs our code in: nothing lost, nothing doubled, the watermark as without the kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.spark.processes import newest_runner, runner_processes
from tests.spark.queries import START, Rows, Streams
from tests.unit.planning import generators

pytestmark = pytest.mark.spark

ROWS: Rows = {0: [(n, n) for n in range(3_000)], 1: [(n / 2, 10_000 + n) for n in range(2_000)]}
MORE: Rows = {0: [(3_600, 50_000)], 1: [(3_000, 50_001)]}


def watermarks(streams: Streams, name: str) -> list[int]:
    return [o["wm"] for o in streams.offsets(name) if "wm" in o]


def read(streams: Streams, name: str) -> list[int]:
    return sorted(r.value for r in streams.result(name).where("marker IS NULL").collect())


def undisturbed(*written: Rows) -> tuple[list[int], int]:
    """Return the values of all rows, and the watermark they lead to."""
    rows = [(split, second, value) for each in written for split, some in each.items() for second, value in some]
    newest = {split: second for split, second, _ in sorted(rows)}
    return sorted(value for *_, value in rows), START + round(1_000 * min(newest.values())) - 1


def kill_runner(streams: Streams, df: DataFrame, name: str, *, batch: int) -> None:
    """Start a query, kill the process that plans it once a batch is committed, and wait until the query has failed."""
    query = streams.start_file(df, name)
    while not (streams.checkpoint(name) / "commits" / str(batch)).exists():
        assert query.isActive
        time.sleep(0.02)
    runner = newest_runner(streams.spark)
    runner.kill()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(200)
    assert not query.isActive


def test_a_killed_runner_fails_the_query_and_a_restart_goes_on(streams: Streams) -> None:
    streams.write(ROWS)
    df = streams.load(maxRowsPerTrigger=1_500)
    kill_runner(streams, df, "killed", batch=0)
    streams.write(MORE)
    streams.run(df, "killed")
    assert (read(streams, "killed"), watermarks(streams, "killed")[-1]) == undisturbed(ROWS, MORE)
    assert watermarks(streams, "killed") == sorted(watermarks(streams, "killed"))


@pytest.mark.long("test_a_strategy_of_the_users_own_gets_its_state_back_in_the_next_process")
def test_a_strategy_of_the_users_own_continues_from_its_state_in_the_checkpoint(streams: Streams) -> None:
    streams.write(ROWS)
    df = streams.load(
        maxRowsPerTrigger=1_000, watermarkStrategy=f"{generators.__name__}:RangesAndRows", minPartitions=3
    )
    kill_runner(streams, df, "own", batch=2)
    at_kill = len(streams.offsets("own"))
    streams.write(MORE)
    streams.run(df, "own")
    offsets = streams.offsets("own")
    assert len(offsets) > at_kill + 1
    # It counts the ranges of each split, and the rows that tasks have summed up: each once, whichever process has
    # planned and read it.
    ranges: Counter[str] = Counter()
    for before, after in pairwise([{"splits": {"log": {"0": [0], "1": [0]}}}, *offsets]):
        assert after["own"].get("states", {}).get("log", {}) == {
            split: {"ranges": n, "rows": before["splits"]["log"][split][0]} for split, n in ranges.items()
        }
        positions = [offset["splits"]["log"] for offset in (before, after)]
        ranges.update(split for split in positions[1] if positions[1][split][0] > positions[0].get(split, [0])[0])
    assert min(ranges.values()) >= 3
    assert watermarks(streams, "own")[-1] == START + 1_000 * 3_000 - generators.MINUTE


def test_runners_end_with_their_query(streams: Streams) -> None:
    streams.write(ROWS)
    before = {p.pid for p in runner_processes(streams.spark)}
    query = streams.start_file(streams.load(), "ending")
    query.processAllAvailable()
    mine = [p for p in runner_processes(streams.spark) if p.pid not in before]
    assert len(mine) == 1
    query.stop()
    assert not psutil.wait_procs(mine, timeout=60)[1]


def test_a_killed_worker_fails_the_batch_and_a_restart_repeats_it(streams: Streams, tmp_path: Path) -> None:
    streams.write(ROWS)
    trap = tmp_path / "trap"
    df = streams.load(maxRowsPerTrigger=1_500, dieAt=trap)
    trap.touch()
    # A local master without a number of retries gives a task one attempt.
    with pytest.raises(StreamingQueryException):
        streams.run(df, "worker")
    assert not trap.exists()
    streams.write(MORE)
    streams.run(df, "worker")
    assert (read(streams, "worker"), watermarks(streams, "worker")[-1]) == undisturbed(ROWS, MORE)


RETRY = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from services.spark_start import LOCAL_CHECKPOINTS, quick_spark
from tests.spark.file_log import FileLogDataSource
from tests.spark.queries import Streams

spark = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config(map=dict(LOCAL_CHECKPOINTS))
    .config("spark.driver.extraJavaOptions", quick_spark()).getOrCreate()
)
spark.dataSource.register(FileLogDataSource)
streams = Streams(spark, Path(sys.argv[1]))
streams.run(streams.load(maxRowsPerTrigger=1_500, dieAt=sys.argv[2]), "retried")
spark.stop()
"""


@pytest.mark.long("test_an_executor_killed_within_a_batch_loses_and_doubles_nothing")
def test_a_killed_worker_is_retried_within_the_batch(streams: Streams, tmp_path: Path) -> None:
    streams.write(ROWS)
    trap = tmp_path / "trap"
    trap.touch()
    ended = subprocess.run(
        [sys.executable, "-c", RETRY, str(tmp_path), str(trap)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert not trap.exists()
    assert (read(streams, "retried"), watermarks(streams, "retried")[-1]) == undisturbed(ROWS)
