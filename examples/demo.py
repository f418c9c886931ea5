"""What every demo shares: a Spark without noise, progress every five seconds, the last sentence, an end by Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from watermark_source import recommended_conf, stop_between_batches
from watermark_source.durations import count_text

_STOP_SECONDS = 3.0
"""For the batches that run, once a demo ends."""
BY_CTRL_C = 130
"""The exit status of programs that end by SIGINT."""
PROGRESS_SECONDS = 5.0
_GRACE_SECONDS = 0.5
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
_Result = TypeVar("_Result")


class _Ticking(Console):
    """A console that prints every five seconds that what it printed last, with … at its end, is still running."""

    def __init__(self) -> None:
        super().__init__()
        self._began: float | None = None
        """When it printed that."""

    def print(self, *args: Any, **options: Any) -> None:
        self._began = time.monotonic() if args and str(args[-1]).endswith("…") else None
        super().print(*args, **options)

    def tick(self) -> NoReturn:
        """Print so, until the program ends."""
        while True:
            began, seconds = self._began, PROGRESS_SECONDS
            while began is not None and began == self._began:
                # A line of progress is due at the same time.
                if time.monotonic() > began + seconds + _GRACE_SECONDS:
                    super().print(f"{seconds:4.0f} s …", highlight=False)
                    seconds += PROGRESS_SECONDS
                time.sleep(0.2)
            time.sleep(0.2)


def introduce(console: Console, text: str) -> None:
    """Print what a demo is about to do, as a paragraph."""
    console.print(" ".join(text.split()), highlight=False)
    console.print("preparing its servers and data …")


def say(console: Console, sentence: str) -> None:
    """Print a sentence as one line, for programs that read it."""
    console.print(sentence, highlight=False, soft_wrap=True)


@contextmanager
def quiet_spark(name: str, console: Console, settings: Mapping[str, Any] = _NONE) -> Iterator[SparkSession]:
    """Yield a small Spark whose log, with that of its Python workers, is a file: kept, and named, if the demo fails."""
    console.print("starting Spark …")
    log, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config(map=recommended_conf(local_checkpoints=True, installed_on_executors=True))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config(map=dict(settings))
    )
    try:
        with _standard_error(log):
            # Interrupted while it waits for its Java, Spark would leave it behind.
            spark = _beside(builder.getOrCreate)
        console.print("starting its queries …")
        try:
            yield spark
        finally:
            # A call that Ctrl-C interrupted left its answer on the connection of this thread to Java.
            _beside(spark.stop)
    except KeyboardInterrupt:
        Path(path).unlink()
        raise
    except BaseException:
        console.print(f"Spark's log is {path}")
        raise
    finally:
        os.close(log)
    Path(path).unlink()


def _beside(call: Callable[[], _Result]) -> _Result:
    """Return a call's result from a thread of its own, which Ctrl-C does not interrupt, and the program's end ends."""
    result: Future[_Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised by result()
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result()


def run_demo(main: Callable[[Console], int], *, by_ctrl_c: int = BY_CTRL_C) -> NoReturn:
    """Run a demo as a program, with a console that is never silent for long.

    Ctrl-C is confirmed and ends it, with what it has started; a second one does so too. ``by_ctrl_c`` is the exit
    status then.
    """

    def hear(*_: object) -> None:
        # Standard error may be a file for the moment.
        os.write(1, b"\nCtrl-C: ending\n")
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    console = _Ticking()
    threading.Thread(target=console.tick, daemon=True).start()
    try:
        sys.exit(main(console))
    except KeyboardInterrupt:
        sys.stdout.flush()
        # What has been started is closed; producers would flush their records at the exit, to a broker that is gone.
        os._exit(by_ctrl_c)


@contextmanager
def stopped_at_the_end(*queries: StreamingQuery) -> Iterator[None]:
    """Stop queries between batches at the end of the block; after Ctrl-C in it the demo is over."""
    with stop_between_batches(*queries, timeout=_STOP_SECONDS) as requests:
        yield
    if requests:
        raise KeyboardInterrupt


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
            KeyboardInterrupt: a query has been stopped.
        """
        seen, changed = "", time.monotonic()
        while not condition():
            for query in self._queries:
                if (error := query.exception()) is not None:
                    raise SystemExit(f"{query.name or 'the query'} failed: {error}")
                # Only Ctrl-C stops one before its demo has what it waits for.
                if not query.isActive and not condition():
                    raise KeyboardInterrupt
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
