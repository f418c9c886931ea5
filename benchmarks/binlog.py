"""How many changes a second come out of a binlog: this connector's decoder beside mysql-replication's bare reader.

    python -m benchmarks.binlog [--changes 200000]

Both read the same changes of one table from a local server over a socket; neither does anything with them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

from pyspark_mysql_cdc_wm.client.charsets import charsets_of
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.settings import ClientSettings
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from services.mysql import MySql, mysql_service
from services.mysql_client import run

_TABLE = (
    "CREATE TABLE bench.orders (id BIGINT PRIMARY KEY, customer INT UNSIGNED, amount DECIMAL(12,2), state VARCHAR(20),"
    " at DATETIME(6), changed TIMESTAMP(3) NULL, weight DOUBLE, flags SMALLINT, name VARCHAR(40), note VARCHAR(60))"
)
_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {end})"
_SELECT = (
    " SELECT i, i % 5000, i / 7, ELT(1 + i % 3, 'new', 'paid', 'sent'),"
    " '2024-05-07 12:30:15.123456' + INTERVAL i SECOND, '2024-05-07 12:30:15.123', i / 3, i % 100,"
    " CONCAT('customer ', i), REPEAT('n', i % 60) FROM n"
)
_STEP = 1000


def fill(server: MySql, changes: int) -> FilePosition:
    """Insert half of ``changes`` rows and update them, a thousand a transaction; return where the binlog was before."""
    run(server.host, server.port, "CREATE DATABASE bench", _TABLE, "FLUSH BINARY LOGS")
    ((file, position, *_),) = run(server.host, server.port, "SHOW BINARY LOG STATUS")
    firsts = range(0, changes // 2, _STEP)
    numbers = [_NUMBERS.format(first=first, end=first + _STEP) for first in firsts]
    inserts = [f"INSERT INTO bench.orders {each} {_SELECT}" for each in numbers]
    changed = "UPDATE bench.orders SET amount = amount + 1, state = 'done'"
    updates = [f"{changed} WHERE id >= {first} AND id < {first + _STEP}" for first in firsts]
    run(server.host, server.port, *inserts, *updates)
    return FilePosition(str(file), int(position))


def root(server: MySql) -> ClientSettings:
    return ClientSettings(server.host, server.port, "root", "")


def ours(server: MySql, start: FilePosition) -> int:
    """Return the number of changes decoded to Arrow columns, rows before an update included."""
    settings = root(server)
    with closing(MySqlConnection(settings)) as connection:
        charsets = charsets_of(connection)
    decoder = ChangeDecoder(charsets, lambda table: [str(column.name) for column in table.columns])
    with closing(BinlogDump(settings, start)) as dump:
        found = 0
        for memory, events, file in dump.blocks():
            for changes in decoder.decode(memory, events, file):
                kinds = changes.images.kinds
                found += len(kinds) - int((kinds == 1).sum())
    return found


def bare(server: MySql, start: FilePosition) -> int:
    """Return the number of bytes received, events found and checked, and nothing else."""
    with closing(BinlogDump(root(server), start)) as dump:
        return sum(int(events[-1, 1]) - int(events[0, 0]) for _, events, _ in dump.blocks())


def mysql_replication(server: MySql, start: FilePosition) -> int:
    """Return the number of changes that mysql-replication reads."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    settings: dict[str, Any] = {"host": server.host, "port": server.port, "user": "root", "password": ""}
    reader = BinLogStreamReader(
        connection_settings=settings,
        server_id=4711,
        log_file=start.file,
        log_pos=start.position,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    found = sum(len(event.rows) for event in reader)
    reader.close()
    return found


def _timed(what: str, read: Callable[[MySql, FilePosition], int], server: MySql, start: FilePosition) -> None:
    begin, cpu = time.perf_counter(), time.process_time()
    count = read(server, start)
    elapsed, used = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{what:32} {count:>12,} {elapsed:8.2f} s {used:8.2f} s of CPU {count / elapsed:>14,.0f} a second")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    with mysql_service(config={"cte_max_recursion_depth": "1000000"}) as server:
        start = fill(server, chosen.changes)
        for _ in range(chosen.repeat):
            _timed("bytes, found and checked", bare, server, start)
            _timed("changes, as Arrow columns", ours, server, start)
        _timed("mysql-replication, bare reader", mysql_replication, server, start)


if __name__ == "__main__":
    main()
