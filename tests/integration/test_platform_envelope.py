"""What a managed platform has: a Spark of its own with Delta, the wheel of a release, and nothing set: over Connect,
and with what is complete of a Delta table, in a session of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.java import java_command
from services.kafka import Kafka
from services.local_server import ChildProcess, free_ports
from services.wait_until import wait_until
from tests.integration import platform_complete_job, platform_job
from tests.integration.delta_tables import SETTINGS, SPARK, delta_jars
from tests.integration.kafka_streams import write
from tests.spark.queries import START
from tests.unit.test_wheel import checkout, wheel_of  # noqa: F401 - a fixture

pytestmark = [pytest.mark.service, pytest.mark.timeout(1_800)]

OF_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "pandas<3", "zstandard")
HOUR = 3_600


@pytest.fixture
def platform(checkout: Path) -> Iterator[Path]:  # noqa: F811 - the fixture
    """An environment with a platform's Spark, into which pip has installed the wheel: no compiler, no Spark of ours."""
    packages = ("watermark_source", "pyspark_aligned_kafka")
    path = os.pathsep.join(map(str, (checkout, checkout / "connectors")))
    subprocess.run(
        [sys.executable, "-m", "release.decoders", *packages], cwd=checkout, env={**os.environ, "PYTHONPATH": path},
        check=True, timeout=900,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="platform-") as folder:
        venv.create(folder, with_pip=True)
        pip = [str(Path(folder, "bin", "python")), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, f"pyspark=={SPARK}", *OF_CONNECT], check=True, timeout=1_200)
        subprocess.run([*pip, f"{wheel_of(checkout)}[kafka]"], check=True, timeout=600)
        listed = json.loads(subprocess.check_output([*pip[:3], "list", "--format", "json"], text=True))
        assert {"numba", "llvmlite"} & {each["name"] for each in listed} == set()
        assert {each["name"]: each["version"] for each in listed}["pyspark"] == SPARK
        yield Path(folder)


def environment(platform: Path) -> dict[str, str]:
    """Nothing but where programs are."""
    java = Path(java_command()).resolve().parents[1]
    return {"PATH": f"{platform / 'bin'}:/usr/bin:/bin", "HOME": str(platform), "JAVA_HOME": str(java)}


@pytest.fixture
def remote(platform: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server, which has Delta."""
    (port,) = free_ports(1)
    (home,) = platform.glob("lib/python*/site-packages/pyspark")
    settings = {"spark.connect.grpc.binding.port": str(port), "spark.jars": delta_jars(), **SETTINGS}
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = tmp_path / "server.log"
    server = ChildProcess(command, folder=platform, files=tmp_path / "none", log=log, environment=environment(platform))
    try:
        wait_until(
            lambda: server.exit_code is not None or "Spark Connect server started" in log.read_text(), 240, "a server"
        )
        assert server.exit_code is None, log.read_text()[-4_000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()


@pytest.mark.long("test_windows_through_connect_are_the_same")
def test_windows_in_delta_are_exact_over_two_runs_where_nothing_can_be_set(
    platform: Path, remote: str, kafka: Kafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    # The first partition is far ahead of the second.
    runs = (
        {0: np.arange(0, 2 * HOUR, 0.7), 1: np.arange(0, HOUR, 1.3)},
        {0: np.arange(2 * HOUR, 3 * HOUR, 0.7), 1: np.arange(HOUR, 2.5 * HOUR, 1.3)},
    )

    def answer_of(program: str, *given: str) -> Any:
        done = subprocess.run(
            [str(platform / "bin" / "python"), program, *given, kafka.bootstrap, topic, str(tmp_path)],
            cwd=tmp_path, env=environment(platform), capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    for rows in runs:
        write(kafka.bootstrap, topic, rows)
        streamed, whole = answer_of(platform_job.__file__, remote)
        # Windows have ended that end before the newest event time of the slower partition.
        ended = int(rows[1][-1]) // 60
        assert streamed == [row for row in whole if row[0] < START // 60_000 + ended]
        assert len(streamed) == ended
        # After the stream, OPTIMIZE and a rewrite of the whole table: complete until the watermark of these windows.
        minutes, *until = answer_of(platform_complete_job.__file__, delta_jars(), json.dumps(SETTINGS))
        assert minutes == streamed
        assert len(until) == 3
        assert {at // 60_000 for at in until} == {START // 60_000 + ended}
        assert len(set(until)) == 1
