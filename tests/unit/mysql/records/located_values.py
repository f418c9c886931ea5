"""Values as decoders find them in memory."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values


def values(*given: bytes | None) -> Values:
    """Located values, one after another."""
    sizes = np.array([len(each or b"") for each in given], np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    starts[[each is None for each in given]] = -1
    return Values(padded(b"".join(each or b"" for each in given)), starts, sizes)
