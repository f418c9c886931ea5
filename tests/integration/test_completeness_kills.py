"""Kill -9 of a driver that states what is complete: at no moment does a reader see a time ahead of the rows."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.killed_publishing_driver import DATABASE, DISORDER_SECONDS, FILES, WINDOW_SECONDS, PublishingJob
from tests.integration.killed_runs import files_of, kill_once, last_commit, started, wait_for
from tests.spark.queries import START, write
from watermark_source import complete_until
from watermark_source.publishing.places import holder_at

_log = logging.getLogger(__name__)
pytestmark = [pytest.mark.service, pytest.mark.timeout(14_400)]


def counts_in_files(table: Path) -> dict[int, int]:
    """Return what a reader of the table sees: the files of its log."""
    entries = [entry for entry in (table / "_spark_metadata").glob("[0-9]*") if entry.suffix != ".crc"]
    files = {file for entry in entries for file in files_of(entry)}
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len({row["end"] for row in rows}) == len(rows)
    return {row["end"]: row["count"] for row in rows}


def counts_in_database(file: Path) -> dict[int, int]:
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        return dict(connection.execute("SELECT * FROM counts"))


@dataclass
class Reader:
    """Looks all the time at what is complete, and then at the rows."""

    job: PublishingJob
    truth: Mapping[int, int]
    looks: int = 0
    ahead: list[str] = field(default_factory=list)
    last: dict[str, datetime] = field(default_factory=dict)

    def look(self) -> None:
        database = self.job.database
        places = {FILES: str(self.job.sink(FILES)), DATABASE: f"sqlite:///{database}#counts"}
        for name, place in places.items():
            until = complete_until(place)
            if until is None:
                continue
            self.looks += 1
            if until < self.last.get(name, until):
                self.ahead.append(f"{name} went back from {self.last[name]} to {until}")
            self.last[name] = until
            seen = counts_in_files(self.job.sink(FILES)) if name == FILES else counts_in_database(database)
            end = until.timestamp() * 1_000
            if missing := {at: n for at, n in self.truth.items() if at <= end and seen.get(at) != n}:
                self.ahead.append(f"{name} is complete until {until}, without {missing}")


@contextmanager
def looking(reader: Reader) -> Iterator[None]:
    is_done, failed = threading.Event(), list[BaseException]()

    def look() -> None:
        try:
            while not is_done.is_set():
                reader.look()
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
    if failed:
        raise failed[0]


def kill_between_rows_and_mark(job: PublishingJob) -> None:
    """Kill a driver that has written the rows of a batch, and is about to state so."""
    trap, trapped = job.folder / "trap", job.folder / "trapped"
    trap.touch()
    with started(job) as driver:
        wait_for(trapped.exists, driver, "a batch without its mark")
    trap.unlink()
    trapped.unlink()


@pytest.mark.long("test_what_a_batch_states_of_a_database_is_in_the_transaction_of_its_rows")
def test_a_table_is_never_said_to_be_complete_before_it_is_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kills, seed = request.config.getoption("--announcing-kills"), request.config.getoption("--kills-seed")
    chance, batch_rows = random.Random(seed), 50
    rows = batch_rows * (10 + 8 * kills) // 2
    times = {p: [n / 3 + chance.uniform(0, 0.9 * DISORDER_SECONDS) for n in range(rows)] for p in range(2)}
    # The last row of each partition ends all windows before it.
    for found in times.values():
        found.append(rows / 3 + 1_000)
    length = 1_000 * WINDOW_SECONDS
    stamps = [START + round(1_000 * t) for found in times.values() for t in found[:-1]]
    truth = Counter((at // length + 1) * length for at in stamps)
    job = PublishingJob("local[2]", tmp_path, str(batch_rows))
    write(tmp_path / "data", {p: [(t, n) for n, t in enumerate(found)] for p, found in times.items()})
    with closing(sqlite3.connect(job.database)) as connection:
        connection.execute("CREATE TABLE counts (at BIGINT PRIMARY KEY, n BIGINT)")
        connection.execute(
            "CREATE TABLE watermark_completeness (table_name VARCHAR(255), writer VARCHAR(255), complete_until BIGINT, "
            "mark VARCHAR(4000), PRIMARY KEY (table_name, writer))"
        )
    reader, last = Reader(job, truth), START + round(1_000 * (rows / 3 + 1_000)) - 1_000 * DISORDER_SECONDS - 1
    with looking(reader):
        for number in range(kills):
            if number % 2:
                kill_once(job, chance, most_batches=3)
            else:
                kill_between_rows_and_mark(job)
            if (holder := holder_at(job.sink(FILES))) is not None and holder.mark is not None:
                # Behind by the batch after whose commit the driver was killed, and the one that it had in hand.
                assert holder.mark.batch is None or last_commit(job, FILES) - holder.mark.batch <= 1
        with started(job) as driver:
            places = (job.sink(FILES), f"sqlite:///{job.database}#counts")
            wait_for(
                lambda: all((at := complete_until(p)) is not None and at.timestamp() * 1_000 >= last for p in places),
                driver, "the last mark", patience=3_600,
            )  # fmt: skip
    reader.look()
    assert reader.ahead == []
    assert counts_in_files(job.sink(FILES)) == counts_in_database(job.database) == truth
    _log.info("%d kills; %d looks, none of them ahead of the rows", kills, reader.looks)
