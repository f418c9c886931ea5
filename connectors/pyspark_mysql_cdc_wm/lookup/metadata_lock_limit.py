"""Questions to tables that somebody may have locked: the server would let them wait for a year."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection

HELD_SECONDS = 5
"""So long a table's name is waited for, if somebody has locked it."""


@contextmanager
def waiting_for_locks(connection: MySqlConnection) -> Iterator[None]:
    """Wait a few seconds for a table that somebody has locked, and not a year; then the server answers ``LOCKED``."""
    with connection.variable("lock_wait_timeout", str(HELD_SECONDS)):
        yield
