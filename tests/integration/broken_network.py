"""A query without Spark behind a network that breaks: random histories, and what each of them must leave.

A history drives a source as Spark does, through a proxy that delays, cuts, resets and silences its connections. After
an error the query is started again from its checkpoint, as a user's supervisor starts it. When the network is whole
again the query continues to its end. All of it follows from the seed, except for what the machine's speed decides.
"""

from __future__ import annotations

import gc
import json
import logging
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from services.tcp_proxy import CALM, Break, TcpProxy, random_fates
from watermark_source.errors import ResponseTimeoutError, UnreachableError
from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source_testing.driven_stream import Batch, batch_of
from watermark_source_testing.support import behind_pickle

DECLARED = (UnreachableError, ResponseTimeoutError)
"""What a broken network may be to a query. Rows are not lost, and no bytes are wrong: other errors would mislead."""
_TO_ITS_END = 150.0
"""Seconds that a query has once the network is whole, with the same reader: it recovers by itself."""
_UNTIL_AN_ERROR = 90.0
"""Seconds for which the network stays broken at most, where no query has met an error: the machine may be busy."""
_LONGEST_CALL = 90.0
"""Seconds: a few of the limits that the histories set, and the time a busy machine takes."""


@dataclass
class Driven:
    """One query over all its runs: its checkpoint, its rows, and what went wrong on the way."""

    open: Callable[[], DataSource]
    place: re.Pattern[str]
    """What an error has to name."""
    offsets: list[dict[str, Any]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """The declared ones."""
    wrong: list[str] = field(default_factory=list)
    """Errors that are not declared or name no place, calls that took too long, watermarks that went back."""
    _reader: AlignedStreamReader | None = None
    _schema: StructType | None = None

    def step(self) -> bool:
        """Do the batch that is not done yet or the next one; false if there is none, or after an error."""
        begun = time.monotonic()
        try:
            return self._step()
        except DECLARED as error:
            self.errors.append(str(error))
            if not self.place.search(str(error)):
                self.wrong.append(f"names no place: {error}")
        except Exception as error:  # noqa: BLE001 - what the test is about
            self.wrong.append(f"not declared: {type(error).__name__}: {error}")
        finally:
            if not isinstance(self._reader, AlignedStreamReader):
                # One that was refused when it was loaded raises that for ever.
                self.stop()
            if time.monotonic() - begun > _LONGEST_CALL:
                self.wrong.append(f"a call took {time.monotonic() - begun:.1f} s")
        return False

    def _step(self) -> bool:
        if self._reader is None:
            source = self.open()
            schema = source.schema()
            assert isinstance(schema, StructType)
            # One that was refused raises why in its first call.
            self._reader = behind_pickle(source.streamReader(schema))  # type: ignore[assignment]
            self._schema = schema
        reader = self._reader
        assert reader is not None
        assert self._schema is not None
        limit = reader.getDefaultReadLimit()
        assert isinstance(limit, ReadMaxRows)
        if not self.offsets:
            self.offsets.append(_json(reader.initialOffset()))
        if len(self.offsets) == len(self.batches) + 1:
            end = _json(reader.latestOffset(self.offsets[-1], limit))
            if end == self.offsets[-1]:
                return False
            self.offsets.append(end)
            self._check_watermark()
        self.batches.append(batch_of(reader, self.offsets[-2], self.offsets[-1], self._schema))
        return True

    def _check_watermark(self) -> None:
        before, after = (offset.get("wm") for offset in self.offsets[-2:])
        if before is not None and (after is None or after < before):
            self.wrong.append(f"the watermark went back from {before} to {after}")

    def stop(self) -> None:
        """End the run; the next step begins another from the checkpoint."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    @property
    def rows(self) -> pa.Table:
        """All that came out."""
        assert self.batches, (self.errors, self.wrong)
        return pa.concat_tables([batch.rows for batch in self.batches])


@dataclass(frozen=True, slots=True)
class Figures:
    """What histories add up to. All but the first two must be 0."""

    histories: int = 0
    errors: int = 0
    lost: int = 0
    twice: int = 0
    late: int = 0
    wrong: tuple[str, ...] = ()

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.histories + other.histories, self.errors + other.errors, self.lost + other.lost,
            self.twice + other.twice, self.late + other.late, self.wrong + other.wrong,
        )  # fmt: skip

    def check(self) -> None:
        """Fail unless all that must be 0 is, and the network did break something."""
        assert (self.lost, self.twice, self.late, self.wrong) == (0, 0, 0, ()), self


@dataclass(frozen=True, slots=True)
class History:
    """A query, what is written while it runs, and when it has all of that."""

    query: Driven
    write: Callable[[], None]
    is_complete: Callable[[Driven], bool]


def run_histories(histories: Sequence[History], proxy: TcpProxy, seed: int, *, broken_seconds: float = 1.5) -> None:
    """Drive queries beside each other while their network breaks, then to their ends when it is whole again.

    Each has a thread: they wait for the network most of the time.
    """
    chance = random.Random(seed)
    whole = threading.Event()
    with ThreadPoolExecutor(len(histories), "query behind a broken network") as threads:
        # All of them have begun: a query that cannot even be loaded is a short history.
        for _ in threads.map(lambda each: each.query.step(), histories):
            pass
        proxy.fates = random_fates(seed, calm=0.4)
        half = time.monotonic() + broken_seconds / 2
        running = [
            threads.submit(_drive, each, random.Random(f"{seed} {i}"), half, whole) for i, each in enumerate(histories)
        ]
        while (now := time.monotonic()) < half + broken_seconds / 2 or (
            now < half + _UNTIL_AN_ERROR and not any(each.query.errors for each in histories)
        ):
            time.sleep(chance.uniform(0.05, 0.4))
            proxy.break_open(chance.choice(tuple(Break)))
        proxy.fates = lambda _: CALM
        proxy.break_open(Break.RESET)
        whole.set()
        for each in running:
            each.result()


def _drive(history: History, chance: random.Random, half: float, whole: threading.Event) -> None:
    query, written = history.query, False
    while not whole.is_set():
        if not written and time.monotonic() >= half:
            written = True
            history.write()
        errors = len(query.errors) + len(query.wrong)
        if not query.step():
            time.sleep(0.01)
        if len(query.errors) + len(query.wrong) > errors and chance.random() < 0.4:
            # The others continue with the same reader, as a task does that Spark runs again.
            query.stop()
    if not written:
        history.write()
    end = time.monotonic() + _TO_ITS_END
    while not history.is_complete(query) and time.monotonic() < end:
        if not query.step():
            time.sleep(0.01)
    # Once more, for what would come twice.
    query.step()
    query.stop()


@contextmanager
def leaves_nothing(proxy: TcpProxy, close: Callable[[], None] = lambda: None, *, seconds: float = 90) -> Iterator[None]:
    """Fail if the block leaves a thread, a descriptor or a connection; ``close`` closes what is kept on purpose."""
    gc.collect()
    threads, files, former = set(threading.enumerate()), psutil.Process().num_fds(), signal.getsignal(signal.SIGTERM)
    # What a test keeps of logs holds errors, and they hold the frames in which they were raised, and their sockets.
    logging.disable(logging.CRITICAL)
    try:
        yield
        close()
        # A source that has something to report at its end listens for it as long as its process lives.
        signal.signal(signal.SIGTERM, former)

        def left() -> list[str]:
            # What is found to be garbage may hold coroutines, which come to their end first.
            gc.collect()
            more = psutil.Process().num_fds() - files
            return [
                *(f"thread {each.name}" for each in set(threading.enumerate()) - threads),
                *([f"{more} descriptors"] if more > 0 else []),
                *([f"{proxy.open_clients} connections"] if proxy.open_clients else []),
            ]

        end = time.monotonic() + seconds
        while (still := left()) and time.monotonic() < end:
            time.sleep(0.05)
        assert not still, f"left behind: {still}"
    finally:
        logging.disable(logging.NOTSET)


def _json(offset: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(offset)))
