"""A whole job over JSON, a window and a sum: the built-in source with ``from_json``, and ours with ``valueFormat``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.event_time import RECORDS, SCHEMA, SIZE, as_today, stream, windows, with_event_time
from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import BUILT_IN, OURS, Run, run_to_end
from watermark_source import follow_watermark

_OURS_TODAY = f"{OURS} with from_json"


def payload(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Time the whole job of each kind in turn, and the CPU of Spark and its Python processes."""
    jobs: dict[str, Callable[[], DataFrame]] = {
        BUILT_IN: lambda: as_today(spark, bootstrap, topic),
        _OURS_TODAY: lambda: with_event_time(spark, bootstrap, topic),
        OURS: lambda: _decoded(spark, bootstrap, topic),
    }
    runs: dict[str, list[tuple[Run, float]]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            before = _cpu()
            run = run_to_end(job())
            if turn:
                runs[name].append((run, _cpu() - before))
    wall = {name: [run.wall for run, _ in done] for name, done in runs.items()}
    cpu = {name: [seconds for _, seconds in done] for name, done in runs.items()}
    for name in jobs:
        yield Figure(
            f"window and sum over JSON, {name}: rows/s", RECORDS / statistics.median(wall[name]) / 1e6, "M/s",
            detail=f"{RECORDS / 1e6:g} M records of {SIZE} B; wall s {spread(wall[name])}, CPU s {spread(cpu[name])}",
        )  # fmt: skip
    for name in (BUILT_IN, _OURS_TODAY):
        least = 1.8 if name == BUILT_IN else None
        yield Figure(f"whole job, {name} / valueFormat: wall", ratio(wall[name], wall[OURS]), "x", at_least=least)
        least = 2.0 if name == BUILT_IN else None
        yield Figure(f"whole job, {name} / valueFormat: CPU a row", ratio(cpu[name], cpu[OURS]), "x", at_least=least)


def _decoded(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    options = {
        "columns": "payload", "valueFormat": "json", "valueSchema": SCHEMA, "eventTimeColumn": "value:$.at",
        "maxOutOfOrderness": "30 seconds",
    }  # fmt: skip
    followed = follow_watermark(stream(spark, bootstrap, topic, OURS, **options))
    return windows(followed.select("event_time", F.col("payload").alias("order")))


def _cpu() -> float:
    """Return the CPU seconds of this process and of all that it has started but the broker: the JVM, and workers."""
    seconds = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            used, command = process.cpu_times(), process.cmdline()
        except psutil.Error:
            continue
        if "kafka.Kafka" not in command:
            # With what its children used that have ended.
            seconds += used.user + used.system + used.children_user + used.children_system
    return seconds
