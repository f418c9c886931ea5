"""A whole job, a window and a sum: the built-in source with ``from_json``, and ours with ``valueFormat``.

Over JSON, and over the same records in Avro with a schema registry, which the built-in source cannot read. Run as a
process of its own it prints the seconds of both jobs over JSON with ``recommended_conf()``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from benchmarks.event_time import (
    AMOUNT,
    ID,
    NOTE,
    PARTITIONS,
    RECORDS,
    SCHEMA,
    SIZE,
    as_today,
    orders,
    payload_topic,
    stream,
    windows,
    with_event_time,
)
from benchmarks.figures import Figure, ratio, spread
from benchmarks.queries import BUILT_IN, OURS, run_to_end
from benchmarks.session import spark_session
from services.ivy import spark_kafka_jars
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topic
from tests.schema_registry import schema_registry
from watermark_source import follow_watermark, recommended_conf

_OURS_TODAY = f"{OURS} with from_json"
_AVRO = f"{OURS}, Avro with a registry"
_READ = [
    {"name": "id", "type": "string"}, {"name": "at", "type": "long"}, {"name": "amount", "type": "double"},
]  # fmt: skip
_ALSO_WRITTEN = [
    {"name": "tags", "type": {"type": "array", "items": "string"}}, {"name": "note", "type": "string"},
]  # fmt: skip
_Seconds: TypeAlias = tuple[list[float], list[float]]
"""Of each run: from its start to its end, and of CPU."""
_TEXTS = b"\x04\x06new\x08paid\x00" + bytes([len(NOTE) << 1 & 127 | 128, len(NOTE) >> 6]) + NOTE
"""The tags and the note of each record. Avro writes a length twofold, seven bits a byte."""


def payload_topics(bootstrap: str, name: str) -> None:
    """Produce the documents, and the same records in Avro to a second topic."""
    payload_topic(bootstrap, name)
    create_topic(bootstrap, _avro(name), partitions=PARTITIONS)
    head = bytes([0, 0, 0, 0, 1, len(ID) << 1]) + ID.encode()
    records = {}
    for partition, (written, times) in enumerate(orders()):
        digits = (times[:, None] << 1 >> np.arange(0, 42, 7) & 127).astype(np.uint8)
        digits[:, :-1] |= 128
        tail = np.array([AMOUNT], "<f8").tobytes() + _TEXTS
        parts = [np.tile(np.frombuffer(text, np.uint8), (len(times), 1)) for text in (head, tail)]
        records[partition] = PartitionRecords(written, values=np.hstack([parts[0], digits, parts[1]]))
    bulk_produce_partitions(bootstrap, _avro(name), records)


def _avro(topic: str) -> str:
    return f"{topic}-avro"


def payload(spark: SparkSession, bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Time the whole job of each kind in turn, and the CPU of Spark and its Python processes."""
    written = {"type": "record", "name": "Order", "fields": [*_READ, *_ALSO_WRITTEN]}
    with schema_registry({"/schemas/ids/1": {"schema": json.dumps(written)}}) as registry:
        yield from _figures(spark, bootstrap, topic, rounds, f"http://127.0.0.1:{registry.port}")
    yield from _recommended(bootstrap, topic, rounds)


def _figures(spark: SparkSession, bootstrap: str, topic: str, rounds: int, registry: str) -> Iterator[Figure]:
    taken = _taken(
        {
            BUILT_IN: lambda: as_today(spark, bootstrap, topic),
            _OURS_TODAY: lambda: with_event_time(spark, bootstrap, topic),
            OURS: lambda: _decoded(spark, bootstrap, topic),
            _AVRO: lambda: _decoded_avro(spark, bootstrap, _avro(topic), registry),
        },
        rounds,
    )
    wall, cpu = ({name: both[place] for name, both in taken.items()} for place in (0, 1))
    for name in taken:
        millions, what = RECORDS / statistics.median(wall[name]) / 1e6, "Avro" if name == _AVRO else "JSON"
        yield Figure(
            f"window and sum over {what}, {name}: rows/s", millions, "M/s",
            detail=f"{RECORDS / 1e6:g} M records, {SIZE} B of JSON; s {spread(wall[name])}, of CPU {spread(cpu[name])}",
        )  # fmt: skip
    for name in (BUILT_IN, _OURS_TODAY):
        least = 1.8 if name == BUILT_IN else None
        yield Figure(f"whole job, {name} / valueFormat: wall", ratio(wall[name], wall[OURS]), "x", at_least=least)
        least = 2.0 if name == BUILT_IN else None
        yield Figure(f"whole job, {name} / valueFormat: CPU a row", ratio(cpu[name], cpu[OURS]), "x", at_least=least)
    yield Figure(
        f"whole job, {BUILT_IN} over JSON / {_AVRO}: wall", ratio(wall[BUILT_IN], wall[_AVRO]), "x", at_least=2.0
    )
    yield Figure(f"whole job, {BUILT_IN} over JSON / {_AVRO}: CPU a row", ratio(cpu[BUILT_IN], cpu[_AVRO]), "x")


def _recommended(bootstrap: str, topic: str, rounds: int) -> Iterator[Figure]:
    """Time both jobs in a driver of its own: the settings take effect where its Java process starts."""
    command = [sys.executable, "-m", "benchmarks.payload", bootstrap, topic, str(rounds)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    taken: dict[str, _Seconds] = json.loads(printed.splitlines()[-1])
    for place, what in enumerate(("wall", "CPU a row")):
        yield Figure(
            f"whole job with recommended_conf() on both, {BUILT_IN} / valueFormat: {what}",
            ratio(taken[BUILT_IN][place], taken[OURS][place]), "x",
            detail=f"s {', '.join(f'{name} {spread(both[place])}' for name, both in taken.items())}",
        )  # fmt: skip


def _taken(jobs: Mapping[str, Callable[[], DataFrame]], rounds: int) -> dict[str, _Seconds]:
    """Run the jobs in turn, once without counting."""
    taken: dict[str, _Seconds] = {name: ([], []) for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            before = _cpu()
            run = run_to_end(job())
            if turn:
                taken[name][0].append(run.wall)
                taken[name][1].append(_cpu() - before)
    return taken


def _decoded(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return _followed(spark, bootstrap, topic, valueFormat="json", valueSchema=SCHEMA)


def _decoded_avro(spark: SparkSession, bootstrap: str, topic: str, registry: str) -> DataFrame:
    schema = json.dumps({"type": "record", "name": "Order", "fields": _READ})
    return _followed(spark, bootstrap, topic, valueFormat="avro", valueSchema=schema, schemaRegistry=registry)


def _followed(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    with_time = {"columns": "payload", "eventTimeColumn": "value:$.at", "maxOutOfOrderness": "30 seconds"}
    followed = follow_watermark(stream(spark, bootstrap, topic, OURS, **with_time, **options))
    return windows(followed.select("event_time", F.col("payload").alias("order")))


def _cpu() -> float:
    """Return the CPU seconds of this process and of all that it has started but the broker: the JVM, and workers."""
    seconds = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            used, command = process.cpu_times(), process.cmdline()
        except psutil.Error:
            continue
        if "kafka.Kafka" not in command:
            # With what its children used that have ended.
            seconds += used.user + used.system + used.children_user + used.children_system
    return seconds


if __name__ == "__main__":
    session = spark_session("payload", jars=spark_kafka_jars(), settings=recommended_conf())
    _, *_given, _rounds = sys.argv
    _jobs = {BUILT_IN: partial(as_today, session, *_given), OURS: partial(_decoded, session, *_given)}
    print(json.dumps(_taken(_jobs, int(_rounds))))
    session.stop()
