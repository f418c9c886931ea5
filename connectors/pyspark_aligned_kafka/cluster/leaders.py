"""Who leads which partition, and which there are: learned from every answer, shared by a query's look-ups."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set

from pyspark_aligned_kafka.cluster.metadata import Leader, Topic
from watermark_source.planning.split import Split


class Leaders:
    """What the brokers have said of partitions. Threads may share it.

    A broker that is cut off from the others goes on to answer, of leaders before its time too: an older epoch never
    replaces a newer one, until a leader itself says that it does not know it (the topic may have been made anew).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaders: dict[Split, Leader] = {}
        self._existing: set[Split] = set()

    def learn(self, topics: Mapping[str, Topic]) -> None:
        """Take what one broker says of topics."""
        with self._lock:
            for name, topic in topics.items():
                for number, leader in topic.leaders.items():
                    self._learn(Split(name, number), leader)

    def _learn(self, split: Split, leader: Leader | None) -> None:
        self._existing.add(split)
        if leader is None:
            self._leaders.pop(split, None)
        elif not _is_older(leader, self._leaders.get(split)):
            self._leaders[split] = leader

    def doubt(self, splits: Set[Split]) -> None:
        """Forget leaders that did not answer as leaders do."""
        with self._lock:
            for split in splits:
                self._leaders.pop(split, None)

    def gone(self, missing: Set[str | Split]) -> None:
        """Forget topics and partitions that are not there any more."""
        with self._lock:
            for split in [split for split in self._existing if split in missing or split.log in missing]:
                self._existing.discard(split)
                self._leaders.pop(split, None)

    def of(self, split: Split) -> Leader | None:
        """Return the leader of a partition, if one is known."""
        return self._leaders.get(split)

    def unknown(self, splits: Set[Split]) -> Set[Split]:
        """Return those of the partitions whose leader is not known."""
        return splits - self._leaders.keys()

    def existed(self, names: Set[str | Split]) -> bool:
        """Return whether one of the topics or partitions was there when it was looked for last."""
        if not names:
            return False
        with self._lock:
            return not names.isdisjoint(self._existing) or not names.isdisjoint({s.log for s in self._existing})


def _is_older(leader: Leader, known: Leader | None) -> bool:
    return known is not None and known.epoch is not None and leader.epoch is not None and leader.epoch < known.epoch
