"""Between which offsets a batch reads each partition: positions as a user names them, checked and resolved.

Look-ups are injected: where a stream begins is resolved by the same rules (``offsets``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from pyspark_aligned_kafka import errors
from pyspark_aligned_kafka.lookup.pushed_filters import Wanted
from pyspark_aligned_kafka.options.positions import (
    At,
    AtTime,
    Earliest,
    Everywhere,
    Latest,
    NoMatch,
    PerSplit,
    Position,
    PositionPolicy,
    Settled,
    positions_of,
)
from watermark_source.errors import UnknownSplitError, listed, shortened
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis

# Positions as a user names them become offsets, with injected look-ups.


class PositionLookup(Protocol):
    """The look-ups a policy may need."""

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained offset."""

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end offset."""

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        """Return the first offset with a timestamp at or after the one wanted, or ``None``."""


def settle(policy: PositionPolicy, chosen: Mapping[Split, Position], lookup: PositionLookup) -> dict[Split, Settled]:
    """Return the positions with timestamps looked up; where the policy has it, the end for those not reached yet.

    Raises:
        OptionError: no record is as new as a timestamp, and the policy has no other place to go.
    """
    settled = {split: position for split, position in chosen.items() if not isinstance(position, AtTime)}
    times = {split: position.millis for split, position in chosen.items() if isinstance(position, AtTime)}
    # Before the times are looked up: what is written after that may be as new.
    ends = lookup.end_positions(times.keys()) if times and policy.no_match is NoMatch.LATEST else {}
    found = lookup.at_time(times) if times else {}
    unmatched = {split for split, offset in found.items() if offset is None}
    if unmatched and policy.no_match is NoMatch.ERROR:
        raise policy.refusal(
            f"no record is that new in {listed(unmatched)}; take an earlier time, or, as a partition without records "
            "has none of any time, begin there at the end with startingOffsetsByTimestampStrategy",
            example='startingOffsetsByTimestampStrategy = "latest"',
        )
    offsets = {split: ends.get(split) if offset is None else offset for split, offset in found.items()}
    return {**settled, **{split: At(offset) for split, offset in offsets.items() if offset is not None}}


def offsets_of(settled: Mapping[Split, Settled], lookup: PositionLookup) -> dict[Split, int]:
    """Return each split's offset as it is now; splits that are gone are left out."""
    offsets = {split: position.offset for split, position in settled.items() if isinstance(position, At)}
    for kind, look_up in ((Earliest, lookup.earliest_positions), (Latest, lookup.end_positions)):
        wanted = {split for split, position in settled.items() if isinstance(position, kind)}
        offsets.update(look_up(wanted) if wanted else {})
    return offsets


_USUAL_START = PositionPolicy("startingOffsets", "earliest", Everywhere(Earliest()))
_USUAL_END = PositionPolicy("endingOffsets", "latest", Everywhere(Latest()))


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """Where a batch begins and ends, as the user gave it."""

    start: PositionPolicy
    end: PositionPolicy

    @classmethod
    def of(cls, start: PositionPolicy | None, end: PositionPolicy | None) -> BatchBounds:
        """Fill in what was not given, and check what can be checked without asking the brokers.

        Raises:
            OptionError: a batch cannot begin at latest or end at earliest; both options must name the same partitions,
                and no end may lie before its start.
        """
        bounds = cls(start or _USUAL_START, end or _USUAL_END)
        _refuse(bounds.start, Latest(), "a batch cannot begin at the end (latest, -1)", "earliest")
        _refuse(bounds.end, Earliest(), "a batch cannot end at the beginning (earliest, -2)", "latest")
        bounds._check_partitions()
        bounds._check_order()
        return bounds

    def _check_partitions(self) -> None:
        start, end = self.start.rule, self.end.rule
        if isinstance(start, Everywhere) or isinstance(end, Everywhere):
            return
        # Where one of them names a topic as a whole, its partitions are compared with the cluster's later on.
        topics = start.topics.keys() | end.topics.keys()
        if _topics(start) != _topics(end) or _numbered(start, topics) != _numbered(end, topics):
            why = f"must name the same partitions as {self.start.option} does"
            raise self.end.refusal(why, condition=errors.DIFFERENT_PARTITIONS)

    def _check_order(self) -> None:
        rules = self.start.rule, self.end.rule
        if type(rules[0]) is not type(rules[1]):
            # As Spark: a partition of which neither bound is reached, such as an empty one, has no row between them.
            return
        named = {split for rule in rules if isinstance(rule, PerSplit) for split in rule.positions}
        places: list[Split | None] = [*sorted(named)] or [None]
        for split in places:
            start, end = (_position(rule, split) for rule in rules)
            after = ""
            if isinstance(start, At) and isinstance(end, At) and start.offset > end.offset:
                after = f"ends at offset {end.offset}, before its start offset {start.offset}"
            elif isinstance(start, AtTime) and isinstance(end, AtTime) and start.millis > end.millis:
                after = f"ends at time {end.millis}, before its start time {start.millis}"
            if after:
                raise self.end.refusal(f"{split or 'every partition'} {after}", condition=errors.START_GIVEN_AFTER_END)

    def late_ranges(self, splits: Set[Split], lookup: PositionLookup) -> list[OpenRange]:
        """Resolve both bounds of each split; earliest and latest stay late.

        A time that no record has reached yet ends a range where its log ends now, as in Spark.

        Raises:
            OptionError: an option does not list exactly the splits, no record is as new as a starting timestamp, or
                an end lies before its start.
            UnknownSplitError: a split has been deleted meanwhile.
        """
        chosen_starts, chosen_ends = positions_of(self.start, splits), positions_of(self.end, splits)
        starts, ends = settle(self.start, chosen_starts, lookup), settle(self.end, chosen_ends, lookup)
        first, last = offsets_of(starts, lookup), offsets_of(ends, lookup)
        if gone := splits - (first.keys() & last.keys()):
            raise UnknownSplitError(f"{listed(gone)} was deleted while the batch was planned")
        for split in sorted(splits):
            if first[split] > last[split]:
                raise self.start.refusal(
                    f"{split} would begin at offset {first[split]} and end at {last[split]}, which is before it; "
                    f"where it ends is {self.end.option} = {shortened(self.end.text)}",
                    condition=errors.START_FOUND_AFTER_END,
                )
        return [
            OpenRange(
                SplitRange(split, first[split], last[split]),
                late_start=isinstance(starts[split], Earliest),
                late_end=isinstance(ends[split], Latest),
            )
            for split in sorted(splits)
        ]


def _refuse(policy: PositionPolicy, refused: Position, problem: str, example: str) -> None:
    rule = policy.rule
    if isinstance(rule, Everywhere):
        where = [""] if rule.position == refused else []
    else:
        named = {**{str(split): at for split, at in rule.positions.items()}, **rule.topics}
        where = [f"; {name} does" for name, position in named.items() if position == refused]
    if where:
        raise policy.refusal(problem + where[0], example=example)


def _position(rule: Everywhere | PerSplit, split: Split | None) -> Position | None:
    """Return the position named for a split; for ``None`` the one for all of them."""
    if isinstance(rule, Everywhere):
        return rule.position
    return None if split is None else rule.positions.get(split)


def _topics(rule: PerSplit) -> set[str]:
    return {split.log for split in rule.positions} | rule.topics.keys()


def _numbered(rule: PerSplit, whole_topics: Set[str]) -> set[Split]:
    return {split for split in rule.positions if split.log not in whole_topics}


# Ranges of a batch cut down to what its filters leave of them; times are looked up in the brokers' index.


def narrowed(ranges: Sequence[OpenRange], wanted: Wanted, lookup: PositionLookup) -> list[OpenRange]:
    """Return the wanted parts of the ranges. Wanted rows that are lost already are left in: the reader reports them.

    Only a lowest timestamp can be looked up: before the first record that is as new, all are older. Records after it
    may be of any time, so a highest timestamp shows nothing about offsets.
    """
    kept = [each for each in ranges if wanted.takes(each.range.split)]
    firsts = _first_offsets(kept, wanted.since, lookup)
    found = []
    for each in kept:
        first = firsts.get(each.range.split, 0)
        for start, stop in wanted.offsets:
            if (part := each.within(start, stop, first)) is not None:
                found.append(part)
    return found


def _first_offsets(ranges: Sequence[OpenRange], since: Millis | None, lookup: PositionLookup) -> Mapping[Split, int]:
    """Return before which offset no record of a partition is as new as a time; partitions without one are left out."""
    # Records without a timestamp have a negative one, which the brokers cannot be asked for.
    if since is None or since <= 0 or not ranges:
        return {}
    # Before the time is looked up: what is written after that may be as new.
    ends = {late.range.split: late.range.end for late in ranges if late.late_end}
    fixed = frozenset(late.range.split for late in ranges) - ends.keys()
    if fixed:
        ends.update(lookup.end_positions(fixed))
    given = frozenset(late.range.split for late in ranges if not late.late_start)
    beginnings = lookup.earliest_positions(given) if given else {}
    found = lookup.at_time(dict.fromkeys(ends, since))
    firsts = {split: ends[split] if offset is None else offset for split, offset in found.items()}
    # What lies before its log's beginning is lost, and its timestamps are not known.
    lost = {late.range.split for late in ranges if late.range.start < beginnings.get(late.range.split, 0)}
    return {split: first for split, first in firsts.items() if split not in lost}
