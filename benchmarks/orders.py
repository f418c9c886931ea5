"""The MySQL table that is read whole, and ranges of its server's binlog: many changes in few transactions, few in many.

Each range is of a table of its own. A query that begins where a range does reads to the end of the binlog, so a range
is written when all before it have been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_mysql_cdc_wm.client.dump import FilePosition
from services.mysql import MySql
from services.mysql_client import run

DATABASE = "bench"
TABLE = "orders"
ROWS = 3_000_000
COLUMNS = (
    "id BIGINT PRIMARY KEY, customer_id INT, amount DECIMAL(12,2), status VARCHAR(16), note VARCHAR(64),"
    " created_at DATETIME(3), updated_at TIMESTAMP(6)"
)
SERVER = {
    "cte_max_recursion_depth": "1000000",
    "innodb_buffer_pool_size": "1G",
    "innodb_redo_log_capacity": "1G",
    "innodb_flush_log_at_trx_commit": "2",
    "sync_binlog": "0",
}
"""Settings that make it quick to fill, and keep the table in memory when it is read."""
IN_THE_CLEAR = {"tls_version": ""}

_STEP = 100_000
_SELECT = (
    "SELECT i, i % 50000, i / 7, ELT(1 + i % 4, 'new', 'paid', 'sent', 'returned'),"
    " CONCAT('note ', i, REPEAT('n', i % 50)), '2024-05-07 12:30:15.123' + INTERVAL i SECOND,"
    " '2024-05-07 12:30:15.123456' + INTERVAL i SECOND FROM n"
)


@dataclass(frozen=True, slots=True)
class Range:
    """Inserts, as many updates, as many deletes."""

    name: str
    """What figures call it."""
    table: str
    transactions: int
    """A multiple of three."""
    rows: int
    """Changed by each transaction."""

    @property
    def changes(self) -> int:
        """How many; an update is one."""
        return self.transactions * self.rows

    @property
    def images(self) -> int:
        """Rows of the stream: an update is two."""
        return self.changes * 4 // 3


def ranges(scale: float) -> tuple[Range, ...]:
    """Return L, S and T, ``scale`` of each."""
    transactions = 3 * max(1, int(20_000 * scale))
    return (
        Range("L", "large", 3, max(1, int(500_000 * scale))),
        Range("S", "small", transactions, 10),
        Range("T", "tiny", transactions, 1),
    )


def fill(server: MySql, scale: float) -> int:
    """Make the table and return its rows. Nothing of it is in the binlog."""
    rows = max(1, int(ROWS * scale))
    numbers = "WITH RECURSIVE n (i) AS (SELECT {} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {})"
    steps = (numbers.format(first, min(first + _STEP, rows)) for first in range(0, rows, _STEP))
    run(
        server.host, server.port, f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", f"CREATE TABLE {TABLE} ({COLUMNS})",
        "SET sql_log_bin = 0", *(f"INSERT INTO {TABLE} {step} {_SELECT}" for step in steps), f"ANALYZE TABLE {TABLE}",
    )  # fmt: skip
    return rows


def write(server: MySql, wanted: Range) -> FilePosition:
    """Write a range at the end of the binlog and return where it begins."""
    table, count = wanted.table, wanted.transactions // 3
    inside = f"id >= i * {wanted.rows} AND id < (i + 1) * {wanted.rows}"
    changes = (
        f"INSERT INTO {table} SELECT * FROM {TABLE} WHERE {inside}",
        f"UPDATE {table} SET amount = amount + 1, status = 'changed' WHERE {inside}",
        f"DELETE FROM {table} WHERE {inside}",
    )
    loops = (f"SET i = 0; WHILE i < {count} DO {change}; SET i = i + 1; END WHILE;" for change in changes)
    ((file, position, *_),) = run(
        server.host, server.port, f"USE {DATABASE}", f"CREATE TABLE {table} ({COLUMNS})",
        f"CREATE PROCEDURE write_{table}() BEGIN DECLARE i BIGINT; {' '.join(loops)} END",
        "FLUSH BINARY LOGS", "SHOW BINARY LOG STATUS",
    )  # fmt: skip
    run(server.host, server.port, f"CALL {DATABASE}.write_{table}()")
    return FilePosition(str(file), int(position))
