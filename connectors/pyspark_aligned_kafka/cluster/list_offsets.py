"""ListOffsets, versions 5 to 7 (Kafka 2.2 and later): requests to bytes, and responses to offsets.

kafka-python makes an object of every partition on the way out and on the way in, which with ten thousand of them was
most of a look-up. ``OffsetsRequest`` goes over its connections as its own messages do. A leader is asked the same again
and again, and mostly gives the same response: ``OffsetsAsked`` encodes the question once, and reads of a response what
is not as it was in the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import IO, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from kafka.protocol.consumer import OffsetSpec

from pyspark_aligned_kafka.cluster.protocol_fields import INT, FieldReader, count, no_tags, text
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

EARLIEST: Final[int] = OffsetSpec.EARLIEST
LATEST: Final[int] = OffsetSpec.LATEST
NEWEST: Final[int] = OffsetSpec.MAX_TIMESTAMP
"""The record with the highest timestamp (KIP-734); brokers before 3.0 do not know it."""

_FLEXIBLE: Final = 6
"""From this version on lengths are compact, and every structure ends with tagged fields (KIP-482)."""
_KNOWS_NEWEST: Final = 7
_CONSUMER = -1
_ANY_EPOCH = -1

_HEADER = struct.Struct(">hhi")
_ISOLATION = struct.Struct(">ib")
_ASKED = struct.Struct(">iiq")
_ASKED_FLEXIBLE = struct.Struct(">iiqx")
_ANSWERED = struct.Struct(">ihqqi")
_ANSWERED_FLEXIBLE = struct.Struct(">ihqqix")
_NUMBER_BYTES = 4
"""A partition's number comes first in what is answered about it."""


class OffsetAndTimestamp(NamedTuple):
    """Result of one look-up; ``None`` where the broker has no answer of that kind."""

    offset: int | None
    timestamp: Millis | None
    epoch: int | None = None
    """With the end of a log that of its leader, otherwise that of the record."""


@dataclass(frozen=True, slots=True)
class OffsetsResponse:
    """A whole response."""

    throttle_time_ms: int
    """kafka-python waits this long before it sends again."""
    offsets: Mapping[Split, OffsetAndTimestamp]
    errors: Mapping[Split, int]
    """Kafka's error codes."""


class OffsetsAsked:
    """What one leader is asked: for each split a timestamp, or ``EARLIEST``, ``LATEST``, ``NEWEST``.

    ``epochs`` are those of the leaders: a broker that has been their leader, and is cut off from who is now, must not
    answer where the log ends (KIP-320).
    """

    def __init__(
        self, wanted: Mapping[Split, int], epochs: Mapping[Split, int | None], *, read_committed: bool
    ) -> None:
        self.wanted = wanted
        self.epochs = epochs
        self._read_committed = read_committed
        self._encoded: dict[bool, bytes] = {}
        self._last: dict[bool, _Decoded] = {}

    def encoded(self, *, flexible: bool) -> bytes:
        """Return the question as bytes, which come behind the request's header."""
        if flexible not in self._encoded:
            self._encoded[flexible] = _encode(
                self.wanted, self.epochs, flexible=flexible, read_committed=self._read_committed
            )
        return self._encoded[flexible]

    def decode(self, data: bytes, *, flexible: bool) -> OffsetsResponse:
        """Read a response, from behind the correlation id; with the last one's offsets where no byte of them differs.

        Raises:
            ValueError, struct.error: it is none.
        """
        self._last[flexible] = _decode(data, self._last.get(flexible), flexible=flexible)
        return self._last[flexible].response


class OffsetsRequest:
    """One request with a question. It is its own header, and reads its response.

    What is not a word of ours is what kafka-python's connections ask of a message.
    """

    API_KEY: ClassVar = 2
    name: ClassVar = "ListOffsetsRequest"
    min_version: ClassVar = 5
    max_version: ClassVar = _KNOWS_NEWEST
    _max_version: ClassVar = None

    def __init__(self, asked: OffsetsAsked) -> None:
        self.asked = asked
        self._min_version = _KNOWS_NEWEST if NEWEST in asked.wanted.values() else self.min_version
        self.API_VERSION: int | None = None

    def __repr__(self) -> str:
        return f"{self.name}({len(self.asked.wanted)} partitions)"

    def expect_response(self) -> bool:
        """Return whether the broker answers."""
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Take what the connection adds, once ``API_VERSION`` is known."""
        assert self.API_VERSION is not None
        self.header, self.correlation_id, self._client_id = self, correlation_id, client_id
        self._is_flexible = self.API_VERSION >= _FLEXIBLE

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """Return the request with its length and header."""
        assert framed
        assert header
        start = _HEADER.pack(self.API_KEY, self.API_VERSION, self.correlation_id)
        start += text(self._client_id, flexible=False) + no_tags(flexible=self._is_flexible)
        request = start + self.asked.encoded(flexible=self._is_flexible)
        return INT.pack(len(request)) + request

    def get_response_class(self) -> OffsetsRequest:
        """Return what reads the response."""
        return self

    def parse_header(self, data: IO[bytes]) -> SimpleNamespace:
        """Return the header of the response."""
        return SimpleNamespace(correlation_id=INT.unpack(data.read(INT.size))[0])

    def decode(self, data: IO[bytes]) -> OffsetsResponse:
        """Return the response, from behind its header."""
        return self.asked.decode(data.read(), flexible=self._is_flexible)


def _encode(
    wanted: Mapping[Split, int], epochs: Mapping[Split, int | None], *, flexible: bool, read_committed: bool
) -> bytes:
    tags = no_tags(flexible=flexible)
    pack = (_ASKED_FLEXIBLE if flexible else _ASKED).pack
    topics: dict[str, list[bytes]] = {}
    for split, timestamp in wanted.items():
        epoch = epochs.get(split)
        packed = pack(split.number, _ANY_EPOCH if epoch is None else epoch, timestamp)
        topics.setdefault(split.log, []).append(packed)
    parts = [_ISOLATION.pack(_CONSUMER, read_committed), count(len(topics), flexible=flexible)]
    for topic, partitions in topics.items():
        parts += [text(topic, flexible=flexible), count(len(partitions), flexible=flexible), *partitions, tags]
    parts.append(tags)
    return b"".join(parts)


class _Decoded(NamedTuple):
    """A response, and where it has what."""

    response: OffsetsResponse
    data: bytes
    """From behind the throttle time."""
    splits: Sequence[Split]
    """In the order of the response."""
    starts: npt.NDArray[np.int64]
    """Where in ``data`` each begins."""


def _decode(data: bytes, last: _Decoded | None, *, flexible: bool) -> _Decoded:
    reader = FieldReader(data, flexible=flexible)
    try:
        reader.skip_tags()
        throttle, begin = reader.integer(), reader.at
        if last is not None and (again := _like(last, data[begin:])) is not None:
            return again._replace(response=replace(again.response, throttle_time_ms=throttle))
        offsets, errors = dict[Split, OffsetAndTimestamp](), dict[Split, int]()
        splits, starts = list[Split](), list[int]()
        for _ in range(reader.count()):
            topic = reader.text()
            for start, (number, error, *answer) in _partitions(reader, reader.count()):
                split = Split(topic, number)
                splits.append(split)
                starts.append(start - begin)
                if error:
                    errors[split] = error
                else:
                    offsets[split] = _answer(*answer)
            reader.skip_tags()
        reader.skip_tags()
    except IndexError:
        raise ValueError(f"a response of {len(data)} bytes that ends too early") from None
    if reader.at != len(data):
        raise ValueError(f"a response of {len(data)} bytes of which {reader.at} make sense")
    return _Decoded(OffsetsResponse(throttle, offsets, errors), data[begin:], splits, np.array(starts, np.int64))


def _answer(timestamp: int, offset: int, epoch: int) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(
        None if offset < 0 else offset,
        None if timestamp < 0 else Millis(timestamp),
        None if epoch < 0 else epoch,
    )


def _like(last: _Decoded, data: bytes) -> _Decoded | None:
    """Return a response whose bytes differ from the last one's in what is answered about some partitions at most."""
    if data == last.data:
        return last
    known = last.response
    if len(data) != len(last.data) or not len(known.offsets) + len(known.errors) == len(last.splits) > 0:
        return None
    differing = np.flatnonzero(np.frombuffer(data, np.uint8) != np.frombuffer(last.data, np.uint8))
    places = np.searchsorted(last.starts, differing, side="right") - 1
    within = differing - last.starts[places]
    if places[0] < 0 or not ((within >= _NUMBER_BYTES) & (within < _ANSWERED.size)).all():
        return None
    offsets, errors = dict(known.offsets), dict(known.errors)
    for place in np.unique(places):
        split = last.splits[place]
        _, error, *answer = _ANSWERED.unpack_from(data, last.starts[place])
        if error:
            offsets.pop(split, None)
            errors[split] = error
        else:
            errors.pop(split, None)
            offsets[split] = _answer(*answer)
    return last._replace(response=replace(known, offsets=offsets, errors=errors), data=data)


def _partitions(reader: FieldReader, number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Read so many partitions, each with where it begins; all at once where none has tagged fields."""
    layout = _ANSWERED_FLEXIBLE if reader.flexible else _ANSWERED
    data = reader.view[reader.at : reader.at + max(number, 0) * layout.size]
    is_whole = len(data) == number * layout.size
    if is_whole and not any(data[_ANSWERED.size :: layout.size] if reader.flexible else ()):
        begin, reader.at = reader.at, reader.at + len(data)
        yield from zip(range(begin, reader.at, layout.size), layout.iter_unpack(data), strict=True)
        return
    for _ in range(number):
        yield reader.at, reader.unpack(_ANSWERED)
        reader.skip_tags()
