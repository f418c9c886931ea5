"""A fresh driver: what the first query costs beyond the second. Run as a process of its own, prints the seconds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.figures import Figure

_ROUNDS = 3


def cold(bootstrap: str, topic: str) -> Iterator[Figure]:
    """Start drivers one after the other and take the extra time of their first query."""
    extra: list[float] = []
    taken: list[list[float]] = []
    for _ in range(_ROUNDS):
        command = [sys.executable, "-m", "benchmarks.cold", bootstrap, topic]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        first, second = json.loads(printed.splitlines()[-1])
        taken.append([first, second])
        extra.append(first - second)
    yield Figure(
        "first query of a fresh process, beyond the second (numba cache warm)", statistics.median(extra), "s",
        at_most=2.0, detail="; ".join(f"{a:.2f} then {b:.2f}" for a, b in taken),
    )  # fmt: skip


if __name__ == "__main__":
    from benchmarks.queries import OURS, read_all
    from benchmarks.session import spark_session

    session = spark_session("cold", jars=())
    # The session itself is warm: what is measured is our source, not Spark's start.
    session.range(1000).selectExpr("sum(id)").collect()
    print(json.dumps([read_all(session, sys.argv[1], OURS, sys.argv[2]).wall for _ in range(2)]))
    session.stop()
