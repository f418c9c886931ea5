"""A setting of a session for as long as one call needs it, where the session takes settings."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class _Shared:
    """A setting that calls have made in one session, and how many of them need it still."""

    before: str | None = None
    calls: int = 0
    lock: Lock = field(default_factory=Lock)
    """Held during requests, which a server may not answer: that holds up the calls of its session alone."""


_lock = Lock()
_shared: WeakValueDictionary[tuple[Hashable, str], _Shared] = WeakValueDictionary()
"""By the session and the setting's name, while calls need it."""


@contextmanager
def session_setting(df: DataFrame, name: str, value: str) -> Iterator[bool]:
    """Set a setting of a DataFrame's session meanwhile; yield whether it is set: managed platforms refuse it.

    Calls do not wait for each other: the start of a query runs listeners, which may start another one. The setting is
    there until the last of those has ended that need it at once; all give it the same value.
    """
    session, is_set = df.sparkSession, False
    conf, key = session.conf, (_identity(session), name)
    with _lock:
        shared = _shared.setdefault(key, _Shared())

    def end() -> None:
        with shared.lock:
            shared.calls -= 1
            if shared.calls:
                return
            if shared.before is None:
                conf.unset(name)
            else:
                conf.set(name, shared.before)

    with ExitStack() as stack:
        with suppress(PySparkException), shared.lock:
            if not shared.calls:
                shared.before = conf.get(name, None)
                conf.set(name, value)
            shared.calls += 1
            stack.callback(end)
            is_set = True
        yield is_set


def _identity(session: Any) -> Hashable:
    """Return what is the same of all Python objects of one session."""
    if hasattr(session, "_jsparkSession"):
        return str(session._jsparkSession.sessionUUID())  # noqa: SLF001 - Spark shows it nowhere else
    return str(session.session_id)
