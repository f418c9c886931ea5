"""The profile: how far rows of a source's splits are out of order, and which share each bound would make late."""

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

_PARTS = 64
"""Buckets for each doubling: a bucket's width is at most 1/64 of its lower bound."""
_FROM = np.array(
    [*range(2 * _PARTS), *((_PARTS + part) << doubling for doubling in range(1, 57) for part in range(_PARTS))],
    np.int64,
)
"""The lowest value of each bucket, in milliseconds; the first ones have one value each."""

BOUNDS = (0, 1_000, 10_000, 60_000, 600_000)
_WISHES = (0.0, 0.001, 0.01, 0.05)
_EDGES = [0, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000]
_BARS = " ▁▂▃▄▅▆▇█"
_FAR_APART = 60_000


@dataclass(slots=True)
class Disorder:
    """A histogram of one split's rows: how far each event time is behind the highest event time before it.

    Buckets are at most 1.6 % of their lower bound wide, which bounds the error of quantiles for any number of rows.
    """

    rows: int = 0
    highest: int | None = None
    """Highest event time, milliseconds since 1970-01-01 UTC."""
    longest: int = 0
    """Largest lag of a row behind an earlier one, in milliseconds."""
    _counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(_FROM), np.int64))

    def add(self, millis: npt.NDArray[np.int64]) -> None:
        """Add the event times of the next rows, in milliseconds."""
        if not len(millis):
            return
        before = np.maximum.accumulate(millis)
        if self.highest is not None:
            np.maximum(before, self.highest, out=before)
        behind = before - millis
        self._counts += np.bincount(_bucket_of(behind), minlength=len(_FROM))
        self.rows += len(millis)
        self.highest = int(before[-1])
        self.longest = max(self.longest, int(behind.max()))

    def late_with(self, bound: int) -> float:
        """Return the share of rows that a bound in milliseconds makes late, if the watermark advances with each row."""
        return 0.0 if not self.rows else self._beyond(bound) / self.rows

    def bound_for(self, late: float) -> int:
        """Return the smallest bound in milliseconds that makes at most this share of the rows late."""
        if late <= 0 or not self.rows:
            return self.longest
        allowed = math.floor(late * self.rows)
        beyond = self.rows - np.cumsum(self._counts)
        following = int(np.argmax(beyond <= allowed)) + 1
        return self.longest if following == len(_FROM) else min(int(_FROM[following]) - 1, self.longest)

    def shares(self, edges: list[int]) -> list[float]:
        """Return, for each edge in milliseconds, the share of rows with a lag above it and up to the next edge."""
        beyond = [self._beyond(edge) for edge in edges] + [0]
        return [(rows - beyond_next) / max(self.rows, 1) for rows, beyond_next in pairwise(beyond)]

    def _beyond(self, bound: int) -> int:
        return 0 if bound >= self.longest else int(self._counts[int(_bucket_of(np.array([bound]))[0]) + 1 :].sum())


def _bucket_of(behind: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    return np.searchsorted(_FROM, behind, side="right") - 1


class SplitEventTimes(NamedTuple):
    """Event times of one split's rows, in the order of their positions."""

    split: Split
    millis: npt.NDArray[np.int64]
    undated: int
    """Number of rows without an event time, which are not in ``millis``."""


class Profiler(Protocol):
    """The module ``profile`` of a connector, whose package names its flag in ``PROFILE_FLAG``."""

    @property
    def OPTIONS(self) -> OptionTable:  # noqa: N802 - a constant of a module
        """The source's options."""

    def event_times(self, given: Mapping[str, str], rows: int | None) -> Iterator[SplitEventTimes]:
        """Yield event times of the newest ``rows`` rows of each split, or of all rows with ``None``.

        Raises:
            OptionError: an option is invalid; raised before anything is connected.
        """


def profiler_of(package: str) -> Profiler:
    """Return the profiler of a package; raises as ``module_of``."""
    return cast("Profiler", module_of(package, "profile"))


@dataclass(slots=True)
class Profile:
    """The disorder of each split."""

    splits: dict[Split, Disorder] = field(default_factory=dict)
    undated: int = 0

    def bound_for(self, late: float) -> int:
        """Return the smallest bound in milliseconds that makes at most this share of each split's rows late."""
        return max((disorder.bound_for(late) for disorder in self.splits.values()), default=0)


def profile_of(batches: Iterator[SplitEventTimes]) -> Profile:
    """Return the profile of all rows."""
    profile = Profile()
    for rows in batches:
        profile.splits.setdefault(rows.split, Disorder()).add(rows.millis)
        profile.undated += rows.undated
    return profile


def write(profile: Profile, out: TextIO) -> None:
    """Write a table of the splits, the bounds to choose from, and how far apart the splits are."""
    with_rows = {split: disorder for split, disorder in sorted(profile.splits.items()) if disorder.rows}
    if not with_rows:
        out.write(
            f"rows read: {count_text(profile.undated)}; none has an event time where the options look for it\n"
            if profile.undated
            else "no partition has rows\n"
        )
        return
    width = max(9, *(len(str(split)) for split in with_rows))
    bounds = "".join(f"{format_duration(bound):>10}" for bound in BOUNDS)
    out.write(f"{'':{width}}  {'':>12}  {'late rows with maxOutOfOrderness':^50}\n")
    out.write(f"{'split':{width}}  {'rows':>12}  {bounds}  {'longest':>12}  behind by 10 ms … 1 day\n")
    for split, disorder in with_rows.items():
        shares = "".join(f"{share_text(disorder.late_with(bound)):>10}" for bound in BOUNDS)
        longest = format_duration(disorder.longest)
        rows = count_text(disorder.rows)
        out.write(f"{split!s:{width}}  {rows:>12}  {shares}  {longest:>12}  {_picture(disorder)}\n")
    out.write(
        "\nHere the watermark of a split advances with each row. In a query it advances once a batch, and fewer rows "
        "are late.\n"
    )
    for wish in _WISHES:
        bound = format_duration(profile.bound_for(wish))
        late = f"at most {share_text(wish)} late" if wish else "no late row"
        out.write(f"maxOutOfOrderness = {bound:12} for {late}\n")
    highest = {split: disorder.highest for split, disorder in with_rows.items() if disorder.highest is not None}
    first, last = min(highest, key=lambda s: highest[s]), max(highest, key=lambda s: highest[s])
    apart = highest[last] - highest[first]
    if apart > _FAR_APART:
        out.write(
            f"{first} is {format_duration(apart)} behind {last} in event time. Each split has its own watermark, and "
            "the lowest counts. To read the others less far ahead and keep less state, set alignmentGroup and "
            "alignmentMaxDrift\n"
        )
    if profile.undated:
        out.write(f"{count_text(profile.undated)} rows without an event time are not in the table\n")


def _picture(of: Disorder) -> str:
    """Return a bar for each range of disorder, as high as the logarithm of the share: one in a million is visible."""
    bars = []
    for share in of.shares(_EDGES):
        level = 0 if share <= 0 else max(1, round(8 * (1 + np.log10(share) / 7)))
        bars.append(_BARS[min(level, 8)])
    return "".join(bars)
