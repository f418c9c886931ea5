"""Planning: what latestOffset and partitions take with few splits and with ten thousand, and the size of the offset."""

from __future__ import annotations

import json
import pickle
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.figures import Figure, spread
from pyspark_aligned_kafka import DefaultSource
from services.kafka import kafka_service
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_topics import create_topics
from watermark_source.planning.range_report import RangeReport, RowTotals
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis
from watermark_source.spark.executor.reading import send_reports
from watermark_source.spark.read_tasks import ReadTask

TARGETS = {8: 20.0, 10_000: 250.0}
"""Splits, and milliseconds for latestOffset and partitions together."""
OFFSET_BYTES = 50
"""A split."""
IDLE_SECONDS = 10.0
IDLE_SHARE = 5.0
"""Percent of a core."""

# The broker maps two index files of this size for each partition when it first looks up a time: of 10 MB each by
# default, which takes a minute for ten thousand.
_BROKER = {"log.index.size.max.bytes": "16384"}
_TOPIC_SPLITS = 100
_CREATED_AT_ONCE = 5
"""Topics: a broker takes its time to make them."""
_ROWS = 10
_TEN = 10
_POLL = 0.01
"""Seconds between two questions of an idle Spark."""
_LONGEST_PAUSE = 1.0
"""Seconds the runner waits before it looks again."""
_START = 1_700_000_000_000
_STEP = 10
"""Milliseconds of event time between two rows of a split."""
_BOUND = {"maxOutOfOrderness": "5 seconds"}
ALIGNED = {"alignmentGroup": "benchmark", "alignmentMaxDrift": "10 seconds"}


@dataclass
class Topics:
    """Topics whose rows have known event times."""

    bootstrap: str
    splits: tuple[Split, ...]
    written: dict[Split, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """In order."""
        return tuple(sorted({split.log for split in self.splits}))

    def write(self, splits: Iterable[Split], rows: int) -> None:
        """Append rows to each of the splits."""
        by_topic: dict[str, dict[int, PartitionRecords]] = {}
        for split in splits:
            first = self.written.get(split, 0)
            times = np.array([time_of(row) for row in range(first, first + rows)], dtype=np.int64)
            by_topic.setdefault(split.log, {})[split.number] = PartitionRecords(times, value_size=20)
            self.written[split] = first + rows
        for topic, records in by_topic.items():
            bulk_produce_partitions(self.bootstrap, topic, records)


def time_of(row: int) -> Millis:
    """Return the event time of a row, in every split."""
    return Millis(_START + row * _STEP)


def make_topics(bootstrap: str, count: int) -> Topics:
    """Create topics with so many splits in all, and a row in each."""
    each = min(count, _TOPIC_SPLITS)
    splits = tuple(Split(f"planning-{count}-{n // each:03}", n % each) for n in range(count))
    made = Topics(bootstrap, splits)
    for first in range(0, len(made.names), _CREATED_AT_ONCE):
        create_topics(bootstrap, made.names[first : first + _CREATED_AT_ONCE], each)
    made.write(splits, 1)
    return made


class PlannedQuery:
    """Calls a stream reader as the runner process does for Spark: offsets are JSON text, tasks are pickled."""

    def __init__(self, topics: Topics, options: Mapping[str, str]) -> None:
        given = {
            "kafka.bootstrap.servers": topics.bootstrap,
            "subscribe": ",".join(topics.names),
            **options,
        }
        source = DefaultSource(given)
        self._reader = source.streamReader(source.schema())
        self._limit = self._reader.getDefaultReadLimit()
        self.offset = json.dumps(self._reader.initialOffset())

    def look(self) -> str:
        """Ask for the next offset."""
        return json.dumps(self._reader.latestOffset(json.loads(self.offset), self._limit))

    def tasks(self, end: str) -> list[ReadTask]:
        """Ask for the work up to an offset."""
        tasks = self._reader.partitions(json.loads(self.offset), json.loads(end))
        for task in tasks:
            pickle.dumps(task)
        return list(tasks)  # type: ignore[arg-type]

    def status(self) -> str:
        """Ask for the status, as Spark does after every look."""
        return json.dumps(self._reader.reportLatestOffset())

    def settle(self) -> None:
        """Go on until a look is due, and finds nothing new: the last watermark waits for its interval."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _LONGEST_PAUSE:
            while (end := self.look()) != self.offset:
                self.run(end, self.tasks(end))
                quiet_since = time.monotonic()
            time.sleep(_POLL)

    def plan(self) -> float:
        """Plan one batch and report its rows; return the milliseconds that planning took."""
        begun = time.perf_counter()
        end = self.look()
        tasks = self.tasks(end)
        took = (time.perf_counter() - begun) * 1_000
        self.run(end, tasks)
        return took

    def run(self, end: str, tasks: Iterable[ReadTask]) -> None:
        """Report what the tasks of the batch would have seen, and take its end for the next start."""
        for task in tasks:
            reports = [RangeReport(r, time_of(r.end - 1), RowTotals(read=r.size)) for r in task.ranges]
            if reports and (task.report_to is None or not send_reports(task.report_to, reports)):
                raise RuntimeError("the runner took no report")
        self.offset = end

    def close(self) -> None:
        self._reader.stop()


def planning(rounds: int) -> Iterator[Figure]:
    """Plan with few splits and with many: rows in all of them, in ten, in none."""
    with kafka_service(config=_BROKER) as kafka:
        for count in TARGETS:
            print(f"making {count} splits …", flush=True)
            yield from measured(make_topics(kafka.bootstrap, count), rounds)


def measured(topics: Topics, rounds: int, variants: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[Figure]:
    """Measure with alignment and a limit of rows, with one of them, and with none; or with other options."""
    count = len(topics.splits)
    limited = {"maxOffsetsPerTrigger": str(count * _ROWS // 2)}
    usual = {"plain": {}, "limited": limited, "aligned": ALIGNED, "aligned, limited": {**ALIGNED, **limited}}
    for label, options in (variants or usual).items():
        query = PlannedQuery(topics, {**_BOUND, **options})
        try:
            query.settle()
            for changed in dict.fromkeys((topics.splits, topics.splits[:: max(1, count // _TEN)])):
                yield _planned(query, topics, changed, f"{count} splits, {label}", rounds)
            yield _idle(query, f"{count} splits, {label}")
            if label == "plain":
                yield from _sizes(query, count)
        finally:
            query.close()


def _planned(query: PlannedQuery, topics: Topics, changed: tuple[Split, ...], label: str, rounds: int) -> Figure:
    """Plan batch after batch, each with the reports of the one before and with new rows."""
    took: list[float] = []
    laid: list[float] = []
    used: list[float] = []
    for _ in range(rounds + 1):
        topics.write(changed, _ROWS)
        used_before, begun = time.process_time(), time.perf_counter()
        end = query.look()
        planned = time.perf_counter()
        tasks = query.tasks(end)
        took.append((planned - begun) * 1_000)
        laid.append((time.perf_counter() - planned) * 1_000)
        used.append((time.process_time() - used_before) * 1_000)
        query.run(end, tasks)
    query.settle()
    both = [a + b for a, b in zip(took[1:], laid[1:], strict=True)]
    return Figure(
        f"{label}: planning with rows in {len(changed)}", statistics.median(both), "ms",
        at_most=TARGETS[len(topics.splits)],
        detail=f"latestOffset {spread(took[1:], 1)}, partitions {spread(laid[1:], 1)}; CPU {spread(used[1:], 1)}",
    )  # fmt: skip


def _idle(query: PlannedQuery, label: str) -> Figure:
    """Measure the process while Spark asks and there is nothing."""
    time.sleep(_LONGEST_PAUSE)
    used_before, begun, looks = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - begun < IDLE_SECONDS:
        if query.look() != query.offset:
            raise RuntimeError("a batch without rows")
        query.status()
        looks += 1
        time.sleep(_POLL)
    used, passed = time.process_time() - used_before, time.perf_counter() - begun
    return Figure(
        f"{label}: CPU while idle", 100 * used / passed, "% of a core", at_most=IDLE_SHARE,
        detail=f"{looks} looks in {passed:.0f} s, {1_000 * used / looks:.1f} ms of CPU each",
    )  # fmt: skip


def _sizes(query: PlannedQuery, count: int) -> Iterator[Figure]:
    splits = len(json.dumps(json.loads(query.offset)["splits"]))
    yield Figure(
        f"{count} splits: offset", splits / count, "bytes a split", at_most=OFFSET_BYTES,
        detail=f"{len(query.offset)} in all",
    )  # fmt: skip
    yield Figure(f"{count} splits: status in a progress", len(query.status()) / 1_024, "KiB")
