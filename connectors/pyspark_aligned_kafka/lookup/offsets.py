"""First and last offset of partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from typing import TypeAlias

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import EARLIEST, LATEST, NEWEST, OffsetAndTimestamp
from pyspark_aligned_kafka.lookup.batch_ranges import PositionLookup, offsets_of, settle
from pyspark_aligned_kafka.options.positions import (
    ACCEPTED,
    JSON_LATEST,
    At,
    OffsetRetries,
    PositionPolicy,
    positions_of,
)
from watermark_source.contract.stream import Ends
from watermark_source.errors import ResponseTimeoutError, SourceError, listed
from watermark_source.planning.split import IndexEntry, NewestTime, Split, SplitRange
from watermark_source.planning.watermark import MAX, Millis

LookUp: TypeAlias = Callable[[Mapping[Split, int]], Mapping[Split, OffsetAndTimestamp]]


class KafkaLogBounds:
    """Implements ``LogBounds`` and ``PositionLookup``. Every call sends requests: the caller decides how often."""

    def __init__(self, admin: KafkaAdmin, stale: OffsetRetries = ACCEPTED) -> None:
        self._admin = admin
        self._stale = stale
        self._ends: Mapping[Split, int] = {}
        self._answers: Mapping[Split, OffsetAndTimestamp] = {}
        self._positions: Mapping[Split, int] = {}
        """What the last answers say."""
        self.epochs: dict[Split, int] = {}
        """The epochs of the leaders that returned the last ends."""

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end: the high watermark, or the last stable offset with read_committed.

        An end before the last known one is requested again, as often as the policy has it, and then accepted.
        """
        wanted = dict.fromkeys(splits, LATEST)
        return self._settled(lambda: Ends(self._taken(self._admin.list_offsets(wanted)))).positions

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends that brokers answer within a few seconds; the other requests stay in flight."""
        return self._settled(lambda: self._in_time(splits))

    def _settled(self, look: Callable[[], Ends]) -> Ends:
        ends = look()
        for _ in range(self._stale.retries):
            if ends.positions == self._ends or all(e >= self._ends.get(s, 0) for s, e in ends.positions.items()):
                break
            time.sleep(self._stale.interval_ms / 1_000)
            ends = look()
        if ends.positions != self._ends:
            self._ends = {**self._ends, **ends.positions}
        return ends

    def _in_time(self, splits: Set[Split]) -> Ends:
        answers = self._admin.list_offsets_in_time(dict.fromkeys(splits, LATEST))
        late = {s: answer for s, answer in answers.unknown.items() if answer is not None}
        known = self._taken(late) if late else {}
        return Ends(self._taken(answers.offsets), {split: known.get(split) for split in answers.unknown})

    def _taken(self, answers: Mapping[Split, OffsetAndTimestamp]) -> Mapping[Split, int]:
        """Take in the epochs of answers, and return their positions: the same object while the answers are the same."""
        if answers != self._answers:
            self.epochs.update({split: end.epoch for split, end in answers.items() if end.epoch is not None})
            self._answers, self._positions = answers, _offsets(answers)
        return self._positions

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's log start offset."""
        return _offsets(self._admin.list_offsets(dict.fromkeys(splits, EARLIEST)))

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return the range of offsets that each log holds for a reader, without partitions that do not exist."""
        starts, ends = self.earliest_positions(splits), self.end_positions(splits)
        return {split: SplitRange(split, start, ends[split]) for split, start in starts.items() if split in ends}

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        """Return the first offset with a timestamp at or after the one wanted, or ``None``."""
        return {split: answer.offset for split, answer in self._admin.list_offsets(wanted).items()}


def _offsets(found: Mapping[Split, OffsetAndTimestamp]) -> Mapping[Split, int]:
    return {split: answer.offset for split, answer in found.items() if answer.offset is not None}


# Look-ups in Kafka's time index: the first record after a time, and the newest record (KIP-734).


class KafkaTimeIndex:
    """Implements ``EventTimeIndex`` for record timestamps. Exact, also where timestamps are out of order."""

    shows_rows_alone = False

    def __init__(self, admin: KafkaAdmin, look_up: LookUp | None = None) -> None:
        self._admin = admin
        self._look_up = look_up or admin.list_offsets

    @property
    def at_a_glance(self) -> KafkaTimeIndex:
        """Return the index that waits for no broker: between two requests of a plan one may fall silent."""
        return KafkaTimeIndex(self._admin, self._answered_at_once)

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """Return the record with the lowest offset whose timestamp is greater than the limit; ``None`` if none is.

        With read_committed what is beyond the last stable offset is not there yet. The record found may be one that
        is not delivered, a transaction's marker or part of an aborted one: then the next row is further on.
        """
        # Kafka's question is "at or after", and its timestamps are never negative: negative numbers mean other things.
        wanted = {split: max(limit + 1, 0) for split, limit in limits.items() if limit < MAX}
        entries: dict[Split, IndexEntry | None] = dict.fromkeys(limits.keys() - wanted.keys())
        for split, answer in self._look_up(wanted).items():
            offset, timestamp = answer.offset, answer.timestamp
            entries[split] = None if offset is None or timestamp is None else IndexEntry(offset, timestamp)
        return entries

    def newest(self, splits: Set[Split]) -> Mapping[Split, NewestTime | None]:
        """Return the highest timestamp in each split; ``None`` if it is empty or the broker does not know.

        Its position is the offset of the first record that has it; some brokers name the last in that record's batch.
        Brokers before 3.0 cannot; nor can any with read_committed while that record belongs to an open transaction.
        """
        found = self._look_up(dict.fromkeys(splits, NEWEST))
        newest = ((split, answer.timestamp, answer.offset) for split, answer in found.items())
        return {split: None if at is None else NewestTime(at, offset) for split, at, offset in newest}

    def _answered_at_once(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        found = self._admin.list_offsets_at_a_glance(wanted)
        if missing := wanted.keys() - found.keys():
            raise ResponseTimeoutError(f"no offset of {listed(missing)} by now")
        return found


# Rows behind the last stable offset: they are there, and readers of committed data do not see them yet.


class KafkaTransactions:
    """Implements ``OpenTransactions``; ``admin`` reads uncommitted data too."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    def ends(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the high watermarks that are answered in time."""
        answers = self._admin.list_offsets_in_time(dict.fromkeys(splits, LATEST))
        return _offsets(answers.offsets)


# Whether brokers answer while a batch is read: polled beside planning, on connections of its own.


class KafkaWatch:
    """Implements ``CurrentEnds``. No request stays in flight after a poll, and no connection that failed.

    Requests in flight, and connections that are tried again, advance only during calls, and polls are seconds apart. A
    client whose connection was refused also waits longer and longer before it connects again.
    """

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends that brokers answer within a few seconds.

        Raises:
            SourceError: none can be reached, or one refuses.
        """
        try:
            answers = self._admin.list_offsets_in_time(dict.fromkeys(splits, LATEST))
        except SourceError:
            self._admin.close()
            raise
        if answers.unknown:
            self._admin.close()
        return Ends(_offsets(answers.offsets), dict.fromkeys(answers.unknown))


# Where a stream begins in each partition: a new query by Spark's starting options, those found later at earliest.


def resolve(policy: PositionPolicy, splits: Set[Split], lookup: PositionLookup) -> dict[Split, int]:
    """Return the offset each split begins at.

    Raises:
        OptionError: the option does not list exactly the splits, an offset is beyond the end of its log, or no record
            is as new as a timestamp.
    """
    chosen = positions_of(policy, splits)
    given = {split: position.offset for split, position in chosen.items() if isinstance(position, At)}
    for split, end in (lookup.end_positions(given.keys()) if given else {}).items():
        if given[split] > end:
            why = f"{split} ends at {end}, before its offset {given[split]}"
            raise policy.refusal(why, example=f"{JSON_LATEST}, which is its end")
    return offsets_of(settle(policy, chosen, lookup), lookup)


class KafkaStartPositions:
    """Implements ``StartPositions``."""

    def __init__(self, admin: KafkaAdmin, policy: PositionPolicy) -> None:
        self._policy = policy
        self._bounds = KafkaLogBounds(admin)

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Resolve the starting options; asks the brokers each time."""
        return resolve(self._policy, splits, self._bounds)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest offsets, whatever the starting options are, as Spark does."""
        return self._bounds.earliest_positions(splits)
