"""Memory of a Python worker that reads MySQL: a long chunk, a long transaction, a chunk that was changed meanwhile.

Each is measured with a short one beside it: what grows with the length is not bounded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

import psutil

from benchmarks.figures import Figure
from benchmarks.memory import peak_mib, workers
from benchmarks.orders import COLUMNS, DATABASE, TABLE
from services.mysql import MySql
from services.mysql_client import run

MOST_MB = 500
MOST_APART = 1.15
_LONG_ROWS = 10_000_000
_CHANGED_ROWS = 1_000_000
_WIDE_ROWS = 1_000_000
_WIDE_BYTES = 1036
_WIDE = "id BIGINT PRIMARY KEY, body VARCHAR(1024) CHARACTER SET ascii"
# Digits that zstd can make half as long, not more: the packed transaction is long, too.
_BODY = "CONCAT({})".format(", ".join(f"SHA2(id * 8 + {part}, 512)" for part in range(8)))
_SHORT = 8
"""A short transaction is the long one's eighth part."""
_ONE_CHUNK = {"startingOffsets": "snapshot", "snapshotChunkRows": "20000000"}


def mysql_memory(server: MySql, rows: int, scale: float) -> Iterator[Figure]:
    """Measure each in a process of its own; ``rows`` of the table that all else is made of."""
    # In a fresh checkout the first read compiles, which takes memory of its own.
    _of_worker(server, TABLE, rows, _ONE_CHUNK)
    yield from _chunk(server, rows, max(1, int(_LONG_ROWS * scale)))
    for session in ((), ("SET SESSION binlog_transaction_compression = ON",)):
        yield from _transaction(server, rows, max(_SHORT, int(_WIDE_ROWS * scale)), session)
    yield from _rolled_back(server, rows, max(_SHORT, int(_CHANGED_ROWS * scale)))


def _chunk(server: MySql, short: int, long: int) -> Iterator[Figure]:
    others = "customer_id, amount, status, note, created_at, updated_at"
    copies = (
        f"INSERT INTO long_chunk SELECT id + {first}, {others} FROM {TABLE} WHERE id < {long - first}"
        for first in range(0, long, short)
    )
    run(
        server.host, server.port, f"USE {DATABASE}", f"CREATE TABLE long_chunk ({COLUMNS})", "SET sql_log_bin = 0",
        *copies, "ANALYZE TABLE long_chunk",
    )  # fmt: skip
    peaks = [_of_worker(server, table, rows, _ONE_CHUNK) for table, rows in ((TABLE, short), ("long_chunk", long))]
    yield from _figures(f"a chunk of {long / 1e6:g} M rows", f"one of {short / 1e6:g} M", *peaks)


def _transaction(server: MySql, source_rows: int, rows: int, session: tuple[str, ...]) -> Iterator[Figure]:
    peaks = []
    for count in (rows // _SHORT, rows):
        table = f"wide_{count}_{len(session)}"
        # Of as many rows as the one to copy has, however few those are.
        copy = f"INSERT INTO {table} SELECT id + {{}}, {_BODY} FROM {TABLE} WHERE id < {{}}"
        copies = (copy.format(first, min(source_rows, count - first)) for first in range(0, count, source_rows))
        ((file, position, *_),) = run(
            server.host, server.port, f"USE {DATABASE}", f"CREATE TABLE {table} ({_WIDE})", "FLUSH BINARY LOGS",
            "SHOW BINARY LOG STATUS",
        )  # fmt: skip
        run(server.host, server.port, f"USE {DATABASE}", *session, "BEGIN", *copies, "COMMIT")
        place = json.dumps({"file": file, "position": position})
        peaks.append(_of_worker(server, table, count, {"startingOffsets": place}))
    name = f"a transaction of {rows * _WIDE_BYTES / 1e9:.2g} GB{', compressed' if session else ''}"
    yield from _figures(name, f"one of an {_SHORT}th", *peaks)


def _rolled_back(server: MySql, rows: int, changed: int) -> Iterator[Figure]:
    ((file, position, *_),) = run(server.host, server.port, "FLUSH BINARY LOGS", "SHOW BINARY LOG STATUS")
    peaks, seconds = [], []
    for count in (changed // _SHORT, changed):
        run(server.host, server.port, f"UPDATE {DATABASE}.{TABLE} SET amount = amount + 1 WHERE id < {count}")
        began = time.perf_counter()
        found, peak = _measured("chunk", str(server.port), TABLE, file, str(position))
        seconds.append(time.perf_counter() - began)
        if found != rows:
            raise RuntimeError(f"{found} rows of {rows} read")
        peaks.append(peak)
    # That grows a little: with the keys.
    yield Figure(
        f"worker memory, a chunk with {changed / 1e6:g} M changed rows", peaks[1], "MB", at_most=MOST_MB,
        detail=f"with an {_SHORT}th: {peaks[0]:.0f} MB; s {seconds[1]:.1f}, {seconds[0]:.1f}",
    )  # fmt: skip


def _figures(what: str, other: str, short: float, long: float) -> Iterator[Figure]:
    yield Figure(f"worker memory, {what}", long, "MB", at_most=MOST_MB, detail=f"{other}: {short:.0f} MB")
    yield Figure(f"worker memory, {what} / {other}", long / short, "x", at_most=MOST_APART)


def _of_worker(server: MySql, table: str, rows: int, options: Mapping[str, str]) -> float:
    found, peak = _measured("stream", str(server.port), table, json.dumps(options))
    if found < rows:
        raise RuntimeError(f"{found} rows of {rows} read from {table}")
    return peak


def _measured(*arguments: str) -> tuple[int, float]:
    """Return rows, and the most memory, MB."""
    command = [sys.executable, "-m", "benchmarks.mysql_memory", *arguments]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows, peak = json.loads(printed.splitlines()[-1])
    return int(rows), peak * 2**20 / 1e6


def _options(port: str, table: str) -> dict[str, str]:
    return {"hostname": "127.0.0.1", "port": port, "username": "root", "tables": f"{DATABASE}.{table}"}


def _stream(port: str, table: str, options: str) -> tuple[int, float]:
    """Read by a query, and look at its workers."""
    from benchmarks.queries import MYSQL, run_to_end
    from benchmarks.session import spark_session

    session = spark_session("memory", jars=())
    frame = session.readStream.format(MYSQL).options(**_options(port, table), **json.loads(options)).load()
    rows = run_to_end(frame).rows
    peak = max(map(peak_mib, workers()))
    session.stop()
    return rows, peak


def _read_chunk(port: str, table: str, file: str, position: str) -> tuple[int, float]:
    """Read a table as one chunk as of a place, as a worker does, in this process."""
    from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, file_number, position_number
    from pyspark_mysql_cdc_wm.options import mysql_options
    from pyspark_mysql_cdc_wm.reading.range_reader import MySqlRangeReader
    from pyspark_mysql_cdc_wm.source import MySqlSource
    from watermark_source.planning.snapshot_ranges import Chunk, SnapshotBatch, snapshot_split
    from watermark_source.planning.split import SplitRange

    reader = MySqlSource.of(mysql_options.parse(_options(port, table))).range_reader
    assert isinstance(reader, MySqlRangeReader)
    wanted = SplitRange(snapshot_split(f"{DATABASE}.{table}"), 0, 1)
    place = position_number(file_number(file), int(position))
    batch = SnapshotBatch({}, frozenset(), {wanted: Chunk(None, None)}, {BINLOG: place})
    rows = sum(each.rows for each in reader.read_during_snapshot([wanted], batch))
    return rows, peak_mib(psutil.Process())


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    print(json.dumps(_stream(*arguments) if what == "stream" else _read_chunk(*arguments)))
