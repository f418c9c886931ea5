"""Throughput: ten million 100-byte records in eight partitions into noop, the built-in source and ours in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping

from benchmarks.figures import Figure, ratio, spread
from benchmarks.prebuilt import PREBUILT
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
        "prebuilt": (PREBUILT, {}),
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
    yield Figure("whole query, built-in / ours", ratio(wall["built-in"], wall["ours"]), "x", at_least=2.2)
    yield Figure(
        "whole query, built-in / a Python source that only hands on what is there",
        ratio(wall["built-in"], wall["prebuilt"]), "x",
    )  # fmt: skip
    yield Figure("addBatch, built-in / ours", ratio(batch["built-in"], batch["ours"]), "x", at_least=2.6)
    yield Figure(
        "addBatch, built-in / ours with columns=value,event_time",
        ratio(batch["built-in"], batch["narrow"]), "x", at_least=3.3,
    )  # fmt: skip
    yield Figure(
        f"{HOURS} hours of backlog, no skew, drift 10 s: speed with / without alignment",
        ratio(wall["ours"], wall["aligned"]), "x", at_least=0.97,
    )  # fmt: skip


def compressed(read: Callable[..., Run], topics: Mapping[str, str], pairs: int) -> Iterator[Figure]:
    """Time the built-in source and ours in turn on a topic of each codec."""
    for codec, topic in topics.items():
        wall: dict[str, list[float]] = {BUILT_IN: [], OURS: []}
        for turn in range(pairs + 1):
            for source, taken in wall.items():
                run = read(source, topic)
                if turn:
                    taken.append(run.wall)
        yield Figure(
            f"{codec}: whole query, built-in / ours", ratio(wall[BUILT_IN], wall[OURS]), "x", at_least=1.5,
            detail=f"wall s built-in {spread(wall[BUILT_IN])}, ours {spread(wall[OURS])}",
        )  # fmt: skip
