"""A setting of a session for as long as one call needs it, where the session takes settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def session_setting(df: DataFrame, name: str, value: str) -> Iterator[bool]:
    """Set a setting of a DataFrame's session meanwhile; yield whether it is set: managed platforms refuse it.

    Calls do not wait for each other: the start of a query runs listeners, which may start another one. Where another
    call has set it, that call ends it.
    """
    conf = df.sparkSession.conf
    is_set = False
    with ExitStack() as stack:
        with suppress(PySparkException):
            before = conf.get(name, None)
            if before != value:
                conf.set(name, value)
                stack.callback(*((conf.unset, name) if before is None else (conf.set, name, before)))
            is_set = True
        yield is_set
