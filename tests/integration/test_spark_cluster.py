"""aligned-kafka on a standalone cluster: a driver, a master and two workers, each at an address of its own.

The first driver program finds the project installed on every node, the second ships it in an archive to nodes that do
not have it. All queries read the same topic in batches of the same size, so all have the same offsets, whatever befell
them.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topic
from services.local_server import free_ports
from services.spark_cluster import SparkCluster, spark_cluster
from tests.integration.cluster_driver import (
    OUT_OF_ORDERNESS_MS,
    SPECULATED,
    TRAPPED,
    UNREACHABLE,
    WINDOW_MS,
    WINDOWS,
    Job,
)
from tests.integration.cluster_runs import DRIVER_HOST, Run, archive, python_without_the_project
from tests.spark.queries import START

# Setting up is the test: two driver programs of half a minute each, many times that on a busy machine.
pytestmark = [pytest.mark.service, pytest.mark.timeout(1_800)]

WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
BLACK_HOLE_HOST = "127.0.0.9"
PARTITIONS = 4
ROWS = 150_000
"""Of each partition, a millisecond apart; each partition is five seconds ahead of the one before."""

Times = dict[int, np.ndarray]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with spark_cluster(WORKER_HOSTS) as made:
        yield made


@pytest.fixture(scope="module")
def times(kafka: Kafka) -> Times:
    """The event times of the topic's rows."""
    made = {p: START + 5_000 * p + np.arange(ROWS, dtype=np.int64) for p in range(PARTITIONS)}
    create_topic(kafka.bootstrap, "cluster", PARTITIONS)
    bulk_produce_partitions(
        kafka.bootstrap, "cluster", {p: PartitionRecords(ts, value_size=20) for p, ts in made.items()}
    )
    return made


@pytest.fixture(scope="module")
def installed(cluster: SparkCluster, kafka: Kafka, times: Times, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A driver started by Python; an executor is killed while its second query is in the middle of a batch."""
    job = Job(kafka.bootstrap, "cluster", str(tmp_path_factory.mktemp("installed")))
    run = Run.of_python(cluster, job, WINDOWS, TRAPPED)
    job.trap.touch()
    caught = {worker: Path(f"{job.trap}.{host}") for worker, host in enumerate(WORKER_HOSTS)}
    run.wait_for(lambda: any(file.exists() for file in caught.values()), "a task in the trap")
    (worker,) = [worker for worker, file in caught.items() if file.exists()]
    assert cluster.kill_executors(worker) == 1
    run.wait()
    return run


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_the_project(tmp_path_factory.mktemp("python") / "env")


@pytest.fixture(scope="module")
def shipped(
    cluster: SparkCluster, kafka: Kafka, times: Times, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A driver started by ``spark-submit`` with the project in an archive; slow tasks are speculated on.

    Spark talks to its Python processes over Unix sockets, as docs/deployment.md states.
    """
    folder = tmp_path_factory.mktemp("shipped")
    (port,) = free_ports(1)
    with ExitStack() as held:
        dig_black_hole(held, port)
        job = Job(kafka.bootstrap, "cluster", str(folder), (BLACK_HOLE_HOST, port))
        settings = {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.speculation": "true",
            "spark.speculation.minTaskRuntime": "1s",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.5",
        }
        run = Run.submitted(
            cluster, job, SPECULATED, UNREACHABLE, python=python, shipped=archive(folder), settings=settings
        )
        run.wait()
    return run


def dig_black_hole(held: ExitStack, port: int) -> None:
    """Make an address to which no connection ever comes about, and none is refused: as behind a closed firewall."""
    hole = held.enter_context(socket.create_server((BLACK_HOLE_HOST, port), backlog=0))
    for _ in range(3):
        waiting = held.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(hole.getsockname())
    with pytest.raises(TimeoutError):
        socket.create_connection(hole.getsockname(), timeout=0.2)


def due() -> int:
    """Return the last watermark: that of the partition whose last row is oldest."""
    return START + ROWS - 1 - OUT_OF_ORDERNESS_MS - 1


def assert_whole(run: Run, query: str, times: Times) -> None:
    """Check that a sink of rows holds every row exactly once, with its own event time."""
    found = run.result(query)
    partitions, offsets = found["partition"].to_numpy(), found["offset"].to_numpy()
    micros = found["event_time"].cast("timestamp[us]").to_numpy().astype(np.int64)
    for partition, expected in times.items():
        mine = partitions == partition
        assert np.bincount(offsets[mine], minlength=len(expected)).tolist() == [1] * len(expected)
        np.testing.assert_array_equal(micros[mine] // 1_000, expected[offsets[mine]])
    assert len(found) == sum(map(len, times.values()))


def assert_windows(run: Run, query: str, times: Times) -> None:
    """Check that every window up to the last watermark came out once, with all its rows."""
    begins, counts = np.unique(np.concatenate(list(times.values())) // WINDOW_MS * WINDOW_MS, return_counts=True)
    closed = begins + WINDOW_MS <= due()
    found = run.result(query).sort_by("start")
    assert (found["start"].cast("timestamp[ms]").to_numpy().astype(np.int64)).tolist() == begins[closed].tolist()
    assert found["count"].to_pylist() == counts[closed].tolist()
    assert late(run, query) == 0


def late(run: Run, query: str) -> int:
    return sum(o["numRowsDroppedByWatermark"] for p in run.seen["progress"][query] for o in p["stateOperators"])


def planned(run: Run, query: str) -> list[tuple[Any, ...]]:
    """Return what each offset states except for moments of the clock: watermark, and positions and ranges of splits.

    Spark's own batches, which windows have and rows have not, repeat the offset before.
    """
    logged = [
        (offset.get("wm"), {number: fields[:3] for number, fields in offset["splits"]["cluster"].items()})
        for offset in run.offsets(query)
    ]
    return [offset for number, offset in enumerate(logged) if offset != logged[number - 1] or number == 0]


def test_windows_are_right_and_both_executors_read(installed: Run, times: Times) -> None:
    assert_windows(installed, WINDOWS, times)
    assert {scan["Host"] for scan in installed.scans()} == set(WORKER_HOSTS)


def test_the_last_watermark_is_what_the_rows_say_and_came_over_several_batches(installed: Run) -> None:
    watermarks = [watermark for watermark, _ in planned(installed, WINDOWS)]
    assert watermarks[-1] == due()
    assert len({watermark for watermark in watermarks if watermark is not None}) >= 3


def test_an_executor_killed_within_a_batch_loses_and_doubles_nothing(installed: Run, times: Times) -> None:
    assert_whole(installed, TRAPPED, times)
    lost = [scan for scan in installed.scans() if scan["Reason"] == "ExecutorLostFailure"]
    assert lost
    again = [scan for scan in installed.scans() if scan["Reason"] == "Success" and scan["Attempt"] > 0]
    assert {scan["Index"] for scan in again} == {scan["Index"] for scan in lost}


def test_executors_report_to_a_driver_at_another_address(installed: Run) -> None:
    assert installed.seen["driver"]["host"] == DRIVER_HOST
    assert "no progress report could be delivered" not in installed.executor_logs
    # One task was killed before it could report; the one that took its place did.
    assert "no task reported" not in installed.log


@pytest.mark.long("test_an_archive_of_the_project_is_all_that_a_python_needs")
def test_the_nodes_do_not_have_the_project(python: Path) -> None:
    tried = subprocess.run(
        [python, "-c", "import pyspark, numba, kafka\nimport watermark_source"],
        env={}, cwd=python.parent, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "No module named 'watermark_source'" in tried.stderr


@pytest.mark.long("test_an_archive_of_the_project_is_all_that_a_python_needs")
def test_driver_and_tasks_run_what_was_shipped(shipped: Run) -> None:
    seen = shipped.seen
    assert "watermark_source.zip/watermark_source/" in seen["driver"]["project"]
    assert len(seen["tasks"]) == 4
    for found in seen["tasks"]:
        assert "watermark_source.zip/watermark_source/" in found


@pytest.mark.long("test_the_same_report_twice_counts_once")
def test_a_task_done_twice_by_speculation_doubles_nothing(shipped: Run, times: Times) -> None:
    assert_whole(shipped, SPECULATED, times)
    assert any(scan["Speculative"] for scan in shipped.scans())


@pytest.mark.long("test_where_no_report_comes_through_both_sides_say_so_and_the_driver_reads_again")
def test_without_reports_the_windows_are_right_and_both_sides_say_what_is_wrong(shipped: Run, times: Times) -> None:
    assert_windows(shipped, UNREACHABLE, times)
    hole = f"{BLACK_HOLE_HOST}, port {shipped.job.black_hole[1]}"
    assert f"no progress report could be delivered to {hole}" in shipped.executor_logs
    assert f"no task reported what it read to {hole}" in shipped.log


@pytest.mark.parametrize(
    ("run", "query"),
    [
        ("installed", TRAPPED),
        pytest.param("shipped", SPECULATED, marks=pytest.mark.long("a batch whose executor was killed")),
        pytest.param("shipped", UNREACHABLE, marks=pytest.mark.long("a batch whose executor was killed")),
    ],
)
def test_every_watermark_and_range_is_as_if_nothing_had_happened(
    request: pytest.FixtureRequest, installed: Run, run: str, query: str
) -> None:
    assert planned(request.getfixturevalue(run), query) == planned(installed, WINDOWS)
