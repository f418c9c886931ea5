"""The end of a source's process: Spark sends it SIGTERM when a query stops, and does not call ``stop`` before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


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
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
