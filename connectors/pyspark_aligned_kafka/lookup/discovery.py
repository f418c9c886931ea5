"""Which partitions a subscription reads now: found again every few seconds, so that new ones are not missed.

Only the first look is waited for. The later ones go on beside planning, which takes what the last one found.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.options.subscription import Assign, Subscribe, SubscribePattern, Subscription
from watermark_source.errors import SourceError, UnknownSplitError, listed
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_OLDEST = 20
"""Nobody waits for a look, and it may fail, until the last answer is so many times ``max_age_ms`` old."""

_REST = 20
"""So many times as long as a look took of a core, no other one begins: with thousands of partitions that matters."""
_AFTER_FAILURE = 1.0
"""Seconds after the beginning of a look that failed until the next one."""


class TopicQueries(Protocol):
    """What is needed of ``KafkaAdmin``."""

    def topics(self, names: Collection[str] | None, expected: Set[Split]) -> Mapping[str, Topic]:
        """Return the topics that exist, of those named or of all; what is expected was there before."""
        ...


@dataclass(frozen=True, slots=True)
class _Seen:
    splits: frozenset[Split]
    missing: frozenset[str]
    at: float
    """When the look began."""
    cpu: float
    """Seconds of a core that it took."""


class KafkaDiscovery:
    """``SplitDiscovery`` of ``spark.connector``.

    ``admin`` makes the first look, in the caller's thread; ``other_admin`` the later ones, in another. ``found`` is
    called with topics that are new, in the caller's thread. ``clock`` is monotonic, ``cpu`` the time a thread has had
    of a core; both in seconds.
    """

    def __init__(
        self,
        admin: TopicQueries,
        other_admin: TopicQueries,
        subscription: Subscription,
        *,
        max_age_ms: int,
        found: Callable[[Set[str]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._admin = admin
        self._other_admin = other_admin
        self._subscription = subscription
        self._tell_found = found
        self._max_age = max_age_ms / 1000
        self._clock = clock
        self._cpu = cpu
        self._last: _Seen | None = None
        self._expected: Set[Split] = frozenset()
        """What the checkpoint has, until a look has asked for it."""
        self._look: _Look | None = None
        self._begun = 0.0
        self._failed = False
        """Whether the last look did."""

    def expect(self, splits: Set[Split]) -> None:
        """Let what the checkpoint has be gone only if it is missing for some seconds, whoever is asked.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: it had to be looked for, and could not be.
        """
        wanted = {split for split in splits if is_selected(self._subscription, split)}
        seen = frozenset() if self._last is None else self._last.splits
        if wanted - seen:
            self._expected = wanted
            if self._last is not None:
                self._last = self._checked(self._see(self._admin))

    def discover(self) -> Set[Split]:
        """Return all splits of the subscription as they were seen last.

        Raises:
            UnknownSplitError: the first time, if a subscribed topic or every assigned partition does not exist.
                Later what has gone is left out: whether that is a loss is for the planner to say.
            RefusedError, UnreachableError, ResponseTimeoutError: the first time, or after looking has failed for long.
        """
        now = self._clock()
        if self._last is None:
            # It loads modules and connects: no later one takes as long.
            self._last, self._begun = replace(self._checked(self._see(self._admin)), cpu=0.0), now
            return self._last.splits
        self._collect(self._last)
        too_old = now - self._last.at >= self._max_age * _OLDEST
        if self._look is None and (too_old or now - self._begun >= self._max_age):
            self._begin()
        if too_old:
            self._last = self._found()
        return self._last.splits

    def looked_since(self, moment: float, *, wait: float) -> bool:
        """Return whether a look that began after ``moment`` has ended, waiting at most ``wait`` seconds for it.

        Looks at thousands of partitions are rarer than batches: they take a small share of the time. One that takes
        long, because the broker that is asked is frozen, is waited for once.
        """
        if self._last is None:
            return False
        while True:
            self._collect(self._last)
            if self._last.at >= moment:
                return True
            if self._look is None:
                pause = min(self._max_age, _AFTER_FAILURE if self._failed else _REST * self._last.cpu)
                if self._clock() - self._begun < pause:
                    return False
                self._begin()
            assert self._look is not None
            if not self._look.wait(wait):
                return False

    def _begin(self) -> None:
        self._look, self._begun = _Look(lambda: self._see(self._other_admin)), self._clock()

    def _collect(self, last: _Seen) -> None:
        """Take what a look found that has ended, if any; one that failed leaves what the one before found."""
        if self._look is None or not self._look.is_over:
            return
        try:
            self._last, self._failed = self._found(), False
        except SourceError as error:
            self._failed = True
            age = self._clock() - last.at
            _log.warning("No look for new partitions; those of %.0f s ago are read: %s", age, error)

    def _found(self) -> _Seen:
        """Return what the look under way finds, or what ``expect`` has found since that began."""
        assert self._look is not None
        look, self._look = self._look, None
        seen = look.result()
        return self._checked(seen) if self._last is None or seen.at >= self._last.at else self._last

    def _see(self, admin: TopicQueries) -> _Seen:
        at, cpu = self._clock(), self._cpu()
        expected, self._expected = self._expected, frozenset()
        if self._last is not None:
            expected |= self._last.splits
        splits, missing = select(self._subscription, admin, expected)
        return _Seen(splits, missing, at, cpu=self._cpu() - cpu)

    def _similar(self, missing: Set[str]) -> str:
        """Return the end of a message: which topics there are with names like those that are missing."""
        near: set[str] = set()
        with contextlib.suppress(SourceError):
            names = self._admin.topics(None, frozenset())
            near.update(each for name in missing for each in difflib.get_close_matches(name, names))
        return f". Names like it: {', '.join(sorted(near))}" if near else ""

    def _checked(self, seen: _Seen) -> _Seen:
        """Return what was seen, and say what is new about it."""
        last, missing = self._last, seen.missing
        if last is None and isinstance(self._subscription, Subscribe) and missing:
            raise UnknownSplitError(
                f"topic {', '.join(sorted(missing))} does not exist; subscribe must name existing topics, "
                f"spelled exactly as in Kafka, that the user may describe{self._similar(missing)}"
            )
        if last is None and isinstance(self._subscription, Assign) and not seen.splits:
            raise UnknownSplitError(
                f"partition {', '.join(sorted(missing))} does not exist; assign must name at least one that does"
            )
        if missing - (frozenset() if last is None else last.missing):
            _log.warning("Not there and therefore not read: %s", listed(missing))
        if last is not None and seen.splits - last.splits:
            _log.info("New partitions: %s", listed(seen.splits - last.splits))
        known = frozenset() if last is None else {split.log for split in last.splits}
        if new := {split.log for split in seen.splits} - known:
            self._tell_found(new)
        return seen


class _Look:
    """A look under way in a thread of its own, which does not keep the process alive."""

    def __init__(self, see: Callable[[], _Seen]) -> None:
        self._outcome: Future[_Seen] = Future()
        self._begun = time.monotonic()
        threading.Thread(target=self._run, args=(see,), name="discovery", daemon=True).start()

    def _run(self, see: Callable[[], _Seen]) -> None:
        try:
            self._outcome.set_result(see())
        except BaseException as error:  # noqa: BLE001 - who asks for the result raises it
            self._outcome.set_exception(error)

    @property
    def is_over(self) -> bool:
        return self._outcome.done()

    def wait(self, seconds: float) -> bool:
        """Return whether it is over within so many seconds after it began."""
        left = self._begun + seconds - time.monotonic()
        return bool(wait([self._outcome], max(0.0, left)).done)

    def result(self) -> _Seen:
        """Return what was seen, once it is over; raises what went wrong."""
        return self._outcome.result()


def select(
    subscription: Subscription, admin: TopicQueries, expected: Set[Split] = frozenset()
) -> tuple[frozenset[Split], frozenset[str]]:
    """Return the splits that exist, and the names of topics or partitions that were asked for and do not."""
    if isinstance(subscription, SubscribePattern):
        found = admin.topics(None, expected)
        chosen = {name for name, topic in found.items() if not topic.internal and subscription.pattern.search(name)}
        return _splits(found, chosen), frozenset()
    if isinstance(subscription, Subscribe):
        found = admin.topics(subscription.topics, expected)
        return _splits(found, found), subscription.topics - found.keys()
    found = admin.topics({split.log for split in subscription.splits}, expected)
    existing = subscription.splits & _splits(found, found)
    return existing, frozenset(str(split) for split in subscription.splits - existing)


def is_selected(subscription: Subscription, split: Split) -> bool:
    """Return whether a subscription is for a split, be it there or not."""
    if isinstance(subscription, SubscribePattern):
        return subscription.pattern.search(split.log) is not None
    return split.log in subscription.topics if isinstance(subscription, Subscribe) else split in subscription.splits


def _splits(topics: Mapping[str, Topic], names: Collection[str]) -> frozenset[Split]:
    return frozenset(Split(name, number) for name in names for number in topics[name].leaders)
