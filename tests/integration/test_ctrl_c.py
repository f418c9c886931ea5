"""Ctrl-C on the examples and demos, at three moments: confirmed at once, ended soon, without a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from examples.play import order
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.mysql import MySql
from services.spark_start import quick_spark
from services.wait_until import wait_until
from tests.integration.sessions import processes_of_session

pytestmark = [pytest.mark.service, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 400.0
CONFIRMED_SECONDS = 1.0
ENDED_SECONDS = 10.0


class Demo(NamedTuple):
    """What a demo prints at three moments."""

    first_batch: str
    running: str | None
    """``None``: it ends within seconds of its first batch, or has none."""
    servers: tuple[str, ...] = ("kafka",)
    starting: str = "starting Spark"
    status: int = 130


PROGRESS = r"^ *\d+ s  "
COUNTED = r"[1-9]\d* windows are closed"
DEMOS = {
    "change_feeds": Demo(PROGRESS, COUNTED),
    "clickstream_enrichment": Demo(PROGRESS, "a join that waits: ", ("kafka", "mysql")),
    "complete_hours": Demo(PROGRESS, r"[1-9]\d* once complete"),
    "early_and_final": Demo(PROGRESS, r"[1-9]\d* windows have an early answer"),
    "file_log.count": Demo("^counting", None, (), "log4j profile", 0),
    "job_chain": Demo(PROGRESS, r"[1-9]\d* with a bound"),
    "json_event_time": Demo(PROGRESS, None),
    "mysql_changes": Demo(PROGRESS, "the binlog is read", ("mysql",)),
    "night_uploads": Demo(PROGRESS, COUNTED),
    "play": Demo("orders written", None, starting="A broker answers", status=0),
    "rate_enrichment": Demo(PROGRESS, "a join that waits: ", ("mysql",)),
    "sensor_ordering": Demo(PROGRESS, r"[1-9]\d* readings out"),
    "skewed_topic": Demo(PROGRESS, r"closed [1-9]"),
    "two_topics_join": Demo(PROGRESS, r"[1-9] rows joined"),
}
"""By their modules. The notebook and the pipelines run in Jupyter's and Spark's own programs, which end them."""


class Program:
    """A program with its children, as a terminal runs it: in a group of their own, which gets the signal."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._output = output
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYTHONUNBUFFERED": "1",
            "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": quick_spark(),
        }  # fmt: skip
        with output.open("w") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def printed(self) -> str:
        return self._output.read_text(encoding="utf-8")

    def wait_for(self, pattern: str) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None, self.printed
            return re.search(pattern, self.printed, re.MULTILINE) is not None

        wait_until(is_there, PATIENCE_SECONDS, pattern)

    def interrupted(self) -> str:
        """Press Ctrl-C, and return what is printed from then on."""
        before, at = len(self.printed), time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)
        wait_until(lambda: "Ctrl-C: " in self.printed[before:], CONFIRMED_SECONDS, "an answer to Ctrl-C")
        self.process.wait(max(0.0, at + ENDED_SECONDS - time.monotonic()))
        wait_until(lambda: not processes_of_session(self.process.pid), 60, "the end of all that was started")
        assert "BrokenPipe" not in self.printed, self.printed
        return self.printed[before:]

    def close(self) -> None:
        for pid in processes_of_session(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*command: str) -> Program:
        programs.append(Program([sys.executable, *command], tmp_path / "output"))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def check(printed: str, status: int, expected: tuple[int, ...]) -> None:
    assert status in expected, printed
    assert re.search(r"Traceback|Exception|Error|^\tat ", printed, re.MULTILINE) is None, printed


def written(bootstrap: str, topic: str) -> None:
    """Write five minutes of orders, as ``make play`` does."""
    now = time.time()
    for partition in range(3):
        values = [order(partition, n, now + n / 10) for n in range(3_000)]
        width = max(map(len, values))
        cells = np.frombuffer(b"".join(value.ljust(width) for value in values), dtype=np.uint8).reshape(-1, width)
        times = np.full(len(values), int(now * 1_000), dtype=np.int64)
        bulk_produce_partitions(bootstrap, topic, {partition: PartitionRecords(times, values=cells)})


@pytest.mark.parametrize(
    "moment",
    [
        "Spark starts",
        "first batch",
        "running",
    ],
)
@pytest.mark.long("test_the_lines_that_play_prints_run_as_they_stand")
def test_ctrl_c_ends_the_first_job_without_a_traceback(
    run: Callable[..., Program], kafka: Kafka, new_topic: Callable[..., str], tmp_path: Path, moment: str
) -> None:
    topic, checkpoint = new_topic(3), tmp_path / "checkpoint"
    written(kafka.bootstrap, topic)
    where = ("--eventTimeColumn", "value:$.order.created_at", "--checkpoint", str(checkpoint))
    job = run("examples/first_job.py", kafka.bootstrap, topic, *where)
    if moment == "first batch":
        wait_until(lambda: (checkpoint / "offsets" / "0").exists(), PATIENCE_SECONDS, "the plan of the first batch")
    else:
        job.wait_for("log4j profile" if moment == "Spark starts" else " records$")
    check(job.interrupted(), job.process.wait(), (0, 130))


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        (name, moment)
        for name, demo in DEMOS.items()
        for moment in ("starting", "first_batch", "running")
        if moment != "running" or demo.running is not None
    ],
)
@pytest.mark.long("test_the_lines_that_play_prints_run_as_they_stand")
def test_ctrl_c_ends_a_demo_without_a_traceback(
    run: Callable[..., Program], kafka: Kafka, mysql: MySql, name: str, moment: str
) -> None:
    demo = DEMOS[name]
    addresses = {"kafka": kafka.bootstrap, "mysql": f"mysql://root@{mysql.host}:{mysql.port}"}
    servers = [word for server in demo.servers for word in (f"--{server}", addresses[server])]
    program = run("-m", "examples", name, *servers)
    program.wait_for(getattr(demo, moment))
    check(program.interrupted(), program.process.wait(), (130, demo.status))
