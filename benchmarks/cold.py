"""A fresh driver, its Spark session up: what its first query takes, the built-in source's and ours.

Run as a process of its own it prints the seconds of its first queries.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.figures import Figure, ratio
from benchmarks.queries import BUILT_IN, OURS
from services.ivy import spark_kafka_jars

_QUERIES = 2


def cold(bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Start drivers one after the other, for each source in turn."""
    taken: dict[str, list[list[float]]] = {BUILT_IN: [], OURS: []}
    for _ in range(rounds):
        for source, runs in taken.items():
            command = [sys.executable, "-m", "benchmarks.cold", source, bootstrap, topic]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runs.append(json.loads(printed.splitlines()[-1]))
    first = {source: [run[0] for run in runs] for source, runs in taken.items()}
    shown = {source: "; ".join(f"{a:.2f} then {b:.2f}" for a, b in runs) for source, runs in taken.items()}
    yield Figure(
        "first query of a fresh driver (numba cache warm), built-in / ours", ratio(first[BUILT_IN], first[OURS]), "x",
        at_least=1.5, detail=f"wall s built-in {shown[BUILT_IN]}, ours {shown[OURS]}",
    )  # fmt: skip
    yield Figure(
        "first query of a fresh driver, beyond the second",
        statistics.median(a - b for a, b in taken[OURS]), "s", at_most=2.0, detail=shown[OURS],
    )  # fmt: skip


if __name__ == "__main__":
    from benchmarks.queries import read_all
    from benchmarks.session import spark_session

    session = spark_session("cold", jars=spark_kafka_jars())
    # The session itself is warm: what is measured is the source, not Spark's start.
    session.range(1000).selectExpr("sum(id)").collect()
    print(json.dumps([read_all(session, sys.argv[2], sys.argv[1], sys.argv[3]).wall for _ in range(_QUERIES)]))
    session.stop()
