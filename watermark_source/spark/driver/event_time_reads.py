"""Event times of ranges that the driver reads, all columns left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
import numpy.typing as npt

from watermark_source.arrow_columns import integers
from watermark_source.errors import WatermarkSourceError
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.range_reader import RangeReader

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventTimesRead:
    """What was read of some ranges, one a split."""

    micros: Mapping[Split, Longs]
    """Event times in microseconds, in position order; no entry without rows. A null holds the highest number there
    is."""
    failed: Mapping[Split, WatermarkSourceError] = field(default_factory=dict)
    """Splits whose range could not be read, and why."""
    left_out: frozenset[Split] = frozenset()
    """Splits that there was no time for."""


def read_event_times(
    reader: RangeReader, wanted: Sequence[SplitRange], *, apart: Sequence[Split] = (), until: float
) -> EventTimesRead:
    """Read the event times of ranges. What cannot be read of one split keeps nothing of the others back.

    Args:
        reader: reads several ranges at once, and raises an error of ``watermark_source.errors`` for all of them.
        wanted: one range a split.
        apart: splits that are read one by one, in this order, after the others: one of them could not be read before.
        until: by ``time.monotonic()``, after which no split is read by itself.
    """
    turns = {split: turn for turn, split in enumerate(apart)}
    together = [each for each in wanted if each.split not in turns]
    one_by_one = sorted((each for each in wanted if each.split in turns), key=lambda each: turns[each.split])
    micros: dict[Split, Longs] = {}
    try:
        micros |= _read(reader, together)
    except WatermarkSourceError as error:
        if len(together) == 1:
            return _apart(reader, one_by_one, micros, {together[0].split: error}, until)
        one_by_one = [*together, *one_by_one]
    return _apart(reader, one_by_one, micros, {}, until)


def _apart(
    reader: RangeReader,
    ranges: Sequence[SplitRange],
    micros: dict[Split, Longs],
    failed: dict[Split, WatermarkSourceError],
    until: float,
) -> EventTimesRead:
    left_out: set[Split] = set()
    for each in ranges:
        if monotonic() >= until:
            left_out.add(each.split)
            continue
        try:
            micros |= _read(reader, [each])
        except WatermarkSourceError as error:
            failed[each.split] = error
    return EventTimesRead(micros, failed, frozenset(left_out))


def _read(reader: RangeReader, wanted: Sequence[SplitRange]) -> dict[Split, Longs]:
    if not wanted:
        return {}
    found: defaultdict[Split, list[Longs]] = defaultdict(list)
    for batch in reader.read(wanted):
        if batch.rows:
            found[batch.split].append(integers(batch.event_time))
    return {split: np.concatenate(parts) for split, parts in found.items()}
