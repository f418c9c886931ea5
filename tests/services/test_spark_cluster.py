"""A standalone Spark cluster comes up, loses a worker and gets it back, and goes with all its files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
import pytest

from services.errors import ServiceError
from services.spark_cluster import SparkCluster, spark_cluster
from services.wait_until import wait_until

pytestmark = pytest.mark.service


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with spark_cluster(["127.0.0.2"]) as made:
        yield made


def test_a_killed_worker_comes_back_and_closing_leaves_nothing(cluster: SparkCluster) -> None:
    killed, folder = cluster._workers[0].pid, cluster._root
    assert cluster.master_url.startswith("spark://127.0.0.1:")
    assert cluster.executors(0) == ()
    assert cluster.kill_executors(0) == 0
    cluster.kill(0)
    assert not psutil.pid_exists(killed)
    cluster.start()
    assert cluster._known_workers() == {("127.0.0.2", cluster._worker_ports[0])}
    assert cluster._master is not None
    pids = [cluster._master.pid, cluster._workers[0].pid]
    cluster.close()
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), 60, "the end of master and worker")
    assert not folder.exists()


def test_a_worker_that_cannot_start_shows_its_log() -> None:
    with contextlib.closing(SparkCluster(["203.0.113.1"])) as cluster:
        with pytest.raises(ServiceError, match=r"Spark's worker 0 ended with exit code \d+") as caught:
            cluster.start()
        assert "sparkWorker" in str(caught.value)


def test_a_cluster_without_workers_is_refused() -> None:
    with pytest.raises(ServiceError, match="at least one worker"):
        SparkCluster([])
