"""Any bytes as a response to a fetch: understood and decoded as a read does it, or a declared error.

An input: one byte of flags, then the response; it answers whatever request it states.
"""

from __future__ import annotations

from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_COLUMNS
from pyspark_aligned_kafka.reading.fetch import FetchResponse, decode_response, examine
from pyspark_aligned_kafka.reading.range_progress import Pending
from pyspark_aligned_kafka.records.record_batches import Bytes
from tests.soak.fuzz.decoder import checked, decoder
from tests.soak.fuzz.memory import guarded
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split, SplitRange

_COMMITTED, _CHECKED = 1, 2
_LAST = 2**63 - 1
_ROWS, _ROW_BYTES = 7, 400


def check(data: bytes) -> str:
    """Read an input; return what came out of it. Anything but rows and declared errors is raised."""
    flags, body = (data[0], data[1:]) if data else (0, b"")
    array = guarded(body)
    reported: list[object] = []
    try:
        correlation = int.from_bytes(body[:4], "big", signed=True)
        response = decode_response(array, array.size, correlation, read_committed=bool(flags & _COMMITTED))
        for each in response.partitions:
            reported += [each._replace(aborted=None), None if each.aborted is None else each.aborted.tolist()]
        reported += _rows(array, response, check_crcs=bool(flags & _CHECKED))
    except SourceError as error:
        reported.append(f"{type(error).__name__}: {error}")
    return repr(reported)


def _rows(array: Bytes, response: FetchResponse, *, check_crcs: bool) -> list[object]:
    reported: list[object] = []
    asked = {each.split for each in response.partitions} | {Split("orders", 0)}
    step = examine([Pending(SplitRange(split, 0, _LAST), 0) for split in sorted(asked)], array, response)
    reported += [[(each.split, int(each.position)) for each in step.left], step.troubles]
    made = decoder(list(KAFKA_COLUMNS), _ROWS, _ROW_BYTES, check_crcs=check_crcs, fill=0)
    for stretch in step.stretches:
        wanted = stretch.pending.range
        fetched = stretch.fetched
        for each in made.decode(wanted, array, fetched.start, stretch.batches, fetched.aborted):
            reported += [each.rows, *checked(each, wanted)]
    return reported
