"""The stage: topics of a real broker, and how each step of a history is done to them."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.consumer.fetcher import IsolationLevel

from services.kafka_local import LocalKafka
from services.kafka_record_batch import CODECS, compressed
from services.kafka_topics import add_partitions, create_topic, delete_records, delete_topic
from services.kafka_wire import BrokerConnection
from tests.soak.topic_histories import steps
from tests.soak.topic_histories.contents import random_records
from tests.unit.kafka.batches import Rec, batch, records_bytes

_log = logging.getLogger(__name__)

BROKER_CONFIG = {
    # The broker's housekeeping continues at once and not after half a minute.
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.index.size.max.bytes": "4096",
    "log.segment.delete.delay.ms": "0",
}
_TOPIC_CONFIG = {
    "min.cleanable.dirty.ratio": "0",
    # A record that much later than the first one of a segment begins the next.
    "segment.ms": "50",
    "segment.jitter.ms": "0",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
_CLOSING_MILLIS = 4_200_000_000_000
"""Later than any record of ``random_records``."""
_PATIENCE_SECONDS = 30.0
_HOUSEKEEPING_SECONDS = 2.0
_QUIET_SECONDS = 0.2
_LONGEST_TRANSACTION_MS = 600_000


@dataclass(slots=True)
class Topic:
    """A topic as this history made it."""

    name: str
    ends: list[int]
    """End offset of each partition."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions, as the client names them."""
        return [TopicPartition(self.name, number) for number in range(len(self.ends))]


@dataclass
class Stage:
    """The topics of one history, and the producers that write to them."""

    broker: LocalKafka
    log_folder: Path
    """Where the broker keeps its log (``log.dirs``)."""
    prefix: str
    """Begins the name of every topic."""
    topics: dict[str, Topic] = field(default_factory=dict)
    housekeeping: dict[str, int] = field(default_factory=dict)
    """How many partitions compaction and retention have changed."""
    _producers: dict[int, KafkaProducer] = field(default_factory=dict)
    _open: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """The partitions that the open transaction of a producer wrote to."""
    _closings: int = 0

    def __post_init__(self) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)

    def close(self) -> None:
        """End what is open and remove the topics."""
        try:
            for number in list(self._open):
                self._end(number, steps.End.ABORT)
            for producer in self._producers.values():
                producer.close(timeout=5)
            if self.topics:
                self._admin.delete_topics([topic.name for topic in self.topics.values()])
        finally:
            self._admin.close()

    def name(self, label: str) -> str:
        """Return a topic's full name."""
        return f"{self.prefix}-{label}"

    def perform(self, step: steps.Step) -> None:
        """Do one step, and return when every reader sees what it did."""
        match step:
            case steps.Create():
                self._create(step)
            case steps.Delete(label):
                self._delete(label)
            case steps.Widen(label, partitions):
                topic = self.topics[label]
                add_partitions(self.broker.bootstrap, topic.name, partitions)
                topic.ends += [0] * (partitions - len(topic.ends))
            case steps.Produce():
                self._produce(step)
            case steps.Transact():
                self._transact(step)
            case steps.EndTransaction(producer, end):
                self._end(producer, end)
            case steps.Compact(label):
                self._compact(self.topics[label])
            case steps.DeleteRecords(label, partition, share):
                topic = self.topics[label]
                before = {partition: round(topic.ends[partition] * share)}
                delete_records(self.broker.bootstrap, topic.name, before)
            case steps.Retain(label):
                self._retain(self.topics[label])
            case steps.Restart(kill):
                self._admin.close()
                self.broker.kill() if kill else self.broker.stop()
                self.broker.start()
                self._admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
            case steps.Compare():
                raise AssertionError("a comparison is not done to the broker")

    def bounds(self) -> dict[TopicPartition, tuple[int, int, int]]:
        """Return the beginning, the end for readers of committed records, and the end of each partition's log."""
        partitions = [each for topic in self.topics.values() for each in topic.partitions]
        if not partitions:
            return {}
        ask = self._admin.list_partition_offsets
        committed = IsolationLevel.READ_COMMITTED
        first = ask(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        stable = ask(dict.fromkeys(partitions, OffsetSpec.LATEST), isolation_level=committed)
        last = ask(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {each: (first[each].offset, stable[each].offset, last[each].offset) for each in partitions}

    def settle(self) -> object:
        """Wait until all that was written can be read; return what must not change while the history stands still."""
        busy = {(name, number) for written in self._open.values() for name, number in written}

        def settled() -> bool:
            found = self.bounds()
            # A coordinator that was killed may write the marker of a transaction's end once more.
            return all(
                end >= topic.ends[each.partition] and (stable == end or (each.topic, each.partition) in busy)
                for topic in self.topics.values()
                for each, (_, stable, end) in ((each, found[each]) for each in topic.partitions)
            )

        assert _until(settled, _PATIENCE_SECONDS), f"the log is not as written: {self.bounds()}, {self.topics}"
        # The broker forgets in its own time how far it had cleaned what was deleted.
        names = {topic.name for topic in self.topics.values()}
        return self.bounds(), {each: end for each, end in self._cleaned().items() if each.topic in names}

    def _create(self, step: steps.Create) -> None:
        kind = "LogAppendTime" if step.log_append_time else "CreateTime"
        config = {**_TOPIC_CONFIG, "message.timestamp.type": kind}
        create_topic(self.broker.bootstrap, self.name(step.topic), step.partitions, config=config)
        self.topics[step.topic] = Topic(self.name(step.topic), [0] * step.partitions)

    def _delete(self, label: str) -> None:
        topic = self.topics[label]
        self.settle()
        del self.topics[label]
        delete_topic(self.broker.bootstrap, topic.name)
        gone = _until(lambda: topic.name not in self._admin.list_topics(), _PATIENCE_SECONDS)
        assert gone, f"{topic.name} is still there"

    def _produce(self, step: steps.Produce) -> None:
        rng = random.Random(step.seed)
        for size in step.sizes:
            self._append(self.topics[step.topic], step.partition, random_records(rng, size), step.codec)

    def _append(self, topic: Topic, partition: int, records: list[Rec], codec: str = "none") -> None:
        base = records[0].millis
        packed = compressed(records_bytes(records, base), codec)
        data = batch(0, records, attributes=CODECS[codec], base_time=base, payload=packed)
        host, _, port = self.broker.bootstrap.partition(":")
        with BrokerConnection(host, int(port)) as connection:
            connection.send_produce(topic.name, {partition: data})
            topic.ends[partition] = connection.receive_produce()[partition] + len(records)

    def _transact(self, step: steps.Transact) -> None:
        producer, topic, rng = self._producer(step.producer), self.topics[step.topic], random.Random(step.seed)
        if step.producer not in self._open:
            producer.begin_transaction()
            self._open[step.producer] = set()
        assert _until(lambda: set(step.partitions) <= (producer.partitions_for(topic.name) or set()), _PATIENCE_SECONDS)
        sent = []
        for record in random_records(rng, step.records):
            partition = rng.choice(step.partitions)
            # This client takes no header without a value, and no record of nulls only.
            headers = [(key.decode(), value or b"") for key, value in record.headers]
            value = b"" if record.key is None else record.value
            sent.append(producer.send(topic.name, value, record.key, headers, partition, record.millis))
        producer.flush(timeout=_PATIENCE_SECONDS)
        for future in sent:
            written = future.get(_PATIENCE_SECONDS)
            topic.ends[written.partition] = max(topic.ends[written.partition], written.offset + 1)
            self._open[step.producer].add((topic.name, written.partition))

    def _producer(self, number: int) -> KafkaProducer:
        if number not in self._producers:
            self._producers[number] = producer = KafkaProducer(
                bootstrap_servers=self.broker.bootstrap,
                transactional_id=f"{self.prefix}-{number}",
                # The broker aborts by itself what is open for longer than this.
                transaction_timeout_ms=_LONGEST_TRANSACTION_MS,
                compression_type=[*CODECS, "none"][number % len(CODECS)].replace("none", "") or None,
                linger_ms=5,
                # Partitions are added behind its back.
                metadata_max_age_ms=200,
            )
            producer.init_transactions()
        return self._producers[number]

    def _end(self, number: int, end: steps.End) -> None:
        producer = self._producers[number]
        producer.commit_transaction() if end is steps.End.COMMIT else producer.abort_transaction()
        for name, partition in self._open.pop(number):
            # The marker.
            next(topic for topic in self.topics.values() if topic.name == name).ends[partition] += 1

    def _compact(self, topic: Topic) -> None:
        self._close_segments(topic)
        before = self._cleaned()
        self._configure(topic, "cleanup.policy", "compact")
        bounds = self.bounds()
        # The cleaner leaves the last segment alone, and what an open transaction began.
        ends = {each: min(self._active_segment(each), bounds[each][1]) for each in topic.partitions}
        due = {each: end for each, end in ends.items() if end > bounds[each][0]}
        _until(lambda: all(self._cleaned().get(each, 0) >= end for each, end in due.items()), _HOUSEKEEPING_SECONDS)
        self._configure(topic, "cleanup.policy", "delete")
        cleaned = self._cleaned()
        while not _stays(self._cleaned, cleaned, _QUIET_SECONDS):
            cleaned = self._cleaned()
        self._count("compacted", sum(cleaned.get(each) != before.get(each) for each in topic.partitions))

    def _retain(self, topic: Topic) -> None:
        self._close_segments(topic)
        before = self.bounds()
        closed = {each: self._active_segment(each) for each in topic.partitions}
        self._configure(topic, "retention.bytes", "1")
        _until(lambda: all(self.bounds()[each][0] >= end for each, end in closed.items()), _HOUSEKEEPING_SECONDS)
        self._configure(topic, "retention.bytes", "-1")
        after = self.bounds()
        self._count("deleted", sum(after[each] != before[each] for each in topic.partitions))

    def _count(self, what: str, partitions: int) -> None:
        self.housekeeping[what] = self.housekeeping.get(what, 0) + partitions

    def _close_segments(self, topic: Topic) -> None:
        """Begin a new segment in every partition; by the clock as well, where the broker sets the timestamps."""
        time.sleep(2 * int(_TOPIC_CONFIG["segment.ms"]) / 1000)
        self._closings += 1
        for number in range(len(topic.ends)):
            self._append(topic, number, [Rec(0, None, b"closing", _CLOSING_MILLIS + 1_000 * self._closings)])

    def _configure(self, topic: Topic, name: str, value: str) -> None:
        self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic.name, {name: value})])

    def _active_segment(self, partition: TopicPartition) -> int:
        folder = self.log_folder / f"{partition.topic}-{partition.partition}"
        return max(int(file.stem) for file in folder.glob("*.log"))

    def _cleaned(self) -> dict[TopicPartition, int]:
        """Return up to which offset the cleaner has been, by its own account."""
        file = self.log_folder / "cleaner-offset-checkpoint"
        # A version, a count, and a line a partition.
        lines = file.read_text().splitlines()[2:] if file.exists() else ()
        entries = (line.split(" ") for line in lines)
        return {TopicPartition(name, int(number)): int(offset) for name, number, offset in entries}


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.03)
    return holds


def _stays(look: Callable[[], object], value: object, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if look() != value:
            return False
        time.sleep(0.03)
    return True
