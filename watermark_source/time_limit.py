"""A time limit for code of the user's: a call that never returns ends in an error, and not in silence."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimitExceeded(BaseException):
    """The limit has passed; not an ``Exception``, which the code of the user's may catch."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``TimeLimitExceeded`` in the block when so many seconds have passed.

    A signal interrupts what waits, and Python code. It reaches a process's main thread alone, in which Spark's workers
    run tasks: in another thread, and on systems without SIGALRM, there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def end(*_: object) -> None:
        raise TimeLimitExceeded

    began = time.monotonic()
    former = signal.signal(signal.SIGALRM, end)
    alarm, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        if alarm:
            signal.setitimer(signal.ITIMER_REAL, max(alarm - (time.monotonic() - began), 0.001), interval)
