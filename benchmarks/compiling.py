"""What a first query spends on compiling: a process decodes its first records with an empty cache, with a full one, and
with machine code that ``make decoders`` built, if it is there.

Run as a process of its own it prints seconds of CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from benchmarks.figures import Figure
from watermark_source.machine_code.built_library import CHOICE, is_there

_SCHEMA = "order STRUCT<id: STRING, created_at: STRING>, amount DOUBLE"
_KINDS: Mapping[str, Mapping[str, str]] = {
    "records as they are": {},
    "event time in JSON": {"eventTimeColumn": "value:$.order.created_at"},
    "values as columns, event time in them": {
        "valueFormat": "json", "valueSchema": _SCHEMA, "eventTimeColumn": "value:$.order.created_at",
    },
}  # fmt: skip
_RECORDS = 100
_VALUE = b'{"order": {"id": "o-1", "created_at": "2026-01-01T00:00:00Z"}, "amount": 1.5}'


def compiling() -> Iterator[Figure]:
    """Decode twice for each kind of query, each time in a new process."""
    for kind, options in _KINDS.items():
        with tempfile.TemporaryDirectory(prefix="benchmark-") as cache:
            first, later = (_decode(options, cache, "numba") for _ in range(2))
            built = _decode(options, cache, "built") if is_there("pyspark_aligned_kafka") else None
        yield Figure(f"first records, {kind}: nothing compiled yet", first, "s of CPU")
        yield Figure(f"first records, {kind}: all compiled before", later, "s of CPU")
        if built is not None:
            yield Figure(f"first records, {kind}: built code", built, "s of CPU")


def _decode(options: Mapping[str, str], cache: str, form: str) -> float:
    command = [sys.executable, "-m", "benchmarks.compiling", json.dumps(options)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, CHOICE: form}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def _used(given: Mapping[str, str]) -> float:
    """Return the CPU seconds of this process from the options to the decoded records."""
    import numpy as np

    from services.kafka_record_batch import encode_batch

    values = np.frombuffer(_VALUE * _RECORDS, np.uint8).reshape(_RECORDS, -1).copy()
    data = np.frombuffer(bytearray(encode_batch(np.full(_RECORDS, 1_700_000_000_000), values)), np.uint8)
    begun = time.process_time()

    from pyspark_aligned_kafka.options.kafka_options import parse
    from pyspark_aligned_kafka.records.decoding import RecordDecoder
    from pyspark_aligned_kafka.records.record_batches import survey
    from watermark_source.planning.split import Split, SplitRange

    options = parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", **given})
    decoder = RecordDecoder(
        options.columns,
        batch_rows=_RECORDS,
        batch_bytes=1 << 20,
        decompressed_limit=1 << 20,
        event_time=options.times.event_time,
        payloads=options.payloads,
    )
    split = Split("orders", 0)
    batches = survey(split, data, 0, len(data)).batches
    for _ in decoder.decode(SplitRange(split, 0, _RECORDS), data, 0, batches, None):
        pass
    return time.process_time() - begun


if __name__ == "__main__":
    print(_used(json.loads(sys.argv[1])))
