"""Questions that keep nobody waiting: one to a slow or dead broker outlives the call it was asked in."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import API_TIMEOUT, Deadline
from pyspark_aligned_kafka.cluster.list_offsets import Found
from watermark_source.errors import ResponseTimeoutError, SourceError, UnreachableError, listed
from watermark_source.planning.split import Split

_PATIENCE_MS: Final = 3_000
"""More than a broker takes that is only busy."""


class _Question(NamedTuple):
    splits: Set[Split]
    answer: Any
    """kafka-python's future of a mapping of splits to ``Found``."""


class PendingRequests:
    """The look-ups that brokers have not answered yet. They go on whenever the cluster is asked anything.

    Between two calls nobody listens, and a batch may take longer than the time limit. What was asked before that is
    asked anew, and only when nobody answers for the whole limit it is an error.
    """

    def __init__(self, cluster: Cluster, limit_ms: int) -> None:
        self._cluster = cluster
        self._limit_ms = limit_ms
        self._open: list[_Question] = []
        self._listened_at = time.monotonic()
        self._has_listened = True
        """Whether the last call was not longer ago than the limit."""
        self._unanswered_since: dict[Split, float] = {}
        self._failures: dict[Split, SourceError] = {}
        """What went wrong with the last question about a split, of those that have no answer."""

    @property
    def splits(self) -> Set[Split]:
        """The splits they are about."""
        return {split for question in self._open for split in question.splits}

    def close(self) -> Mapping[Split, Found]:
        """Close those that have been answered, and return the answers. One that timed out may be asked again.

        Raises:
            SourceError: an answer is another error.
        """
        late: dict[Split, Found] = {}
        self._has_listened = time.monotonic() - self._listened_at < self._limit_ms / 1_000
        if not self._has_listened:
            self._open.clear()
        done = [question for question in self._open if question.answer.is_done]
        self._open = [question for question in self._open if not question.answer.is_done]
        for splits, answer in done:
            if answer.succeeded():
                late.update(answer.value)
                # Its broker is slow, not silent.
                for split in splits:
                    self._unanswered_since.pop(split, None)
                    self._failures.pop(split, None)
            elif isinstance(answer.exception, (UnreachableError, ResponseTimeoutError)):
                self._failures.update(dict.fromkeys(splits, answer.exception))
            else:
                raise answer.exception
        return late

    def _limit(self) -> Deadline:
        return Deadline.after(self._limit_ms, API_TIMEOUT)

    def forget(self) -> None:
        """Ask anew next time."""
        self._open.clear()
        self._unanswered_since.clear()
        self._failures.clear()

    async def ask(
        self, parts: Sequence[Mapping[Split, int]], look_up: Callable[[Mapping[Split, int], Deadline], Awaitable[Any]]
    ) -> Mapping[Split, Found]:
        """Begin a look-up of each part and return what is answered soon; the others stay open.

        Raises:
            SourceError: an answer is an error.
            UnreachableError, ResponseTimeoutError: there has been none about some split for the whole time limit.
        """
        begun, soon = time.monotonic(), Deadline.after(min(_PATIENCE_MS, self._limit_ms))
        at_last = soon if self._has_listened else self._limit()
        overdue = {s for s, since in self._unanswered_since.items() if begun - since >= self._limit_ms / 1_000}
        asked = [_Question(p.keys(), self._cluster.begin(look_up, p, self._limit())) for p in parts]
        found: dict[Split, Found] = {}
        unanswered: list[_Question] = []
        for question in asked:
            is_overdue = not overdue.isdisjoint(question.splits)
            if await self._cluster.is_answered(question.answer, at_last if is_overdue else soon):
                found.update(question.answer.value)
            elif is_overdue:
                failures = (self._failures[split] for split in question.splits if split in self._failures)
                raise next(failures, None) or ResponseTimeoutError(
                    f"no offset of {listed(question.splits)} within {self._limit().told}"
                )
            else:
                unanswered.append(question)
        self._open += unanswered
        self._listened_at = time.monotonic()
        silent = self.splits
        self._unanswered_since = {split: self._unanswered_since.get(split, begun) for split in silent}
        self._failures = {split: error for split, error in self._failures.items() if split in silent}
        return found
