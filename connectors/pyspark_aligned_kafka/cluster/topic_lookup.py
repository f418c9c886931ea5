"""Which topics there are, and who leads their partitions: asked again before anything counts as gone."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Set

from pyspark_aligned_kafka.cluster.absence import absent_since, gone_after
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import Deadline
from pyspark_aligned_kafka.cluster.leaders import Leaders
from pyspark_aligned_kafka.cluster.metadata import Topic, metadata_request, read_metadata
from watermark_source.errors import ResponseTimeoutError, listed
from watermark_source.planning.split import Split

# A topic just made, or a broker just started, may be missing from one broker's metadata for a moment.
_UNKNOWN_AFTER_S = 1.0


class TopicLookup:
    """Tells the leaders what it learns."""

    def __init__(self, cluster: Cluster, leaders: Leaders) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self.missing: set[str | Split] = set()
        """What was looked for long enough, and not there."""

    async def settled(
        self,
        names: Collection[str] | None,
        splits: Set[Split],
        deadline: Deadline,
        *,
        existed: bool = False,
    ) -> Mapping[str, Topic]:
        """Return the topics named, or all for ``None``: again, until what is missing has been looked for long enough.

        The ``splits`` are to be there; what of them was there before is looked for longer, as all of them are if they
        ``existed`` when the query ran last.

        Raises:
            ResponseTimeoutError: what was there before is missing, and no time was left to look for it long enough.
        """
        backoff = self._cluster.backoff(deadline)
        missing_since: dict[str | Split, float] = {}
        while True:
            topics = await self._metadata(names, deadline, anyone=bool(missing_since))
            missing: set[str | Split] = {name for name in names or () if name not in topics}
            missing |= {split for split in splits if not _exists(split, topics)}
            missing_since = absent_since(missing_since, missing)
            were_there = (existed and splits & missing) or self._leaders.existed(missing)
            patience = gone_after(deadline.total_ms / 1_000) if were_there else _UNKNOWN_AFTER_S
            over = all(time.monotonic() - since >= patience for since in missing_since.values())
            if missing <= self.missing or over:
                break
            if not await backoff.wait():
                if were_there:
                    raise _not_looked_for_long_enough(missing)
                break
        self._miss(missing)
        return topics

    def _miss(self, missing: Set[str | Split]) -> None:
        self.missing |= missing
        self._leaders.gone(missing)

    async def _metadata(
        self, names: Collection[str] | None, deadline: Deadline, *, anyone: bool = False
    ) -> Mapping[str, Topic]:
        backoff = self._cluster.backoff(deadline)
        while True:
            answer = await self._cluster.ask_any(lambda: metadata_request(names), deadline, anyone=anyone)
            self._cluster.learn_brokers(answer)
            found = read_metadata(answer)
            if not found.unready or not await backoff.wait():
                self._learn(found.topics)
                return found.topics

    def _learn(self, topics: Mapping[str, Topic]) -> None:
        if self.missing:
            there = {Split(name, number) for name, topic in topics.items() for number in topic.leaders}
            self.missing -= topics.keys() | there
        self._leaders.learn(topics)


def _not_looked_for_long_enough(missing: Set[str | Split]) -> ResponseTimeoutError:
    return ResponseTimeoutError(
        f"the Kafka brokers say that {listed(map(str, missing))} does not exist, which was there before, and "
        "answered too late to be asked again; check them and the network, or allow more time, for example "
        "kafka.default.api.timeout.ms = 120000"
    )


def _exists(split: Split, topics: Mapping[str, Topic]) -> bool:
    return split.log in topics and split.number in topics[split.log].leaders
