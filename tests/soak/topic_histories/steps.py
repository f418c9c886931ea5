"""Steps of a history: what happens to a few topics, and when two queries read them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class End(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Create:
    """A topic comes to be."""

    topic: str
    partitions: int
    log_append_time: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """A topic and all its records go."""

    topic: str


@dataclass(frozen=True, slots=True)
class Widen:
    """A topic gets more partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Produce:
    """Records are written outside transactions, as record batches of the given sizes."""

    topic: str
    partition: int
    codec: str
    sizes: tuple[int, ...]
    seed: int
    """Of the records' contents."""


@dataclass(frozen=True, slots=True)
class Transact:
    """A producer writes to some partitions in its transaction, which it begins if it has none."""

    producer: int
    topic: str
    partitions: tuple[int, ...]
    records: int
    seed: int


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A producer ends its transaction."""

    producer: int
    end: End


@dataclass(frozen=True, slots=True)
class Compact:
    """The log cleaner goes over a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The first part of a partition's offsets is deleted by hand."""

    topic: str
    partition: int
    share: float


@dataclass(frozen=True, slots=True)
class Retain:
    """Retention deletes every closed segment of a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The broker goes and comes back, after a kill -9 or in an orderly way."""

    kill: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """Both queries read what exists, each from its own checkpoint."""

    max_offsets: int | None
    min_partitions: int | None


Step = (
    Create | Delete | Widen | Produce | Transact | EndTransaction | Compact | DeleteRecords | Retain | Restart | Compare
)
