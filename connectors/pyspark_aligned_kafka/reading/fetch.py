"""Fetch requests and responses: encoding, decoding, and the next positions.

Version 11 (Kafka 2.3 and later) names topics. Version 13 (Kafka 3.1 and later, KIP-516) has their ids, so that a topic
that was deleted and created again is not read in place of the earlier one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

import numpy as np
from kafka.errors import (
    BrokerNotAvailableError,
    ClusterAuthorizationFailedError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationFailedError,
    UnknownError,
    for_code,
)
from kafka.protocol.consumer import FetchRequest

from pyspark_aligned_kafka.cluster.broker_errors import grant
from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits, TopicIds, Wanted, fetch_request
from pyspark_aligned_kafka.cluster.protocol_fields import FieldReader
from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.reading.range_progress import Pending, starved_first, unfinished
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs, survey
from watermark_source.errors import CorruptDataError, RefusedError, SourceError
from watermark_source.planning.split import Split

API_KEY: Final[int] = FetchRequest.API_KEY
API_VERSION: Final = 11
WITH_IDS: Final = 13

_RESPONSE_HEADER = struct.Struct(">iihi")
_RESPONSE_HEADER_WITH_IDS = struct.Struct(">ixihi")
_RESPONSE_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")

_UNKNOWN = -1
_ID_BYTES = 16


class Fetched(NamedTuple):
    """One partition of a response; its records are bytes ``start`` to ``stop`` of the response."""

    split: Split
    error: int
    aborted: Longs | None
    """Producer ids and first offsets (2, n) of aborted transactions; ``None`` for a reader of uncommitted data."""
    preferred_replica: int | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A whole response."""

    error: int
    partitions: tuple[Fetched, ...]
    throttle_ms: int = 0
    """The broker reads no request from this connection for this long, because a quota is used up (KIP-219)."""


def encode_request(
    correlation: int, client_id: str, wanted: Sequence[Wanted], limits: FetchLimits, ids: TopicIds | None = None
) -> bytes:
    """Return the request without its length; with ``ids`` in version 13."""
    request = fetch_request(wanted, limits, ids)
    request.API_VERSION = API_VERSION if ids is None else WITH_IDS
    request.with_header(correlation, client_id)
    return bytes(request.encode(header=True))


def decode_response(
    data: Bytes, stop: int, correlation: int, *, read_committed: bool, ids: TopicIds | None = None
) -> FetchResponse:
    """Decode the response in ``data[:stop]`` (without its length); ``ids`` as in its request.

    Raises:
        CorruptDataError: the bytes are no response to that request.
    """
    header = _RESPONSE_HEADER if ids is None else _RESPONSE_HEADER_WITH_IDS
    try:
        seen, throttle_ms, error, _session = header.unpack_from(data.data, 0)
        if seen != correlation:
            raise _corrupt(f"the broker answered request {seen}, and {correlation} was sent")
        fields = FieldReader(data.data[:stop], flexible=ids is not None, at=header.size)
        partitions = _partitions(fields, ids, read_committed=read_committed)
    except (struct.error, IndexError, KeyError, ValueError) as problem:
        raise _corrupt(f"a fetch response of {stop} bytes that cannot be read ({problem})") from problem
    if fields.at != stop:
        raise _corrupt(f"a fetch response of {stop} bytes of which {fields.at} make sense")
    return FetchResponse(error, tuple(partitions), throttle_ms)


def _corrupt(seen: str) -> CorruptDataError:
    return CorruptDataError(
        f"{seen}; if a retry does not help, check the broker and the network path to it, such as a proxy"
    )


def _aborted(fields: FieldReader) -> Longs:
    number = max(fields.count(), 0)
    if fields.flexible:
        if number > len(fields.view):
            raise struct.error(f"{number} aborted transactions")
        listed = []
        for _ in range(number):
            listed.append(fields.unpack(_ABORTED))
            fields.skip_tags()
        pairs = np.array(listed, ">i8").reshape(-1, 2)
    else:
        pairs = np.frombuffer(fields.take(_ABORTED.size * number), ">i8").reshape(-1, 2)
    by_first_offset = pairs[np.argsort(pairs[:, 1], kind="stable")]
    return np.ascontiguousarray(by_first_offset.T, np.int64)


def _partitions(fields: FieldReader, ids: TopicIds | None, *, read_committed: bool) -> list[Fetched]:
    found: list[Fetched] = []
    names = None if ids is None else {id_: name for name, id_ in ids.items()}
    for _ in range(fields.count()):
        topic = fields.text() if names is None else names[bytes(fields.take(_ID_BYTES))]
        for _ in range(fields.count()):
            number, error, _high_watermark, _stable, _log_start = fields.unpack(_RESPONSE_PARTITION)
            aborted = _aborted(fields)
            replica = fields.integer()
            length = max(fields.count(), 0)
            start = fields.at
            fields.take(length)
            found.append(
                Fetched(
                    Split(topic, number),
                    error,
                    aborted if read_committed else None,
                    None if replica == _UNKNOWN else replica,
                    start,
                    fields.at,
                )
            )
            fields.skip_tags()
        fields.skip_tags()
    fields.skip_tags()
    return found


class Trouble(Enum):
    """Why a partition returned no records, if the reader can recover."""

    MOVED = auto()
    """Another broker may answer: the metadata must be requested again."""
    OUT_OF_RANGE = auto()
    """The log does not hold the offset."""
    REPLACED = auto()
    """The log has other records at the offset than those that were planned."""
    REDIRECTED = auto()
    """The leader names a replica to read from (KIP-392)."""


_MOVED = (RetriableError, UnknownError, BrokerNotAvailableError)


class Stretch(NamedTuple):
    """Complete record batches of one range in a response."""

    pending: Pending
    fetched: Fetched
    batches: int
    next_offset: int


class Step(NamedTuple):
    """The result of a response."""

    stretches: list[Stretch]
    left: list[Pending]
    """The ranges to fetch after the stretches are delivered, in the order of the next request."""
    troubles: dict[Split, Trouble]
    named: dict[Split, int]
    """With ``Trouble.REDIRECTED`` the replica, with ``Trouble.REPLACED`` the epoch of the records."""
    moved: bool
    """Whether any position moved."""


def examine(group: Sequence[Pending], data: Bytes, response: FetchResponse) -> Step:
    """Return the next positions by the batch headers alone, so that the next fetch can be sent before decoding.

    Raises:
        CorruptDataError, UnsupportedFormatError: batch headers are invalid, or a partition was not requested.
        RefusedError: the user has no right to read a topic.
        SourceError: an error code that a retry does not cure.
    """
    requested = {pending.split: pending for pending in group}
    after = dict(requested)
    if response.error:
        first = Fetched(group[0].split, response.error, None, None, 0, 0)
        return Step([], list(group), dict.fromkeys(requested, _trouble(first, group[0].position)), {}, moved=False)
    stretches: list[Stretch] = []
    troubles: dict[Split, Trouble] = {}
    named: dict[Split, int] = {}
    for fetched in response.partitions:
        if (pending := requested.pop(fetched.split, None)) is None:
            raise CorruptDataError(
                f"the broker sent {fetched.split}, which was not requested, or a second time; check its version and log"
            )
        if fetched.error:
            troubles[fetched.split] = _trouble(fetched, pending.position)
        elif fetched.preferred_replica is not None and fetched.start == fetched.stop:
            troubles[fetched.split] = Trouble.REDIRECTED
            named[fetched.split] = fetched.preferred_replica
        else:
            surveyed = survey(
                fetched.split, data, fetched.start, fetched.stop, newest=pending.newest, before=pending.range.end
            )
            if surveyed.later is not None:
                troubles[fetched.split] = Trouble.REPLACED
                named[fetched.split] = surveyed.later
            if surveyed.next_offset is not None:
                stretches.append(Stretch(pending, fetched, surveyed.batches, surveyed.next_offset))
                after[fetched.split] = pending.at(surveyed.next_offset)
    left = starved_first(group, unfinished(after.values()))
    moved = any(after[pending.split].position > pending.position for pending in group)
    return Step(stretches, left, troubles, named, moved)


def _trouble(fetched: Fetched, position: int) -> Trouble:
    kind = for_code(fetched.error)
    if issubclass(kind, _MOVED):
        return Trouble.MOVED
    if kind is OffsetOutOfRangeError:
        return Trouble.OUT_OF_RANGE
    where, name = place(fetched.split, position), kind.__name__
    if kind is CorruptRecordError:
        raise CorruptDataError(f"{where}: the broker reports that its log is corrupt ({name}); check its disk")
    if kind in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        line = grant("HOST:PORT", "Read", [f"--topic {fetched.split.log}"])
        raise RefusedError(f"{where}: the broker refuses to let us read ({name}). On the brokers: {line}")
    raise SourceError(f"{where}: the broker answered with error {fetched.error} ({name}); its log has the reason")
