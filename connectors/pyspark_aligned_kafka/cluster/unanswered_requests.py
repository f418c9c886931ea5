"""Questions that keep nobody waiting: one to a slow or dead broker outlives the call it was asked in."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import API_TIMEOUT, Deadline
from pyspark_aligned_kafka.cluster.list_offsets import Found
from watermark_source.errors import ResponseTimeoutError, SourceError, UnreachableError, listed
from watermark_source.planning.split import Split

_PATIENCE_MS: Final = 3_000
"""More than a broker takes that is only busy."""
_AWAY_SECONDS: Final = 5.0
"""Without a call for so long nobody has listened."""
_ARRIVED_MS: Final = 20
"""What arrived meanwhile is there within so long."""
_FORGOTTEN: Final = 10
"""Time limits after which a split that is asked for no more is forgotten."""


class _Question(NamedTuple):
    splits: Set[Split]
    answer: Any
    """kafka-python's future of a mapping of splits to ``Found``."""


class _Silence(NamedTuple):
    """A split about which nothing has been answered for a while."""

    since: float
    was_listened_to: bool = True
    """Whether there was no long time without a call since then."""
    failure: SourceError | None = None
    """What went wrong with the last question about it."""


class PendingRequests:
    """The look-ups that brokers have not answered yet. They go on whenever the cluster is asked anything.

    Between two calls nobody listens, and a batch may take long. What was asked before that and has no answer is asked
    anew, and only if there is none within the whole time limit that is an error.
    """

    def __init__(self, cluster: Cluster, limit_ms: int) -> None:
        self._cluster = cluster
        self._limit_ms = limit_ms
        self._open: list[_Question] = []
        self._listened_at = time.monotonic()
        self._silent: dict[Split, _Silence] = {}
        self._late: dict[Split, Found] = {}
        """Answers that came after the call, until somebody asks about those splits."""

    @property
    def splits(self) -> Set[Split]:
        """The splits they are about."""
        return {split for question in self._open for split in question.splits}

    def forget(self) -> None:
        """Ask anew next time."""
        self._open.clear()
        self._silent.clear()
        self._late.clear()

    async def close(self, wanted: Set[Split]) -> Mapping[Split, Found]:
        """Close those about ``wanted`` that have been answered, and return the answers.

        One that timed out may be asked again; those about other splits are for who asks about them.

        Raises:
            SourceError: an answer is another error.
        """
        away = time.monotonic() - self._listened_at >= min(_AWAY_SECONDS, self._limit_ms / 1_000)
        if away:
            await self._listen()
        answered = [each for each in self._open if each.answer.is_done and not wanted.isdisjoint(each.splits)]
        self._open = [each for each in self._open if each not in answered and (each.answer.is_done or not away)]
        if away:
            self._silent = {split: at._replace(was_listened_to=False) for split, at in self._silent.items()}
        for splits, answer in answered:
            self._take(splits, answer)
        return {split: self._late.pop(split) for split in wanted & self._late.keys()}

    async def ask(
        self, parts: Sequence[Mapping[Split, int]], look_up: Callable[[Mapping[Split, int], Deadline], Awaitable[Any]]
    ) -> Mapping[Split, Found]:
        """Begin a look-up of each part and return what is answered soon; the others stay open.

        Raises:
            SourceError: an answer is an error.
            UnreachableError, ResponseTimeoutError: there has been none about some split for the whole time limit.
        """
        begun = time.monotonic()
        soon, at_last = Deadline.after(min(_PATIENCE_MS, self._limit_ms)), self._limit()
        asked = [_Question(p.keys(), self._cluster.begin(look_up, p, self._limit())) for p in parts]
        found: dict[Split, Found] = {}
        for question in asked:
            overdue = [at for at in map(self._silent.get, question.splits) if at and self._is_over(at, begun)]
            was_listened_to = all(at.was_listened_to for at in overdue)
            if await self._cluster.is_answered(question.answer, soon if was_listened_to else at_last):
                found.update(question.answer.value)
                for split in question.splits:
                    self._silent.pop(split, None)
            elif overdue:
                raise next((at.failure for at in overdue if at.failure), None) or ResponseTimeoutError(
                    f"no offset of {listed(question.splits)} within {self._limit().told}"
                )
            else:
                self._open.append(question)
                for split in question.splits:
                    self._silent.setdefault(split, _Silence(begun))
        asked_on, forgotten = self.splits, begun - _FORGOTTEN * self._limit_ms / 1_000
        self._silent = {s: at for s, at in self._silent.items() if at.since > forgotten or s in asked_on}
        self._listened_at = time.monotonic()
        return found

    async def _listen(self) -> None:
        deadline = Deadline.after(_ARRIVED_MS)
        for question in self._open:
            with suppress(SourceError):
                await self._cluster.is_answered(question.answer, deadline)

    def _take(self, splits: Set[Split], answer: Any) -> None:
        if answer.succeeded():
            self._late.update(answer.value)
            # Its broker is slow, not silent.
            for split in splits:
                self._silent.pop(split, None)
        elif isinstance(answer.exception, (UnreachableError, ResponseTimeoutError)):
            for split in splits & self._silent.keys():
                self._silent[split] = self._silent[split]._replace(failure=answer.exception)
        else:
            raise answer.exception

    def _is_over(self, silence: _Silence, now: float) -> bool:
        return now - silence.since >= self._limit_ms / 1_000

    def _limit(self) -> Deadline:
        return Deadline.after(self._limit_ms, API_TIMEOUT)
