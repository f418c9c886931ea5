"""A batch job that reads an hour once it is complete, over random histories, against the recompute of all rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.spark.file_log import FileLogDataSource, append
from tests.spark.queries import START
from watermark_source import complete_until
from watermark_source.planning.watermark import Millis
from watermark_source.publishing.folder import Folder
from watermark_source.publishing.table_target import TableTarget
from watermark_source_testing.driven_stream import Offset, Stream

HOUR_MS = 3_600_000
BOUND_MS = 600_000
WRITERS = ("one", "other")
PARTITIONS = 4


@dataclass
class Query:
    """Hourly counts of a file log as Spark makes them: a batch applies the watermark of the batch before it."""

    name: str
    folder: Path
    chance: random.Random
    written: list[int] = field(default_factory=list)
    late: Counter[int] = field(default_factory=Counter)
    applied: int | None = None
    coming: int | None = None
    counts: Counter[int] = field(default_factory=Counter)
    batch: int = -1
    at: Offset | None = None
    runs: int = 0
    now: list[int] = field(default_factory=lambda: [START] * PARTITIONS)

    def start(self, stack: ExitStack) -> None:
        """Begin a run of its checkpoint."""
        options = {
            "directory": str(self.folder / self.name), "startingOffsets": "earliest", "idleTimeout": "1 ms",
            "maxOutOfOrderness": f"{BOUND_MS} ms",
        }  # fmt: skip
        harness = SimpleNamespace(source=FileLogDataSource, options=options)
        self.stream = stack.enter_context(closing(Stream(cast(Any, harness))))
        self.at = self.at or self.stream.initial()
        self.runs += 1
        self.target = TableTarget(Folder.at(self.folder / "table"), f"run-{self.runs}", "file:/none", None)
        self.target.prepare(self.name, f"query of {self.name}")

    def produce(self) -> None:
        """Write some rows: partitions differ in pace, one is silent at times, and some rows are late."""
        for number in range(PARTITIONS):
            if self.chance.random() < 0.2 * number:
                continue
            self.now[number] += self.chance.randrange(2 * HOUR_MS // (number + 1))
            behind = 20 * BOUND_MS if self.chance.random() < 0.1 else BOUND_MS
            times = [self.now[number] - self.chance.randrange(behind) for _ in range(self.chance.randrange(1, 6))]
            append(self.folder / self.name, number, [(at, 0) for at in times])
            self.written += times

    def run_batch(self, *, is_killed: bool) -> None:
        """Run a batch; one that is killed has committed its rows, and stated nothing."""
        assert self.at is not None
        end = self.stream.plan(self.at)
        found = self.stream.read(self.at, end) if end != self.at else None
        self.at, self.batch, self.applied = end, self.batch + 1, self.coming
        for row in [] if found is None else found.rows.to_pylist():
            at = round(row["event_time"].timestamp() * 1_000)
            hour = at // HOUR_MS * HOUR_MS
            is_late = self.applied is not None and hour + HOUR_MS <= self.applied
            (self.late if is_late else self.counts)[hour] += 1
        closed = [hour for hour in self.counts if self.applied is not None and hour + HOUR_MS <= self.applied]
        (self.folder / "table" / f"{self.name}-{self.batch}.json").write_text(
            json.dumps({hour: self.counts.pop(hour) for hour in closed})
        )
        # A marker of another type states a split's own watermark.
        for marker in [] if found is None else found.markers:
            if marker["type"] == "watermark":
                self.coming = round(marker["watermark"].timestamp() * 1_000)
        if not is_killed:
            self.target.announce(
                self.name, f"query of {self.name}", self.batch, None if self.applied is None else Millis(self.applied)
            )

    def on_time(self) -> Counter[int]:
        return Counter(at // HOUR_MS * HOUR_MS for at in self.written) - self.late


def hours_in(table: Path, until: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for file in table.glob("*.json"):
        found.update({int(hour): count for hour, count in json.loads(file.read_text()).items()})
    return Counter({hour: count for hour, count in found.items() if hour + HOUR_MS <= until})


def as_bytes(hours: Counter[int]) -> bytes:
    return json.dumps(sorted(hours.items())).encode()


def gated_history(folder: Path, seed: int) -> tuple[int, int]:
    """Run two writers and a gated job; return how many hours it has read, and how many rows were late."""
    chance = random.Random(seed)
    (folder / "table").mkdir(parents=True)
    queries = [Query(name, folder, chance) for name in WRITERS]
    read: list[tuple[int, bytes]] = []
    with ExitStack() as stack:
        for query in queries:
            query.produce()
            query.start(stack)
        for _ in range(8):
            for query in queries:
                query.produce()
                for _ in range(chance.randrange(1, 4)):
                    if is_killed := chance.random() < 0.2:
                        query.run_batch(is_killed=True)
                        query.start(stack)
                    else:
                        query.run_batch(is_killed=is_killed)
                    moment = complete_until(folder / "table", WRITERS)
                    if moment is not None:
                        until = round(moment.timestamp() * 1_000)
                        assert not read or until >= read[-1][0]
                        read.append((until, as_bytes(hours_in(folder / "table", until))))
    truth = queries[0].on_time() + queries[1].on_time()
    for until, seen in read:
        assert seen == as_bytes(Counter({hour: n for hour, n in truth.items() if hour + HOUR_MS <= until})), until
    return len(json.loads(read[-1][1])) if read else 0, sum(query.late.total() for query in queries)


def test_a_job_that_waits_until_an_hour_is_complete_reads_what_the_recompute_of_all_rows_has(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    histories = max(3, request.config.getoption("--histories"))
    found = [gated_history(tmp_path / str(seed), seed) for seed in range(histories)]
    # They are about something: most have hours that are read, and late rows.
    assert sum(hours > 3 for hours, _ in found) > histories / 2
    assert sum(late > 0 for _, late in found) > histories / 2
