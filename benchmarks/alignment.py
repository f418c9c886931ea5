"""Alignment on a skewed backlog: how far the splits drift apart after any batch, and what staying together costs.

By the records' timestamps, which the broker's index knows, and by times in the payload, which nothing looks up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import ALIGNED, OURS, Run
from benchmarks.topics import FAST_STEP, SKEWED_PARTITIONS, SKEWED_RECORDS, skewed_times

MAX_DRIFT = 10_000
RATE = 400_000
IN_PAYLOAD = {"eventTimeColumn": "value:$.at", "columns": "value"}
PAYLOAD_DRIFT = 3_600_000


def highest_drift(progress: tuple[dict[str, Any], ...]) -> int:
    """Return the highest (split watermark - slowest active split's watermark) after any batch, in ms.

    Judged from the produced event times at each batch's end offsets, not from what the source says of itself. A split
    that is read to its end is no longer active.
    """
    times = [skewed_times(p) for p in range(SKEWED_PARTITIONS)]
    highest = 0
    for splits in map(_splits, progress):
        positions = {int(number): fields[0] for number, fields in splits.items()}
        reached = {p: int(times[p][at - 1]) for p, at in positions.items() if at}
        active = [reached[p] for p, at in positions.items() if at and at < SKEWED_RECORDS]
        if active:
            highest = max(highest, max(reached.values()) - min(active))
    return highest


def _splits(batch: dict[str, Any]) -> dict[str, Any]:
    end = batch["sources"][0]["endOffset"]
    splits: dict[str, Any] = next(iter((json.loads(end) if isinstance(end, str) else end)["splits"].values()))
    return splits


def alignment(read: Callable[..., Run], topic: str, pairs: int) -> Iterator[Figure]:
    """Read the backlog with and without alignment, in one go and at a limited rate."""
    for label, extra in (("all at once", {}), (f"{RATE} a batch", {"maxOffsetsPerTrigger": str(RATE)})):
        plain: list[Run] = []
        aligned: list[Run] = []
        for turn in range(pairs + 1):
            pair = read(OURS, topic, extra), read(OURS, topic, {**ALIGNED, **extra})
            if turn:
                plain.append(pair[0])
                aligned.append(pair[1])
        drifts = [highest_drift(run.progress) for run in aligned]
        free = [highest_drift(run.progress) for run in plain]
        yield Figure(
            f"skewed backlog, {label}: highest drift after any batch", max(drifts) / 1_000, "s",
            at_most=(MAX_DRIFT + FAST_STEP) / 1_000,
            detail=f"{len(aligned[-1].progress)} batches; without alignment {max(free) / 1_000:,.0f} s",
        )  # fmt: skip
        yield Figure(
            f"skewed backlog, {label}: speed with / without alignment",
            ratio([r.wall for r in plain], [r.wall for r in aligned]), "x", at_least=0.9,
            detail=f"wall s aligned {spread([r.wall for r in aligned])}, free {spread([r.wall for r in plain])}",
        )  # fmt: skip


def payload_alignment(read: Callable[..., Run], topic: str, pairs: int) -> Iterator[Figure]:
    """Read the backlog by its times in the payload: each step is planned by what the ones before have told."""
    rate = {**IN_PAYLOAD, "maxOffsetsPerTrigger": str(RATE)}
    aligned = {**rate, "alignmentGroup": "benchmark", "alignmentMaxDrift": f"{PAYLOAD_DRIFT} ms"}
    runs = [(read(OURS, topic, rate), read(OURS, topic, aligned)) for _ in range(pairs + 1)][1:]
    drifts = [highest_drift(run.progress) for _, run in runs]
    yield Figure(
        "skewed backlog by payload: highest drift after any batch", max(drifts) / 1_000, "s",
        # The maximum, and a range, which spans half of it.
        at_most=1.5 * PAYLOAD_DRIFT / 1_000,
        detail=f"{len(runs[-1][1].progress)} batches; without alignment "
        f"{max(highest_drift(run.progress) for run, _ in runs) / 1_000:,.0f} s",
    )  # fmt: skip
    yield Figure(
        "skewed backlog by payload: speed with / without alignment",
        ratio([plain.wall for plain, _ in runs], [run.wall for _, run in runs]), "x", at_least=0.8,
        detail=f"wall s aligned {spread([run.wall for _, run in runs])}, free "
        f"{spread([plain.wall for plain, _ in runs])}, {len(runs[-1][0].progress)} batches",
    )  # fmt: skip
