"""Tables whose writers are killed: the rows that these count, and a reader that asks what is complete."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from tests.integration.killed_publishing_driver import DISORDER_SECONDS, WINDOW_SECONDS
from tests.spark.queries import START, write
from watermark_source import complete_until

Counts = Mapping[int, int]
"""Rows of each window, by its end in milliseconds."""


def write_for_kills(folder: Path, chance: random.Random, kills: int, batch_rows: int) -> tuple[Counts, int]:
    """Write a log with batches for so many kills; return its windows, and up to when they are complete in the end."""
    rows = batch_rows * (10 + 8 * kills) // 2
    times = {p: [n / 3 + chance.uniform(0, 0.9 * DISORDER_SECONDS) for n in range(rows)] for p in range(2)}
    length = 1_000 * WINDOW_SECONDS
    stamps = [START + round(1_000 * t) for found in times.values() for t in found]
    # The last row of each partition ends all windows before it.
    for found in times.values():
        found.append(rows / 3 + 1_000)
    write(folder, {p: [(t, n) for n, t in enumerate(found)] for p, found in times.items()})
    last = START + round(1_000 * (rows / 3 + 1_000)) - 1_000 * DISORDER_SECONDS - 1
    return Counter((at // length + 1) * length for at in stamps), last


def counts_in(files: Iterable[Path]) -> dict[int, int]:
    """Return the windows in files of Parquet; each window is there once."""
    rows = [row for file in files for row in _windows(file)]
    found = dict(rows)
    assert len(found) == len(rows)
    return found


@cache
def _windows(file: Path) -> Sequence[tuple[int, int]]:
    """Return the rows of a file, which nobody writes again: a reader looks thousands of times."""
    return [(row["end"], row["count"]) for row in pq.read_table(file).to_pylist()]


@dataclass
class Reader:
    """Looks all the time at what is complete, and then at the rows."""

    tables: Mapping[str, Callable[[], Counts]]
    """By the place of each: what a reader of it sees."""
    truth: Counts
    looks: int = 0
    ahead: list[str] = field(default_factory=list)
    _last: dict[str, datetime] = field(default_factory=dict)

    def look(self) -> None:
        for place, counts in self.tables.items():
            until = complete_until(place)
            if until is None:
                continue
            self.looks += 1
            if until < self._last.get(place, until):
                self.ahead.append(f"{place} went back from {self._last[place]} to {until}")
            self._last[place] = until
            seen, end = counts(), until.timestamp() * 1_000
            if missing := {at: n for at, n in self.truth.items() if at <= end and seen.get(at) != n}:
                self.ahead.append(f"{place} is complete until {until}, without {missing}")

    def has_seen(self, last: int) -> bool:
        """Whether all tables are complete until a time in milliseconds."""
        return all((at := complete_until(p)) is not None and at.timestamp() * 1_000 >= last for p in self.tables)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look again and again, in a thread, for the length of the block."""
        is_done, failed = threading.Event(), list[BaseException]()

        def look() -> None:
            try:
                while not is_done.is_set():
                    self.look()
                    time.sleep(0.01)
            except BaseException as error:  # noqa: BLE001 - raised below
                failed.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            is_done.set()
            thread.join()
        if failed:
            raise failed[0]
