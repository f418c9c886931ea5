"""Kill -9 of a driver that states what is complete: at no moment does a reader see a time ahead of the rows."""

from __future__ import annotations

import logging
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.completeness_reader import Reader, counts_in, write_for_kills
from tests.integration.delta_tables import files_of_table
from tests.integration.killed_delta_driver import DeltaJob
from tests.integration.killed_driver import KilledJob
from tests.integration.killed_publishing_driver import FILES, CountingJob, PublishingJob
from tests.integration.killed_runs import batches, files_of, kill_once, last_commit, started, wait_for
from tests.integration.test_platform_envelope import platform  # noqa: F401 - a fixture
from tests.unit.test_wheel import checkout  # noqa: F401 - a fixture
from watermark_source.publishing.places import holder_at

_log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
BATCH_ROWS = 50

pytestmark = [pytest.mark.service, pytest.mark.timeout(14_400)]


def counts_in_files(table: Path) -> dict[int, int]:
    """Return what a reader of the table sees: the files of its log."""
    entries = [entry for entry in (table / "_spark_metadata").glob("[0-9]*") if entry.suffix != ".crc"]
    return counts_in({file for entry in entries for file in files_of(entry)})


def counts_in_database(file: Path) -> dict[int, int]:
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        return dict(connection.execute("SELECT * FROM counts"))


def kill_in_the_trap(job: KilledJob) -> None:
    """Kill a driver of which a query has written the rows of a batch, and is about to state so, or to commit it."""
    trap, trapped = job.folder / "trap", job.folder / "trapped"
    trap.touch()
    with started(job) as driver:
        wait_for(trapped.exists, driver, "a batch without its mark")
    trap.unlink()
    trapped.unlink()


def kill_and_run_to_the_end(
    job: CountingJob, table: str, reader: Reader, kills: int, chance: random.Random, last: int
) -> None:
    """Kill the driver so many times, every second one in its trap, and read what is left in large batches.

    ``table`` names the query whose mark is asked for its batch after each kill.
    """
    stated, behind = None, 0
    with reader.looking():
        for number in range(kills):
            if number % 2:
                kill_once(job, chance, most_batches=3)
            else:
                kill_in_the_trap(job)
            holder = holder_at(job.sink(table))
            mark = None if holder is None or holder.mark is None else holder.mark.batch
            if mark is not None and batches(job, "commits"):
                # By the batch that the driver had in hand; one that was killed before it had stated any leaves what it
                # has committed to the next.
                most = 1 if mark != stated else behind + 1
                stated, behind = mark, last_commit(job, table) - mark
                assert behind <= most
        with started(replace(job, batch_rows=str(50 * BATCH_ROWS))) as driver:
            wait_for(lambda: reader.has_seen(last), driver, "the last mark", patience=3_600)
    reader.look()
    assert reader.ahead == []
    assert [counts() for counts in reader.tables.values()] == [reader.truth] * len(reader.tables)
    _log.info("%d kills; %d looks, none of them ahead of the rows", kills, reader.looks)


@pytest.mark.long("test_what_a_batch_states_of_a_database_is_in_the_transaction_of_its_rows")
def test_a_table_is_never_said_to_be_complete_before_it_is_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kills, seed = request.config.getoption("--announcing-kills"), request.config.getoption("--kills-seed")
    chance = random.Random(seed)
    truth, last = write_for_kills(tmp_path / "data", chance, kills, BATCH_ROWS)
    job = PublishingJob("local[2]", tmp_path, str(BATCH_ROWS))
    with closing(sqlite3.connect(job.database)) as connection:
        connection.execute("CREATE TABLE counts (at BIGINT PRIMARY KEY, n BIGINT)")
        connection.execute(
            "CREATE TABLE watermark_completeness (table_name VARCHAR(255), writer VARCHAR(255), complete_until BIGINT, "
            "mark VARCHAR(4000), PRIMARY KEY (table_name, writer))"
        )
    files, database = job.sink(FILES), job.database
    tables = {
        str(files): lambda: counts_in_files(files),
        f"sqlite:///{database}#counts": lambda: counts_in_database(database),
    }
    kill_and_run_to_the_end(job, FILES, Reader(tables, truth), kills, chance, last)


@pytest.mark.long("test_what_a_batch_states_of_a_database_is_in_the_transaction_of_its_rows")
def test_a_delta_table_is_never_said_to_be_complete_before_it_is_and_has_each_window_once(
    request: pytest.FixtureRequest,
    platform: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    kills, seed = request.config.getoption("--announcing-kills"), request.config.getoption("--kills-seed")
    chance = random.Random(seed)
    truth, last = write_for_kills(tmp_path / "data", chance, kills, BATCH_ROWS)
    imports = tmp_path / "imports"
    imports.mkdir()
    for name in ("tests", "services", "examples"):
        (imports / name).symlink_to(ROOT / name)
    job = DeltaJob("local[2]", tmp_path, str(BATCH_ROWS), str(platform / "bin" / "python"))
    table = job.sink(job.names[0])
    reader = Reader({str(table): lambda: counts_in(files_of_table(table))}, truth)
    kill_and_run_to_the_end(job, job.names[0], reader, kills, chance, last)
