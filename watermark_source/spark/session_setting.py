"""A setting of a session for as long as one call needs it, where the session takes settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_one_thread = RLock()
"""Held while a setting is another one: two threads would take each other's for the previous one."""


@contextmanager
def session_setting(df: DataFrame, name: str, value: str) -> Iterator[bool]:
    """Set a setting of a DataFrame's session meanwhile; yield whether it is set: managed platforms refuse it."""
    conf = df.sparkSession.conf
    is_set = False
    with _one_thread, ExitStack() as stack:
        with suppress(PySparkException):
            before = conf.get(name, None)
            conf.set(name, value)
            is_set = True
            stack.callback(*((conf.unset, name) if before is None else (conf.set, name, before)))
        yield is_set
