"""A random history: a seed states which topics two queries read, how, and everything that happens to the topics."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from services.kafka_record_batch import CODECS
from tests.soak.topic_histories import steps
from tests.soak.topic_histories.steps import Compare, End, Step

_LABELS = "abc"
_MOST_PARTITIONS = 4
_PRODUCERS = 2


class Choice(Enum):
    """How the queries choose what they read."""

    TOPICS = "subscribe"
    PATTERN = "subscribePattern"
    PARTITIONS = "assign"


class Start(Enum):
    """Where they begin."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class History:
    """What happens, and what holds for all runs of the queries."""

    seed: int
    choice: Choice
    assigned: dict[str, tuple[int, ...]]
    """With ``assign``, the partitions of each topic; some may never exist."""
    start: Start
    read_committed: bool
    fail_on_data_loss: bool
    fetch_bytes: int | None
    """``max.partition.fetch.bytes``: a small one cuts record batches in two."""
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """Return everything, a step a line."""
        chosen = f"{self.choice.value} {self.assigned or ''}".strip()
        loss = f"failOnDataLoss {str(self.fail_on_data_loss).lower()}, fetch {self.fetch_bytes or 'any'} bytes"
        level = "read_committed" if self.read_committed else "read_uncommitted"
        head = f"history {self.seed}: {chosen}, from {self.start.value}, {level}, {loss}"
        return "\n".join([head, *(f"  {number}. {step}" for number, step in enumerate(self.steps))])


def random_history(seed: int) -> History:
    """Return the history of a seed: 8 to 20 steps, of which at least two compare, the last one among them."""
    rng = random.Random(seed)
    choice = rng.choice(tuple(Choice))
    story = _Story(rng, may_delete=choice is Choice.PATTERN)
    labels = _LABELS[: rng.randint(1, 2)]
    for label in labels:
        story.create(label)
    for _ in range(rng.randint(2, 4)):
        story.produce()
    assigned = {}
    if choice is Choice.PARTITIONS:
        assigned = {label: tuple(rng.sample(range(_MOST_PARTITIONS), rng.randint(1, 3))) for label in labels}
        # With none at all there would be nothing to begin with.
        assigned["a"] = tuple({0, *assigned["a"]})
    length = rng.randint(8, 20)
    while len(story.steps) < length - 1 or not story.compared or isinstance(story.steps[-1], steps.Compare):
        story.go_on()
    story.compare()
    return History(
        seed=seed,
        choice=choice,
        assigned=assigned,
        start=rng.choices(tuple(Start), (6, 1, 2, 1))[0],
        read_committed=rng.random() < 0.5,
        fail_on_data_loss=rng.random() < 0.4,
        fetch_bytes=rng.choice((None, None, 300)),
        steps=tuple(story.steps),
    )


@dataclass
class _Story:
    """A history in the making: the steps so far, and what exists after them."""

    rng: random.Random
    may_delete: bool
    """Whether topics may be away while they are read; others come back at once."""
    steps: list[Step] = field(default_factory=list)
    compared: bool = False
    _reads: tuple[Compare, ...] = ()
    _partitions: dict[str, int] = field(default_factory=dict)
    _open: dict[int, set[str]] = field(default_factory=dict)
    """Producers with an open transaction, and the topics in it."""

    def __post_init__(self) -> None:
        rng = self.rng
        # Only two: a query costs much to load and little to run again.
        self._reads = tuple(
            steps.Compare(rng.choice((None, 40, 150)), rng.choice((None, None, 2, 5))) for _ in range(2)
        )

    def go_on(self) -> None:
        """Add what is next."""
        weighted: dict[Callable[[], None], float] = {
            self.produce: 9,
            self._transact: 4,
            self._widen: 1,
            self._compact: 1.2,
            self._delete_records: 1.2,
            self._retain: 0.6,
            self._replace: 0.8,
            self._restart: 0.25,
            self.compare: 2,
        }
        if self._open:
            weighted[self._end] = 4
        if self.may_delete:
            weighted[self._delete] = 0.8
            weighted[self._create_another] = 0.8
        self.rng.choices(tuple(weighted), tuple(weighted.values()))[0]()

    def create(self, label: str) -> None:
        self._partitions[label] = self.rng.randint(1, 3)
        self.steps.append(steps.Create(label, self._partitions[label], log_append_time=self.rng.random() < 0.2))

    def produce(self) -> None:
        if self._partitions:
            label = self._some_topic()
            codec = self.rng.choice(tuple(CODECS))
            sizes = tuple(self.rng.choice((1, 5, 20, 40)) for _ in range(self.rng.randint(1, 5)))
            partition = self.rng.randrange(self._partitions[label])
            self.steps.append(steps.Produce(label, partition, codec, sizes, self.rng.randrange(2**32)))

    def compare(self) -> None:
        """Add a comparison, unless nothing happened since the last one."""
        if not isinstance(self.steps[-1], steps.Compare):
            self.steps.append(self.rng.choice(self._reads))
            self.compared = True

    def _transact(self) -> None:
        if self._partitions:
            label, producer = self._some_topic(), self.rng.randrange(_PRODUCERS)
            count = self._partitions[label]
            partitions = tuple(sorted(self.rng.sample(range(count), self.rng.randint(1, count))))
            records = self.rng.choice((1, 5, 20, 40))
            self.steps.append(steps.Transact(producer, label, partitions, records, self.rng.randrange(2**32)))
            self._open.setdefault(producer, set()).add(label)

    def _end(self) -> None:
        producer = self.rng.choice(tuple(self._open))
        del self._open[producer]
        self.steps.append(steps.EndTransaction(producer, self.rng.choice(tuple(End))))

    def _widen(self) -> None:
        if self._partitions:
            label = self._some_topic()
            if self._partitions[label] < _MOST_PARTITIONS:
                self._partitions[label] += 1
                self.steps.append(steps.Widen(label, self._partitions[label]))

    def _compact(self) -> None:
        if self._partitions:
            self.steps.append(steps.Compact(self._some_topic()))

    def _delete_records(self) -> None:
        if self._partitions:
            label = self._some_topic()
            partition = self.rng.randrange(self._partitions[label])
            self.steps.append(steps.DeleteRecords(label, partition, self.rng.choice((0.2, 0.4, 0.7, 1.0))))

    def _retain(self) -> None:
        if self._partitions:
            self.steps.append(steps.Retain(self._some_topic()))

    def _replace(self) -> None:
        if self._partitions:
            label = self._some_topic()
            self._remove(label)
            self.create(label)

    def _delete(self) -> None:
        if self._partitions:
            self._remove(self._some_topic())

    def _create_another(self) -> None:
        missing = [label for label in _LABELS if label not in self._partitions]
        if missing:
            self.create(self.rng.choice(missing))

    def _restart(self) -> None:
        self.steps.append(steps.Restart(kill=self.rng.random() < 0.5))

    def _remove(self, label: str) -> None:
        """Add the end of a topic; a transaction that wrote to it is aborted before."""
        for producer in [p for p, labels in self._open.items() if label in labels]:
            del self._open[producer]
            self.steps.append(steps.EndTransaction(producer, End.ABORT))
        del self._partitions[label]
        self.steps.append(steps.Delete(label))

    def _some_topic(self) -> str:
        return self.rng.choice(sorted(self._partitions))
