"""A driver program that is killed again and again, and started again until all that is due has come out."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from services.local_server import ChildProcess
from tests.integration.killed_driver import KilledJob
from tests.pacing import rest

PATIENCE_SECONDS = 900
"""For one batch of a driver that starts, on a machine where it gets a tenth of a core: four minutes were too few."""


def batches(job: KilledJob, log: str) -> int:
    """Return how many batches of a job's queries are in their logs of ``offsets`` or of ``commits``."""
    folders = [folder for query in job.names if (folder := job.checkpoint(query) / log).exists()]
    return sum(file.name.isdigit() for folder in folders for file in folder.iterdir())


def last_commit(job: KilledJob, query: str) -> int:
    """Return the number of a query's last committed batch; it must have one."""
    return max(int(file.name) for file in (job.checkpoint(query) / "commits").iterdir() if file.name.isdigit())


def files_of(entry: Path) -> list[Path]:
    """Return the files that an entry of a file sink's own log names."""
    _, *lines = entry.read_text().splitlines()
    return [Path(unquote(urlsplit(json.loads(line)["path"]).path)) for line in lines]


def written(job: KilledJob) -> list[list[Path]]:
    """Return the files of each batch of a job's only query, which keeps its entries (``KEEP_ENTRIES``)."""
    (query,) = job.names
    log = job.sink(query) / "_spark_metadata"
    return [files_of(entry) for entry in sorted(log.glob("[0-9]*"), key=lambda file: int(file.name))]


def rows_written(job: KilledJob) -> int:
    """Return how many rows the sink of a job's only query holds."""
    (query,) = job.names
    # A compacted entry names the files of those before it again.
    files = {file for entry in (job.sink(query) / "_spark_metadata").glob("[0-9]*") for file in files_of(entry)}
    return sum(pq.read_metadata(file).num_rows for file in files)


def run_with_kills(
    job: KilledJob,
    kills: int,
    chance: random.Random,
    is_done: Callable[[], bool],
    killed: Callable[[], None] = lambda: None,
    most_batches: int = 1,
    patience: float = PATIENCE_SECONDS,
) -> None:
    """Kill the driver so many times, whatever it is at, and let the last one run until all is done.

    Each driver but the last is killed in or after one of its first ``most_batches``, and there must be as many for all
    of them. ``killed`` is called after each kill. ``patience`` is the seconds that the last one may take.
    """
    for _ in range(kills):
        kill_once(job, chance, most_batches)
        killed()
    with started(job) as driver:
        wait_for(is_done, driver, "the last row", patience)


def kill_once(job: KilledJob, chance: random.Random, most_batches: int) -> None:
    """Start the driver, and kill it in or after one of its first ``most_batches``, whatever it is at."""
    with started(job) as driver:
        more = chance.randrange(most_batches)
        planned, done = batches(job, "offsets") + more, batches(job, "commits") + more
        # Half of the kills come right after a batch was planned, the others after one was done.
        if chance.random() < 0.5:
            wait_for(lambda: batches(job, "offsets") > planned, driver, "a batch")
            time.sleep(chance.uniform(0, 1))
        else:
            wait_for(lambda: batches(job, "commits") > done, driver, "the end of a batch")
            time.sleep(chance.uniform(0, 0.1))


def start_driver(job: KilledJob, log: str = "log") -> ChildProcess:
    """Start a driver of the job, whose lines go to ``log`` in its folder."""
    return ChildProcess(job.command, folder=job.folder, log=job.folder / log, environment=job.environment)


@contextmanager
def started(job: KilledJob) -> Iterator[ChildProcess]:
    """A driver of the job, killed at the end of the block."""
    driver = start_driver(job)
    try:
        yield driver
    finally:
        driver.kill()


def wait_for(
    condition: Callable[[], object], driver: ChildProcess, what: str, patience: float = PATIENCE_SECONDS
) -> None:
    """Wait until a condition holds, while the driver runs."""
    begun = time.monotonic()
    end = begun + patience
    while not condition():
        assert driver.exit_code is None, driver.last_lines(60)
        assert time.monotonic() < end, f"{what}: not within {patience} s\n{driver.last_lines(60)}"
        rest(time.monotonic() - begun, 0.1)
        begun = time.monotonic()
