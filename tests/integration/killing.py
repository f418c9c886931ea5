"""Kill -9: which process of a running driver program or of those it needs, and at which moment of its batches."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import psutil

from services.local_server import ChildProcess
from services.spark_cluster import SparkCluster, spark_cluster
from tests.integration.killed_driver import KilledJob
from tests.integration.killed_runs import start_driver
from tests.integration.outages import Outages

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_PATIENCE_SECONDS = 240.0
"""For the slowest machine; an idle one starts a driver within 15 s."""
_GONE_SECONDS = 90.0
_LOOKS_SECONDS, _RARE_LOOKS_SECONDS = 0.002, 0.05
"""Between two looks at what shows a moment, and at what comes when it comes: looking takes time from the rest."""
_LONGEST_PAUSE_SECONDS = 8.0
"""Before a killed broker is started again."""
_THREADS = ('"stream execution', '"dag-scheduler')
_MESSAGE = re.compile(r"\d\d/\d\d/\d\d |Exception|Caused by|Traceback|[\w.]+(Error|Exception)\b")


class Kind(Enum):
    """Who is killed."""

    RUNNER = "runner"
    """The source's driver side, of one of the queries."""
    WORKER = "worker"
    """A Python worker of the executor, at work if one is."""
    EXECUTOR = "executor"
    """The executor's JVM; its Python workers must notice by themselves, and Spark starts another."""
    DRIVER = "driver"
    """The program and its JVM; what they started must notice by itself."""
    GROUP = "group"
    """The driver's whole process group."""
    BROKER = "broker"
    """The only server; it is started again after a pause, and all continue as if nothing had happened."""


class Moment(Enum):
    """When, in terms of one query's offset log (what is planned) and commit log (what is done)."""

    ANY = "any"
    PLANNING = "planning"
    """A batch has just been committed: the next one is being planned."""
    LOGGED = "logged"
    """A batch is in the offset log and not yet done."""
    AGAIN = "again"
    """While everything is still coming back after the last kill."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill as it happened."""

    kind: Kind
    moment: Moment
    uncommitted: tuple[str, ...]
    """Queries with a batch that was logged and not committed, right after the kill."""


def schedule(kills: int, rng: random.Random) -> list[tuple[Kind, Moment]]:
    """Return so many kills in random order, each pair of kind and moment about as often as any other.

    The first is of a driver in its first batch; the last ends the driver for good. So six kills are one of each kind.
    """
    order: list[tuple[Kind, Moment]] = []
    moments = {kind: rng.sample(list(Moment), len(Moment)) for kind in Kind}
    for kind in (Kind.EXECUTOR, Kind.BROKER):
        # However few kills there are, one of these is within a batch.
        moments[kind].sort(key=lambda moment: moment is Moment.LOGGED)
    while len(order) < kills - 2:
        # Drivers take longest to come back, and have their turn at both ends.
        kinds = [kind for kind in Kind if order or kind not in (Kind.DRIVER, Kind.GROUP)]
        for kind in rng.sample(kinds, len(kinds)):
            if not moments[kind]:
                moments[kind] = rng.sample(list(Moment), len(Moment))
            order.append((kind, moments[kind].pop()))
    return [(Kind.DRIVER, Moment.LOGGED), *order[: kills - 2], (Kind.GROUP, Moment.ANY)]


@contextlib.contextmanager
def cluster_for(kills: int) -> Iterator[SparkCluster | None]:
    """A cluster with one worker, where executors are killed too: the first and the last kill are of drivers."""
    if kills <= len((Kind.DRIVER, Kind.GROUP)):
        yield None
        return
    with spark_cluster(["127.0.0.1"], cores=2) as made:
        yield made


def master_of(cluster: SparkCluster | None) -> str:
    """The master's address for a driver. Without a cluster tasks are retried as they are there."""
    return "local[2,10]" if cluster is None else cluster.master_url


@dataclass
class Killer:
    """Runs the driver program, kills, and starts it again."""

    job: KilledJob
    cluster: SparkCluster | None
    """None where the driver's own JVM runs the tasks: then there is no executor to kill."""
    outages: Outages
    rng: random.Random
    kills: list[Kill] = field(default_factory=list)
    recoveries: list[tuple[Kind, float]] = field(default_factory=list)
    """Seconds from a kill until every query had committed another batch, where that was waited for."""
    orphans: list[str] = field(default_factory=list)
    """Command lines of processes that outlived their driver or executor."""
    _driver: ChildProcess | None = None
    _killed_at: float = 0.0
    _committed: dict[str, int] = field(default_factory=dict)
    """Batches each query had committed at the last kill."""

    def start(self) -> None:
        """Start the driver program."""
        self._driver = start_driver(self.job, "driver.log")

    def close(self) -> None:
        """End the driver, if it runs, and an outage."""
        if self._driver is not None:
            self._kill_group(self._driver)
        self.outages.wait()

    def strike(self, kind: Kind, moment: Moment) -> None:
        """Wait for the moment, kill, and start the driver again if it was the driver.

        Before every moment but ``AGAIN`` each query commits a batch of its own.
        """
        if moment is not Moment.AGAIN:
            self.recover()
        self._wait_for(moment)
        self._killed_at = time.monotonic()
        driver = self._running()
        match kind:
            case Kind.RUNNER:
                self._kill_one(self._runners)
            case Kind.WORKER:
                self._kill_one(self._workers)
            case Kind.EXECUTOR if moment is Moment.LOGGED:
                self._kill_executor_in_a_task()
            case Kind.EXECUTOR:
                self._kill_one(self._executors)
            case Kind.BROKER:
                self.outages.begin(self.rng.uniform(0, _LONGEST_PAUSE_SECONDS))
            case Kind.DRIVER:
                self._kill_driver(driver)
            case Kind.GROUP:
                self._kill_group(driver)
        self._committed = {q: self._count("commits", q) for q in self.job.names}
        logged = (q for q in self.job.names if self._count("offsets", q) > self._committed[q])
        self.kills.append(Kill(kind, moment, tuple(logged)))
        _log.info("%s", self.kills[-1])

    def recover(self) -> None:
        """Wait until each query has committed a batch since the last kill; start the driver if it does not run."""
        if self._driver is None:
            self.start()
        self.outages.wait()
        self._wait(
            lambda: all(self._count("commits", q) > n for q, n in self._committed.items()), "a batch", rarely=True
        )
        if self.kills:
            self.recoveries.append((self.kills[-1].kind, time.monotonic() - self._killed_at))
            _log.info("recovered from %s within %.1f s", self.kills[-1].kind.value, self.recoveries[-1][1])

    def let_run(self, until: Callable[[], bool], what: str) -> None:
        """Leave the driver alone, once it has recovered, until a condition holds."""
        self.recover()
        self._wait(until, what, rarely=True)

    def _wait_for(self, moment: Moment) -> None:
        query = self.rng.choice(self.job.names)
        committed = self._count("commits", query)
        match moment:
            case Moment.ANY:
                time.sleep(self.rng.uniform(0, 2))
            case Moment.AGAIN:
                if self._driver is None:
                    self.start()
                time.sleep(self.rng.uniform(0, 12))
            case Moment.PLANNING:
                self._wait(lambda: self._count("commits", query) > committed, "a commit")
                time.sleep(self.rng.uniform(0, 0.03))
            case Moment.LOGGED:
                self._wait(lambda: self._count("offsets", query) > self._count("commits", query), "a logged batch")
                time.sleep(self.rng.uniform(0, 0.2))

    def _kill_one(self, candidates: Callable[[], Sequence[psutil.Process]]) -> None:
        victim = self.rng.choice(self._wait(candidates, "a process to kill"))
        below = _pyspark(victim.pid)
        _kill(victim)
        self._expect_gone([victim, *below])

    def _kill_executor_in_a_task(self) -> None:
        """Kill it while one of its workers reads, which is held so that it does not get done meanwhile."""
        held = self._wait(self._held_worker, "a task")
        assert held is not None
        worker, executor = held
        below = _pyspark(executor.pid)
        _kill(executor)
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.resume()
        self._expect_gone([executor, *below])

    def _held_worker(self) -> tuple[psutil.Process, psutil.Process] | None:
        """Hold a worker that reads; return it and its executor, beside which another one may end."""
        workers = self._workers()
        if not workers:
            return None
        worker = self.rng.choice(workers)
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.suspend()
            above = worker.parents()
            for executor in self._executors():
                if executor in above:
                    return worker, executor
            worker.resume()
        return None

    def _kill_driver(self, driver: ChildProcess) -> None:
        family = self._family()
        for process in [psutil.Process(driver.pid), *(p for p in _pyspark(driver.pid) if _is_java(p))]:
            _kill(process)
        # One that the cluster was about to start is an executor of no one.
        self._expect_gone([*family, *self._executors()])
        driver.kill()
        self._driver = None

    def _kill_group(self, driver: ChildProcess) -> None:
        family = self._family()
        driver.kill()
        self._expect_gone([*family, *self._executors()])
        self._driver = None

    def _running(self) -> ChildProcess:
        assert self._driver is not None
        return self._driver

    def _family(self) -> list[psutil.Process]:
        """Return the driver's JVM, the executor, and all Python processes of both."""
        return [*_pyspark(self._running().pid), *self._executors(), *self._below_executors()]

    def _runners(self) -> list[psutil.Process]:
        return [p for p in self._family() if "python_streaming_source_runner" in _command(p)]

    def _executors(self) -> list[psutil.Process]:
        found = []
        for pid in self._pids_of_executors():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def _pids_of_executors(self) -> Sequence[int]:
        return () if self.cluster is None else self.cluster.executors(0)

    def _below_executors(self) -> list[psutil.Process]:
        return [process for pid in self._pids_of_executors() for process in _pyspark(pid)]

    def _workers(self) -> list[psutil.Process]:
        """Return the workers that are reading: at work, and connected to the server."""
        workers = [
            p
            for p in self._below_executors()
            if "pyspark.daemon" in _command(p) and _status(p) == psutil.STATUS_RUNNING
        ]
        return [p for p in workers if self.job.port in _connected_to(p)]

    def _expect_gone(self, processes: Collection[psutil.Process]) -> None:
        until = time.monotonic() + _GONE_SECONDS
        left = list(processes)
        while left and time.monotonic() < until:
            # A process no one waits for stays as a zombie: it is gone all the same.
            left = [p for p in left if p.is_running() and _status(p) != psutil.STATUS_ZOMBIE]
            time.sleep(_RARE_LOOKS_SECONDS)
        for process in left:
            self.orphans.append(_command(process))
            _kill(process)

    def _wait(self, condition: Callable[[], _T], what: str, *, rarely: bool = False) -> _T:
        """Return the condition's first value that is true."""
        left, asked = _PATIENCE_SECONDS, time.monotonic()
        driver = self._running()
        while not (found := condition()):
            # A machine that was suspended meanwhile has not waited all that time.
            now = time.monotonic()
            left, asked = left - min(now - asked, 1.0), now
            if driver.exit_code is not None or left < 0:
                state = "still running" if driver.exit_code is None else f"ended with {driver.exit_code}"
                raise AssertionError(
                    f"waited for {what} after {len(self.kills)} kills; the driver is {state}\n"
                    f"failures: {self._failures()}\n{self._what_the_driver_says()}"
                )
            time.sleep(_RARE_LOOKS_SECONDS if rarely else _LOOKS_SECONDS)
        return found

    def _failures(self) -> str:
        """Return the beginnings of what made queries fail lately, as the driver wrote it down."""
        lines = self.job.progress_log.read_text().splitlines() if self.job.progress_log.exists() else []
        failures = [line[:2_000] for line in lines if line.startswith('{"failure"')]
        return "\n".join(failures[-3:]) or "none"

    def _what_the_driver_says(self) -> str:
        """Return the messages of its log without their traces, and where its queries are at the moment."""
        for process in self._family():
            if _is_java(process):
                process.send_signal(signal.SIGQUIT)  # the JVM writes all its stacks
        time.sleep(2)
        lines = self._running().last_lines(20_000).splitlines()
        reported = [line[:300] for line in lines if _MESSAGE.match(line)]
        stacks = ["\n".join(lines[n : n + 10]) for n, line in enumerate(lines) if line.startswith(_THREADS)]
        return "\n".join([*reported[-25:], *stacks[-4:]])

    def _count(self, log: str, query: str) -> int:
        folder = self.job.checkpoint(query) / log
        return sum(f.name.isdigit() for f in folder.iterdir()) if folder.exists() else 0


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _pyspark(pid: int) -> list[psutil.Process]:
    """Return the JVMs and pyspark's Python processes below a process."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [p for p in found if _is_java(p) or "pyspark" in _command(p)]


def _is_java(process: psutil.Process) -> bool:
    return _command(process).startswith("java ")


def _command(process: psutil.Process) -> str:
    """Return the command line, the program without its folder."""
    try:
        program, *rest = process.cmdline() or ["", ""]
    except psutil.NoSuchProcess:
        return ""
    return " ".join([program.rsplit("/", 1)[-1], *rest])


def _connected_to(process: psutil.Process) -> set[int]:
    """Return the ports a process has connections to."""
    try:
        return {c.raddr.port for c in process.net_connections("tcp") if c.raddr}
    except psutil.NoSuchProcess:
        return set()


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_ZOMBIE)
