"""Waiting for a state of the outside world, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable

from services.errors import ServiceError


def wait_until(state: Callable[[], bool], seconds: float, what: str, *, poll_seconds: float = 0.05) -> None:
    """Return as soon as ``state()`` is true.

    Raises:
        ServiceError: ``state()`` was still false after ``seconds``; the message names ``what``.
    """
    end = time.monotonic() + seconds
    while not state():
        if time.monotonic() >= end:
            raise ServiceError(f"{what}: not reached within {seconds:g} s")
        time.sleep(poll_seconds)
