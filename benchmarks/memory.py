"""Memory of a Python worker: the most it held after one task has read a short range, and a long one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.figures import Figure

RECORDS = (4_000_000, 16_000_000)
"""Of the one partition of each topic."""
MOST_MIB = 400
MOST_APART = 1.1
_WORKER = "pyspark.daemon"
# One task reads the whole range.
_ONE_TASK = {"minPartitions": "1"}


def memory(bootstrap: str, topics: dict[int, str]) -> Iterator[Figure]:
    """Read each topic with a fresh driver."""
    peaks: dict[int, float] = {}
    for records, topic in topics.items():
        command = [sys.executable, "-m", "benchmarks.memory", bootstrap, topic]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows, peaks[records] = json.loads(printed.splitlines()[-1])
        if rows < records:
            raise RuntimeError(f"{rows} rows of {records} read")
        yield Figure(f"worker memory, {records / 1e6:g} M rows in one task", peaks[records], "MiB", at_most=MOST_MIB)
    short, long = (peaks[records] for records in sorted(peaks))
    yield Figure("worker memory, long range / short range", long / short, "x", at_most=MOST_APART)


def workers() -> Iterator[psutil.Process]:
    """Yield the workers of this driver: they are forked from a daemon, and kept for a while after their last task."""
    return filter(_is_worker, psutil.Process().children(recursive=True))


def peak_mib(process: psutil.Process) -> float:
    """Return the most resident memory a process had; not ru_maxrss, which begins with its parent's."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _is_worker(process: psutil.Process) -> bool:
    try:
        return _WORKER in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        # Ended since the list was made, as the source's own process does after its query.
        return False


if __name__ == "__main__":
    from benchmarks.queries import OURS, read_all
    from benchmarks.session import spark_session

    session = spark_session("memory", jars=())
    run = read_all(session, sys.argv[1], OURS, sys.argv[2], _ONE_TASK)
    print(json.dumps([run.rows, max(map(peak_mib, workers()))]))
    session.stop()
