"""What a task needs in memory: the same for a short transaction and a long one, few changes behind a chunk and many."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from services.mysql import MySql
from tests.integration.mysql_binlog import DEEP_RECURSION, Database, new_database, root

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

_READ = """
import sys
from pathlib import Path
from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.source import MySqlSource
from watermark_source.planning.snapshot_ranges import Chunk, SnapshotBatch, snapshot_split
from watermark_source.planning.split import SplitRange
port, table, what, start, end = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
given = {"hostname": "127.0.0.1", "port": port, "username": "root", "tables": table}
reader = MySqlSource.of(mysql_options.parse(given)).range_reader
if what == "binlog":
    batches = reader.read([SplitRange(BINLOG, start, end)])
else:
    wanted = SplitRange(snapshot_split(table), 0, 1)
    batch = SnapshotBatch({}, frozenset(), {wanted: Chunk(None, None)}, {BINLOG: start})
    batches = reader.read_during_snapshot([wanted], batch)
rows = sum(batch.rows for batch in batches)
# Not ru_maxrss: a process begins with that of the one that started it.
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(rows, int(peak) // 1024)
"""
_WIDE = "CREATE TABLE {} (id INT PRIMARY KEY AUTO_INCREMENT, body VARBINARY(1024))"


def _place(database: Database) -> int:
    with closing(MySqlConnection(root(database.server))) as connection:
        return LogStatus(connection).end().number


def _read(database: Database, table: str, what: str, start: int, end: int) -> tuple[int, int]:
    """Return rows, and the most memory, MB, of a process that read them."""
    arguments = (str(database.server.port), f"{database.name}.{table}", what, str(start), str(end))
    command = [sys.executable, "-c", _READ, *arguments]
    rows, peak = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout.split()
    return int(rows), int(peak)


def _numbers(count: int) -> str:
    return f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT"


@pytest.fixture(scope="module", autouse=True)
def _compiled(mysql: MySql) -> None:
    """In a fresh checkout the first read compiles, which takes memory of its own."""
    with new_database(mysql) as database:
        start = _place(database)
        database.run(_WIDE.format("t"), "INSERT INTO t (body) VALUES ('a')")
        end = _place(database)
        assert _read(database, "t", "binlog", start, end)[0] == _read(database, "t", "chunk", end, end)[0] == 1


@pytest.mark.parametrize(
    "compressed",
    [
        "OFF",
        pytest.param(
            "ON", marks=[pytest.mark.needs_mysql("does not compress transactions"), pytest.mark.long("as it is")]
        ),
    ],
)
def test_memory_does_not_grow_with_a_transaction(mysql_database: Database, compressed: str) -> None:
    peaks = []
    for count in (1_000, 80_000):
        table = f"t_{count}"
        mysql_database.run(_WIDE.format(table))
        start = _place(mysql_database)
        mysql_database.run(
            DEEP_RECURSION,
            *(["SET SESSION binlog_transaction_compression = ON"] if compressed == "ON" else []),
            f"INSERT INTO {table} (body) {_numbers(count)} RANDOM_BYTES(1024) FROM n",
        )
        rows, peak = _read(mysql_database, table, "binlog", start, _place(mysql_database))
        assert rows == count
        peaks.append(peak)
    short, long = peaks
    # Kept whole, the transaction would be 82 MB, packed and again unpacked. A packet is 16 MB.
    assert long < short + 60
    assert long < 400


def test_memory_does_not_grow_with_the_rows_that_were_changed_behind_a_chunk(mysql_database: Database) -> None:
    database = mysql_database
    count = 60_000
    database.run(
        _WIDE.format("t"), DEEP_RECURSION,
        f"INSERT INTO t (body) {_numbers(count)} RANDOM_BYTES(1024) FROM n",
    )  # fmt: skip
    start = _place(database)
    peaks = []
    for changed in (1_000, count):
        database.run(f"UPDATE t SET body = CONCAT('x', RIGHT(body, 1023)) WHERE id <= {changed}")
        rows, peak = _read(database, "t", "chunk", start, start)
        assert rows == count
        peaks.append(peak)
    few, many = peaks
    # Kept whole, the rows as they were would be 61 MB.
    assert many < few + 35
    assert many < 400


def test_memory_does_not_grow_with_a_chunk(mysql_database: Database) -> None:
    peaks = []
    for count in (1_000, 80_000):
        table = f"c_{count}"
        mysql_database.run(
            _WIDE.format(table), DEEP_RECURSION,
            f"INSERT INTO {table} (body) {_numbers(count)} RANDOM_BYTES(1024) FROM n",
        )  # fmt: skip
        start = _place(mysql_database)
        rows, peak = _read(mysql_database, table, "chunk", start, start)
        assert rows == count
        peaks.append(peak)
    short, long = peaks
    # Kept whole, the chunk would be 82 MB.
    assert long < short + 45
    assert long < 400
