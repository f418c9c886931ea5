"""What a first task spends on compiling: new processes decode their first records with an empty cache, with a full one,
and with machine code that ``make decoders`` built, if it is there.

Run as a process of its own it reads what it shall decode from its standard input, and prints how many seconds of CPU it
has taken since it was started, and how much memory it has had.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.figures import Figure
from watermark_source.machine_code.built_library import CHOICE, is_there

_JSON = b'{"order": {"id": "o-1", "created_at": "2026-01-01T00:00:00Z"}, "amount": 1.5}'
_JSON_SCHEMA = "order STRUCT<id: STRING, created_at: STRING>, amount DOUBLE"
_AVRO = b"\x06o-1\x00\x00\x00\x00\x00\x00\xf8\x3f"
_AVRO_SCHEMA = json.dumps({
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "double"}],
})  # fmt: skip
_TOPICS: Mapping[str, tuple[bytes, Mapping[str, str]]] = {
    "records as they are": (_JSON, {}),
    "event time in JSON": (_JSON, {"eventTimeColumn": "value:$.order.created_at"}),
    "values in JSON as columns, event time in them": (_JSON, {
        "valueFormat": "json", "valueSchema": _JSON_SCHEMA, "eventTimeColumn": "value:$.order.created_at",
    }),
    "values in Avro as columns": (_AVRO, {"valueFormat": "avro", "valueSchema": _AVRO_SCHEMA}),
}  # fmt: skip
_RECORDS, _CHANGES = "records", "changes"
_COUNT = 100
_MOST_SECONDS, _MOST_SECONDS_PLAIN, _MOST_SECONDS_BUILT, _MOST_MIB_BUILT = 15, 8, 1.5, 200


class _Work(NamedTuple):
    """What a process decodes."""

    of: str
    """Kafka's records, in a batch as a broker returns it, or MySQL's changes: a binlog without its first four bytes."""
    given: Mapping[Any, str]
    """Options, or the server's character sets."""
    data: bytes


class _Spent(NamedTuple):
    cpu: float
    mib: float


def compiling() -> Iterator[Figure]:
    """Decode twice for each kind of query, each time in a new process."""
    for name, work in _works().items():
        with tempfile.TemporaryDirectory(prefix="benchmark-") as cache:
            first, later = (_spent(work, cache, "numba") for _ in range(2))
            built = _spent(work, cache, "built") if is_there("pyspark_mysql_cdc_wm") else None
        most = _MOST_SECONDS if work.given else _MOST_SECONDS_PLAIN
        yield Figure(f"first task, {name}: nothing compiled yet", first.cpu, "s of CPU", at_most=most)
        yield Figure(f"first task, {name}: nothing compiled yet, memory", first.mib, "MiB")
        yield Figure(f"first task, {name}: all compiled before", later.cpu, "s of CPU")
        yield Figure(f"first task, {name}: all compiled before, memory", later.mib, "MiB")
        if built is not None:
            yield Figure(f"first task, {name}: built code", built.cpu, "s of CPU", at_most=_MOST_SECONDS_BUILT)
            yield Figure(f"first task, {name}: built code, memory", built.mib, "MiB", at_most=_MOST_MIB_BUILT)


def _works() -> dict[str, _Work]:
    import numpy as np

    # They import the compiler and more, which not every process that is measured does.
    from services.kafka_record_batch import encode_batch
    from tests.unit.mysql.recordings import charsets, content

    found: dict[str, _Work] = {}
    for name, (value, options) in _TOPICS.items():
        values = np.frombuffer(value * _COUNT, np.uint8).reshape(_COUNT, -1).copy()
        found[name] = _Work(_RECORDS, options, bytes(encode_batch(np.full(_COUNT, 1_700_000_000_000), values)))
    return {**found, "changes of a table of MySQL": _Work(_CHANGES, charsets(), content("full"))}


def _spent(work: _Work, cache: str, form: str) -> _Spent:
    command = [sys.executable, "-m", "benchmarks.compiling"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, CHOICE: form}
    done = subprocess.run(command, check=True, input=pickle.dumps(tuple(work)), stdout=subprocess.PIPE, env=environment)
    return _Spent(*json.loads(done.stdout))


def _decode_records(work: _Work) -> int:
    import numpy as np

    from pyspark_aligned_kafka.options.kafka_options import parse
    from pyspark_aligned_kafka.records.decoding import RecordDecoder
    from pyspark_aligned_kafka.records.record_batches import survey
    from watermark_source.planning.split import Split, SplitRange

    options = parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", **work.given})
    decoder = RecordDecoder(
        options.columns,
        batch_rows=_COUNT,
        batch_bytes=1 << 20,
        decompressed_limit=1 << 20,
        event_time=options.event_time,
        payloads=options.payloads,
    )
    split, data = Split("orders", 0), np.frombuffer(bytearray(work.data), np.uint8)
    batches = survey(split, data, 0, len(data)).batches
    return sum(each.rows for each in decoder.decode(SplitRange(split, 0, _COUNT), data, 0, batches, None))


def _decode_changes(work: _Work) -> int:
    import numpy as np

    from pyspark_mysql_cdc_wm.binlog.dump_packets import PacketWalk
    from pyspark_mysql_cdc_wm.binlog.wire import padded
    from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder

    memory, at, events = padded(work.data), 0, []
    walk = PacketWalk(position=4, checksums=False)
    while at < len(work.data):
        stop = at + int.from_bytes(work.data[at + 9 : at + 13], "little")
        events.append(walk.one_event(memory, at, stop, "binlog"))
        at = stop
    decoder = ChangeDecoder(work.given, lambda table: [str(column.name) for column in table.columns])
    return sum(len(each.images.kinds) for each in decoder.decode(memory, np.concatenate(events), "binlog"))


if __name__ == "__main__":
    task = _Work(*pickle.load(sys.stdin.buffer))
    if not (_decode_records if task.of == _RECORDS else _decode_changes)(task):
        raise RuntimeError("no row was decoded")
    cpu = time.process_time()

    import psutil

    from benchmarks.memory import peak_mib

    print(json.dumps(_Spent(cpu, peak_mib(psutil.Process()))))
