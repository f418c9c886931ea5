"""Looking ahead, or learning a bound: what it costs beside a bound that loses nothing, how much earlier time moves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import OURS, Run
from benchmarks.topics import BATCH_RECORDS, START
from services.kafka_bulk import bulk_produce
from services.kafka_topics import create_topic

RECORDS, PARTITIONS = 1_000_000, 4
APART, BEHIND = 10, 600_000
PER_BATCH = 200_000
_VARIANTS = {
    "lookahead": {"watermarkStrategy": "lookahead"},
    "bounded 30 s": {"maxOutOfOrderness": "30 seconds"},
    "bounded 10 min": {"maxOutOfOrderness": "10 minutes"},
    "percentile": {"watermarkStrategy": "percentile", "maxOutOfOrderness": "10 minutes"},
}


def disordered_times(partition: int) -> npt.NDArray[np.int64]:
    """Return times in order within a second, but for two stretches of rows that are up to ten minutes behind."""
    chance = np.random.default_rng(partition)
    times = START + np.arange(RECORDS, dtype=np.int64) * APART - chance.integers(0, 1_000, RECORDS)
    for begin in (0.3, 0.7):
        stretch = slice(int(begin * RECORDS), int((begin + 0.02) * RECORDS))
        times[stretch] -= chance.integers(0, BEHIND, len(times[stretch]))
    return times


def look_ahead_topic(bootstrap: str, name: str) -> None:
    """Produce them."""
    create_topic(bootstrap, name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        bulk_produce(bootstrap, name, partition, disordered_times(partition), batch_records=BATCH_RECORDS)


def look_ahead(read: Callable[..., Run], topic: str, rounds: int) -> Iterator[Figure]:
    """Read the backlog by each strategy in turn."""
    runs: dict[str, list[Run]] = {name: [] for name in _VARIANTS}
    for turn in range(rounds + 1):
        for name, options in _VARIANTS.items():
            run = read(OURS, topic, {"maxOffsetsPerTrigger": str(PER_BATCH), **options})
            if turn:
                runs[name].append(run)
    walls = {name: [run.wall for run in done] for name, done in runs.items()}
    last = {name: done[-1].progress for name, done in runs.items()}
    late = {name: _late(progress) for name, progress in last.items()}
    delay = {name: _delay(progress) for name, progress in last.items()}
    shown = ", ".join(f"{name} {spread(taken)}" for name, taken in walls.items())
    yield Figure(
        "disordered backlog: speed with look-ahead / with a bound of 10 minutes",
        ratio(walls["bounded 10 min"], walls["lookahead"]), "x", at_least=0.65, detail=f"wall s {shown}",
    )  # fmt: skip
    yield Figure(
        "disordered backlog: speed with a learned bound / with a bound of 10 minutes",
        ratio(walls["bounded 10 min"], walls["percentile"]), "x", at_least=0.97,
    )  # fmt: skip
    yield Figure("disordered backlog: late rows with look-ahead", late["lookahead"], "", at_most=0)
    yield Figure("disordered backlog: late rows with a bound of 30 seconds", late["bounded 30 s"], "", at_least=1)
    yield Figure("disordered backlog: late rows with a bound of 10 minutes", late["bounded 10 min"], "", at_most=0)
    yield Figure(
        "mean delay of the watermark, with look-ahead / with a bound of 10 minutes",
        delay["lookahead"] / delay["bounded 10 min"], "x", at_most=0.5,
        detail=", ".join(f"{name} {seconds:,.0f} s" for name, seconds in delay.items()),
    )  # fmt: skip


def _late(progress: tuple[dict[str, Any], ...]) -> int:
    """Return how many rows came at or before the watermark that their batch began with, by the produced times."""
    times = [disordered_times(p) for p in range(PARTITIONS)]
    late, before = 0, None
    ends = list(map(_end, progress))
    # Spark's own batches, which only take the watermark in, repeat the end before.
    for end in (end for last, end in zip([None, *ends], ends, strict=False) if end != last):
        for number, fields in _splits(end).items():
            rows = times[int(number)][fields[0] - fields[1] : fields[0]]
            late += 0 if before is None else int((rows <= before).sum())
        before = end.get("wm", before)
    return late


def _delay(progress: tuple[dict[str, Any], ...]) -> float:
    """Return how far watermarks are behind the event time that the slowest partition has come to, in s."""
    highest = [np.maximum.accumulate(disordered_times(p)) for p in range(PARTITIONS)]
    found: list[float] = []
    for end in map(_end, progress):
        reached = min(int(highest[int(p)][fields[0] - 1]) for p, fields in _splits(end).items() if fields[0])
        if "wm" in end:
            found.append((reached - end["wm"]) / 1_000)
    return statistics.mean(found)


def _end(batch: dict[str, Any]) -> dict[str, Any]:
    end = batch["sources"][0]["endOffset"]
    found: dict[str, Any] = json.loads(end) if isinstance(end, str) else end
    return found


def _splits(end: dict[str, Any]) -> dict[str, Any]:
    splits: dict[str, Any] = next(iter(end["splits"].values()))
    return splits
