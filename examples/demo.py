"""What every demo shares: a Spark without noise, a line of progress every five seconds, and the last sentence."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from watermark_source import recommended_conf
from watermark_source.durations import count_text

PROGRESS_SECONDS = 5.0
PATIENCE_SECONDS = 300.0
"""Without any progress; far more than a busy laptop needs to compile the decoder for the first batch."""
ROCKSDB: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        )
    }
)
_NONE: Mapping[str, Any] = MappingProxyType({})


def introduce(console: Console, text: str) -> None:
    """Print what a demo is about to do, as a paragraph."""
    console.print(" ".join(text.split()), highlight=False)


def conclude(console: Console, sentence: str) -> None:
    """Print the last sentence, as one line for programs that read it."""
    console.print(sentence, highlight=False, soft_wrap=True)


@contextmanager
def quiet_spark(name: str, console: Console, settings: Mapping[str, Any] = _NONE) -> Iterator[SparkSession]:
    """Yield a small Spark whose log, with that of its Python workers, is a file: kept, and named, if the demo fails."""
    console.print("starting Spark …")
    log, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log")
    try:
        with _standard_error(log):
            spark = (
                SparkSession.builder.master("local[2]")
                .appName(name)
                .config(map=recommended_conf(local_checkpoints=True, installed_on_executors=True))
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
                .config(map=dict(settings))
                .getOrCreate()
            )
        try:
            yield spark
        finally:
            spark.stop()
    except BaseException:
        console.print(f"Spark's log is {path}")
        raise
    finally:
        os.close(log)
    Path(path).unlink()


@contextmanager
def _standard_error(file: int) -> Iterator[None]:
    """Let processes that are started meanwhile write their errors into a file: Java keeps what it was started with."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def wait_for_start(query: StreamingQuery) -> None:
    """Return when a query has started: queries of one program start one after the other.

    See "Several queries" in docs/watermarks.md.
    """
    while query.status["message"].startswith("Initializing"):
        time.sleep(0.1)


class Progress:
    """Prints how far a demo is, every five seconds, and ends it with a sentence if a query fails or nothing moves."""

    def __init__(
        self,
        console: Console,
        queries: Sequence[StreamingQuery],
        line: Callable[[], str],
        patience: float | None = None,
    ) -> None:
        self._console = console
        self._queries = queries
        self._line = line
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._began = time.monotonic()
        self._due = self._began + PROGRESS_SECONDS

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds.

        Raises:
            SystemExit: a query has failed, or the line of progress has not changed for too long.
        """
        seen, changed = "", time.monotonic()
        while not condition():
            for query in self._queries:
                if (error := query.exception()) is not None:
                    raise SystemExit(f"{query.name or 'the query'} failed: {error}")
            now, line = time.monotonic(), self._line()
            if line != seen:
                seen, changed = line, now
            if now >= self._due:
                self._console.print(f"{now - self._began:4.0f} s  {line}", highlight=False, soft_wrap=True)
                self._due = now + PROGRESS_SECONDS
            if now - changed > self._patience:
                states = "; ".join(f"{q.name or 'the query'}: {q.status['message']}" for q in self._queries)
                raise SystemExit(f"nothing has moved for {self._patience:g} s: {line} ({states})")
            time.sleep(0.2)


def last_sentence(other: str, lost: int, total: int, rows: str, *, ours: str = "this source", ours_lost: int) -> str:
    """Return what a demo has shown: how many of ``total`` ``rows`` the ``other`` way lost, and how many ours did."""
    share = f"{lost / total:.0%}".replace("%", " %") if total else "0 %"
    return (
        f"{other} silently lost {count_text(lost)} of {count_text(total)} {rows} ({share}); "
        f"{ours} lost {count_text(ours_lost)}."
    )
