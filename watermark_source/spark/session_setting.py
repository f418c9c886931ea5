"""A setting of a session for as long as one call needs it, where the session takes settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class _Shared:
    """A setting that calls have made in one session, and how many of them need it still."""

    before: str | None
    calls: int = 0


_lock = Lock()
_shared: dict[tuple[int, str], _Shared] = {}
"""By the session, which lives while calls need it, and the setting's name."""


@contextmanager
def session_setting(df: DataFrame, name: str, value: str) -> Iterator[bool]:
    """Set a setting of a DataFrame's session meanwhile; yield whether it is set: managed platforms refuse it.

    Calls do not wait for each other: the start of a query runs listeners, which may start another one. The setting is
    there until the last of those has ended that need it at once; all give it the same value.
    """
    conf, key, is_set = df.sparkSession.conf, (id(df.sparkSession), name), False

    def end() -> None:
        with _lock:
            shared = _shared[key]
            shared.calls -= 1
            if shared.calls:
                return
            del _shared[key]
            if shared.before is None:
                conf.unset(name)
            else:
                conf.set(name, shared.before)

    with ExitStack() as stack:
        with suppress(PySparkException), _lock:
            if key not in _shared:
                before = conf.get(name, None)
                conf.set(name, value)
                _shared[key] = _Shared(before)
            _shared[key].calls += 1
            stack.callback(end)
            is_set = True
        yield is_set
