"""The cases that read MySQL, on one server and in one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from pyspark.sql import SparkSession

from benchmarks.binlog import binlog
from benchmarks.commits import commits
from benchmarks.figures import Figure
from benchmarks.freshness import mysql_freshness
from benchmarks.mysql_memory import mysql_memory
from benchmarks.orders import IN_THE_CLEAR, SERVER, fill, ranges, write
from benchmarks.snapshot import snapshot
from benchmarks.verify import verify
from services.mysql import mysql_service
from services.mysql_program import Flavour

SNAPSHOT, BINLOG, LATENCY, MEMORY = "mysql-snapshot", "mysql-binlog", "mysql-latency", "mysql-memory"
FRESHNESS, VERIFY = "mysql-freshness", "mysql-verify"
CASES = (SNAPSHOT, VERIFY, BINLOG, LATENCY, FRESHNESS, MEMORY)


def on_one_server(
    session: Callable[[], SparkSession],
    chosen: Collection[str],
    rounds: int,
    *,
    warm_up: int,
    scale: float,
    tls: bool,
    debezium: bool,
) -> Iterator[Figure]:
    """Fill a server and measure the chosen cases; every reader encrypts, or none does."""
    with mysql_service(config=SERVER if tls else {**SERVER, **IN_THE_CLEAR}, flavour=Flavour.MYSQL) as server:
        print("filling the table …", flush=True)
        rows = fill(server, scale)
        if SNAPSHOT in chosen:
            print(f"measuring {SNAPSHOT} …", flush=True)
            yield from snapshot(session(), server, rows, rounds, warm_up=warm_up)
        if VERIFY in chosen:
            print(f"measuring {VERIFY} …", flush=True)
            yield from verify(session(), server, rows, rounds)
        if BINLOG in chosen:
            for each in ranges(scale):
                print(f"writing range {each.name} …", flush=True)
                start = write(server, each)
                print(f"measuring {BINLOG} …", flush=True)
                yield from binlog(session(), server, each, start, rounds, warm_up=warm_up, debezium=debezium)
        if LATENCY in chosen:
            print(f"measuring {LATENCY} …", flush=True)
            yield from commits(session(), server, rounds)
        if FRESHNESS in chosen:
            print(f"measuring {FRESHNESS} …", flush=True)
            yield from mysql_freshness(session(), server, rounds)
        if MEMORY in chosen:
            print(f"measuring {MEMORY} …", flush=True)
            yield from mysql_memory(server, rows, scale)
