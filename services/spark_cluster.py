"""A standalone Spark cluster as local processes: a master and workers, each on a loopback address of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from services.errors import ServiceError
from services.ivy import pyspark_home
from services.java import java_command
from services.local_server import ChildProcess, free_ports
from services.spark_start import quick_executor

START_SECONDS = 150.0
_ANSWER_SECONDS = 5.0
_MASTER_HOST = "127.0.0.1"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
# A master and its workers only keep books and start executors.
_HEAP = "-Xmx256m"
# What a shell that has an environment activated would hand to executors unasked.
_PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")


class SparkCluster:
    """A master on 127.0.0.1 and workers on ``hosts``, from the installed pyspark's jars.

    Executors get nothing of this process's Python: no ``PYTHONPATH``, no chosen interpreter. If this process dies,
    however it dies, master, workers and executors die with it and their folders go.
    """

    def __init__(
        self, hosts: Sequence[str], *, cores: int = 1, memory: str = "1g", environment: Mapping[str, str] | None = None
    ) -> None:
        """Choose ports and a folder; ``environment`` is added to what master and workers inherit from this process."""
        if not hosts:
            raise ServiceError("a cluster has at least one worker: name its host")
        self._hosts = tuple(hosts)
        self._resources = ("--cores", str(cores), "--memory", memory)
        self._home = pyspark_home()
        inherited = {name: value for name, value in os.environ.items() if name not in _PYTHON_VARIABLES}
        own = {"SPARK_HOME": str(self._home), "SPARK_SCALA_VERSION": _scala_version(self._home)}
        self._environment = {**inherited, **own, **(environment or {})}
        self._port, self._page = free_ports(2)
        self._root = Path(tempfile.mkdtemp(prefix="spark-"))
        self._master: ChildProcess | None = None
        self._workers: dict[int, ChildProcess] = {}
        self._worker_ports: dict[int, int] = {}

    @property
    def master_url(self) -> str:
        """What a driver takes as its master."""
        return f"spark://{_MASTER_HOST}:{self._port}"

    @property
    def workers(self) -> range:
        """Numbers of the workers, from 0; their hosts are in the order given."""
        return range(len(self._hosts))

    def start(self) -> None:
        """Start what does not run and return when the master knows every worker.

        Raises:
            ServiceError: a process ended or the master did not list all workers in time; the message holds a log's end.
        """
        if not _runs(self._master):
            page = ("--host", _MASTER_HOST, "--port", str(self._port), "--webui-port", str(self._page))
            self._master = self._launch("master", _MASTER_HOST, _MASTER, *page)
            # A worker that comes before its master waits for seconds until it asks again.
            self._wait_until(lambda: self._known_workers() is not None, "answered")
        for worker in self.workers:
            if not _runs(self._workers.get(worker)):
                self._workers[worker] = self._launch_worker(worker)
        expected = {(host, self._worker_ports[worker]) for worker, host in enumerate(self._hosts)}
        self._wait_until(lambda: self._known_workers() == expected, f"listed workers on {self._hosts}")

    def executors(self, worker: int) -> tuple[int, ...]:
        """Process ids of the executors a worker runs at this moment."""
        import psutil

        found = []
        for process in psutil.Process(self._workers[worker].pid).children():
            # One that ends while it is looked at is none.
            with contextlib.suppress(psutil.NoSuchProcess):
                if _EXECUTOR in process.cmdline():
                    found.append(process.pid)
        return tuple(found)

    def kill_executors(self, worker: int) -> int:
        """End the executors of one worker with kill -9 and return how many; the worker starts others in their place."""
        executors = self.executors(worker)
        for executor in executors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(executor, signal.SIGKILL)
        return len(executors)

    def kill(self, worker: int) -> None:
        """End one worker and its executors with kill -9; ``start`` brings the worker back."""
        self._workers[worker].kill()

    def executor_logs(self, application: str) -> str:
        """Return what all executors of an application (its id) wrote to their standard error."""
        logs = sorted(self._root.glob(f"worker-*/{application}/*/stderr"))
        return "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def close(self) -> None:
        """End all processes at once and remove their files. Idempotent."""
        with contextlib.suppress(OSError):
            for process in (*self._workers.values(), *filter(None, [self._master])):
                process.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def _launch_worker(self, worker: int) -> ChildProcess:
        host = self._hosts[worker]
        # Another port each time: so the master's list distinguishes a worker from the dead one that it replaces.
        self._worker_ports[worker], page = free_ports(2)
        where = ("--host", host, "--port", str(self._worker_ports[worker]), "--webui-port", str(page))
        name = f"worker-{worker}"
        files = ("--work-dir", str(self._root / name))
        return self._launch(name, host, _WORKER, *where, *self._resources, *files, self.master_url)

    def _launch(self, name: str, host: str, main: str, *arguments: str) -> ChildProcess:
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        # As Spark's own scripts have it: the archive of classes is for this path alone.
        classes = os.pathsep.join([str(self._home / "conf"), str(self._home / "jars" / "*")])
        return ChildProcess(
            [java_command(), "-cp", classes, _HEAP, *quick_executor().split(), main, *arguments],
            folder=folder,
            log=self._root / f"{name}.log",
            files=self._root,
            environment={**self._environment, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(folder / "local")},
        )

    def _wait_until(self, state: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + START_SECONDS
        while not state():
            processes = {"master": self._master, **{f"worker {n}": w for n, w in self._workers.items()}}
            for name, process in processes.items():
                if process is not None and process.exit_code is not None:
                    raise ServiceError(
                        f"Spark's {name} ended with exit code {process.exit_code} while the cluster started. "
                        f"The end of its log:\n{process.last_lines()}"
                    )
            if time.monotonic() >= end:
                logs = "\n".join(f"{name}:\n{p.last_lines()}" for name, p in processes.items() if p is not None)
                raise ServiceError(
                    f"the master at {self.master_url} has not {what} within {START_SECONDS:g} s. Ends of logs:\n{logs}"
                )
            time.sleep(0.05)

    def _known_workers(self) -> set[tuple[str, int]] | None:
        """Return host and port of the workers the master counts on; ``None`` while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{_MASTER_HOST}:{self._page}/json/", timeout=_ANSWER_SECONDS) as answer:
                state = json.load(answer)
        except (OSError, ValueError):
            return None
        return {(worker["host"], worker["port"]) for worker in state["workers"] if worker["state"] == "ALIVE"}


@contextlib.contextmanager
def spark_cluster(
    hosts: Sequence[str], *, cores: int = 1, memory: str = "1g", environment: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Start a cluster that takes applications; it is gone when the block is left or this process dies."""
    with contextlib.closing(SparkCluster(hosts, cores=cores, memory=memory, environment=environment)) as cluster:
        cluster.start()
        yield cluster


def _scala_version(home: Path) -> str:
    # A worker looks for it in the folders of a build, which pip's Spark does not have, and then starts no executor.
    for jar in home.glob("jars/spark-core_*.jar"):
        return jar.name.removeprefix("spark-core_").partition("-")[0]
    raise ServiceError(f"{home} is not a whole Spark: no spark-core jar in its folder jars")


def _runs(process: ChildProcess | None) -> bool:
    return process is not None and process.exit_code is None
