"""Where a new query begins in each partition: Spark's starting options as a policy, resolved with injected look-ups."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from pyspark_aligned_kafka import conditions
from pyspark_aligned_kafka.json_maps import listed, parse_integers
from watermark_source.errors import OptionError
from watermark_source.eventtime.watermark import Millis
from watermark_source.options import integer
from watermark_source.planning.split import Split

# Spark's JSON writes these two in the place of an offset.
_JSON_EARLIEST = -2
_JSON_LATEST = -1


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first retained offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end offset at the moment the query starts."""


@dataclass(frozen=True, slots=True)
class At:
    """A given offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset whose timestamp is at or after ``millis`` since the epoch."""

    millis: Millis


StartPosition = Earliest | Latest | At | AtTime


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same for every partition."""

    position: StartPosition


@dataclass(frozen=True, slots=True)
class PerSplit:
    """One for each partition; exactly the partitions that are read must be there."""

    positions: Mapping[Split, StartPosition]


class NoMatch(enum.Enum):
    """What to do when no record is as new as the timestamp asked for."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """The starting options as the user gave them; ``option`` and ``text`` are for error messages."""

    option: str
    text: str
    rule: Everywhere | PerSplit
    no_match: NoMatch = NoMatch.ERROR


class OffsetLookup(Protocol):
    """The look-ups a policy may need."""

    def earliest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained offset."""
        ...

    def latest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end offset."""
        ...

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        """Return the first offset with a timestamp at or after the one wanted, or ``None``."""
        ...


def parse_starting_offsets(text: str) -> Everywhere | PerSplit:
    """Parse ``earliest``, ``latest`` or Spark's JSON of offsets, where -2 is earliest and -1 latest."""
    words: dict[str, StartPosition] = {"earliest": Earliest(), "latest": Latest()}
    if (position := words.get(text.strip().lower())) is not None:
        return Everywhere(position)
    return PerSplit({split: _from_json(split, number) for split, number in parse_integers(text).items()})


def parse_starting_timestamp(text: str) -> Everywhere:
    """Parse milliseconds since the epoch."""
    return Everywhere(AtTime(Millis(integer(text, minimum=0))))


def parse_starting_timestamps(text: str) -> PerSplit:
    """Parse Spark's JSON of timestamps for each partition."""
    return PerSplit({split: AtTime(_time(split, number)) for split, number in parse_integers(text).items()})


def resolve(policy: StartPolicy, splits: Set[Split], lookup: OffsetLookup) -> dict[Split, int]:
    """Return the offset each split begins at.

    Raises:
        OptionError: the option does not list exactly the splits, an offset is beyond the end of its log, or no record
            is as new as a timestamp.
    """
    chosen = _positions(policy, splits)
    offsets = {split: position.offset for split, position in chosen.items() if isinstance(position, At)}
    for split, end in _look_up(lookup.latest, offsets).items():
        if offsets[split] > end:
            raise OptionError(
                policy.option, policy.text, f"{split} ends at {end}, before its offset {offsets[split]}",
                example=f"{_JSON_LATEST}, which is its end",
            )  # fmt: skip
    offsets.update(_look_up(lookup.earliest, (s for s, position in chosen.items() if isinstance(position, Earliest))))
    offsets.update(_look_up(lookup.latest, (s for s, position in chosen.items() if isinstance(position, Latest))))
    times = {split: position.millis for split, position in chosen.items() if isinstance(position, AtTime)}
    if times:
        found = lookup.at_time(times)
        offsets.update({split: offset for split, offset in found.items() if offset is not None})
        unmatched = {split for split, offset in found.items() if offset is None}
        if unmatched and policy.no_match is NoMatch.ERROR:
            raise OptionError(
                policy.option,
                policy.text,
                f"no record is that new in {listed(unmatched)}; take an earlier time, or begin there at the end "
                "with startingOffsetsByTimestampStrategy",
                example='startingOffsetsByTimestampStrategy = "latest"',
            )
        offsets.update(_look_up(lookup.latest, unmatched))
    return offsets


def _positions(policy: StartPolicy, splits: Set[Split]) -> Mapping[Split, StartPosition]:
    if isinstance(policy.rule, Everywhere):
        return dict.fromkeys(splits, policy.rule.position)
    given = policy.rule.positions
    if given.keys() != splits:
        missing, extra = splits - given.keys(), given.keys() - splits
        parts = [f"does not list {listed(missing)}" if missing else "", f"lists {listed(extra)}" if extra else ""]
        raise OptionError(
            policy.option,
            policy.text,
            "must list exactly the partitions that are read; it "
            + " and ".join(filter(None, parts))
            + f"; the partitions are {listed(splits)}",
            condition=_mismatch(given.values()),
        )
    return given


def _mismatch(positions: Iterable[StartPosition]) -> str:
    by_time = any(isinstance(position, AtTime) for position in positions)
    return conditions.TIMESTAMPS_DO_NOT_MATCH if by_time else conditions.START_DOES_NOT_MATCH


def _look_up(lookup: Callable[[Set[Split]], Mapping[Split, int]], splits: Iterable[Split]) -> Mapping[Split, int]:
    wanted = frozenset(splits)
    return lookup(wanted) if wanted else {}


def _from_json(split: Split, number: int) -> StartPosition:
    if number == _JSON_EARLIEST:
        return Earliest()
    if number == _JSON_LATEST:
        return Latest()
    if number < 0:
        raise ValueError(f"{split} has {number}, which is no offset")
    return At(number)


def _time(split: Split, millis: int) -> Millis:
    if millis < 0:
        raise ValueError(f"{split} has {millis}, which is before the epoch")
    return Millis(millis)
