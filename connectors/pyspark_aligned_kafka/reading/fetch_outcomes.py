"""What a fetch response means for the ranges it was asked for, before any record in it is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from kafka.errors import for_code

from pyspark_aligned_kafka.errors.partition_names import place
from pyspark_aligned_kafka.reading.fetch import Fetched, FetchResponse
from pyspark_aligned_kafka.reading.range_progress import Pending, starved_first, unfinished
from pyspark_aligned_kafka.records.record_batches import Bytes, survey
from watermark_source.errors import CorruptDataError, RefusedError, SourceError
from watermark_source.planning.split import Split


class Trouble(Enum):
    """Why a partition gave no records, where something can be done."""

    MOVED = auto()
    """Another broker may answer: look at the metadata again."""
    OUT_OF_RANGE = auto()
    """The log does not hold the offset."""
    REDIRECTED = auto()
    """The leader names a replica to read from (KIP-392)."""


_TROUBLES: Final[dict[int, Trouble]] = {
    -1: Trouble.MOVED,  # UNKNOWN_SERVER_ERROR
    1: Trouble.OUT_OF_RANGE,  # OFFSET_OUT_OF_RANGE
    3: Trouble.MOVED,  # UNKNOWN_TOPIC_OR_PARTITION
    5: Trouble.MOVED,  # LEADER_NOT_AVAILABLE
    6: Trouble.MOVED,  # NOT_LEADER_OR_FOLLOWER
    7: Trouble.MOVED,  # REQUEST_TIMED_OUT
    8: Trouble.MOVED,  # BROKER_NOT_AVAILABLE
    9: Trouble.MOVED,  # REPLICA_NOT_AVAILABLE
    13: Trouble.MOVED,  # NETWORK_EXCEPTION
    56: Trouble.MOVED,  # KAFKA_STORAGE_ERROR
    74: Trouble.MOVED,  # FENCED_LEADER_EPOCH
    75: Trouble.MOVED,  # UNKNOWN_LEADER_EPOCH
    78: Trouble.MOVED,  # OFFSET_NOT_AVAILABLE
}

_CORRUPT_MESSAGE = 2
_REFUSALS = frozenset({29, 31})
"""TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED"""


class Stretch(NamedTuple):
    """Complete record batches of one range in a response."""

    pending: Pending
    fetched: Fetched
    batches: int
    next_offset: int


class Step(NamedTuple):
    """A response understood."""

    stretches: list[Stretch]
    left: list[Pending]
    """What is still to fetch once the stretches are delivered, in the order to ask for it."""
    troubles: dict[Split, Trouble]
    redirections: dict[Split, int]
    """The replicas named with ``Trouble.REDIRECTED``."""
    moved: bool
    """Whether any position moved."""


def examine(group: Sequence[Pending], data: Bytes, response: FetchResponse) -> Step:
    """Find the next positions from the batch headers alone, so that the next fetch can be sent before decoding.

    Raises:
        CorruptDataError, UnsupportedFormatError: batch headers that cannot be, or a partition nobody asked for.
        RefusedError: no permission to read a topic.
        SourceError: an error code that trying again does not cure.
    """
    asked = {pending.split: pending for pending in group}
    after = dict(asked)
    if response.error:
        place = Fetched(group[0].split, response.error, 0, None, None, 0, 0)
        return Step([], list(group), dict.fromkeys(asked, _trouble(place, group[0].position)), {}, moved=False)
    stretches: list[Stretch] = []
    troubles: dict[Split, Trouble] = {}
    redirections: dict[Split, int] = {}
    for fetched in response.partitions:
        if (pending := asked.pop(fetched.split, None)) is None:
            raise CorruptDataError(
                f"the broker sent {fetched.split}, which was not asked for, or not twice; check its version and log"
            )
        if fetched.error:
            troubles[fetched.split] = _trouble(fetched, pending.position)
        elif fetched.preferred_replica is not None and fetched.start == fetched.stop:
            troubles[fetched.split] = Trouble.REDIRECTED
            redirections[fetched.split] = fetched.preferred_replica
        else:
            found = survey(fetched.split, data, fetched.start, fetched.stop)
            if found.next_offset is not None:
                stretches.append(Stretch(pending, fetched, found.batches, found.next_offset))
                after[fetched.split] = pending.at(found.next_offset)
    left = starved_first(group, unfinished(after.values()))
    moved = any(after[pending.split].position > pending.position for pending in group)
    return Step(stretches, left, troubles, redirections, moved)


def _trouble(fetched: Fetched, position: int) -> Trouble:
    known = _TROUBLES.get(fetched.error)
    if known is not None:
        return known
    where = place(fetched.split, position)
    name = for_code(fetched.error).__name__
    if fetched.error == _CORRUPT_MESSAGE:
        raise CorruptDataError(f"{where}: the broker's own check says its log is damaged ({name}); check its disk")
    if fetched.error in _REFUSALS:
        raise RefusedError(f"{where}: the broker refuses to let us read ({name}); the user needs the READ right")
    raise SourceError(f"{where}: the broker answered with error {fetched.error} ({name}); its own log says why")
