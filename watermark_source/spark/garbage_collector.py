"""The cyclic garbage collector, kept away from objects that cannot be garbage.

It scans all objects again and again while new ones are created. Imports leave some 200 000, and each plan creates a new
state of ten thousand splits: most of planning's time went into scanning them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_NEW_OBJECTS: Final = 200_000


@cache
def spare_imports() -> None:
    """Exclude all existing objects from scans, once a process.

    Spark collects after every task, and a scan of all modules (numba's among them) takes 0.1 s each time.
    """
    gc.freeze()


def collect_rarely() -> None:
    """Let it scan only after more new objects than a few plans leave, in the process that only plans.

    Between our own calls Spark reads and writes offsets, each of them ten thousand lists.
    """
    gc.set_threshold(_NEW_OBJECTS)


@contextmanager
def collect_later() -> Iterator[None]:
    """Disable it during work that creates many objects and no cycles; also a decorator."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
