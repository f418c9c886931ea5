"""Queries over Kafka topics without Spark: a reader called as Spark calls it, its checkpoint and its rows kept here.

What a query of Spark costs in processes and plans it costs a hundred times over; what Spark itself does is not seen.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka
from tests.integration.kafka_streams import POSITION, Ranges, Seconds, batches_of, write
from tests.pacing import rest
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source.status_model.source_status import SourceStatus, Status
from watermark_source.status_model.status_json import status_from_json
from watermark_source_testing.driven_stream import Batch, batch_of
from watermark_source_testing.support import behind_pickle

_PLANS = 10
Offset = dict[str, Any]
Options = Mapping[str, str]


@dataclass
class Checkpoint:
    """What a query knows of itself over all its runs."""

    offsets: list[Offset] = field(default_factory=list)
    """Where it began, then the end of each batch."""
    batches: list[Batch] = field(default_factory=list)
    """Those that were done; the last one of ``offsets`` may not have been."""


class DirectQuery:
    """One run of a query. It continues while it is asked to."""

    def __init__(self, options: Options, kept: Checkpoint) -> None:
        self.schema = DefaultSource(dict(options)).schema()
        self.reader = behind_pickle(cast(AlignedStreamReader, DefaultSource(dict(options)).streamReader(self.schema)))
        self.limit = self.reader.getDefaultReadLimit()
        self.kept = kept

    def step(self, *, all_there_is: bool = False) -> bool:
        """Do the batch that is not done yet, or the next one; return whether there was one."""
        if not self.plan(all_there_is=all_there_is):
            return False
        offsets = self.kept.offsets
        self.kept.batches.append(batch_of(self.reader, offsets[-2], offsets[-1], self.schema))
        return True

    def plan(self, *, all_there_is: bool = False) -> bool:
        """Plan the next batch, unless one is not done yet; return whether there is one to be done."""
        offsets, done = self.kept.offsets, self.kept.batches
        if not offsets:
            offsets.append(_json(self.reader.initialOffset()))
        if len(offsets) == len(done) + 1:
            end = _json(self.reader.latestOffset(offsets[-1], ReadAllAvailable() if all_there_is else self.limit))
            if end == offsets[-1]:
                return False
            offsets.append(end)
        return True

    def process_all(self) -> None:
        """Continue until there is nothing new, by several plans: a busy broker may answer late."""
        without, end = 0, time.monotonic() + 200
        while without < _PLANS or any(view.status is Status.UNKNOWN for view in self.status.splits):
            assert time.monotonic() < end, "the broker does not answer"
            without = 0 if self.step() else without + 1

    def step_or_wait(self) -> None:
        """Do a batch if there is one, else wait longer than Spark does before it asks again."""
        begun = time.monotonic()
        if not self.step():
            rest(time.monotonic() - begun, 0.02, most=0.1)

    def run_until(self, condition: Callable[[], object], *, seconds: float = 200) -> None:
        """Continue until the condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s"
            self.step_or_wait()

    def run_for(self, seconds: float) -> None:
        """Continue for a while, one step at least."""
        end = time.monotonic() + seconds
        self.step_or_wait()
        while time.monotonic() < end:
            self.step_or_wait()

    @property
    def status(self) -> SourceStatus:
        """What Spark would show in its progress."""
        found = self.reader.reportLatestOffset()
        assert found is not None
        return status_from_json(_json(found))

    def stop(self) -> None:
        self.reader.stop()


@dataclass
class DirectKafka:
    """What a test needs to read from a broker as a query would."""

    bootstrap: str
    started: list[DirectQuery] = field(default_factory=list)
    _kept: dict[str, Checkpoint] = field(default_factory=dict)

    def source(self, **options: Any) -> Options:
        """Return a stream's options; it begins at earliest unless they say otherwise."""
        starting = {} if any(name.startswith("starting") for name in options) else {"startingOffsets": "earliest"}
        given = {"kafka.bootstrap.servers": self.bootstrap, **starting, **options}
        return {name: str(value) for name, value in given.items()}

    def write(self, topic: str, times: Mapping[int, Seconds], **options: Any) -> None:
        write(self.bootstrap, topic, times, **options)

    def start(self, options: Options, name: str) -> DirectQuery:
        """Begin a query, or continue with it in what is a new process to it."""
        self.started.append(DirectQuery(options, self._kept.setdefault(name, Checkpoint())))
        return self.started[-1]

    def continue_from(self, offset: Mapping[str, Any], name: str) -> None:
        """Let a query that has not begun continue where another checkpoint ends."""
        self._kept[name] = Checkpoint([dict(offset)])

    def run(self, options: Options, name: str) -> DirectQuery:
        """Run a query with all that is there now, as with the trigger ``AvailableNow``."""
        query = self.start(options, name)
        try:
            query.reader.prepareForTriggerAvailableNow()
            while query.step():
                pass
        finally:
            query.stop()
        return query

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the data rows that a query has read, as they came."""
        found = [batch.rows for batch in self._kept[name].batches]
        return pa.concat_tables(found if columns is None else [rows.select(list(columns)) for rows in found])

    def data(self, name: str, columns: Sequence[str] = POSITION) -> list[tuple[Any, ...]]:
        """Return the data rows that a query has read, in order of position."""
        if not self._kept[name].batches:
            return []
        rows = self.table(name, [*dict.fromkeys([*POSITION, *columns])])
        rows = rows.sort_by([(each, "ascending") for each in POSITION])
        return [*zip(*(rows[each].to_pylist() for each in columns), strict=True)]

    def markers(self, name: str) -> list[dict[str, Any]]:
        """Return the markers that a query has read."""
        return [marker for batch in self._kept[name].batches for marker in batch.markers]

    def offsets(self, name: str) -> list[Offset]:
        """Return the end of every batch."""
        return self._kept[name].offsets[1:]

    def batches(self, name: str) -> list[Ranges]:
        """Return the ranges each batch read."""
        return batches_of(self.offsets(name))

    def last_with_rows(self, name: str) -> int:
        """Return the number of the last batch that read anything."""
        return max(number for number, ranges in enumerate(self.batches(name)) if ranges)

    def die_in(self, name: str, batch: int) -> None:
        """Leave what a driver leaves that died in a batch, numbered from 0: it is planned, and not done."""
        kept = self._kept[name]
        del kept.offsets[batch + 2 :], kept.batches[batch:]

    def close(self) -> None:
        for query in self.started:
            query.stop()


def _json(offset: Mapping[str, Any]) -> Offset:
    return dict(json.loads(json.dumps(offset)))


@pytest.fixture
def direct(kafka: Kafka) -> Iterator[DirectKafka]:
    """Queries without Spark over topics of the run's broker."""
    made, former = DirectKafka(kafka.bootstrap), signal.getsignal(signal.SIGTERM)
    yield made
    made.close()
    # A source that has something to report at its end listens for it.
    signal.signal(signal.SIGTERM, former)
