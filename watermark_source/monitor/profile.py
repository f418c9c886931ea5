"""Profile: how disordered the splits of a source are, and what ``maxOutOfOrderness`` would make of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol, TextIO, cast

import numpy as np
import numpy.typing as npt

from watermark_source.durations import count_text, format_duration, share_text
from watermark_source.monitor.doctor import module_of
from watermark_source.option_table import OptionTable
from watermark_source.planning.split import Split

# How far events come behind later ones: what a bound on out-of-orderness would make late.


_EXACT = 128
"""Milliseconds below this are counted one by one."""
_PARTS = 64
"""Buckets for each doubling above: a bucket is at most 1/64 of its beginning wide."""
_DOUBLINGS = 63 - 7
_BUCKETS = _EXACT + _DOUBLINGS * _PARTS


@dataclass(slots=True)
class Disorder:
    """Of one split, row by row: how far each event time is behind the highest one before it.

    Quantiles are those of a histogram with buckets of at most 1.6 % of their beginning, so of any number of rows.
    """

    rows: int = 0
    highest: int | None = None
    """Event time, milliseconds."""
    lowest: int | None = None
    longest: int = 0
    """Milliseconds."""
    _counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BUCKETS, np.int64))

    def add(self, millis: npt.NDArray[np.int64]) -> None:
        """Take in the event times of the rows that come next, in milliseconds."""
        if not len(millis):
            return
        before = np.maximum.accumulate(millis)
        if self.highest is not None:
            np.maximum(before, self.highest, out=before)
        behind = before - millis
        self._counts += np.bincount(_bucket_of(behind), minlength=_BUCKETS)
        self.rows += len(millis)
        self.highest = int(before[-1])
        first = int(millis.min())
        self.lowest = first if self.lowest is None else min(self.lowest, first)
        self.longest = max(self.longest, int(behind.max()))

    def late_with(self, bound: int) -> float:
        """Return the share of rows that are late with a bound in milliseconds, if the watermark follows each row."""
        return 0.0 if not self.rows else self._beyond(bound) / self.rows

    def bound_for(self, late: float) -> int:
        """Return the bound in milliseconds with which at most this share of the rows is late; 0 is none."""
        if late <= 0 or not self.rows:
            return self.longest
        allowed = math.floor(late * self.rows)
        # Those beyond each bucket.
        beyond = self.rows - np.cumsum(self._counts)
        return min(_end_of(int(np.argmax(beyond <= allowed))), self.longest)

    def shares(self, edges: list[int]) -> list[float]:
        """Return the share of rows behind by more than each of these milliseconds and not more than the next."""
        beyond = [self._beyond(edge) for edge in edges] + [0]
        return [(here - there) / max(self.rows, 1) for here, there in pairwise(beyond)]

    def _beyond(self, bound: int) -> int:
        return 0 if bound >= self.longest else int(self._counts[int(_bucket_of(np.array([bound]))[0]) + 1 :].sum())


def _bucket_of(behind: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    large = behind >= _EXACT
    if not large.any():
        return behind
    found = behind.copy()
    above = behind[large]
    # Of a number of 53 bits this is exact; beyond, a bucket is wider than the error.
    _, exponents = np.frexp(above.astype(np.float64))
    doublings = exponents.astype(np.int64) - 8
    found[large] = _EXACT + doublings * _PARTS + (above >> (doublings + 1)) - _PARTS
    return found


def _end_of(bucket: int) -> int:
    """Return the last number of a bucket."""
    if bucket < _EXACT:
        return bucket
    doublings, part = divmod(bucket - _EXACT, _PARTS)
    return ((part + _PARTS + 1) << (doublings + 1)) - 1


BOUNDS = (0, 1_000, 10_000, 60_000, 600_000)
_WISHES = (0.0, 0.001, 0.01, 0.05)
_EDGES = [0, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000]
_BARS = " ▁▂▃▄▅▆▇█"
_FAR_APART = 60_000


class EventTimes(NamedTuple):
    """Event times of rows of one split, in the order of their positions."""

    split: Split
    millis: npt.NDArray[np.int64]
    undated: int
    """Rows in which none was found; they are not among ``millis``."""


class Profiler(Protocol):
    """The module ``profile`` of a connector, whose package names its flag in ``PROFILE_FLAG``."""

    @property
    def OPTIONS(self) -> OptionTable:  # noqa: N802 - a constant of a module
        """The source's options."""
        ...

    def event_times(self, given: Mapping[str, str], rows: int | None) -> Iterator[EventTimes]:
        """Yield event times of the newest ``rows`` rows of each split, of all with ``None``.

        Raises:
            OptionError: options that cannot work, before anything is connected.
        """
        ...


def profiler_of(package: str) -> Profiler:
    """Return the profiler of a package; raises as ``module_of``."""
    return cast("Profiler", module_of(package, "profile"))


@dataclass(slots=True)
class Profile:
    """What was seen of each split."""

    splits: dict[Split, Disorder] = field(default_factory=dict)
    undated: int = 0

    def add(self, seen: EventTimes) -> None:
        """Take in rows that come next."""
        self.splits.setdefault(seen.split, Disorder()).add(seen.millis)
        self.undated += seen.undated

    def bound_for(self, late: float) -> int:
        """Return the least bound in milliseconds with which no split has a larger share of late rows than this."""
        return max((each.bound_for(late) for each in self.splits.values()), default=0)


def profile_of(seen: Iterator[EventTimes]) -> Profile:
    """Read all there is."""
    made = Profile()
    for each in seen:
        made.add(each)
    return made


def write(profile: Profile, out: TextIO) -> None:
    """Write the table, what to set, and how far the splits are apart."""
    with_rows = {split: each for split, each in sorted(profile.splits.items()) if each.rows}
    if not with_rows:
        out.write(
            f"{count_text(profile.undated)} rows were read, and none has an event time where eventTimeColumn says, "
            "in eventTimeFormat\n"
            if profile.undated
            else "there are no rows\n"
        )
        return
    width = max(9, *(len(str(split)) for split in with_rows))
    bounds = "".join(f"{format_duration(bound):>10}" for bound in BOUNDS)
    out.write(f"{'':{width}}  {'':>12}  {'late rows with maxOutOfOrderness':^50}\n")
    out.write(f"{'split':{width}}  {'rows':>12}  {bounds}  {'longest':>12}  behind by 10 ms … 1 day\n")
    for split, each in with_rows.items():
        shares = "".join(f"{share_text(each.late_with(bound)):>10}" for bound in BOUNDS)
        longest = format_duration(each.longest)
        out.write(f"{split!s:{width}}  {count_text(each.rows):>12}  {shares}  {longest:>12}  {_picture(each)}\n")
    out.write(
        "\nThe watermark of a split follows each of its rows here. In a query it moves once a batch: fewer are late.\n"
    )
    for wish in _WISHES:
        bound = format_duration(profile.bound_for(wish))
        out.write(
            f"maxOutOfOrderness = {bound:12} for {'no late row' if not wish else f'at most {share_text(wish)} late'}\n"
        )
    highest = {split: each.highest for split, each in with_rows.items() if each.highest is not None}
    first, last = min(highest, key=lambda s: highest[s]), max(highest, key=lambda s: highest[s])
    apart = highest[last] - highest[first]
    if apart > _FAR_APART:
        out.write(
            f"{first} has come {format_duration(apart)} less far than {last}: each has its own watermark, and the "
            "lowest counts. To hold the others back and keep less state, set alignmentGroup and alignmentMaxDrift\n"
        )
    if profile.undated:
        out.write(
            f"{count_text(profile.undated)} rows without an event time are not in the table: see eventTimeErrors\n"
        )


def _picture(of: Disorder) -> str:
    """Return a bar for each range of disorder, by the logarithm of its share: one in a million can be seen."""
    bars = []
    for share in of.shares(_EDGES):
        level = 0 if share <= 0 else max(1, round(8 * (1 + np.log10(share) / 7)))
        bars.append(_BARS[min(level, 8)])
    return "".join(bars)
