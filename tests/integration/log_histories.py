"""Topics whose records are lost at drawn moments, each read by a query at other drawn moments, and what is right then.

A topic is created again, or a broker leads it that lacks its last records. Its reader plans, reads a part, is down,
begins again. What a broker has acknowledged is delivered once, or its loss is named.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from random import Random
from typing import NamedTuple

from kafka import KafkaProducer

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import LATEST
from services.kafka_topics import admin_client, delete_topic, wait_for_leaders
from tests.integration.direct_kafka import DirectKafka, DirectQuery
from watermark_source.errors import DataLossError
from watermark_source.planning.announcement import Announcement, encoded
from watermark_source.planning.split import Split

LOOKS_OFTEN = {"kafka.metadata.max.age.ms": "200"}
"""So that a topic created again is found soon."""
_SETTLED_SECONDS = 60.0
_TURN_SECONDS = 300.0
_LOSS = ("are gone", "was deleted and created again", "does not exist any more", "already read up to")


def put(
    bootstrap: str, topic: str, values: Sequence[str], *, transactions: str | None = None, key: str | None = None
) -> None:
    """Write records, each a batch of its own that has the epoch of its leader; with an id of ``transactions`` in one.

    The key is the value, unless one is given.
    """
    more = {} if transactions is None else {"transactional_id": transactions}
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", linger_ms=0, **more)
    with contextlib.closing(producer):
        if transactions is not None:
            producer.init_transactions()
        for value in values:
            if transactions is not None:
                producer.begin_transaction()
            producer.send(topic, value.encode(), key=(key or value).encode(), partition=0).get(60)
            if transactions is not None:
                producer.commit_transaction()


def values(prefix: str, count: int, start: int = 0) -> list[str]:
    return [f"{prefix}{number}" for number in range(start, start + count)]


def delivered(direct: DirectKafka, name: str) -> list[str]:
    """Return the values that a query has read, as they came."""
    if not direct.data(name):
        return []
    return [value.decode() for value in direct.table(name, ["value"])["value"].to_pylist()]


class Act(Enum):
    """What the reader does."""

    PLAN = "plans a batch, and does not read it yet"
    STEP = "reads a batch"
    READ = "reads all there is"
    RUN = "reads all there is in a run of its own, and ends"
    STOP = "ends"


class Write(NamedTuple):
    records: int


class CreateAgain(NamedTuple):
    records: int


Step = Act | Write | CreateAgain
PHASES = 4
"""Before the follower is gone; after that; when it leads with what it has; when the first one leads again."""


@dataclass(frozen=True)
class Drawn:
    """One history."""

    seed: int
    fails: bool
    """Whether the query begins with ``failOnDataLoss``; once it has failed, it continues without."""
    options: Mapping[str, object]
    announced: bool
    transactional: bool
    phases: Sequence[Sequence[Step]]


def drawn(seed: int) -> Drawn:
    """Return the history of a seed."""
    random = Random(seed)
    batch = random.choice([None, None, 3, 10])
    options: dict[str, object] = {} if batch is None else {"maxOffsetsPerTrigger": batch}
    transactional, announced = random.random() < 0.2, random.random() < 0.2
    if transactional:
        options["kafka.isolation.level"] = "read_committed"

    def step() -> Step:
        kind = random.choices([Write, CreateAgain, Act], [3, 1, 6])[0]
        if kind is Act:
            return random.choices([*Act], [2, 3, 3, 1, 2])[0]
        return Write(random.randrange(1, 20)) if kind is Write else CreateAgain(random.choice([0, 3, 10, 25, 40]))

    phases: list[list[Step]] = []
    for number in range(PHASES):
        # The reader has begun before anything is lost; and a leader that has written nothing leaves no trace.
        first = [Write(random.randrange(0 if number == 0 else 1, 30))]
        looks = [random.choice([Act.PLAN, Act.STEP, Act.READ])] if number == 0 else []
        phases.append([*first, *looks, *(step() for _ in range(random.randrange(1, 5)))])
    return Drawn(seed, random.random() < 0.5, options, announced, transactional, phases)


class Named(NamedTuple):
    """A loss that the query has reported."""

    moment: int
    text: str


@dataclass
class Topic:
    """A topic of one or two replicas as it should be, and its reader."""

    bootstrap: str
    direct: DirectKafka
    history: Drawn
    replicas: Sequence[int]
    side_at: int
    """The broker that holds the announcements."""

    def __post_init__(self) -> None:
        self.name = f"drawn-{self.history.seed}"
        self.logs: dict[int, list[str]] = {}
        self.alive, self.leader = {*self.replicas}, self.replicas[0]
        self.moment = self.written = 0
        self.gone: dict[str, int] = {}
        """Acknowledged values that the leader does not have, and since which moment."""
        self.first_loss: int | None = None
        self.seen: set[str] = set()
        """Values that were there when this process of the reader looked."""
        self.named: list[Named] = []
        self.read_at: list[int] = []
        """The moment of each delivery."""
        self.query: DirectQuery | None = None
        self.tolerant = not self.history.fails
        if self.history.announced:
            self._create(f"{self.name}.watermarks", [self.side_at])
        self._create_data()

    def _create_data(self) -> None:
        self.logs = {replica: [] for replica in self.replicas}
        # One that is away leads only later.
        self._create(self.name, self.replicas)

    def _create(self, name: str, replicas: Sequence[int]) -> None:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        with admin_client(self.bootstrap) as admin:
            admin.create_topics({name: {"assignments": {0: [*replicas]}, "configs": config}})
        wait_for_leaders(self.bootstrap, [name], 1)

    def begin(self, phase: int) -> None:
        """Take in what has become of the brokers."""
        if phase == 1:
            self.alive = {1}
        elif phase > 1:
            before = self._there()
            self.leader = 2 if phase == 2 else 1
            self.alive = {self.leader}
            self._note_gone(before)

    def _there(self) -> set[str]:
        return {*self.logs[self.leader]}

    def _note_gone(self, before: set[str]) -> None:
        self.moment += 1
        there = self._there()
        if before - there:
            self.first_loss = self.first_loss or self.moment
        self.gone |= dict.fromkeys(before - there, self.moment)
        # A leader that has them may come back.
        self.gone = {value: since for value, since in self.gone.items() if value not in there}

    def do(self, step: Step) -> None:
        """Do a step of the history."""
        self.moment += 1
        if isinstance(step, Write):
            self._write(step.records)
        elif isinstance(step, CreateAgain):
            before = self._there()
            delete_topic(self.bootstrap, self.name)
            self._create_data()
            self._note_gone(before)
            self.first_loss = self.first_loss or self.moment
            self._write(step.records)
        else:
            self._act(step)

    def _write(self, records: int) -> None:
        new = values("v", records, self.written)
        self.written += records
        put(self.bootstrap, self.name, new, transactions=self.name if self.history.transactional else None)
        for replica in self.alive:
            self.logs[replica] += new
        if self.history.announced:
            with contextlib.closing(KafkaAdmin(parse_settings({"kafka.bootstrap.servers": self.bootstrap}))) as admin:
                id_ = admin.topics({self.name})[self.name].id
                (end,) = admin.list_offsets({Split(self.name, 0): LATEST}).values()
            assert id_ is not None
            assert end.offset is not None
            more = {"batch": self.moment, "watermark": None, "ends": {"0": end.offset}, "topic": id_}
            logged = Announcement(writer="w", query="q", **more)  # type: ignore[arg-type]
            put(self.bootstrap, f"{self.name}.watermarks", [encoded(logged).decode()], key="w")

    def _options(self) -> Mapping[str, str]:
        more = {"watermarkStrategy": "announced"} if self.history.announced else {}
        return self.direct.source(
            subscribe=self.name, failOnDataLoss=not self.tolerant, **more, **self.history.options, **LOOKS_OFTEN
        )

    def _started(self) -> DirectQuery:
        if self.query is None:
            self.query = self.direct.start(self._options(), self.name)
        return self.query

    def _stop(self) -> None:
        # A process remembers what it has seen.
        self.seen.clear()
        if self.query is not None:
            self.query.stop()
            self.query = None

    def _act(self, act: Act) -> None:
        if act in (Act.STOP, Act.RUN):
            self._stop()
        if act is Act.STOP:
            return
        self.seen |= self._there()
        with self._listening():
            if act is Act.RUN:
                self.direct.run(self._options(), self.name)
                self.seen.clear()
            elif act is Act.PLAN:
                self._started().plan()
            elif act is Act.STEP:
                self._started().step()
            else:
                self._started().process_all()

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Note the losses that the query names; behind one that it failed with it goes without ``failOnDataLoss``."""
        heard = _Heard(self.name)
        logging.getLogger().addHandler(heard)
        try:
            yield
        except DataLossError as error:
            if self.tolerant:
                raise
            heard.texts.append(str(error))
            self._stop()
            self.tolerant = True
        finally:
            logging.getLogger().removeHandler(heard)
        self.named += [Named(self.moment, text) for text in heard.texts]
        self.read_at += [self.moment] * (len(delivered(self.direct, self.name)) - len(self.read_at))

    def settle(self) -> None:
        """Read to the end of what exists."""
        self.moment += 1
        end = time.monotonic() + _SETTLED_SECONDS
        while True:
            with self._listening():
                self._started().process_all()
            if self._there() <= {*delivered(self.direct, self.name)} or time.monotonic() > end:
                break
        self._stop()

    def judged(self) -> Mapping[str, Sequence[str]]:
        """Return what became of values: all but ``named`` and ``unseen`` are faults.

        A leader that never had records knows nothing of them: of those that no plan of its process has seen a query
        cannot show.
        """
        moments: defaultdict[str, list[int]] = defaultdict(list)
        for value, moment in zip(delivered(self.direct, self.name), self.read_at, strict=True):
            moments[value].append(moment)
        last = max((each.moment for each in self.named), default=0)
        lost = [value for value in self.gone if value not in moments]
        silent = [value for value in lost if last < self.gone[value]]
        twice = [value for value, at in moments.items() if len(at) > 1 and not self._named_between(at[0], at[-1])]
        return {
            "named": [value for value in lost if value not in silent],
            "unseen": [value for value in silent if value not in self.seen],
            "silent": [value for value in silent if value in self.seen],
            "missing": [value for value in self.logs[self.leader] if value not in moments],
            "twice": twice,
            "false alarm": [each.text for each in self.named if each.moment < (self.first_loss or math.inf)],
        }

    def _named_between(self, first: int, last: int) -> bool:
        return any(first <= each.moment <= last for each in self.named)


class Lived(NamedTuple):
    """One history, and what became of its records."""

    history: Drawn
    records: int
    became: Mapping[str, Sequence[str]]
    named: Sequence[Named]

    @classmethod
    def of(cls, topic: Topic) -> Lived:
        """Read what is left of a topic."""
        topic.settle()
        return cls(topic.history, topic.written, topic.judged(), topic.named)


def live_through_elections(bootstrap: str, seeds: Sequence[int], turns: Barrier, found: Queue[object]) -> None:
    """Live through the histories of some seeds in a process of its own.

    The elections are others' to make: in turns, before each phase and after it.
    """
    direct = DirectKafka(bootstrap)
    try:
        topics = [Topic(bootstrap, direct, drawn(seed), [1, 2], 3) for seed in seeds]
        for phase in range(PHASES):
            turns.wait(_TURN_SECONDS)
            turns.wait(_TURN_SECONDS)
            for topic in topics:
                topic.begin(phase)
                for step in topic.history.phases[phase]:
                    topic.do(step)
        for topic in topics:
            found.put(Lived.of(topic))
    except BaseException:
        found.put(traceback.format_exc())
        turns.abort()
        raise
    finally:
        direct.close()


class _Heard(logging.Handler):
    """The lines about losses of one topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._topic = re.compile(rf"\b{re.escape(topic)}(-0\b|(?![\w.-]))")

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._topic.search(text) and any(word in text for word in _LOSS):
            self.texts.append(text)
