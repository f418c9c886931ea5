"""Which splits a subscription has; the cluster is a dictionary that the tests change."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping, Set

import pytest

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.lookup.discovery import KafkaDiscovery
from pyspark_aligned_kafka.options.subscription import Assign, Subscribe, SubscribePattern, Subscription
from watermark_source.errors import RefusedError, SourceError, UnknownSplitError, UnreachableError, listed
from watermark_source.planning.split import Split


class Topics(KafkaAdmin):
    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions
        self.internal: set[str] = set()
        self.refused: set[str] = set()
        self.asked = 0
        self.expected: Set[Split] = frozenset()
        self.now = 0.0
        self.id: str | None = None
        """As the broker that is asked names it."""
        self.id_of_all: str | None = None

    def topic_by_all_brokers(self, name: str) -> Topic | None:
        if self.id != self.id_of_all:
            raise SourceError("brokers still name it by several ids")
        return Topic({}, internal=False, id=self.id)

    def refusal(self, names: Collection[str]) -> SourceError | None:
        refused = self.refused & set(names)
        return RefusedError(f"may not read {listed(refused)}") if refused else None

    def topics(self, names: Collection[str] | None, expected: Set[Split] = frozenset()) -> Mapping[str, Topic]:
        self.asked += 1
        self.expected = expected
        return {
            name: Topic(dict.fromkeys(range(count)), internal=name in self.internal, id=self.id)
            for name, count in self.partitions.items()
            if names is None or name in names
        }

    def discovery(self, subscription: Subscription, max_age_ms: int = 5_000) -> KafkaDiscovery:
        return KafkaDiscovery(self, self, subscription, max_age_ms=max_age_ms, clock=lambda: self.now)


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
    assert "Not read, because the cluster does not have it: a-7, z-0" in caplog.text


def test_a_missing_subscribed_topic_is_an_error_at_the_start() -> None:
    with pytest.raises(UnknownSplitError, match="topic b, c does not exist"):
        Topics(a=1).discovery(Subscribe(frozenset("abc"))).discover()


def test_a_topic_that_is_spelled_wrong_is_reported_with_those_that_are_like_it() -> None:
    topics = Topics(orders=1, orders_dead=1, payments=1)
    with pytest.raises(UnknownSplitError, match=r"topic oders does not exist; .*Names like it: orders, orders_dead$"):
        topics.discovery(Subscribe(frozenset({"oders"}))).discover()
    with pytest.raises(UnknownSplitError, match=r"that the user may describe$"):
        topics.discovery(Subscribe(frozenset({"clicks"}))).discover()


def test_no_assigned_partition_at_all_is_an_error_at_the_start() -> None:
    with pytest.raises(UnknownSplitError, match="partition a-7 does not exist"):
        Topics(a=1).discovery(Assign(frozenset(splits("a", 7)))).discover()


@pytest.mark.parametrize("subscription", [
    Subscribe(frozenset("a")), SubscribePattern(re.compile("a")), Assign(frozenset(splits("a", 0, 1))),
])  # fmt: skip
def test_what_the_checkpoint_has_is_expected_of_the_first_look_as_far_as_it_is_chosen(
    subscription: Subscription,
) -> None:
    topics = Topics(a=2, b=1)
    discovery = topics.discovery(subscription)
    discovery.expect(splits("a", 0, 1) | splits("b", 0), {})
    assert topics.asked == 0
    discovery.discover()
    assert topics.expected == splits("a", 0, 1)


def test_what_the_checkpoint_has_is_looked_for_again_if_the_first_look_missed_it() -> None:
    topics = Topics(a1=1)
    discovery = topics.discovery(SubscribePattern(re.compile("a")))
    assert discovery.discover() == splits("a1", 0)
    topics.partitions["a2"] = 1
    discovery.expect(splits("a1", 0) | splits("a2", 0), {})
    assert (topics.asked, topics.expected) == (2, splits("a1", 0) | splits("a2", 0))
    assert discovery.discover() == splits("a1", 0) | splits("a2", 0)
    # All are there: nothing is asked.
    discovery.expect(splits("a1", 0), {})
    assert topics.asked == 2


class SlowTopics(Topics):
    """Answers when it is let; fails while it is asked to."""

    def __init__(self, **partitions: int) -> None:
        super().__init__(**partitions)
        self.let = threading.Event()
        self.fails = False

    def topics(self, names: Collection[str] | None, expected: Set[Split] = frozenset()) -> Mapping[str, Topic]:
        found = super().topics(names, expected)
        assert self.let.wait(60)
        if self.fails:
            raise UnreachableError("nobody there")
        return found


def settled(discovery: KafkaDiscovery) -> Set[Split]:
    """Ask once more when the look under way, if there is one, is over."""
    discovery.discover()
    for thread in [t for t in threading.enumerate() if t.name == "discovery"]:
        thread.join(60)
    return discovery.discover()


def test_the_cluster_is_asked_again_only_when_the_answer_is_old() -> None:
    topics = Topics(a=1)
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    topics.partitions["a"], topics.now = 2, 4.9
    assert settled(discovery) == splits("a", 0)
    assert topics.asked == 1
    topics.now = 5.0
    assert settled(discovery) == splits("a", 0, 1)
    assert settled(discovery) == splits("a", 0, 1)
    assert topics.asked == 2


def test_no_one_waits_for_a_later_look_and_there_is_one_at_a_time() -> None:
    topics, slow = Topics(a=1), SlowTopics(a=2)
    discovery = KafkaDiscovery(topics, slow, Subscribe(frozenset("a")), max_age_ms=5_000, clock=lambda: topics.now)
    assert discovery.discover() == splits("a", 0)
    for topics.now in (5.0, 15.0, 99.9):
        assert discovery.discover() == splits("a", 0)
    assert (topics.asked, slow.asked) == (1, 1)
    slow.let.set()
    assert settled(discovery) == splits("a", 0, 1)


def test_a_later_look_may_fail_until_the_last_answer_is_too_old(caplog: pytest.LogCaptureFixture) -> None:
    topics = SlowTopics(a=1)
    topics.let.set()
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    topics.fails, topics.partitions["a"] = True, 2
    for topics.now in (5.0, 7.0, 10.0, 99.9):
        assert settled(discovery) == splits("a", 0)
    assert topics.asked == 4
    assert "those of 5 s ago are read: nobody there" in caplog.text
    assert len(caplog.messages) == 1
    topics.now = 100.0
    with pytest.raises(UnreachableError, match="nobody there"):
        discovery.discover()
    topics.fails = False
    assert discovery.discover() == splits("a", 0, 1)
    assert [text.endswith("listed again, after 95 s") for text in caplog.messages[:2]] == [False, True]


def test_a_topic_that_may_not_be_read_is_refused_at_the_start_and_when_it_is_found_later() -> None:
    topics = Topics(a1=1, b=1)
    topics.refused = {"a1"}
    by_pattern = SubscribePattern(re.compile("a"))
    with pytest.raises(RefusedError, match="may not read a1"):
        topics.discovery(by_pattern).discover()
    topics.refused = {"a2"}
    discovery = topics.discovery(by_pattern)
    assert discovery.discover() == splits("a1", 0)
    topics.partitions["a2"], topics.now = 1, 5.0
    with pytest.raises(RefusedError, match="may not read a2"):
        settled(discovery)


def test_what_was_found_long_before_anybody_asked_again_is_not_taken() -> None:
    topics = Topics(a=1)
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    topics.now = 5.0
    settled(discovery)
    topics.now = 10.0
    discovery.discover()
    topics.partitions["a"], topics.now = 2, 600.0
    assert discovery.discover() == splits("a", 0, 1)


def test_an_answer_of_no_age_is_waited_for() -> None:
    topics = Topics(a=1)
    discovery = topics.discovery(Subscribe(frozenset("a")), max_age_ms=0)
    for count in range(1, 4):
        topics.partitions["a"] = count
        assert discovery.discover() == splits("a", *range(count))
    assert topics.asked == 3


def test_a_topic_that_goes_later_is_left_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    topics = Topics(a=1, b=1)
    discovery = topics.discovery(Subscribe(frozenset("ab")))
    discovery.discover()
    del topics.partitions["b"]
    for topics.now in (10.0, 20.0):
        assert settled(discovery) == splits("a", 0)
    assert caplog.text.count("Not read, because the cluster does not have it: b") == 1


def test_each_list_of_the_partitions_that_exist_is_passed_on_and_each_new_topic_once() -> None:
    topics = Topics(a1=1)
    listed: list[Set[Split]] = []
    new: list[Set[str]] = []
    discovery = KafkaDiscovery(
        topics, topics, SubscribePattern(re.compile("a")), max_age_ms=5_000, clock=lambda: topics.now,
        on_listed=listed.append, on_new_topics=new.append,
    )  # fmt: skip
    discovery.discover()
    topics.partitions, topics.now = {"a2": 1}, 5.0
    settled(discovery)
    topics.now = 10.0
    settled(discovery)
    assert listed == [splits("a1", 0), splits("a2", 0), splits("a2", 0)]
    assert new == [{"a1"}, {"a2"}]


def test_a_look_since_a_moment_is_made_at_once_and_waited_for() -> None:
    topics = Topics(a=1)
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    topics.partitions["a"], topics.now = 2, 1.0
    assert discovery.looked_since(0.5, wait=10)
    assert discovery.discover() == splits("a", 0, 1)
    assert discovery.looked_since(1.0, wait=0)
    assert topics.asked == 2


def test_a_look_that_began_before_the_moment_does_not_do() -> None:
    topics, slow = Topics(a=1), SlowTopics(a=2)
    discovery = KafkaDiscovery(topics, slow, Subscribe(frozenset("a")), max_age_ms=5_000, clock=lambda: topics.now)
    discovery.discover()
    topics.now = 1.0
    assert not discovery.looked_since(1.0, wait=0)
    slow.let.set()
    assert discovery.looked_since(1.0, wait=10)
    topics.now = 2.0
    assert discovery.looked_since(2.0, wait=10)
    assert slow.asked == 2


def test_a_look_that_began_before_the_checkpoint_was_looked_for_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics, slow, wanted = Topics(a=1), SlowTopics(a=1), Assign(frozenset(splits("a", 0, 1)))
    discovery = KafkaDiscovery(topics, slow, wanted, max_age_ms=5_000, clock=lambda: topics.now)
    discovery.discover()
    topics.now = 1.0
    assert not discovery.looked_since(1.0, wait=0)
    topics.partitions["a"], topics.now = 2, 2.0
    discovery.expect(splits("a", 0, 1), {})
    caplog.clear()
    slow.let.set()
    assert settled(discovery) == splits("a", 0, 1)
    assert not caplog.messages


def test_a_topic_is_another_one_only_once_all_brokers_name_its_new_id(caplog: pytest.LogCaptureFixture) -> None:
    topics, reported = Topics(a=1), list[Set[str]]()
    topics.id = topics.id_of_all = "A"
    discovery = KafkaDiscovery(
        topics,
        topics,
        Subscribe(frozenset("a")),
        max_age_ms=5_000,
        clock=lambda: topics.now,
        on_new_topics=reported.append,
    )
    discovery.discover()
    assert (discovery.ids(), reported) == ({"a": "A"}, [{"a"}])
    topics.id, topics.now = "B", 6.0
    settled(discovery)
    assert (discovery.ids(), reported) == ({"a": "A"}, [{"a"}])
    assert "brokers still name it by several ids" in caplog.text
    topics.id_of_all, topics.now = "B", 12.0
    settled(discovery)
    assert (discovery.ids(), reported) == ({"a": "B"}, [{"a"}, {"a"}])


def test_the_ids_of_a_checkpoint_are_others_only_once_all_brokers_name_them() -> None:
    topics = Topics(a=1)
    topics.id, topics.id_of_all = "A", "B"
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    with pytest.raises(SourceError, match="several ids"):
        discovery.expect(splits("a", 0), {"a": "B"})
    topics.id = "B"
    discovery.expect(splits("a", 0), {"a": "B"})
    assert discovery.ids() == {"a": "B"}


def test_looks_take_a_small_share_of_the_time() -> None:
    topics, slow = Topics(a=1), SlowTopics(a=2)
    discovery = KafkaDiscovery(
        topics, slow, Subscribe(frozenset("a")), max_age_ms=90_000, clock=lambda: topics.now, cpu=lambda: topics.now
    )
    discovery.discover()
    topics.now = 1.0
    assert not discovery.looked_since(1.0, wait=0)
    topics.now = 2.0
    slow.let.set()
    assert discovery.looked_since(1.0, wait=10)
    for topics.now in (3.0, 20.9):
        assert not discovery.looked_since(2.5, wait=10)
    topics.now = 21.0
    assert discovery.looked_since(2.5, wait=10)


def test_after_a_look_that_failed_the_next_one_waits_its_time() -> None:
    topics = SlowTopics(a=1)
    topics.let.set()
    discovery = topics.discovery(Subscribe(frozenset("a")))
    discovery.discover()
    topics.fails, topics.now = True, 1.0
    assert not discovery.looked_since(1.0, wait=10)
    topics.fails = False
    assert not discovery.looked_since(1.0, wait=10)
    topics.now = 6.0
    assert discovery.looked_since(1.0, wait=10)
