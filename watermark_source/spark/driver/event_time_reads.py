"""Event times of ranges that the driver reads, all columns left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from watermark_source.arrow_columns import integers
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.range_reader import RangeReader

Longs = npt.NDArray[np.int64]


def event_times_of(reader: RangeReader, wanted: Sequence[SplitRange]) -> Mapping[Split, Longs]:
    """Return the event times of each split's ranges in microseconds, in position order; no entry without rows.

    A null holds the highest number there is. Raises what the reader does.
    """
    found: defaultdict[Split, list[Longs]] = defaultdict(list)
    for batch in reader.read(wanted):
        if batch.rows:
            found[batch.split].append(integers(batch.event_time))
    return {split: np.concatenate(parts) for split, parts in found.items()}
