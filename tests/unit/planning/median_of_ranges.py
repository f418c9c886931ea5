"""A strategy that remembers earlier ranges of a split: the model for one of the project's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from watermark_source.errors import OffsetError
from watermark_source.planning.canonical_json import canonical, value_of
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Advance, RowsAlone
from watermark_source.planning.watermark import Millis


@dataclass(frozen=True, slots=True)
class MedianOfRanges(RowsAlone):
    """The median of the highest event times of the last three ranges; the lower one of two."""

    looks_up_times: ClassVar[bool] = False
    RANGES: ClassVar[int] = 3

    @property
    def keeps_as(self) -> str:
        return "median-of-ranges"

    def on_range(self, split: Split, kept: str | None, seen: RangeSummary, cap: Millis | None) -> Advance:
        if seen.highest is None:
            return Advance(None, kept)
        last = [*(() if kept is None else value_of(kept)), seen.highest][-self.RANGES :]
        return Advance(Millis(sorted(last)[(len(last) - 1) // 2]), canonical(last))

    def check_kept(self, kept_by: str | None, kept: Mapping[Split, str | None]) -> None:
        if kept_by != self.keeps_as:
            return
        for split, text in kept.items():
            last = [] if text is None else value_of(text)
            if not isinstance(last, list) or len(last) > self.RANGES or any(type(each) is not int for each in last):
                raise OffsetError(f"{split}: expected a list of at most {self.RANGES} event times, not {text}")
