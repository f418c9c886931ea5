"""A topic that is written while a test runs: skewed partitions in several timestamp orders, every row known."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from services.kafka_bulk import PartitionRecords
from tests.integration.sure_writer import SureWriter

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
_BEHIND_MS = 1_800_000
"""How much further each partition's payload is behind its timestamps than the one before."""
_STOP_SECONDS = 240.0
"""Longer than the writer is patient."""


def payload_times(partition: int, timestamps: Millis) -> Millis:
    """Return the event times that rows with such timestamps have in their values."""
    return timestamps - partition * _BEHIND_MS


def is_bad(offsets: Millis) -> npt.NDArray[np.bool_]:
    """Return in which rows the member ``n`` is no number."""
    found: npt.NDArray[np.bool_] = offsets % 100 == 50
    return found


def number_of(offsets: Millis) -> Millis:
    """Return the number ``n`` of other rows."""
    return 100 + offsets % 900


def values_of(partition: int, offsets: Millis, timestamps: Millis) -> npt.NDArray[np.uint8]:
    """Return the values of rows, JSON of one length: what a row is, where it must be, and its event time.

    One row in a hundred has a text in place of the number ``n``.
    """
    head = np.char.mod(f'{{"row":"{partition}-%012d","n":', offsets)
    numbers = np.where(is_bad(offsets), '"x"', np.char.mod("%d", number_of(offsets)))
    head = np.char.add(np.char.add(head, numbers), ',"at":')
    texts = np.char.add(head, np.char.mod("%d}", payload_times(partition, timestamps))).astype("S")
    return texts.view(np.uint8).reshape(len(texts), texts.itemsize)


@dataclass
class NumberedTopic:
    """Writes ticks of rows in a thread of its own, between ``start`` and ``stop``."""

    writer: SureWriter
    random: np.random.Generator
    _written: dict[int, list[Millis]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    _ticks: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _error: Exception | None = None

    @classmethod
    def of(cls, bootstrap: str, name: str, random: np.random.Generator) -> NumberedTopic:
        """Begin with an empty topic."""
        return cls(SureWriter(bootstrap, name, dict.fromkeys(range(PARTITIONS), 0)), random)

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
            self._thread.join(_STOP_SECONDS)
            assert self._error is not None or not self._thread.is_alive(), "the last tick does not end"
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
            first = self.writer.ends[partition]
            values = values_of(partition, np.arange(first, first + len(timestamps)), timestamps)
            records[partition] = PartitionRecords(timestamps, values)
        self.writer.write(records)
        for partition, timestamps in rows.items():
            self._written[partition].append(timestamps)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(TICK_SECONDS):
                self.tick()
        except Exception as error:  # noqa: BLE001 - raised again in stop
            self._error = error
