"""Driver programs on a cluster: start them, and read what they left behind without a Spark of one's own."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from services.ivy import pyspark_home
from services.local_server import ChildProcess
from services.spark_cluster import SparkCluster
from services.spark_start import quick_executor, quick_spark
from services.wait_until import wait_until
from tests.integration.cluster_driver import Job, command

DRIVER_HOST = "127.0.0.4"
PACKAGES = ("watermark_source", "pyspark_aligned_kafka")
_NEEDED = ("pyspark", "pyarrow", "numpy", "numba", "llvmlite", "kafka", "cramjam", "zstandard")
_SECONDS = 600.0
"""For the slowest machine; an idle one takes half a minute."""


def place_of(package: str) -> Path:
    """Return the folder a package is imported from."""
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parents[1]


def archive(folder: Path) -> Path:
    """Pack the project as a wheel holds it, with the ending ``--py-files`` knows."""
    packed = folder / "watermark_source.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for package in PACKAGES:
            root = place_of(package)
            for source in sorted((root / package).rglob("*")):
                if source.is_file() and source.parent.name != "__pycache__":
                    made.write(source, source.relative_to(root))
    return packed


def python_without_the_project(folder: Path) -> Path:
    """Make an interpreter that has what the project needs, and not the project, however that is installed here."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Only the folders themselves: what their own .pth files add, an editable project among it, is not followed.
    (packages / "needed.pth").write_text("\n".join(sorted({str(place_of(name)) for name in _NEEDED})))
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Run:
    """One driver program, from its start to what it left."""

    job: Job
    process: ChildProcess
    cluster: SparkCluster

    @classmethod
    def of_python(cls, cluster: SparkCluster, job: Job, *queries: str) -> Run:
        """Run the program by an interpreter that has the project, as every node has it too."""
        path = os.pathsep.join(sorted({str(place_of(package)) for package in PACKAGES}))
        submit = shlex.join([*_chosen(cluster, {"spark.executorEnv.PYTHONPATH": path}), "pyspark-shell"])
        environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, "PYSPARK_SUBMIT_ARGS": submit}
        return cls._start(cluster, job, [sys.executable, *command(job, *queries)], environment)

    @classmethod
    def submitted(
        cls, cluster: SparkCluster, job: Job, *queries: str, python: Path, shipped: Path, settings: Mapping[str, str]
    ) -> Run:
        """Run the program by ``spark-submit``, with the project in an archive alone."""
        script = str(pyspark_home() / "bin" / "spark-submit")
        environment = {
            "SPARK_HOME": str(pyspark_home()),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            # For the source's own processes beside the driver, to which Spark does not hand py-files.
            "PYTHONPATH": str(shipped),
        }
        started = [script, *_chosen(cluster, settings), "--py-files", str(shipped), *command(job, *queries)]
        return cls._start(cluster, job, started, environment)

    @classmethod
    def _start(cls, cluster: SparkCluster, job: Job, arguments: list[str], environment: Mapping[str, str]) -> Run:
        job.events.mkdir(parents=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        process = ChildProcess(
            arguments,
            folder=Path(job.folder),
            log=Path(job.folder, "driver.log"),
            environment={**inherited, "SPARK_LOCAL_IP": DRIVER_HOST, **environment},
        )
        return cls(job, process, cluster)

    def wait_for(self, state: Callable[[], bool], what: str) -> None:
        """Wait for something to happen while the program runs."""
        wait_until(lambda: state() or self.process.exit_code is not None, _SECONDS, what)
        assert state(), f"the driver ended before {what}:\n{self.log}"

    def wait(self) -> None:
        """Wait for the end of the program; it must be a good one."""
        end = time.monotonic() + _SECONDS
        while self.process.exit_code is None and time.monotonic() < end:
            time.sleep(0.1)
        code = self.process.exit_code
        self.process.kill()
        assert code == 0, f"exit code {code} of the driver:\n{self.log}"

    @property
    def log(self) -> str:
        """The driver's, its sources' own processes included."""
        return self.process.last_lines(200)

    @property
    def seen(self) -> dict[str, Any]:
        """What the program wrote down about itself."""
        return dict(json.loads(self.job.seen.read_text()))

    @property
    def executor_logs(self) -> str:
        """Everything its executors wrote, their Python processes included."""
        return self.cluster.executor_logs(self.seen["application"])

    def offsets(self, query: str) -> list[dict[str, Any]]:
        """Return the end offset of every batch."""
        return [json.loads(text.splitlines()[2]) for text in _entries(self.job.checkpoint(query) / "offsets")]

    def result(self, query: str) -> pa.Table:
        """Return what a file sink holds by its own log; files of failed attempts are not in it."""
        lines = [line for text in _entries(self.job.sink(query) / "_spark_metadata") for line in text.splitlines()[1:]]
        files = [unquote(urlparse(json.loads(line)["path"]).path) for line in lines]
        return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)

    def scans(self) -> list[dict[str, Any]]:
        """Return Spark's account of every task attempt that read from the source, and how it ended."""
        events = [json.loads(line) for log in self.job.events.iterdir() for line in log.read_text().splitlines()]
        stages = [e["Stage Info"] for e in events if e["Event"] == "SparkListenerStageCompleted"]
        reading = {s["Stage ID"] for s in stages if any(r["Name"] == "DataSourceRDD" for r in s["RDD Info"])}
        ended = [e for e in events if e["Event"] == "SparkListenerTaskEnd" and e["Stage ID"] in reading]
        return [{**e["Task Info"], "Reason": e["Task End Reason"]["Reason"]} for e in ended]


def _chosen(cluster: SparkCluster, settings: Mapping[str, str]) -> list[str]:
    """Return the arguments of Spark's scripts for a master and settings."""
    java = {"spark.driver.extraJavaOptions": quick_spark(), "spark.executor.extraJavaOptions": quick_executor()}
    given = [part for name, value in {**java, **settings}.items() for part in ("--conf", f"{name}={value}")]
    return ["--master", cluster.master_url, *given]


def _entries(log: Path) -> Iterator[str]:
    """Yield the entries of a checkpoint's or a sink's log in order."""
    for file in sorted((f for f in log.iterdir() if f.name.isdigit()), key=lambda f: int(f.name)):
        yield file.read_text()
