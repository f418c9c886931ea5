"""Debezium's embedded engine over a range of the binlog, in a JVM of its own: the passes after its first are warm.

As fast as it goes: Connect records as the connector makes them (no JSON), no tombstones, events of transactions or
changes of schemas, offsets and schema history in memory, large batches and queues, and a consumer that only counts.
``recovery`` learns the table's columns from the server, and begins where it is told.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.orders import DATABASE, Range
from pyspark_mysql_cdc_wm.client.dump import FilePosition
from services.cache import cached
from services.ivy import Module, jars
from services.java import java_command, javac_command
from services.local_server import run_to_end
from services.mysql import MySql
from services.mysql_client import run

VERSION = "3.6.1.Final"
_MODULES = tuple(
    Module("io.debezium", name, VERSION) for name in ("debezium-api", "debezium-embedded", "debezium-connector-mysql")
)
_PROGRAM = Path(__file__).with_name("DebeziumRange.java")
_COMPILE_SECONDS = 120.0
_LARGEST_HEAP = "-Xmx3g"
_PROPERTIES = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.user": "root",
    "database.password": "",
    "database.server.id": "4712",
    "snapshot.mode": "recovery",
    "snapshot.locking.mode": "none",
    "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    "include.schema.changes": "false",
    "tombstones.on.delete": "false",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "5",
    "offset.flush.interval.ms": "60000",
    "errors.max.retries": "0",
}


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds that one reading took."""

    whole: float
    """From the engine's start, its connections included, to the last change."""
    steady: float
    """For all changes at the speed after the first batch."""


class DebeziumRange:
    """Reads one range as often as it is asked to."""

    def __init__(self, process: subprocess.Popen[str], changes: int) -> None:
        self._process = process
        self._changes = changes

    def read(self) -> Pass:
        """Read it once.

        Raises:
            RuntimeError: it did not find all changes; the message is Debezium's.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline().split()
        if len(told) != 3:
            raise RuntimeError(f"Debezium: {' '.join(told) or 'ended without a word'}")
        whole, first, rest = float(told[0]), int(told[1]), float(told[2])
        # A range that is one batch has no speed but its own.
        steady = rest * self._changes / (self._changes - first) if first < self._changes else whole
        return Pass(whole, steady)


@contextmanager
def debezium_range(server: MySql, wanted: Range, start: FilePosition) -> Iterator[DebeziumRange]:
    """Give a JVM that reads a range.

    Raises:
        ServiceError: no Java compiler, or the jars cannot be had.
    """
    class_path = f"{_compiled()}:{_jars()}/*"
    with tempfile.TemporaryDirectory(prefix="debezium-") as folder:
        properties = Path(folder, "engine.properties")
        given = {**_PROPERTIES, "database.hostname": server.host, "database.port": str(server.port)}
        properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        arguments = (f"{DATABASE}.{wanted.table}", _offset(server, start), str(wanted.changes))
        process = subprocess.Popen(
            [java_command(), _LARGEST_HEAP, "-cp", class_path, _PROGRAM.stem, str(properties), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            yield DebeziumRange(process, wanted.changes)
        finally:
            process.kill()
            process.communicate()


def _offset(server: MySql, start: FilePosition) -> str:
    """Return a place as the engine keeps it. It is at the beginning of its file, which tells what lies before."""
    _, (*_, before) = run(server.host, server.port, f"SHOW BINLOG EVENTS IN '{start.file}' LIMIT 2")
    return json.dumps({"file": start.file, "pos": start.position, "gtids": "".join(str(before).split())})


def _jars() -> Path:
    return jars(f"debezium-{VERSION}", _MODULES, size="about 60 MB")[0].parent


def _compiled() -> Path:
    """Return a folder with the classes of the program, compiled once."""

    def compile_into(folder: Path) -> None:
        command = [javac_command(), "-cp", f"{_jars()}/*", "-d", str(folder), str(_PROGRAM)]
        run_to_end(command, folder=folder, seconds=_COMPILE_SECONDS, what=f"compiling {_PROGRAM.name}")

    content = hashlib.sha256(_PROGRAM.read_bytes()).hexdigest()[:12]
    return cached(f"debezium-range-{VERSION}-{content}", compile_into)
