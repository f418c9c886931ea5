"""Topics created again under their names, and leaders elected without the last records: each loss is named."""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from services.kafka import Kafka, kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import admin_client, create_topic, delete_topic
from services.wait_until import wait_until
from tests.integration.direct_kafka import DirectKafka, DirectQuery
from tests.integration.log_histories import (
    LOOKS_OFTEN,
    PHASES,
    Lived,
    Topic,
    delivered,
    drawn,
    live_through_elections,
    put,
    values,
)
from watermark_source.errors import DataLossError, SourceError

pytestmark = pytest.mark.service
names = itertools.count()
_LONGEST_PHASE = 300.0
_log = logging.getLogger(__name__)


def create_again(bootstrap: str, topic: str, written: Sequence[str]) -> None:
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic, 1)
    put(bootstrap, topic, written)


# A topic that was deleted and created again.


@pytest.mark.parametrize("again", [10, 20, 35], ids=["smaller", "same size", "larger"])
@pytest.mark.parametrize("while_down", [False, True], ids=["while it reads", "while it is down"])
def test_a_topic_created_again_is_a_loss_and_read_from_its_beginning(
    kafka: Kafka, direct: DirectKafka, caplog: pytest.LogCaptureFixture, again: int, *, while_down: bool
) -> None:
    topic = f"again-{next(names)}"
    create_topic(kafka.bootstrap, topic, 1)
    put(kafka.bootstrap, topic, values("old", 20))
    options = direct.source(subscribe=topic, failOnDataLoss="true", **LOOKS_OFTEN)
    goes_on = {**options, "failOnDataLoss": "false"}
    fails, skips = direct.start(options, f"{topic}-fails"), direct.start(goes_on, f"{topic}-skips")
    for query in (fails, skips):
        query.process_all()
        if while_down:
            query.stop()
    create_again(kafka.bootstrap, topic, values("new", again))
    if while_down:
        fails, skips = direct.start(options, f"{topic}-fails"), direct.start(goes_on, f"{topic}-skips")
    with pytest.raises(DataLossError, match=f"{topic}.* was deleted and created again since.* the id") as lost:
        fails.run_until(lambda: False, seconds=60)
    assert "KAFKA_DATA_LOSS" in str(lost.value)
    expected = [*values("old", 20), *values("new", again)]
    skips.run_until(lambda: len(delivered(direct, f"{topic}-skips")) >= len(expected), seconds=60)
    skips.process_all()
    # No record of the new topic was read in place of one of the earlier one.
    assert delivered(direct, f"{topic}-skips") == expected
    assert "created again" in caplog.text


def test_a_checkpoint_without_ids_learns_them(kafka: Kafka, direct: DirectKafka) -> None:
    topic = f"learns-{next(names)}"
    create_topic(kafka.bootstrap, topic, 1)
    put(kafka.bootstrap, topic, values("old", 5))
    options = direct.source(subscribe=topic)
    direct.start(options, topic).process_all()
    (end,) = direct._kept[topic].offsets[-1:]
    assert set(end) >= {"ids", "epochs"}
    earlier = {key: value for key, value in end.items() if key not in {"ids", "epochs"}}
    direct.continue_from(earlier, f"{topic}-resumed")
    put(kafka.bootstrap, topic, values("more", 1))
    resumed = direct.start(options, f"{topic}-resumed")
    resumed.process_all()
    after = direct._kept[f"{topic}-resumed"].offsets[-1]
    assert (after["ids"], after["epochs"]) == (end["ids"], end["epochs"])
    assert delivered(direct, f"{topic}-resumed") == ["more0"]


@pytest.mark.parametrize("again", [10, 35])
def test_a_batch_that_was_planned_on_an_earlier_topic_reads_none_of_the_new_one(
    kafka: Kafka, direct: DirectKafka, caplog: pytest.LogCaptureFixture, again: int
) -> None:
    topic = f"planned-{next(names)}"
    create_topic(kafka.bootstrap, topic, 1)
    put(kafka.bootstrap, topic, values("old", 20))
    queries = []
    for fails in ("true", "false"):
        options = direct.source(subscribe=topic, failOnDataLoss=fails, **LOOKS_OFTEN)
        queries.append(direct.start(options, f"{topic}-{fails}"))
        assert queries[-1].plan()
    create_again(kafka.bootstrap, topic, values("new", again))
    with pytest.raises(DataLossError, match="was deleted and created again since the batch was planned"):
        queries[0].step()
    queries[1].run_until(lambda: len(delivered(direct, f"{topic}-false")) >= again, seconds=60)
    queries[1].process_all()
    assert delivered(direct, f"{topic}-false") == values("new", again)
    assert "offsets from 0 on are skipped because failOnDataLoss is false" in caplog.text


# Leaders that were elected without the last records: two replicas, and a third broker that holds none of them.


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with kafka_cluster(3, jvm=FAST_START) as made:
        yield made


def wait_until_led(bootstrap: str, topics: Collection[str], leader: int, in_sync: int) -> None:
    with contextlib.closing(KafkaAdmin(parse_settings({"kafka.bootstrap.servers": bootstrap}))) as brokers:

        def are_led() -> bool:
            with contextlib.suppress(SourceError):
                found = brokers.replicas(topics).values()
                return len(found) == len(topics) and {(at.leader, at.in_sync) for at in found} == {(leader, in_sync)}
            return False

        wait_until(are_led, 120, f"all led by {leader}, {in_sync} in sync")


KEPT, LOST = 30, 20
"""Records that both copies have, and that only the one on broker 1 has."""
SHAPES = {"shorter": 10, "equal": 20} | dict.fromkeys(
    ("longer", "compacted", "transactional", "run", "down", "planned"), 35
)
"""How many records the next leader writes, by topic."""


def put_all(bootstrap: str, topics: Mapping[str, str], prefix: str, counts: Mapping[str, int]) -> None:
    for shape, topic in topics.items():
        transactions = f"{topic}-{prefix}" if shape == "transactional" else None
        put(bootstrap, topic, values(prefix, counts[shape]), transactions=transactions)


@pytest.mark.long("test_what_a_leader_did_not_have_is_found_exactly")
def test_records_that_an_unclean_election_replaced_are_a_loss_and_the_new_ones_are_read_once(
    cluster: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Of all shapes at once; then broker 1 comes back with what it had, and leads again without the records of 2."""
    direct = DirectKafka(cluster.bootstrap)
    topics = {shape: f"unclean-{shape}" for shape in SHAPES}
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    with admin_client(cluster.bootstrap) as admin:
        for shape, topic in topics.items():
            more = {"cleanup.policy": "compact"} if shape == "compacted" else {}
            admin.create_topics({topic: {"assignments": {0: [1, 2]}, "configs": config | more}})

    def wait_for(leader: int, in_sync: int) -> None:
        wait_until_led(cluster.bootstrap, [*topics.values()], leader, in_sync)

    def start(shape: str, *, fails: bool) -> DirectQuery:
        level = {"kafka.isolation.level": "read_committed"} if shape == "transactional" else {}
        options = direct.source(subscribe=topics[shape], failOnDataLoss=fails, **level, **LOOKS_OFTEN)
        name = f"{shape}-{fails}"
        if shape == "run":
            return direct.run(options, name)
        return direct.start(options, name)

    failing: dict[str, DirectQuery] = {}
    skipping: dict[str, DirectQuery] = {}

    def check(queries: Mapping[str, DirectQuery], expected: Mapping[str, list[str]], *, fails: bool) -> None:
        """Let the queries read on to what is expected, those that are down in new runs."""
        for shape, rows in expected.items():
            query, name = queries.get(shape) or start(shape, fails=fails), f"{shape}-{fails}"
            until = time.monotonic() + 60
            while shape != "run" and len(delivered(direct, name)) < len(rows) and time.monotonic() < until:
                query.step_or_wait()
            assert delivered(direct, name) == rows, shape

    wait_for(1, 2)
    put_all(cluster.bootstrap, topics, "kept", dict.fromkeys(SHAPES, KEPT))
    failing["planned"], skipping["planned"] = start("planned", fails=True), start("planned", fails=False)
    for query in (failing["planned"], skipping["planned"]):
        query.process_all()
    cluster.kill(2)
    wait_for(1, 1)
    put_all(cluster.bootstrap, topics, "lost", dict.fromkeys(SHAPES, LOST))
    failing = {shape: start(shape, fails=True) for shape in SHAPES if shape != "planned"} | failing
    skipping = {shape: start(shape, fails=False) for shape in SHAPES if shape != "planned"} | skipping
    first = {shape: [*values("kept", KEPT), *values("lost", LOST)] for shape in SHAPES}
    for shape, query in (*failing.items(), *skipping.items()):
        if shape == "planned":
            wait_until(query.plan, 60, "a batch that is planned, and not done")
        elif shape != "run":
            query.process_all()
        if shape == "down":
            query.stop()
    first["planned"] = values("kept", KEPT)
    assert {shape: delivered(direct, f"{shape}-False") for shape in SHAPES} == first
    for each in ("run", "down"):
        del failing[each], skipping[each]
    cluster.kill(1)
    cluster.start(2)
    wait_for(2, 1)
    put_all(cluster.bootstrap, topics, "new", SHAPES)
    expected = {shape: [*first[shape], *values("new", count)] for shape, count in SHAPES.items()}
    for shape in SHAPES:
        with pytest.raises(DataLossError, match=r"are gone: the leader of epoch \d did not have them"):
            (failing.get(shape) or start(shape, fails=True)).run_until(lambda: False, seconds=60)
    check(skipping, expected, fails=False)
    assert caplog.text.count("are gone: the leader of epoch") >= len(SHAPES)
    cluster.kill(2)
    cluster.start(1)
    wait_for(1, 1)
    put_all(cluster.bootstrap, topics, "last", dict.fromkeys(SHAPES, 5))
    last = values("last", 5)
    check(skipping, {s: [*so_far, *values("lost", LOST), *last] for s, so_far in expected.items()}, fails=False)
    # Those that have failed have read nothing that this log does not have.
    check(failing, {shape: [*values("kept", KEPT), *values("lost", LOST), *last] for shape in SHAPES}, fails=True)
    direct.close()


# Histories that are drawn.


_AT_ONCE, _PROCESSES = 25, 5
"""Histories that live through the same elections."""
_HARMLESS = {"named", "unseen"}


def faults(found: Sequence[Lived], figures: Counter[str]) -> Sequence[object]:
    """Return what is wrong; ``figures`` counts histories by what became of their records."""
    for each in found:
        figures.update({"histories": 1, "records": each.records})
        figures.update({f"with {name}": bool(those) for name, those in each.became.items()})
    return [each for each in found if any(those for name, those in each.became.items() if name not in _HARMLESS)]


@pytest.fixture
def seeds(pytestconfig: pytest.Config) -> Sequence[int]:
    first, count = (pytestconfig.getoption(name) for name in ("--histories-seed", "--lost-logs"))
    return range(first, first + count)


def test_topics_created_again_at_drawn_moments_lose_nothing_in_silence(
    kafka: Kafka, direct: DirectKafka, seeds: Sequence[int]
) -> None:
    """To do one again: ``--lost-logs=1 --histories-seed=<its seed>``."""
    figures = Counter[str]()
    for seed in seeds[:_AT_ONCE]:
        topic = Topic(kafka.bootstrap, direct, drawn(seed), [1], 1)
        for step in itertools.chain(*topic.history.phases):
            topic.do(step)
        assert faults([Lived.of(topic)], figures) == []
    _log.info("created again: %s", dict(figures))


@pytest.mark.long("test_topics_created_again_at_drawn_moments_lose_nothing_in_silence")
def test_elections_and_topics_created_again_at_drawn_moments_lose_nothing_in_silence(
    cluster: LocalKafka, seeds: Sequence[int]
) -> None:
    """To do one again: ``--lost-logs=1 --histories-seed=<its seed>``."""
    context, figures, wrong = multiprocessing.get_context("spawn"), Counter[str](), list[object]()
    for first in range(0, len(seeds), _AT_ONCE):
        these = seeds[first : first + _AT_ONCE]
        parts = [part for at in range(_PROCESSES) if (part := these[at::_PROCESSES])]
        turns, reported = context.Barrier(len(parts) + 1), context.Queue()
        lives = [
            context.Process(target=live_through_elections, args=(cluster.bootstrap, part, turns, reported), daemon=True)
            for part in parts
        ]
        for each in lives:
            each.start()
        topics = [f"drawn-{seed}" for seed in these]
        with contextlib.suppress(threading.BrokenBarrierError):
            for phase in range(PHASES):
                turns.wait(_LONGEST_PHASE)
                if phase == 1:
                    cluster.kill(2)
                elif phase > 1:
                    cluster.kill(1 if phase == 2 else 2)
                    cluster.start(2 if phase == 2 else 1)
                wait_until_led(cluster.bootstrap, topics, 2 if phase == 2 else 1, 1 if phase else 2)
                turns.wait(_LONGEST_PHASE)
        found: list[Lived] = []
        while len(found) < len(these):
            lived = reported.get(timeout=_LONGEST_PHASE)
            assert isinstance(lived, Lived), lived
            found.append(lived)
        for each in lives:
            each.join(60)
        wrong += faults(found, figures)
        cluster.start(2)
        _log.info("elections: %s", dict(figures))
    assert wrong == []
