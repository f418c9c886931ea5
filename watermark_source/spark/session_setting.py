"""A setting of a session for as long as one call needs it, where the session takes settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def session_setting(df: DataFrame, name: str, value: str) -> Iterator[bool]:
    """Set a setting of a DataFrame's session meanwhile; yield whether it is set: managed platforms refuse it."""
    conf = df.sparkSession.conf
    try:
        before = conf.get(name, None)
        conf.set(name, value)
    except PySparkException:
        yield False
        return
    try:
        yield True
    finally:
        if before is None:
            conf.unset(name)
        else:
            conf.set(name, before)
