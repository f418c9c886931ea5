"""Three brokers, of which one dies, freezes or hands over: look-ups, plans, reads, commits and the doctor continue."""

from __future__ import annotations

import contextlib
import itertools
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Set

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic
from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.group_commits import ConsumerGroup, GroupCommits
from pyspark_aligned_kafka.cluster.list_offsets import LATEST
from pyspark_aligned_kafka.cluster.metadata import Leaders
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from services.consumer_groups import committed_offsets, coordinator_of
from services.kafka import kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import admin_client, create_topic, wait_for_leaders
from services.kafka_wire import BrokerConnection, ClusterView
from services.wait_until import wait_until
from tests.integration.examined import Examined, examined
from tests.integration.kafka_lookups import ENDS, SPLITS, ask_again_and_again, connect, splits_of
from tests.integration.kafka_reads import SMALL_FETCHES, number_topic, reader
from tests.integration.planned_query import START, Query, stopped, write
from watermark_source.contract.stream import Ends, EventTimeIndex
from watermark_source.errors import ResponseTimeoutError, UnreachableError
from watermark_source.planning.announcement import Announcement, encoded
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

__all__ = ["examined", "stopped"]
pytestmark = pytest.mark.service
AWAY = 3
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with kafka_cluster(3, jvm=FAST_START) as made:
        create_topic(made.bootstrap, "t", PARTITIONS)
        yield made


def view_of(cluster: LocalKafka, topic: str | None = None, node: int = 1) -> ClusterView:
    """Return the cluster as one of its brokers sees it."""
    host, _, port = cluster.bootstrap.split(",")[node - 1].rpartition(":")
    with BrokerConnection(host, int(port)) as connection:
        return connection.cluster(topic)


def led_by(cluster: LocalKafka, topic: str, node: int) -> set[str]:
    return {str(each.partition) for each in view_of(cluster, topic).leaders if each.leader == node}


@pytest.fixture
def three_brokers(cluster: LocalKafka) -> LocalKafka:
    """All three, and whole again, whatever the test before has done to them."""
    # One that was frozen for long is treated as dead until it has stated that it is there.
    wait_until(lambda: sum(len(led_by(cluster, "t", node)) for node in cluster.nodes) == PARTITIONS, 60, "all leaders")
    wait_for_leaders(cluster.bootstrap, ["t"], PARTITIONS)
    return cluster


def topic_partly_on(cluster: LocalKafka, node: int, name: str, partitions: int = PARTITIONS) -> str:
    """Create a topic of which the node leads partitions: one that counts as dead just then is given none."""
    for number in itertools.count():
        create_topic(cluster.bootstrap, topic := f"{name}-{number}", partitions)
        if led_by(cluster, topic, node):
            break
        time.sleep(0.5)
    return topic


def splits_led_by(cluster: LocalKafka, node: int) -> set[Split]:
    return {Split("t", int(number)) for number in led_by(cluster, "t", node)}


def has_nothing_at_a_glance(index: EventTimeIndex, splits: Set[Split]) -> bool:
    """Return whether their brokers answer a look-up that waits for half a second, and have no record."""
    with contextlib.suppress(ResponseTimeoutError):
        return index.at_a_glance.first_after(dict.fromkeys(splits, Millis(0))) == dict.fromkeys(splits)
    return False


def test_a_frozen_broker_keeps_the_ends_of_others_waiting_once(three_brokers: LocalKafka) -> None:
    connector = connect(three_brokers)
    bounds, silent = connector.bounds, splits_led_by(three_brokers, 3)
    index = connector.time_index
    assert index is not None
    assert bounds.current_ends(SPLITS) == Ends(ENDS)
    wait_until(lambda: has_nothing_at_a_glance(index, SPLITS), 60, "answers of all")
    expected = Ends(dict.fromkeys(SPLITS - silent, 0), dict.fromkeys(silent))
    three_brokers.pause(3)
    try:
        # The others' answers may come too late for one look on a busy machine, and are taken by the next.
        wait_until(lambda: bounds.current_ends(SPLITS) == expected, 60, "the ends of the others")
        waited = []
        for _ in range(5):
            begun = time.monotonic()
            bounds.current_ends(SPLITS)
            waited.append(time.monotonic() - begun)
        # One that is waited for each time takes three seconds each time.
        assert min(waited) < 1
        # What no plan needs waits for nobody, where another look-up waits for a minute.
        begun = time.monotonic()
        with pytest.raises(ResponseTimeoutError):
            index.at_a_glance.first_after(dict.fromkeys(SPLITS, Millis(0)))
        assert time.monotonic() - begun < 20
        wait_until(lambda: has_nothing_at_a_glance(index, SPLITS - silent), 60, "answers of the others")
        wait_until(lambda: bounds.current_ends(SPLITS) == expected, 60, "the ends of the others")
    finally:
        three_brokers.resume(3)
    deadline = time.monotonic() + 60
    while bounds.current_ends(SPLITS) != Ends(ENDS):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cut_is_made_without_a_frozen_broker_only_once_the_others_name_it_no_more(three_brokers: LocalKafka) -> None:
    """Until then it may lead a partition that they do not know yet, with rows in it."""
    topic = topic_partly_on(three_brokers, 1, "cut", partitions=1)
    # Each answer is waited for less long than it takes until a broker counts as dead.
    limits = {"kafka.default.api.timeout.ms": "1000", "kafka.request.timeout.ms": "1000"}
    options = {"kafka.bootstrap.servers": three_brokers.bootstrap, **limits}

    def is_cut() -> bool:
        try:
            return len(announcing.cut().ends) == 1
        except (ResponseTimeoutError, UnreachableError):
            return False

    with contextlib.closing(AnnouncementTopic(options, topic)) as announcing:
        wait_until(is_cut, 90, "a cut while all brokers answer")
        three_brokers.pause(AWAY)
        try:
            wait_until(is_cut, 90, "a cut without the broker")
            assert any(AWAY not in view_of(three_brokers, node=node).brokers for node in (1, 2))
        finally:
            three_brokers.resume(AWAY)


@pytest.mark.long("test_a_broker_that_stays_frozen_is_an_error_after_the_limit_and_not_before")
def test_a_broker_that_answers_late_each_time_is_no_error(three_brokers: LocalKafka) -> None:
    """However long all its answers take together; each is reported while the next one is waited for."""
    bounds, silent = connect(three_brokers, default_api_timeout_ms="6000").bounds, splits_led_by(three_brokers, 3)
    for late in (None, 0, 0):
        three_brokers.pause(3)
        try:
            assert bounds.current_ends(SPLITS).unknown == dict.fromkeys(silent, late)
        finally:
            three_brokers.resume(3)
        # Answers come in the order of the questions: the late one is read before this one.
        assert bounds.end_positions(silent) == dict.fromkeys(silent, 0)


def test_a_broker_that_stays_frozen_is_an_error_after_the_limit_and_not_before(three_brokers: LocalKafka) -> None:
    bounds = connect(three_brokers, default_api_timeout_ms="6000").bounds
    three_brokers.pause(3)
    begun = time.monotonic()
    try:
        with pytest.raises(ResponseTimeoutError, match=r"no offset of t-\d.* within 6 s"):
            ask_again_and_again(bounds, seconds=60)
    finally:
        three_brokers.resume(3)
    assert 5.9 < time.monotonic() - begun < 50


@pytest.mark.parametrize("limit", ["4000", "60000"])
@pytest.mark.long("test_an_outage_within_one_long_batch_is_no_quiet_time_and_a_long_batch_without_one_is")
def test_a_broker_that_was_slow_before_a_long_batch_is_asked_anew_after_it(
    three_brokers: LocalKafka, limit: str
) -> None:
    bounds, silent = connect(three_brokers, default_api_timeout_ms=limit).bounds, splits_led_by(three_brokers, 3)
    three_brokers.pause(3)
    try:
        assert bounds.current_ends(SPLITS).unknown == dict.fromkeys(silent)
    finally:
        three_brokers.resume(3)
    # No one listens, for longer than the first limit.
    time.sleep(5.5)
    assert bounds.current_ends(SPLITS) == Ends(ENDS)


@pytest.mark.long("test_an_outage_within_one_long_batch_is_no_quiet_time_and_a_long_batch_without_one_is")
def test_a_broker_whose_answer_came_before_a_long_batch_was_not_silent_all_the_time(three_brokers: LocalKafka) -> None:
    bounds, silent = connect(three_brokers, default_api_timeout_ms="6000").bounds, splits_led_by(three_brokers, 3)
    three_brokers.pause(3)
    try:
        assert bounds.current_ends(SPLITS).unknown == dict.fromkeys(silent)
        three_brokers.resume(3)
        time.sleep(0.5)
        bounds.end_positions(SPLITS - silent)
        time.sleep(6.1)
        three_brokers.pause(3)
        begun = time.monotonic()
        assert bounds.current_ends(SPLITS).unknown == dict.fromkeys(silent, 0)
        assert time.monotonic() - begun < 5
    finally:
        three_brokers.resume(3)


@pytest.mark.long("test_a_broker_that_stays_frozen_is_an_error_after_the_limit_and_not_before")
def test_a_silent_broker_is_an_error_though_others_are_asked_about_in_between(three_brokers: LocalKafka) -> None:
    bounds, silent = connect(three_brokers, default_api_timeout_ms="4000").bounds, splits_led_by(three_brokers, 3)

    def ask_until(end: float) -> None:
        while time.monotonic() < end:
            bounds.current_ends(SPLITS)
            assert bounds.current_ends(SPLITS - silent).unknown == {}
            time.sleep(0.05)

    three_brokers.pause(3)
    begun = time.monotonic()
    try:
        with pytest.raises(ResponseTimeoutError, match=r"no offset of t-\d.* within 4 s"):
            ask_until(begun + 30)
    finally:
        three_brokers.resume(3)
    assert 3.9 < time.monotonic() - begun < 50


@pytest.mark.long("test_an_outage_within_one_long_batch_is_no_quiet_time_and_a_long_batch_without_one_is")
def test_a_broker_that_is_frozen_again_after_a_long_batch_has_the_whole_limit(three_brokers: LocalKafka) -> None:
    bounds, silent = connect(three_brokers, default_api_timeout_ms="6000").bounds, splits_led_by(three_brokers, 3)
    three_brokers.pause(3)
    try:
        assert bounds.current_ends(SPLITS).unknown == dict.fromkeys(silent)
        time.sleep(6.5)
        threading.Timer(4.5, three_brokers.resume, (3,)).start()
        assert bounds.current_ends(SPLITS) == Ends(ENDS)
    finally:
        three_brokers.resume(3)


def test_a_leader_that_another_connection_has_found_is_asked_by_one_that_does_not_know_its_broker(
    three_brokers: LocalKafka,
) -> None:
    create_topic(three_brokers.bootstrap, "found-by-another", 6, replicas=1)
    settings = KafkaSource(
        kafka_options.parse({"kafka.bootstrap.servers": three_brokers.bootstrap, "subscribe": "x"})
    ).options.client
    leaders = Leaders()
    first, second = (KafkaAdmin(settings, leaders=leaders) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        splits = {Split("found-by-another", number) for number in range(6)}
        first.topics(["found-by-another"])
        assert not leaders.unknown(splits)
        assert second.batch_headers(dict.fromkeys(splits, 0)) == {}
        assert second.list_offsets_in_time(dict.fromkeys(splits, LATEST)).offsets.keys() == splits


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [(LocalKafka.pause, LocalKafka.resume), (LocalKafka.kill, LocalKafka.start)],
    ids=["frozen", "killed"],
)
def test_what_a_lost_broker_leads_stays_as_it_is_and_the_rest_is_read_on(
    three_brokers: LocalKafka,
    leave: Callable[[LocalKafka, int], None],
    come_back: Callable[[LocalKafka, int], None],
) -> None:
    topic = topic_partly_on(three_brokers, AWAY, f"away-{leave.__name__}")
    everything = {str(number) for number in range(PARTITIONS)}
    silent = led_by(three_brokers, topic, AWAY)
    query = Query(three_brokers, topic, idleTimeout="1 second", startingOffsets="earliest")
    write(three_brokers, topic, everything, 0)
    query.read(everything)
    before = query.offset["splits"][topic]
    leave(three_brokers, AWAY)
    try:
        time.sleep(1.5)
        write(three_brokers, topic, everything - silent, 100)
        # The first plan gives the broker three seconds for each of two questions; no later one does.
        query.read(everything - silent)
        waited = []
        for _ in range(20):
            begun = time.monotonic()
            assert query.plan(within=60) == {}
            waited.append(time.monotonic() - begun)
        assert statistics.median(waited) < 2
        query.until(lambda: {n for n, status in query.statuses().items() if status == "u"} == silent)
        assert {n: query.offset["splits"][topic][n][0] for n in silent} == {n: before[n][0] for n in silent}
        assert query.offset["wm"] == START - 1
    finally:
        come_back(three_brokers, AWAY)
    while led_by(three_brokers, topic, AWAY) != silent:
        time.sleep(0.1)
    wait_for_leaders(three_brokers.bootstrap, [topic], PARTITIONS)
    write(three_brokers, topic, silent, 100)
    query.read(silent)
    query.until(lambda: query.offset["wm"] == START + 99_999)


def test_a_broker_that_stays_away_is_an_error_after_the_limit(three_brokers: LocalKafka) -> None:
    topic = topic_partly_on(three_brokers, AWAY, "gone")
    query = Query(three_brokers, topic, **{"kafka.default.api.timeout.ms": "6000"})
    query.settle(0.5)
    three_brokers.pause(AWAY)
    begun = time.monotonic()
    try:
        with pytest.raises(ResponseTimeoutError, match=rf"no offset of {topic}-\d.* within 6 s"):
            query.settle(60)
    finally:
        three_brokers.resume(AWAY)
    assert 5.9 < time.monotonic() - begun < 50


def test_partitions_without_a_leader(three_brokers: LocalKafka, examined: Examined) -> None:
    assert examined(three_brokers.bootstrap, subscribe="t")["leaders"] == ("ok", "brokers that lead them: 3")
    three_brokers.kill(3)
    try:
        until = time.monotonic() + 120
        limits = {"kafka.default.api.timeout.ms": 8_000, "kafka.request.timeout.ms": 3_000}
        while (found := examined(three_brokers.bootstrap, 1, subscribe="t", **limits))["leaders"][0] != "FAILED":
            assert time.monotonic() < until
    finally:
        three_brokers.start(3)
    assert "has no leader: all brokers that hold an up-to-date copy are away" in found["leaders"][1]
    assert found["READ"] == ("skipped", "needs leaders, which failed")


def test_leaders_that_move_are_followed(three_brokers: LocalKafka) -> None:
    create_topic(three_brokers.bootstrap, "moved", 6, replicas=3)
    splits = splits_of("moved")
    ends = dict.fromkeys(splits, 0)
    connector = connect(three_brokers, "moved")
    three_brokers.kill(2)
    try:
        assert connector.bounds.end_positions(splits) == ends
        assert connector.time_index is not None
        assert connector.time_index.newest(splits) == dict.fromkeys(splits)
    finally:
        three_brokers.start(2)


def test_a_coordinator_that_freezes_or_dies_is_followed_to_its_new_place(
    three_brokers: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    coordinator = coordinator_of(three_brokers.bootstrap, "g")
    others = bootstrap_without(three_brokers, coordinator)
    settings = parse_settings({"kafka.bootstrap.servers": three_brokers.bootstrap})
    progress = GroupCommits(ConsumerGroup(settings, "g", "orders"))

    def holds(position: int, others: str) -> bool:
        return {split: each.offset for split, each in committed_offsets(others, "g").items()} == {("t", 0): position}

    progress.record({Split("t", 0): 1})
    wait_until(lambda: holds(1, others), 90, "the first commit")

    three_brokers.pause(coordinator)
    try:
        begun = time.monotonic()
        progress.record({Split("t", 0): 2})
        assert time.monotonic() - begun < 20
        wait_until(lambda: holds(2, others), 90, "the commit at another coordinator")
    finally:
        three_brokers.resume(coordinator)

    coordinator = coordinator_of(others, "g")
    three_brokers.kill(coordinator)
    try:
        progress.record({Split("t", 0): 3})
        others = bootstrap_without(three_brokers, coordinator)
        wait_until(lambda: holds(3, others), 90, "the commit at a third coordinator")
        progress.close()
    finally:
        three_brokers.start(coordinator)


@pytest.mark.parametrize("seconds", [3, pytest.param(65, marks=pytest.mark.long("3 seconds"))])
def test_announcements_on_a_broker_that_is_away_only_keep_the_watermark_where_it_is(
    three_brokers: LocalKafka, seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"announced-{seconds}"
    side = f"{topic}.watermarks"
    with admin_client(three_brokers.bootstrap) as admin:
        placed = {topic: {"assignments": {0: [1]}}, side: {"assignments": {0: [AWAY]}}}
        admin.create_topics(placed, timeout_ms=30_000, wait_for_metadata=True)
    wait_for_leaders(three_brokers.bootstrap, [topic, side], 1)
    lookup = KafkaAdmin(parse_settings({"kafka.bootstrap.servers": three_brokers.bootstrap}))
    topic_id = lookup.topics({topic})[topic].id
    lookup.close()
    assert topic_id is not None

    def announce(batch: int, end: int) -> None:
        at = Millis(START + batch)
        made = Announcement(writer="a", query="q", batch=batch, watermark=at, topic=topic_id, ends={"0": end})
        producer = KafkaProducer(bootstrap_servers=three_brokers.bootstrap)
        producer.send(side, encoded(made), key=b"a")
        producer.flush(60)
        producer.close()

    def reach(batch: int) -> None:
        until = time.monotonic() + 120
        while query.offset.get("wm") != START + batch:
            assert time.monotonic() < until
            query.settle(0.2)

    announce(1, 0)
    query = Query(three_brokers, topic, watermarkStrategy="announced", startingOffsets="earliest")
    reach(1)
    three_brokers.pause(AWAY)
    try:
        write(three_brokers, topic, {"0"}, 1)
        query.read({"0"})
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            # A plan has a budget of three seconds, and a look without a limit of its own one of sixty.
            assert query.plan(within=30) == {}
        assert query.offset["wm"] == START + 1
        report = query.reader.reportLatestOffset()
        assert report is not None
        assert "unannounced" in report
    finally:
        three_brokers.resume(AWAY)
    announce(2, 1)
    reach(2)
    assert ("has not been read to its end" in caplog.text) == (seconds > 60)


def bootstrap_without(cluster: LocalKafka, node: int) -> str:
    return ",".join(
        address for n, address in zip(cluster.nodes, cluster.bootstrap.split(","), strict=True) if n != node
    )


def test_a_read_follows_leadership_that_moves(three_brokers: LocalKafka) -> None:
    create_topic(three_brokers.bootstrap, "read", 3, replicas=3)
    wanted = [number_topic(three_brokers, "read", 100_000, partition) for partition in range(3)]
    # What is read was given to all copies, which bulk_produce does not wait for.
    with contextlib.closing(KafkaConsumer(bootstrap_servers=three_brokers.bootstrap.split(","))) as consumer:
        splits = [TopicPartition("read", partition) for partition in range(3)]
        wait_until(lambda: set(consumer.end_offsets(splits).values()) == {100_000}, 120, "all copies")
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    try:
        for i, made in enumerate(reader(three_brokers.bootstrap, ("offset",), **SMALL_FETCHES).read(wanted)):
            seen[made.split.number] += made.columns[0].to_pylist()
            if i == 3:
                three_brokers.kill(1)
    finally:
        three_brokers.start(1)
    assert {number: len(found) for number, found in seen.items()} == dict.fromkeys(range(3), 100_000)
    assert all(found == list(range(100_000)) for found in seen.values())
