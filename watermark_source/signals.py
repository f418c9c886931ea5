"""Signals that interrupt a Python process of Spark: SIGTERM ends a source's process, SIGALRM a call without an end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

LONGEST_S: Final = 600.0
"""Seconds after which code of the user's that does not return is ended."""


def before_termination(last: Callable[[], None]) -> None:
    """Have ``last`` called when SIGTERM comes; then the signal does what it would have done.

    ``last`` interrupts whatever the main thread is doing, and Spark may send the signal twice, so it may interrupt
    itself too: it must take no lock, and must end soon by itself. Python handles signals in the main thread only;
    called in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    former = signal.getsignal(signal.SIGTERM)

    def end(number: int, _: FrameType | None) -> None:
        try:
            last()
        finally:
            signal.signal(number, former or signal.SIG_DFL)
            signal.raise_signal(number)  # to this thread: another one would take its time

    signal.signal(signal.SIGTERM, end)


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
