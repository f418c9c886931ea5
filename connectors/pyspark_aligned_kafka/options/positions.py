"""Positions as a user names them, for all partitions or one by one: Spark's texts for where to begin and to end."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from pyspark_aligned_kafka import errors
from watermark_source.errors import OptionError, StartMismatchError, listed
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

# Spark's JSON of partitions, ``{"topic":[0,1]}``, ``{"topic":{"0":23}}`` and ``{"topic":"latest"}``, read strictly.


_MOST_PARTITION, _MOST = 2**31 - 1, 2**63 - 1


class ShapeError(ValueError):
    """The text is not JSON or has another shape; the message names the place."""


def parse_partitions(text: str) -> frozenset[Split]:
    """Read ``{"topic":[0,1]}``.

    Raises:
        ShapeError: the text is not of that shape.
    """
    splits: set[Split] = set()
    for topic, numbers in _object(_load(text)).items():
        if not isinstance(numbers, list):
            raise ShapeError(f'"{topic}" must hold a list of partition numbers')
        for number in numbers:
            if type(number) is not int or not 0 <= number <= _MOST_PARTITION:
                raise ShapeError(f'"{topic}" holds {_shown(number)}, which is not a partition number')
            splits.add(Split(topic, number))
    return frozenset(splits)


def parse_integers(text: str) -> dict[Split, int]:
    """Read ``{"topic":{"0":23,"1":-2}}``.

    Raises:
        ShapeError: the text is not of that shape.
    """
    return integers_of(_load(text))


def parse_integers_and_words(text: str) -> tuple[dict[Split, int], dict[str, str]]:
    """Read ``{"topic":{"0":23},"other":"latest"}``: integers by partition, and words by topic.

    Raises:
        ShapeError: the text is not of that shape.
    """
    topics = _object(_load(text))
    words = {topic: word for topic, word in topics.items() if isinstance(word, str)}
    numbered = {topic: partitions for topic, partitions in topics.items() if topic not in words}
    return integers_of(numbered) if numbered else {}, words


def integers_of(value: Any) -> dict[Split, int]:
    """Read the already decoded form of ``parse_integers``; the same ``ShapeError``."""
    found: dict[Split, int] = {}
    for topic, partitions in _object(value).items():
        if not isinstance(partitions, dict):
            raise ShapeError(f'"{topic}" must hold an object of partition numbers')
        for key, number in partitions.items():
            if not _is_partition(key):
                raise ShapeError(f'"{topic}" has the key "{key}", which is not a partition number')
            if type(number) is not int:
                raise ShapeError(f"{topic}-{key} has {_shown(number)}, which is not a whole number")
            if not -_MOST <= number <= _MOST:
                raise ShapeError(f"{topic}-{key} has {number}, which does not fit into 64 bits")
            found[Split(topic, int(key))] = number
    return found


def foreign_positions(offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
    """Return the positions of an offset that Spark's own Kafka source wrote, ``{"topic":{"0":23}}``, else ``None``.

    A query can so be switched over in place.
    """
    try:
        positions = integers_of(offset)
    except ShapeError:
        return None
    return positions if positions and min(positions.values()) >= 0 else None


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ShapeError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ShapeError("is nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ShapeError(f'"{repeated}" is there twice')
    return result


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ShapeError("must be a JSON object of topics")
    if not value:
        raise ShapeError("names no topic")
    return value


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "a deep nest"


def _is_partition(key: str) -> bool:
    digits = key.isascii() and key.isdigit() and len(key) <= len(str(_MOST_PARTITION))
    return digits and str(int(key)) == key and int(key) <= _MOST_PARTITION


# Spark's JSON writes these two in the place of an offset.
JSON_EARLIEST = -2
JSON_LATEST = -1


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first retained offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end offset at the time of the look-up."""


@dataclass(frozen=True, slots=True)
class At:
    """A given offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset whose timestamp is at or after ``millis`` since the epoch."""

    millis: Millis


Settled = Earliest | Latest | At
Position = Settled | AtTime

_WORDS: dict[str, Earliest | Latest] = {"earliest": Earliest(), "latest": Latest()}


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same for every partition."""

    position: Position


@dataclass(frozen=True, slots=True)
class PerSplit:
    """One for each partition, or one for all of a topic; exactly the partitions that are read must be there."""

    positions: Mapping[Split, Position]
    topics: Mapping[str, Earliest | Latest] = field(default_factory=dict)


class NoMatch(enum.Enum):
    """What to do when no record is as new as the timestamp asked for."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class PositionPolicy:
    """The starting or ending options as the user gave them; ``option`` and ``text`` are for error messages."""

    option: str
    text: str
    rule: Everywhere | PerSplit
    no_match: NoMatch = NoMatch.ERROR

    def refusal(self, why: str, *, example: str | None = None, condition: str | None = None) -> OptionError:
        """Return the error that refuses what the user wrote."""
        return OptionError(self.option, self.text, why, example=example, condition=condition)


@dataclass(frozen=True, slots=True)
class OffsetRetries:
    """``fetchOffset.numRetries`` and ``fetchOffset.retryIntervalMs``: how often and how soon ends are requested again.

    An end before one seen earlier may come from a new leader, which can be behind for a moment.
    """

    retries: int
    interval_ms: int


ACCEPTED = OffsetRetries(retries=0, interval_ms=0)
"""Every answer is taken as it is."""


def parse_offsets(text: str) -> Everywhere | PerSplit:
    """Parse ``earliest``, ``latest`` or Spark's JSON of offsets, where -2 is earliest and -1 latest.

    A topic may have one of the words in the place of its partitions (SPARK-58774).
    """
    if (position := _WORDS.get(text.strip().lower())) is not None:
        return Everywhere(position)
    offsets, words = parse_integers_and_words(text)
    return PerSplit(
        {split: _from_json(split, number) for split, number in offsets.items()},
        {topic: _from_word(topic, word) for topic, word in words.items()},
    )


def from_time(millis: int) -> Everywhere:
    """Return the position of a time in milliseconds since the epoch."""
    return Everywhere(AtTime(Millis(millis)))


def parse_timestamps(text: str) -> PerSplit:
    """Parse Spark's JSON of timestamps for each partition."""
    return PerSplit({split: AtTime(_time(split, number)) for split, number in parse_integers(text).items()})


_USUAL = PositionPolicy("startingOffsets", "latest", Everywhere(Latest()))
_NO_END = "a stream has no end; to read the existing records and stop, use the trigger AvailableNow"


def start_of_stream(start: PositionPolicy | None, end: PositionPolicy | None) -> PositionPolicy:
    """Return where a stream begins, by its starting and ending options.

    Raises:
        OptionError: an end is given.
    """
    if end is not None:
        raise end.refusal(f"not supported in a stream: {_NO_END}")
    return _USUAL if start is None else start


def positions_of(policy: PositionPolicy, splits: Set[Split]) -> Mapping[Split, Position]:
    """Return the position of each split.

    Raises:
        StartMismatchError: the option does not list exactly the splits.
    """
    if isinstance(policy.rule, Everywhere):
        return dict.fromkeys(splits, policy.rule.position)
    given, topics = policy.rule.positions, policy.rule.topics
    by_topic = {split: topics[split.log] for split in splits if split.log in topics}
    listed_splits = given.keys() | by_topic.keys()
    missing, extra = splits - listed_splits, listed_splits - splits
    unread = sorted(topics.keys() - {split.log for split in splits})
    if missing or extra or unread:
        by_time = any(isinstance(position, AtTime) for position in given.values())
        parts = [
            f"does not list {listed(missing)}" if missing else "",
            f"lists {listed(extra)}" if extra else "",
            f"names topic {', '.join(unread)}" if unread else "",
        ]
        raise StartMismatchError(
            policy.option,
            policy.text,
            "must list exactly the partitions that are read; it "
            + " and ".join(filter(None, parts))
            + f"; the partitions are {listed(splits)}",
            condition=errors.TIMESTAMPS_DO_NOT_MATCH if by_time else errors.START_DOES_NOT_MATCH,
        )
    return {**given, **by_topic}


def _from_json(split: Split, number: int) -> Position:
    if number == JSON_EARLIEST:
        return Earliest()
    if number == JSON_LATEST:
        return Latest()
    if number < 0:
        raise ValueError(f"{split} has {number}, and an offset is at least 0, or -2 or -1")
    return At(number)


def _from_word(topic: str, word: str) -> Earliest | Latest:
    if (position := _WORDS.get(word.strip().lower())) is None:
        raise ValueError(f'"{topic}" has "{word}", which is neither earliest nor latest nor an object of partitions')
    return position


def _time(split: Split, millis: int) -> Millis:
    if millis < 0:
        raise ValueError(f"{split} has {millis}, which is before the epoch")
    return Millis(millis)
