"""The cyclic garbage collector, kept from looking where nothing is to be found.

It looks through all objects again and again as new ones are made. Imports leave some 200 000, and a state of ten
thousand splits is made anew with every plan: most of planning's time went into looking at them.
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
    """Take what is loaded by now out of its sight, once a process.

    Spark collects after every task, and looking through all modules (numba's among them) takes 0.1 s each time.
    """
    gc.freeze()


def collect_rarely() -> None:
    """Let it look only after more new objects than a few plans leave, in the process that makes nothing but plans.

    Between our own calls Spark reads and writes offsets, each of them ten thousand lists.
    """
    gc.set_threshold(_NEW_OBJECTS)


@contextmanager
def collect_later() -> Iterator[None]:
    """Let it wait until the end of a piece of work that makes many objects and no cycles; also a decorator."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
