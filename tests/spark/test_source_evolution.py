"""Sources added and removed under a checkpoint, and Spark's newer formats of state: each row once, windows exact."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import Streams, at
from watermark_source import follow_clock, follow_watermark
from watermark_source.errors import UsageError
from watermark_source.operators.followed_time import ROCKSDB, STATE_STORE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(7_200)]

_log = logging.getLogger(__name__)
EVOLUTION = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
STORES: Sequence[Mapping[str, str]] = (
    {STATE_STORE: ROCKSDB, CHANGELOG: "true", FORMAT: "2"},
    {},
    {STATE_STORE: ROCKSDB, CHANGELOG: "true"},
    {STATE_STORE: ROCKSDB},
)
MINUTE = 60


@pytest.fixture
def evolving(streams: Streams) -> Iterator[Streams]:
    yield from with_settings(streams, EVOLUTION)


def with_settings(streams: Streams, settings: Mapping[str, str]) -> Iterator[Streams]:
    for name, value in settings.items():
        streams.spark.conf.set(name, value)
    yield streams
    streams.stop()
    for name in settings:
        streams.spark.conf.unset(name)


def named(streams: Streams, name: str) -> DataFrame:
    options = {"directory": str(streams.directory(name)), "startingOffsets": "earliest", "sourceName": name}
    return streams.spark.readStream.format("file-log").name(name).options(**options).load()


def minutes(streams: Streams, names: Sequence[str]) -> DataFrame:
    first, *others = (follow_watermark(named(streams, n)).select("value", "event_time") for n in names)
    rows = first
    for other in others:
        rows = rows.union(other)
    window = F.window("event_time", "1 minute").alias("w")
    return rows.groupBy(window).agg(F.collect_list("value").alias("v")).select("w.start", "v")


@dataclass
class History:
    """A query that gains and loses sources between its runs, and what its windows have to be."""

    streams: Streams
    drawn: random.Random
    name: str
    redo: Callable[[str], object]
    """Leaves what a driver leaves that died in the last batch of a query, which is repeated then."""
    sources: list[str] = field(default_factory=list)
    highest: dict[str, list[int]] = field(default_factory=dict)
    """By source, the highest event time of each of its splits."""
    watermark: int = 0
    """Spark's, in seconds; the millisecond that it is earlier is left out."""
    values: int = 0
    on_time: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Minute and value."""

    def run(self) -> None:
        """Change the sources, write rows, and run the query to its end."""
        repeats = bool(self.highest) and self.drawn.random() < 0.3
        if repeats:
            self.redo(self.name)
        # What a batch read that is repeated is not taken away from it.
        if not repeats and len(self.sources) > 1 and self.drawn.random() < 0.6:
            self.sources.remove(self.drawn.choice(self.sources))
        while not self.sources or self.drawn.random() < 0.4:
            self.sources.append(f"{self.name}_{len(self.highest)}")
            self.highest[self.sources[-1]] = [0, 0]
        self.drawn.shuffle(self.sources)
        for source in self.sources:
            self._write(source, self.drawn.randint(0, 4))
        self._go()

    def end(self) -> None:
        """Close every window that has rows."""
        end = (max(map(max, self.highest.values())) // MINUTE + 2) * MINUTE
        for source in self.sources:
            self._write(source, 0, at_the_end=end)
        self._go()

    def _write(self, source: str, rows: int, *, at_the_end: int | None = None) -> None:
        tops = self.highest[source]
        for split in range(2):
            times = [at_the_end] if at_the_end is not None else [
                # A new source has rows that are late, too: the query's watermark is further.
                max(0, tops[split] + self.drawn.randint(1, 90)) for _ in range(max(1, rows))
            ]  # fmt: skip
            written = []
            for time in times:
                self.values += 1
                written.append((float(time), self.values))
                # An aggregation drops what is in a window that has ended.
                if (time // MINUTE + 1) * MINUTE >= self.watermark or not self.watermark:
                    self.on_time[time // MINUTE, self.values] += 1
            tops[split] = max(tops[split], *times)
            self.streams.write({split: written}, name=source)

    def _go(self) -> None:
        self.streams.run(minutes(self.streams, self.sources), self.name)
        self.watermark = max(self.watermark, min(min(self.highest[source]) for source in self.sources))
        assert max(self.streams.committed(self.name).values()) == self.watermark * 1_000 - 1

    def check(self) -> None:
        found = self.streams.result(self.name).collect()
        starts = [row.start for row in found]
        assert len(starts) == len(set(starts)), "a window came twice"
        closed = {m: sorted(v for minute, v in self.on_time if minute == m) for m, _ in self.on_time}
        wanted = {at(m * MINUTE): v for m, v in closed.items() if (m + 1) * MINUTE < self.watermark}
        assert {row.start: sorted(row.v) for row in found} == wanted


def is_exact(streams: Streams, seed: int, store: Mapping[str, str], *, runs: int) -> None:
    _log.info("history %d with %s", seed, store)
    for each in with_settings(streams, store):
        # A file sink passes over a batch that it has, and Spark misses its state in this format then.
        redo = died_before_the_sink(each) if FORMAT in store else each.uncommit
        history = History(each, random.Random(seed), f"history_{seed}", redo)
        for _ in range(runs):
            history.run()
        history.end()
        history.check()


def died_before_the_sink(streams: Streams) -> Callable[[str], None]:
    return lambda name: streams.forget(name, max(streams.committed(name)))


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long("the first of them"))])
def test_windows_are_exact_while_sources_come_and_go(
    evolving: Streams, request: pytest.FixtureRequest, number: int
) -> None:
    is_exact(evolving, request.config.getoption("--histories-seed") + number, STORES[number], runs=3)


@pytest.mark.long("test_windows_are_exact_while_sources_come_and_go")
@pytest.mark.parametrize("number", range(50))
def test_long_histories_are_exact(evolving: Streams, request: pytest.FixtureRequest, number: int) -> None:
    is_exact(evolving, request.config.getoption("--histories-seed") + number, STORES[number % len(STORES)], runs=6)


def test_a_removed_source_that_comes_back_is_refused_and_a_new_one_behind_the_watermark_named(
    evolving: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        evolving.write({0: [(0, 1), (90, 2)]}, name=name)
    evolving.run(minutes(evolving, ["a"]), "q")
    assert caplog.messages == []
    evolving.run(minutes(evolving, ["b", "a"]), "q")
    (late,) = caplog.messages
    assert late.startswith("b is new in this query, whose watermark is 2023-11-14 22:14:29.999: windows")
    evolving.run(minutes(evolving, ["b"]), "q")
    (evolving.checkpoint("q") / "offsets" / "0.copy").write_text("a file that Spark passes over")
    with pytest.raises(UsageError, match=r'^a was removed .*\n?.*readStream\.name\("a_2"\)'):
        evolving.run(minutes(evolving, ["b", "a"]), "q")


@pytest.mark.long("test_each_row_has_the_time_of_its_batch_also_when_the_batch_is_repeated")
def test_streams_on_the_clock_of_their_batches_evolve(evolving: Streams) -> None:
    def clocked() -> DataFrame:
        return follow_clock(evolving.spark.readStream.format("rate").name("rate").load()).select("event_time")

    for _ in range(2):
        evolving.run(clocked(), "clock")
    evolving.uncommit("clock")
    for _ in range(2):
        evolving.run(clocked(), "clock")
    reached = list(evolving.committed("clock").values())
    assert len(reached) > 2
    assert reached == sorted(reached)
    assert reached[0] < reached[-1]


def test_no_row_is_lost_where_spark_logs_not_every_batch(streams: Streams) -> None:
    """Asynchronous progress tracking: what is repeated after a restart may span several batches."""
    found: list[tuple[int, int]] = []
    streams.write({0: [], 1: []})
    for run in range(2):
        writer = follow_watermark(streams.load()).writeStream.foreachBatch(
            lambda rows, batch: found.extend((batch, row.value) for row in rows.collect())
        )
        query = (
            writer.option("asyncProgressTrackingEnabled", "true")
            .option("asyncProgressTrackingCheckpointIntervalMs", "600000")
            .option("_asyncProgressTrackingOverrideSinkSupportCheck", "true")
            .option("checkpointLocation", str(streams.checkpoint("async")))
            .start()
        )
        streams.started.append(query)
        for step in range(3):
            second = 100 * run + 10 * step
            streams.write({0: [(second, second)], 1: [(second + 1, second + 1)]})
            query.processAllAvailable()
        query.stop()
    assert {value for _, value in found} == {100 * r + 10 * s + k for r in range(2) for s in range(3) for k in range(2)}
