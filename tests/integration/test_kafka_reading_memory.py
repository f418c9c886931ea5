"""What a task needs in memory: the same for a short range and a long one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np

from services.kafka import Kafka
from services.kafka_bulk import bulk_produce

_READ = """
import sys
from pathlib import Path
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from watermark_source.planning.split import Split, SplitRange
bootstrap, topic, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
reader = KafkaSource(kafka_options.parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})).range_reader
rows = sum(batch.rows for batch in reader.read([SplitRange(Split(topic, 0), 0, end)]))
# Not ru_maxrss: a process begins with that of the one that started it.
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(rows, int(peak) // 1024)
"""


def _peak_mb(bootstrap: str, topic: str, end: int) -> int:
    command = [sys.executable, "-c", _READ, bootstrap, topic, str(end)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout
    rows, peak = map(int, printed.split())
    assert rows == end
    return peak


def test_memory_does_not_grow_with_the_range(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    bulk_produce(kafka.bootstrap, topic, 0, np.arange(1_500_000, dtype=np.int64))
    # In a fresh checkout the first read compiles, which takes memory of its own.
    _peak_mb(kafka.bootstrap, topic, 10)
    short, long = _peak_mb(kafka.bootstrap, topic, 150_000), _peak_mb(kafka.bootstrap, topic, 1_500_000)
    # Kept whole, the rows of the long range would be 150 MB and more.
    assert long < short + 25
    assert long < 400
