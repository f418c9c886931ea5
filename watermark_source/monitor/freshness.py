"""How fresh a query's results were over the last minutes, as a distribution over its batches. Pure.

Of each committed batch two delays count: the *event-time lag*, from the output watermark to the commit, and the *commit
latency*, from the arrival of the oldest of its rows to the commit. They are kept as counts in classes that are 5 % wide
(as in DDSketch, VLDB 2019), in slices of half a minute, so that a batch costs the same however many there were.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from watermark_source.monitor.three_clocks import QueryClocks, behind_clock, moment_of, passed_by_operators

SPAN: Final = 300_000
"""Milliseconds over which batches count."""
_SLICE: Final = 30_000
_RATIO: Final = 1.05


class Spread(NamedTuple):
    """A delay of many batches, in milliseconds: at most 5 % more than of half of them, and of 99 % of them."""

    p50: int
    p99: int
    batches: int


class Freshness(NamedTuple):
    """The delays of the last batches; ``None`` where no batch had one."""

    event_time_lag: Spread | None = None
    """From the output watermark, or what operators have applied where that is unknown, to the commit of each batch."""
    commit_latency: Spread | None = None
    """From the arrival of a batch's oldest row to its commit, an upper bound; without those there at the start."""


NO_FRESHNESS: Final = Freshness()


class _Slice(NamedTuple):
    number: int
    """By the time of the commit."""
    lag: Mapping[int, int]
    """Batches by class."""
    latency: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RecentBatches:
    """The delays of the batches that were committed within ``SPAN``."""

    slices: tuple[_Slice, ...] = ()

    def after(self, of: QueryClocks) -> RecentBatches:
        """Return them with another batch; ``of``: the clocks when it was committed, with the rows that it had."""
        number = of.at // _SLICE
        kept = tuple(each for each in self.slices if number - SPAN // _SLICE < each.number < number)
        same = next((each for each in self.slices if each.number == number), _Slice(number, {}, {}))
        rows = of.unprocessed
        has_new_rows = rows is not None and rows.split is not None and not rows.is_older
        lag = _with(same.lag, behind_clock(of.at, passed_by_operators(of)))
        latency = _with(same.latency, of.processing_time_latency if has_new_rows else None)
        return RecentBatches((*kept, _Slice(number, lag, latency)))

    def freshness(self, now: int) -> Freshness:
        """Return the distribution of the delays as of now."""
        since = (now - SPAN) // _SLICE
        recent = [each for each in self.slices if each.number > since]
        return Freshness(_spread(each.lag for each in recent), _spread(each.latency for each in recent))


NO_BATCHES: Final = RecentBatches()


def committed_at(progress: Mapping[str, Any]) -> int | None:
    """Return when the batch of a progress event was committed; ``None`` where the event is of no batch."""
    phases = progress.get("durationMs", {})
    began = moment_of(progress.get("timestamp"))
    return None if "addBatch" not in phases or began is None else began + phases.get("triggerExecution", 0)


def _with(counts: Mapping[int, int], delay: int | None) -> Mapping[int, int]:
    if delay is None:
        return counts
    of = 0 if delay < 1 else 1 + math.floor(math.log(delay, _RATIO))
    return {**counts, of: counts.get(of, 0) + 1}


def _spread(counts: Iterable[Mapping[int, int]]) -> Spread | None:
    total = Counter[int]()
    for each in counts:
        total.update(each)
    batches = total.total()
    return Spread(_at(total, batches, 0.5), _at(total, batches, 0.99), batches) if batches else None


def _at(counts: Counter[int], batches: int, share: float) -> int:
    """Return the upper end of the class in which the batch at a share of them is."""
    left = math.ceil(share * batches)
    for of in sorted(counts):
        left -= counts[of]
        if left <= 0:
            break
    return round(_RATIO**of) if of else 0
