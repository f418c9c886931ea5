"""Partition discovery: which partitions a subscription has now, listed again every few seconds.

Planning waits only for the first listing. Later ones run on a thread of their own, and planning uses the last result.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from concurrent.futures import Future, wait
from dataclasses import KW_ONLY, dataclass, field, replace

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.options.subscription import Assign, Subscribe, SubscribePattern, Subscription, selects
from watermark_source.errors import SourceError, UnknownSplitError, listed
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_OLDEST = 20
"""A later listing may take long, or fail, until the last result is this many times ``max_age_ms`` old."""

_REST = 20
"""The pause before the next listing, in multiples of the CPU time of the last: thousands of partitions take long."""
_AFTER_FAILURE = 1.0
"""Seconds from the beginning of a listing that failed to the next one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a subscription matches."""

    splits: frozenset[Split]
    missing: frozenset[str]
    """The names of topics or partitions of the subscription that do not exist."""
    ids: dict[str, str]
    """By topic."""


@dataclass(frozen=True, slots=True)
class _Listing(Selection):
    refused: SourceError | None
    """Of topics that were not in the last listing, those that the user may not read."""
    at: float
    """When it began."""
    cpu: float
    """Seconds of CPU time that it took."""


@dataclass(slots=True)
class KafkaDiscovery:
    """Implements ``SplitDiscovery``.

    ``admin`` makes the first listing, in the caller's thread; ``other_admin`` the later ones, in another. In the
    caller's thread ``on_listed`` is called with the partitions of each listing, and ``on_new_topics`` with topics that
    are new. ``clock`` is monotonic, ``cpu`` the CPU time of a thread; both in seconds.
    """

    admin: KafkaAdmin
    other_admin: KafkaAdmin
    subscription: Subscription
    _: KW_ONLY
    max_age_ms: int
    on_listed: Callable[[Set[Split]], None] = lambda _: None
    on_new_topics: Callable[[Set[str]], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.thread_time
    _last: _Listing | None = field(default=None, init=False)
    _ids: Mapping[str, str] = field(default_factory=dict, init=False)
    """The ids of all topics listed so far."""
    _expected: Set[Split] = field(default=frozenset(), init=False)
    """The checkpoint's partitions, until a listing has requested them."""
    _under_way: _ListingUnderWay | None = field(default=None, init=False)
    _begun: float = field(default=0.0, init=False)
    _failing_since: float | None = field(default=None, init=False)
    """When the first of the listings began that have failed without a success since."""

    def expect(self, splits: Set[Split], ids: Mapping[str, str]) -> None:
        """Treat the checkpoint's partitions as deleted only after all brokers have lacked them for some seconds.

        Its topics count as created again only once all brokers name them by other ids.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: they had to be listed, and no broker answered.
        """
        wanted = {split for split in splits if selects(self.subscription, split)}
        known = frozenset() if self._last is None else self._last.splits
        other = any(self.ids().get(name, before) != before for name, before in ids.items())
        self._ids = {**self._ids, **ids}
        if wanted - known or other:
            self._expected = wanted
            if self._last is not None:
                self._last = self._checked(self._list(self.admin))

    def discover(self) -> Set[Split]:
        """Return all splits of the subscription as of the last listing.

        Raises:
            UnknownSplitError: the first time, if a subscribed topic or every assigned partition does not exist.
                Later, deleted splits are left out, and the planner decides whether that is a loss.
            RefusedError: the user may not read a topic. UnreachableError, ResponseTimeoutError: the first time, or
                after listings have failed for long.
        """
        now = self.clock()
        if self._last is None:
            # It loads modules and connects: no later one takes as long.
            self._last, self._begun = replace(self._checked(self._list(self.admin)), cpu=0.0), now
            return self._last.splits
        self._collect(self._last)
        too_old = now - self._last.at >= _OLDEST * self.max_age_ms / 1_000
        if self._under_way is None and (too_old or now - self._begun >= self.max_age_ms / 1_000):
            self._begin()
        if too_old:
            self._last = self._taken(self._ended())
        return self._last.splits

    def ids(self) -> Mapping[str, str]:
        """Return the ids of the topics as of the last listing; of brokers before 2.8 none."""
        return {} if self._last is None else self._last.ids

    def looked_since(self, moment: float, *, wait: float) -> bool:
        """Return whether a listing that began after ``moment`` has ended, after a wait of at most ``wait`` seconds.

        Listings of thousands of partitions are rarer than batches, so that they take a small share of the time. Only
        one call waits for a listing that takes long because its broker is frozen.
        """
        if self._last is None:
            return False
        while True:
            self._collect(self._last)
            if self._last.at >= moment:
                return True
            if self._under_way is None:
                failed = self._failing_since is not None
                pause = min(self.max_age_ms / 1_000, _AFTER_FAILURE if failed else _REST * self._last.cpu)
                if self.clock() - self._begun < pause:
                    return False
                self._begin()
            assert self._under_way is not None
            if not self._under_way.ends_within(wait):
                return False

    def _begin(self) -> None:
        self._under_way, self._begun = _ListingUnderWay(lambda: self._list(self.other_admin)), self.clock()

    def _collect(self, last: _Listing) -> None:
        """Take the result of a listing that has ended, if any; after one that failed the last result stays."""
        if self._under_way is None or not self._under_way.done():
            return
        try:
            listing = self._ended()
        except SourceError as error:
            if self._failing_since is None:
                self._failing_since = self._begun
                age = self.clock() - last.at
                _log.warning(
                    "Listing partitions failed, and is tried again; those of %.0f s ago are read: %s", age, error
                )
        else:
            self._last = self._taken(listing)

    def _ended(self) -> _Listing:
        """Return the result of the listing under way."""
        assert self._under_way is not None
        under_way, self._under_way = self._under_way, None
        listing = under_way.result()
        if self._failing_since is not None:
            _log.warning("Partitions are listed again, after %.0f s", self.clock() - self._failing_since)
            self._failing_since = None
        return listing

    def _taken(self, listing: _Listing) -> _Listing:
        """Return a listing that has been checked, or that of ``expect`` if it began later."""
        return self._checked(listing) if self._last is None or listing.at >= self._last.at else self._last

    def _list(self, admin: KafkaAdmin) -> _Listing:
        at, cpu = self.clock(), self.cpu()
        expected, self._expected = self._expected, frozenset()
        if self._last is not None:
            expected |= self._last.splits
        found = select(self.subscription, admin, expected)
        for name, id_ in found.ids.items():
            # A broker that lags behind still names the earlier topic. Only what all know is another topic.
            if self._ids.get(name, id_) != id_ and (topic := admin.topic_by_all_brokers(name)) is not None:
                found.ids[name] = topic.id or id_
        refused = admin.refusal(self._new_topics(found.splits, found.ids))
        return _Listing(found.splits, found.missing, found.ids, refused, at, cpu=self.cpu() - cpu)

    def _new_topics(self, splits: Set[Split], ids: Mapping[str, str]) -> Set[str]:
        """Return the topics that are not in the last listing, or are others of their names."""
        known = frozenset() if self._last is None else {split.log for split in self._last.splits}
        anew = {name for name, id_ in ids.items() if self._ids.get(name, id_) != id_}
        return {split.log for split in splits} - known | anew

    def _similar(self, missing: Set[str]) -> str:
        """Return the end of an error: existing topics with names like those that are missing."""
        near: set[str] = set()
        with contextlib.suppress(SourceError):
            names = self.admin.topics(None, frozenset())
            near.update(each for name in missing for each in difflib.get_close_matches(name, names))
        return f". Names like it: {', '.join(sorted(near))}" if near else ""

    def _checked(self, listing: _Listing) -> _Listing:
        """Return a listing after a log line and a call for its new topics and partitions."""
        if listing.refused is not None:
            raise listing.refused
        last, missing = self._last, listing.missing
        if last is None and isinstance(self.subscription, Subscribe) and missing:
            raise UnknownSplitError(
                f"topic {', '.join(sorted(missing))} does not exist; subscribe must name existing topics, "
                f"spelled exactly as in Kafka, that the user may describe{self._similar(missing)}"
            )
        if last is None and isinstance(self.subscription, Assign) and not listing.splits:
            raise UnknownSplitError(
                f"partition {', '.join(sorted(missing))} does not exist; assign must name at least one that does"
            )
        if missing - (frozenset() if last is None else last.missing):
            _log.warning("Not read, because the cluster does not have it: %s", listed(missing))
        if last is not None and listing.splits - last.splits:
            _log.info("New partitions: %s", listed(listing.splits - last.splits))
        new = self._new_topics(listing.splits, listing.ids)
        self._ids = {**self._ids, **listing.ids}
        if new:
            self.on_new_topics(new)
        self.on_listed(listing.splits)
        # Equal objects that are the same one are compared much faster, in every plan.
        return listing if last is None or listing.splits != last.splits else replace(listing, splits=last.splits)


class _ListingUnderWay(Future[_Listing]):
    """A listing in a thread of its own, which does not keep the process alive."""

    def __init__(self, make: Callable[[], _Listing]) -> None:
        super().__init__()
        self._begun = time.monotonic()
        threading.Thread(target=self._run, args=(make,), name="discovery", daemon=True).start()

    def _run(self, make: Callable[[], _Listing]) -> None:
        try:
            self.set_result(make())
        except BaseException as error:  # noqa: BLE001 - `result` raises it in the caller's thread
            self.set_exception(error)

    def ends_within(self, seconds: float) -> bool:
        """Return, once it is certain, whether it ends within this many seconds after it began."""
        left = self._begun + seconds - time.monotonic()
        return bool(wait([self], max(0.0, left)).done)


def select(subscription: Subscription, admin: KafkaAdmin, expected: Set[Split] = frozenset()) -> Selection:
    """Return what exists of a subscription."""
    if isinstance(subscription, SubscribePattern):
        topics = admin.topics(None, expected)
        chosen = {name for name, topic in topics.items() if not topic.internal and subscription.pattern.search(name)}
        return Selection(_splits(topics, chosen), frozenset(), _ids(topics, chosen))
    if isinstance(subscription, Subscribe):
        topics = admin.topics(subscription.topics, expected)
        return Selection(_splits(topics, topics), subscription.topics - topics.keys(), _ids(topics, topics))
    topics = admin.topics({split.log for split in subscription.splits}, expected)
    existing = subscription.splits & _splits(topics, topics)
    missing = frozenset(str(split) for split in subscription.splits - existing)
    return Selection(existing, missing, _ids(topics, {split.log for split in existing}))


def _ids(topics: Mapping[str, Topic], names: Collection[str]) -> dict[str, str]:
    return {name: id_ for name in names if (id_ := topics[name].id) is not None}


def _splits(topics: Mapping[str, Topic], names: Collection[str]) -> frozenset[Split]:
    return frozenset(Split(name, number) for name in names for number in topics[name].leaders)
