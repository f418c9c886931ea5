"""Which splits a subscription has; the cluster is a dictionary that the tests change."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import pytest

from pyspark_aligned_kafka.discovery import KafkaDiscovery
from pyspark_aligned_kafka.metadata import Topic
from pyspark_aligned_kafka.subscription import Assign, Subscribe, SubscribePattern, Subscription
from watermark_source.errors import UnknownSplitError
from watermark_source.planning.split import Split


class Topics:
    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions
        self.internal: set[str] = set()
        self.asked = 0
        self.now = 0.0

    def topics(self, names: Collection[str] | None) -> Mapping[str, Topic]:
        self.asked += 1
        return {
            name: Topic(dict.fromkeys(range(count), 1), internal=name in self.internal)
            for name, count in self.partitions.items()
            if names is None or name in names
        }

    def discovery(self, subscription: Subscription) -> KafkaDiscovery:
        return KafkaDiscovery(self, subscription, max_age_ms=5_000, clock=lambda: self.now)


def splits(name: str, *numbers: int) -> set[Split]:
    return {Split(name, number) for number in numbers}


def test_subscribe_gives_all_partitions_of_its_topics() -> None:
    assert Topics(a=2, b=1, c=1).discovery(Subscribe(frozenset("ab"))).discover() == splits("a", 0, 1) | splits("b", 0)


def test_a_pattern_leaves_internal_topics_out() -> None:
    topics = Topics(a1=1, a2=1, __a=1)
    topics.internal = {"__a"}
    found = topics.discovery(SubscribePattern(re.compile("a"))).discover()
    assert found == splits("a1", 0) | splits("a2", 0)


def test_a_pattern_may_match_nothing_yet() -> None:
    assert Topics(b=1).discovery(SubscribePattern(re.compile("a"))).discover() == set()


def test_assign_skips_partitions_that_do_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    wanted = frozenset(splits("a", 0, 7) | splits("z", 0))
    assert Topics(a=2).discovery(Assign(wanted)).discover() == splits("a", 0)
    assert "Not there and therefore not read: a-7, z-0" in caplog.text


def test_a_missing_subscribed_topic_is_an_error_at_the_start() -> None:
    with pytest.raises(UnknownSplitError, match="topic b, c does not exist"):
        Topics(a=1).discovery(Subscribe(frozenset("abc"))).discover()


def test_no_assigned_partition_at_all_is_an_error_at_the_start() -> None:
    with pytest.raises(UnknownSplitError, match="partition a-7 does not exist"):
        Topics(a=1).discovery(Assign(frozenset(splits("a", 7)))).discover()


def test_the_cluster_is_asked_again_only_when_the_answer_is_old() -> None:
    topics = Topics(a=1)
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    topics.partitions["a"], topics.now = 2, 4.9
    assert discovery.discover() == splits("a", 0)
    assert topics.asked == 1
    topics.now = 5.0
    assert discovery.discover() == splits("a", 0, 1)
    assert topics.asked == 2


def test_a_topic_that_goes_later_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics(a=1, b=1)
    discovery = topics.discovery(Subscribe(frozenset("ab")))
    discovery.discover()
    del topics.partitions["b"]
    for topics.now in (10.0, 20.0):
        assert discovery.discover() == splits("a", 0)
    assert caplog.text.count("Not there and therefore not read: b") == 1
