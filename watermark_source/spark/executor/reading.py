"""What a task does: read its ranges, add the engine's columns, have event time observed, report."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from watermark_source.arrow_columns import booleans, integers, repeated
from watermark_source.contract.lineage import of_logs
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import PieceReader, RangeReader, RelocatedRangeReader, SnapshotRangeReader
from watermark_source.planning.range_report import RangeReport
from watermark_source.planning.split import Piece
from watermark_source.planning.watermark import Millis
from watermark_source.spark import report_protocol as protocol
from watermark_source.spark.column_names import LATE, MARKER
from watermark_source.spark.executor.event_time_observer import EventTimeObserver, Summing
from watermark_source.spark.garbage_collector import spare_imports
from watermark_source.spark.markers import arrow_schema, in_micros, marker_batch, no_markers
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.report_protocol import ReportAddress
from watermark_source.spark_process import noted_query, run_of_task

_log = logging.getLogger(__name__)

# Sends progress reports to the driver; the messages are described in ``report_protocol.py``.


_SLOW = 1.0
"""Seconds after which a failure counts as slow: the host is down, or its name cannot be resolved."""
_ATTEMPTS = 3
"""Connections for a message whose place the server needed for others."""
_AVOIDED_SECONDS = 120.0
"""Seconds for which this process does not try an address that failed slowly again."""

_avoided_until: dict[tuple[str, int], float] = {}


def send_reports(address: ReportAddress, seen: Sequence[RangeReport]) -> bool:
    """Send reports and wait for the acknowledgement; return whether it came. Never raises for the network's sake."""
    sender = protocol.Sender(noted_query(), run_of_task())
    if all(_is_delivered(address, body) for body in protocol.messages(seen, sender)):
        return True
    _log.warning(
        "no progress report could be delivered to %s, port %d; the source will look at up to %d ranges again",
        " or ".join(address.hosts),
        address.port,
        len(seen),
    )
    return False


def send_unexamined(address: ReportAddress | None, source: str) -> bool:
    """Report that nothing has examined the query that reads a source; return whether the driver knows it."""
    return address is not None and _is_delivered(address, protocol.unexamined(source))


def _is_delivered(address: ReportAddress, body: bytes) -> bool:
    now = time.monotonic()
    # A worker serves many tasks: an address that leads nowhere is waited for once in a while, not by every task.
    return any(
        _avoided_until.get((host, address.port), 0.0) <= now and _deliver(host, address, body) for host in address.hosts
    )


def _deliver(host: str, address: ReportAddress, body: bytes) -> bool:
    began = time.monotonic()
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            with socket.create_connection((host, address.port), timeout=protocol.TIMEOUT) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                deadline = time.monotonic() + protocol.TIMEOUT
                challenge = protocol.receive(connection, protocol.CHALLENGE, deadline)
                try:
                    connection.sendall(protocol.header(address.key, challenge, body) + body)
                    return protocol.receive(connection, len(protocol.OK), deadline) == protocol.OK
                except (EOFError, ConnectionError):
                    # A report server, which was busy with strangers, or this process was late.
                    if attempt == _ATTEMPTS or time.monotonic() - began > _SLOW:
                        raise
    # A name that no resolver can be asked for is a UnicodeError.
    except (OSError, EOFError, UnicodeError) as error:
        _log.info("progress report to %s:%d not delivered: %s", host, address.port, error)
        if isinstance(error, TimeoutError) or time.monotonic() - began > _SLOW:
            _avoid(host, address.port)
    return False


def _avoid(host: str, port: int) -> None:
    now = time.monotonic()
    for expired in [address for address, until in _avoided_until.items() if until <= now]:
        del _avoided_until[expired]
    _avoided_until[host, port] = now + _AVOIDED_SECONDS


def run_task(reader: RangeReader, task: ReadTask, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the task's markers and rows; when the last row has been taken, report what was seen."""
    if task.markers and MARKER in schema.names:
        yield marker_batch(task.markers, schema)
    if not task.ranges:
        return
    summing = Summing.of(task.summarized_by, schema.names)
    observer = EventTimeObserver(task, summing)
    spare_imports()
    for batch in batches_of(reader, task):
        observer.observe(batch)
        if not batch.rows:
            continue
        event_time = (
            batch.event_time if task.clock is None else repeated(task.clock * 1_000, batch.event_time.type, batch.rows)
        )
        yield data_batch(batch, event_time, schema, task.late_at)
    if task.report_to is not None:
        send_reports(task.report_to, list(observer.reports()))


def batches_of(reader: RangeReader, task: ReadTask) -> Iterator[ReadBatch]:
    """Yield the rows of a task's ranges, read as the task's fields require."""
    reader = of_logs(reader, task.logs)
    if task.relocation is not None:
        reader = cast("RelocatedRangeReader", reader).relocated(task.relocation)
    if task.whole is not None:
        (piece,) = task.ranges
        return cast("PieceReader", reader).read_piece(Piece(piece, task.whole), task.snapshot)
    if task.snapshot is not None:
        return cast("SnapshotRangeReader", reader).read_during_snapshot(task.ranges, task.snapshot)
    return reader.read(task.ranges)


def data_batch(
    batch: ReadBatch, event_time: pa.Array, schema: StructType, late_at: Millis | None = None
) -> pa.RecordBatch:
    """Return rows with the engine's own columns behind the system's; data rows have no marker."""
    columns = [*batch.columns, event_time]
    if LATE in schema.names[len(batch.columns) :]:
        is_late = np.False_ if late_at is None else integers(event_time) <= in_micros(late_at)
        columns.append(booleans(np.broadcast_to(is_late, batch.rows)))
    if MARKER in schema.names[len(batch.columns) :]:
        columns.append(no_markers(batch.rows, schema))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))
