"""Throughput: ten million 100-byte records in eight partitions into noop, the built-in source and ours in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import ALIGNED, BUILT_IN, OURS, Run
from benchmarks.topics import HOURS, PARTITIONS, RECORDS

NARROW = {"columns": "value,event_time"}


def throughput(read: Callable[..., Run], topic: str, pairs: int) -> Iterator[Figure]:
    """Warm each variant up once, then time them in turn."""
    variants: dict[str, tuple[str, dict[str, str]]] = {
        "built-in": (BUILT_IN, {}),
        "ours": (OURS, {}),
        "narrow": (OURS, NARROW),
        "aligned": (OURS, ALIGNED),
    }
    runs: dict[str, list[Run]] = {name: [] for name in variants}
    for turn in range(pairs + 1):
        for name, (source, options) in variants.items():
            run = read(source, topic, options)
            if turn:
                runs[name].append(run)
    wall = {name: [run.wall for run in taken] for name, taken in runs.items()}
    batch = {name: [run.add_batch for run in taken] for name, taken in runs.items()}
    size = f"{RECORDS / 1e6:g} M records, {PARTITIONS} partitions"
    for name in variants:
        yield Figure(
            f"{name}: rows/s, whole query", RECORDS / statistics.median(wall[name]) / 1e6, "M/s",
            detail=f"{size}; wall s min/med/max {spread(wall[name])}; addBatch {spread(batch[name])}",
        )  # fmt: skip
    yield Figure("whole query, built-in / ours", ratio(wall["built-in"], wall["ours"]), "x", at_least=2.0)
    yield Figure("addBatch, built-in / ours", ratio(batch["built-in"], batch["ours"]), "x", at_least=2.6)
    yield Figure(
        "addBatch, built-in / ours with columns=value,event_time",
        ratio(batch["built-in"], batch["narrow"]), "x", at_least=3.3,
    )  # fmt: skip
    yield Figure(
        f"{HOURS} hours of backlog, drift 10 s: speed with / without alignment",
        ratio(wall["ours"], wall["aligned"]), "x", at_least=0.9,
    )  # fmt: skip
