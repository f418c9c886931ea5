"""A topic that is written while a test runs: skewed partitions in several timestamp orders, every row known."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from services.bulk import PartitionRecords, bulk_produce_partitions
from services.wire import BrokerConnection

Millis = npt.NDArray[np.int64]

START_MS = 1_699_999_980_000
AHEAD, ORDERED, SLOW, SILENT, DESCENDING = range(5)
PARTITIONS = 5
ACTIVE = (AHEAD, ORDERED, SLOW, DESCENDING)
TICK_SECONDS = 0.2
STEP_MS = 20_000
"""Event time of one tick: a minute's window closes three or four times a second."""
DISORDER_MS = 4_900
_ROWS = {AHEAD: 200, ORDERED: 300, SLOW: 5, DESCENDING: 100}
_AHEAD_MS = 3_600_000


def value_of(partition: int, offsets: Millis) -> Millis:
    """Return the values of rows: what a row is, and where it must be."""
    return offsets + (partition << 48)


@dataclass
class NumberedTopic:
    """Writes ticks of rows in a thread of its own, between ``start`` and ``stop``."""

    bootstrap: str
    name: str
    random: np.random.Generator
    _written: dict[int, list[Millis]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    _ticks: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _error: Exception | None = None

    def timestamps(self, partition: int) -> Millis:
        """Return the timestamps of a partition's rows; the index is the offset."""
        return np.concatenate([np.empty(0, np.int64), *self._written[partition]])

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="numbered-topic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing; raises what made the writing end, if it did not last until now."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(60)
        if self._error is not None:
            raise self._error

    def tick(self) -> None:
        """Write some rows to every partition but the silent one."""
        now = START_MS + STEP_MS * self._ticks
        self._ticks += 1
        self._write({p: self._order(p, now, rows) for p, rows in _ROWS.items()})

    def close(self) -> int:
        """Write one row far in the future to every active partition, and return its time."""
        end = START_MS + STEP_MS * self._ticks + 10 * _AHEAD_MS
        self._write({p: np.full(1, end) for p in ACTIVE})
        return end

    def _order(self, partition: int, now: int, rows: int) -> Millis:
        if partition == AHEAD:
            return np.full(rows, now + _AHEAD_MS)
        if partition == SLOW:
            return np.asarray(now - self.random.integers(0, DISORDER_MS, rows))
        spread = np.linspace(0, DISORDER_MS, rows).astype(np.int64)
        return now + spread if partition == ORDERED else now - spread

    def _write(self, rows: dict[int, Millis]) -> None:
        records = {}
        for partition, timestamps in rows.items():
            first = sum(map(len, self._written[partition]))
            values = value_of(partition, np.arange(first, first + len(timestamps)))
            records[partition] = PartitionRecords(timestamps, values.astype(">i8").view(np.uint8).reshape(-1, 8))
        self._wait_for_leaders()
        bulk_produce_partitions(self.bootstrap, self.name, records)
        for partition, timestamps in rows.items():
            self._written[partition].append(timestamps)

    def _wait_for_leaders(self) -> None:
        """Wait for a broker that was suspended with its machine: a write that fails half-way could not be repeated."""
        host, _, port = self.bootstrap.rpartition(":")
        for _ in range(300):
            with BrokerConnection(host, int(port)) as connection:
                leaders = connection.cluster(self.name).leaders
            if {each.partition for each in leaders} >= set(ACTIVE):
                return
            time.sleep(0.1)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(TICK_SECONDS):
                self.tick()
        except Exception as error:  # noqa: BLE001 - raised again in stop
            self._error = error
