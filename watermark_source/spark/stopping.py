"""How a program ends its queries: between two batches, also by Ctrl-C.

``query.stop()`` kills the tasks of a batch, and their Python workers print tracebacks that end in ``BrokenPipeError``.
On Ctrl-C Spark's own handler does so for all jobs, and asks Java for it through a connection on which the program may
be waiting for another answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 0.01


class StopRequests:
    """How often Ctrl-C came in a block of ``stop_between_batches``."""

    def __init__(self) -> None:
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0


@contextmanager
def stop_between_batches(*queries: StreamingQuery, timeout: float = 5.0) -> Iterator[StopRequests]:
    """Stop queries at the end of the block, and at Ctrl-C in it, each when none of its batches runs::

        with stop_between_batches(query):
            query.awaitTermination()

    Ctrl-C raises nothing: it is confirmed on standard error and stops the queries, so that what the block waits for
    ends, and the program continues after the block. A second Ctrl-C stops them at once, a third is Python's
    ``KeyboardInterrupt``. In a thread that is not the main one, where Python handles no signals, only the end of the
    block stops them.

    Args:
        queries: of Spark Classic or Connect.
        timeout: seconds to wait for the ends of batches. A query is then stopped in its batch, which its next start
            repeats.

    Yields:
        What is true once Ctrl-C has come.
    """
    requests = StopRequests()
    with _heard(requests, lambda: _stop(queries, timeout, requests)):
        yield requests


@contextmanager
def _heard(requests: StopRequests, stop: Callable[[], None]) -> Iterator[None]:
    """Have ``stop`` called once: in a thread of its own as soon as Ctrl-C comes, or else at the end of the block.

    The main thread may be waiting for an answer of Java, which a call of its own would mistake for another one's.
    """
    if threading.current_thread() is not threading.main_thread():
        try:
            yield
        finally:
            stop()
        return
    # The handler takes no lock: it interrupts whatever the main thread is doing.
    heard, hears = os.pipe()
    former = signal.getsignal(signal.SIGINT)

    def hear(*_: object) -> None:
        requests.count += 1
        os.write(hears, b"c")
        if requests.count > 1:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def end() -> None:
        if os.read(heard, 1) == b"c":
            sys.stderr.write("\nCtrl-C: the query stops when its batch is done; Ctrl-C again stops it at once\n")
            sys.stderr.flush()
        stop()

    with ThreadPoolExecutor(1, thread_name_prefix="stop-between-batches") as pool:
        ending = pool.submit(end)
        signal.signal(signal.SIGINT, hear)
        try:
            yield
        finally:
            os.write(hears, b"e")
            try:
                ending.result()
            finally:
                signal.signal(signal.SIGINT, former)
                os.close(heard)
                os.close(hears)


def _stop(queries: tuple[StreamingQuery, ...], timeout: float, requests: StopRequests) -> None:
    until = time.monotonic() + timeout
    for query in queries:
        while requests.count < 2 and time.monotonic() < until and query.isActive and _runs_tasks(query):
            time.sleep(_POLL_SECONDS)
        query.stop()


def _runs_tasks(query: StreamingQuery) -> bool:
    status = query.status
    # With a backlog a batch begins as soon as the one before it has ended: first its sources are asked for their ends.
    return bool(status["isTriggerActive"]) and not status["message"].startswith("Getting offsets")
