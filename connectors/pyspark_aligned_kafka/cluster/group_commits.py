"""Commits a query's progress to a consumer group, from a thread of its own that never holds the query up."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Final

from pyspark_aligned_kafka.cluster.commit_pace import CommitPace
from pyspark_aligned_kafka.cluster.consumer_group import ConsumerGroup
from pyspark_aligned_kafka.cluster.deadline import Deadline
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_LIMIT_MS: Final = 5_000
"""Of one try."""
_END_MS: Final = 2_000
"""Of the last one, when the query stops."""


class GroupCommits:
    """``ProgressSink`` of ``spark.connector``.

    The caller's side takes no lock: a signal's handler may call ``close`` in the middle of ``processed``.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        # A mailbox with one place: whatever is put in replaces what nobody took.
        self._latest: Mapping[Split, int] = {}
        self._news: SimpleQueue[None] = SimpleQueue()
        self._end: Deadline | None = None
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()

    def processed(self, positions: Mapping[Split, int]) -> None:
        """Have these positions committed soon, in place of earlier ones that are still waiting."""
        self._latest = positions
        self._news.put(None)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"commits to {self._group.name}", daemon=True)
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Wait until what is still waiting has been committed, or failed to be, for two seconds at most."""
        if self._end is None:
            self._end = Deadline.after(_END_MS)
        self._news.put(None)
        if self._thread is not None:
            self._thread.join(self._end.left_ms / 1000)

    def _run(self) -> None:
        committed: Mapping[Split, int] | None = None
        pace = CommitPace()
        while True:
            # In this order: what is read after the end is the last there will be.
            end, latest = self._end, self._latest
            news = latest != committed
            if end is not None and (not news or end.passed):
                break
            wait = pace.wait(time.monotonic(), news=news)
            if end is None and wait > 0:
                with contextlib.suppress(Empty):
                    self._news.get(timeout=wait)
            elif self._commit(latest, _LIMIT_MS if end is None else end.left_ms):
                committed, pace = latest, pace.after_success(time.monotonic())
            elif end is None:
                pace = pace.after_failure(time.monotonic())
            else:
                break
        self._group.close()

    def _commit(self, positions: Mapping[Split, int], limit_ms: float) -> bool:
        try:
            self._group.commit(positions, limit_ms)
        except SourceError as error:
            self._warn(error)
            return False
        except Exception as error:  # noqa: BLE001 - the client library's: the query must not hear of it, nor commits end
            self._warn(error)
            self._group.close()
            return False
        if self._warned:
            _log.info("Positions are committed to consumer group %s again", self._group.name)
            self._warned.clear()
        return True

    def _warn(self, error: Exception) -> None:
        """Say it once for each kind of trouble, until a commit works."""
        kind = type(error.__cause__ or error).__name__
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning(
                "Positions are not committed to consumer group %s for now, so its lag is not the query's; "
                "the query goes on: %s",
                self._group.name,
                error,
                exc_info=None if isinstance(error, SourceError) else error,
            )
