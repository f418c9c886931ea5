"""Event times by a function of the user's: a record batch in, an array out, once for each batch of records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_aligned_kafka.errors.partition_names import place
from pyspark_aligned_kafka.records.columns import binary_column
from pyspark_aligned_kafka.records.event_time_choice import ByFunction
from pyspark_aligned_kafka.records.headers import headers_array
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, KEY_AT, VALUE_AT
from pyspark_aligned_kafka.records.time_finder import Found, Records
from pyspark_aligned_kafka.records.time_texts import END_MICROS, FIRST_MICROS
from watermark_source.arrow_columns import integers, is_valid
from watermark_source.errors import EventTimeError, WatermarkSourceError, shortened

COLUMNS = ("key", "value", "headers", "timestamp", "offset")
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class FunctionTimes:
    """Calls the function and checks what it answers."""

    def __init__(self, where: ByFunction, *, shows_records: bool = True) -> None:
        self._where = where
        self._shows = shows_records
        self._function = where.load()

    def find(self, records: Records) -> Found:
        """Return what the function finds; what it leaves null has no event time.

        Raises:
            EventTimeError: it failed, or answered no array of moments, one for each record.
        """
        given = _batch(records)
        try:
            answer = self._function(given)
        except Exception as error:  # noqa: BLE001 - a function of the user's raises anything
            # What a function of the user's says of its failure may well hold what it failed at. Our own errors do not.
            is_ours = isinstance(error, WatermarkSourceError)
            text = f": {shortened(error)}" if self._shows or is_ours else " (recordsInErrors=true shows its message)"
            failed = f"the function {self._where} failed for {_of(records)}: {type(error).__name__}{text}"
            raise EventTimeError(failed) from (error if self._shows else None)
        if isinstance(answer, pa.ChunkedArray):
            answer = answer.combine_chunks()
        if not isinstance(answer, pa.Array) or not (pa.types.is_timestamp(answer.type) or answer.type == pa.int64()):
            seen = answer.type if isinstance(answer, pa.Array) else type(answer).__name__
            raise EventTimeError(
                f"the function {self._where} answered {seen} for {_of(records)}; it must answer an Arrow array of "
                "timestamps, or of int64 with milliseconds since 1970-01-01 UTC"
            )
        if len(answer) != given.num_rows:
            raise EventTimeError(
                f"the function {self._where} answered {len(answer)} times for the {given.num_rows} {_of(records)}; it "
                "must answer one for each, null where there is none"
            )
        return _found(answer)

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        """Return all: what the function leaves null is nothing, wherever it looked."""
        return np.ones(records.located.rows, np.bool_)

    def seen(self, records: Records, row: int) -> str:
        """Return what the function answered for a row, and why, if it can say so."""
        explain = getattr(self._function, "explain", None)
        if explain is not None:
            return str(explain(_batch(records).slice(row, 1)))
        return "null from the function, or a moment before the year 1 or after the year 9999"


def _batch(records: Records) -> pa.RecordBatch:
    located, data = records.located, records.data
    fields = located.fields[:, : located.rows]
    offsets = pa.Array.from_buffers(pa.int64(), located.rows, [None, pa.py_buffer(records.offsets[: located.rows])])
    columns = [
        binary_column(data, fields[KEY_AT:VALUE_AT], located.key_bytes, located.key_nulls),
        binary_column(data, fields[VALUE_AT:HEADERS_AT], located.value_bytes, located.value_nulls),
        headers_array(records.split, data, located, offsets),
        records.timestamps,
        offsets,
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def _of(records: Records) -> str:
    first, last = records.offsets[0], records.offsets[records.located.rows - 1]
    return f"records {first} to {last} of {place(records.split)}"


def _found(answer: pa.Array) -> Found:
    values, missing = integers(answer), ~is_valid(answer)
    unit = answer.type.unit if pa.types.is_timestamp(answer.type) else "ms"
    if unit == "ns":
        # 64 bits of them are 292 years before and after 1970.
        micros = values // 1_000
    else:
        factor = _MICROS[unit]
        missing |= (values < FIRST_MICROS // factor) | (values >= END_MICROS // factor)
        micros = np.where(missing, 0, values) * factor
    return Found(micros, missing.astype(np.uint8), int(np.count_nonzero(missing)))
