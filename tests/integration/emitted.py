"""What came out of a query of several sources, in the order in which it came: batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import START


class Drift(NamedTuple):
    """By how much a row of one source came out before an older one of another."""

    seconds: float
    batch: int
    ahead: str
    behind: str

    def __str__(self) -> str:
        return f"in batch {self.batch} {self.ahead} was {self.seconds:.3f} s ahead of what {self.behind} had to come"


@dataclass
class Emitted:
    """The event times of each source's rows, in seconds after ``START``; rows of one batch come out together."""

    batches: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)

    def sink(self, batch: DataFrame, number: int) -> None:
        """Take a batch of rows with ``source`` and ``event_time``; one that is repeated takes its own place."""
        rows = batch.select("source", (F.unix_millis("event_time") - START).alias("at")).toPandas()
        self.batches[number] = {
            str(name): np.sort(times.to_numpy()) / 1_000
            for name, times in rows.groupby("source")["at"]  # type: ignore[attr-defined]
        }

    def times(self, source: str, batches: Iterable[int] | None = None) -> np.ndarray:
        """Return when a source's rows are from, of all batches or of some."""
        chosen = self.batches if batches is None else batches
        return np.concatenate([self.batches[n].get(source, np.empty(0)) for n in chosen] or [np.empty(0)])

    def greatest_drift(self, *sources: str) -> Drift:
        """Return the most by which any row came out in an earlier batch than an older one of another source."""
        found = []
        for number in sorted(self.batches):
            out, to_come = ([n for n in self.batches if (n <= number) is b] for b in (True, False))
            for ahead in sources:
                for behind in sources:
                    before, after = self.times(ahead, out), self.times(behind, to_come)
                    if ahead != behind and len(before) and len(after):
                        found.append(Drift(float(before.max() - after.min()), number, ahead, behind))
        return max(found)

    def widest_range(self, source: str) -> float:
        """Return the most event time that any batch advanced by in a source, in seconds."""
        reached: float | None = None
        widest = 0.0
        for number in sorted(self.batches):
            times = self.batches[number].get(source, np.empty(0))
            if len(times):
                widest = max(widest, times[-1] - (times[0] if reached is None else reached))
                reached = max(times[-1], times[-1] if reached is None else reached)
        return float(widest)
