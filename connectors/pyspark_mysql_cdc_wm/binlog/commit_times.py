"""When each transaction of a block of events was committed, one compiled pass over the table of events."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, SECONDS, START, STOP, TYPE
from pyspark_mysql_cdc_wm.binlog.gtid import committed_at
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.errors.corrupt_binlog import Fault, fault_error
from watermark_source.machine_code.native import Word, address_of, compiled


@compiled("int64(uint8[::1], int64[:, ::1], int64[::1])")
def _times(array: Word, begins: Word, found: Word) -> Word:
    data = address_of(array)
    for i in range(begins.shape[0]):
        start, stop = begins[i, START] + HEADER_SIZE, begins[i, STOP]
        number, micros = committed_at(data, begins[i, TYPE], start, stop, begins[i, SECONDS])
        if number < 0:
            return np.int64(i)
        found[i] = micros
    return np.int64(-1)


def commit_times(memory: Bytes, begins: Longs, file: str) -> Longs:
    """Return the commit times (microseconds) of transactions by the events that they begin with.

    Raises:
        CorruptDataError: an event that cannot be read.
    """
    found = np.empty(len(begins), np.int64)
    fault = _times(memory, begins, found)
    if fault >= 0:
        raise fault_error(Fault.GTID, f"binlog {file}")
    return found
