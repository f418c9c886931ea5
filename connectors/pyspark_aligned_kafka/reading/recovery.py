"""Recovery: what a read does after a fetch without records, such as a new leader, deleted records or a time-out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from pyspark_aligned_kafka import errors
from pyspark_aligned_kafka.cluster.metadata import absent_since, gone_after
from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.reading.fetch import Step, Trouble
from pyspark_aligned_kafka.reading.kept_sessions import Session
from pyspark_aligned_kafka.reading.range_progress import Patience, Pending
from watermark_source.errors import (
    DataLossError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    labelled,
    listed,
)
from watermark_source.planning.split import Split, SplitRange

_log = logging.getLogger(__name__)


def behind_loss(pending: Pending, earliest: int, latest: int) -> int | None:
    """Return the position behind offsets lost at a range's; ``None`` if the log holds, or will hold, the next offset.

    ``earliest`` and ``latest`` bound the log as its leader reports it: ``[earliest, latest)``. A log that ends at or
    before the position, with the range's end planned beyond, was truncated or recreated.
    """
    if pending.position < earliest:
        return min(earliest, pending.range.end)
    return pending.range.end if latest <= pending.position else None


def loss_text(pending: Pending, behind: int, earliest: int, latest: int) -> str:
    """Return the text of a loss: which offsets, up to the position ``behind`` it, and why."""
    why = (
        "they have been deleted by retention or by hand"
        if pending.position < earliest
        else "the log was truncated, or the topic was deleted and recreated"
    )
    return (
        f"{place(pending.split)}: offsets {pending.position} to {behind} "
        f"(exclusive) of the range {pending.range.start} to {pending.range.end} are gone; the log now begins at "
        f"{earliest} and ends at {latest}: {why}"
    )


def loss_error(text: str) -> DataLossError:
    """Return the error for ``failOnDataLoss`` true."""
    return DataLossError(labelled(errors.COULD_NOT_READ, f"{text}. To skip them set failOnDataLoss to false"))


_LOG_CHECK_S: Final = 1.0
"""After this many seconds without a record the log's bounds are requested: the awaited records may be deleted."""


@dataclass(slots=True)
class Recovery:
    """Decides where a read resumes, or raises. Every wait counts against the read's patience."""

    session: Session
    patience: Patience
    _: KW_ONLY
    fail_on_data_loss: bool
    from_beginning: Set[Split] = frozenset()
    ids: Mapping[str, str] = field(default_factory=dict)
    """Those of the topics that are to be read; another topic of a name counts as absent."""
    absent_since: dict[Split, float] = field(default_factory=dict, init=False)
    """By split: when the first of the latest metadata responses in a row without it arrived."""

    def find_leaders(self, pending: Sequence[Pending]) -> list[Pending]:
        """Request the splits' leaders; return the ranges, with those of deleted partitions at their end.

        Raises:
            UnknownSplitError: a topic or partition does not exist (``fail_on_data_loss``).
            ResponseTimeoutError: patience is over. RefusedError, UnreachableError.
        """
        begun = time.monotonic()
        topics = {p.split.log for p in pending}
        self.session.refresh(topics, self.patience.left_ms, anyone=bool(self.absent_since))
        self.patience.spend(begun)
        absent = {p.split for p in pending if self.session.absent(p.split) or self._other_id(p) is not None}
        self.absent_since = absent_since(self.absent_since, absent)
        leaderless = [p for p in pending if p.split in absent or self.session.node_of(p.split) is None]
        if not leaderless:
            return list(pending)
        latest = time.monotonic() - gone_after(self.patience.limit_s)
        gone = dict.fromkeys(p for p in leaderless if self.absent_since.get(p.split, math.inf) <= latest)
        if gone:
            return self._without(pending, gone)
        if len(leaderless) == len(pending):
            self._wait(ResponseTimeoutError(f"{_names(leaderless)} had no leader"))
        return list(pending)

    def _other_id(self, pending: Pending) -> str | None:
        return self.session.other_id(pending.split, self.ids.get(pending.split.log))

    def look_elsewhere(self, node: int, group: Sequence[Pending], problem: SourceError) -> list[Pending]:
        """Forget the broker as leader of the group's splits, so that their leaders are requested again, and pause.

        Raises:
            SourceError: ``problem`` with the time spent, when patience is over.
        """
        for pending in group:
            self.session.forget(pending.split, node)
        self._wait(problem)
        return list(group)

    def resolve(self, node: int, step: Step) -> list[Pending]:
        """Return the ranges to read after a response with troubles."""
        left: list[Pending] = []
        moved: list[Pending] = []
        for pending in step.left:
            trouble = step.troubles.get(pending.split)
            if trouble is Trouble.MOVED or (trouble and self.session.replicas.get(pending.split) == node):
                # A replica may be behind, or ahead of, its leader: only the leader decides what is out of range.
                moved.append(pending)
            elif trouble is Trouble.OUT_OF_RANGE:
                resumed = self._within_log(pending)
                moved += [pending] if resumed is None else []
                left += [] if resumed is None else [resumed]
            elif trouble is Trouble.REPLACED:
                left.append(self._without_replaced(pending, step.named[pending.split]))
            else:
                if trouble is Trouble.REDIRECTED:
                    self.session.replicas[pending.split] = step.named[pending.split]
                left.append(pending)
        if moved:
            problem = ResponseTimeoutError(f"broker {node} does not serve {_names(moved)}")
            left += self.look_elsewhere(node, moved, problem)
        return left

    def _without_replaced(self, pending: Pending, epoch: int) -> Pending:
        """Return the range at its end: the next plan finds the loss too, and reads what is there now.

        Raises:
            DataLossError: unless losses are skipped (``fail_on_data_loss``).
        """
        end = pending.range.end
        text = (
            f"{place(pending.split)}: the offsets {pending.position} to {end} (exclusive) that a batch was planned to "
            f"read are gone: the leader of epoch {epoch} did not have them, and wrote others in their place"
        )
        if self.fail_on_data_loss:
            raise loss_error(text)
        _log.warning("%s; the next batch reads those, because failOnDataLoss is false", text)
        return pending.at(end)

    def pause_stalled(self, group: list[Pending]) -> list[Pending]:
        """Pause after a response without records; return a new list if records were deleted or a leader changed."""
        why = ", as none of an open transaction does (kafka.isolation.level)" if self.session.read_committed else ""
        self._wait(ResponseTimeoutError(f"no record of {_names(group)} arrived{why}"))
        redirected = [p.split for p in group if p.split in self.session.replicas]
        for split in redirected:
            # The replica may be behind; the leader is not.
            del self.session.replicas[split]
        if redirected:
            return list(group)
        if self.patience.spent_s - self.patience.checked_at_s < _LOG_CHECK_S:
            return group
        self.patience.checked_at_s = self.patience.spent_s
        before = [self.session.leaders.of(p.split) for p in group]
        self._doubt_leaders(group)
        if [self.session.leaders.of(p.split) for p in group] != before:
            return list(group)
        checked = [self._within_log(p) or p for p in group]
        return group if checked == group else checked

    def _doubt_leaders(self, group: Sequence[Pending]) -> None:
        """Request the group's leaders from other brokers.

        A broker that is partitioned from the others does not know that it is no longer the leader, and that its log is
        incomplete.
        """
        begun = time.monotonic()
        topics, doubted = {p.split.log for p in group}, self.session.node_of(group[0].split)
        self.session.refresh(topics, self.patience.left_ms, anyone=True, doubted=doubted)
        self.patience.spend(begun)

    def _log_of(self, pending: Pending) -> SplitRange | None:
        begun = time.monotonic()
        log = self.session.written.log_ranges({pending.split}).get(pending.split)
        self.patience.spend(begun)
        return log

    def _within_log(self, pending: Pending) -> Pending | None:
        """Return the range after lost offsets; ``None`` if the log holds, or will hold, the position.

        Raises:
            DataLossError: offsets are lost (``fail_on_data_loss``).
        """
        log = self._log_of(pending)
        if log is not None and log.end <= pending.position:
            self._doubt_leaders([pending])
            log = self._log_of(pending)
        if log is None:
            return self._without([pending], [pending])[0]
        position = behind_loss(pending, log.start, log.end)
        if position is None:
            return None
        text = loss_text(pending, position, log.start, log.end)
        if pending.position < log.start and pending.split in self.from_beginning:
            _log.info("%s; no loss, because the partition is read from its beginning", text)
            return pending.at(position)
        if self.fail_on_data_loss:
            raise loss_error(text)
        _log.warning("%s; %d offsets are skipped because failOnDataLoss is false", text, position - pending.position)
        return pending.at(position)

    def _without(self, pending: Sequence[Pending], gone: Collection[Pending]) -> list[Pending]:
        others = {p.split.log: other for p in gone if (other := self._other_id(p)) is not None}
        if others and self.fail_on_data_loss:
            ids = listed(f"{log} had the id {self.ids[log]}, and has {other}" for log, other in others.items())
            raise loss_error(
                f"{_names(gone)}: the topic was deleted and created again since the batch was planned, so that the "
                f"rest of the batch is gone: {ids}. Of a batch read, load() again reads the new one"
            )
        text = f"{_names(gone)} does not exist (any more)"
        if self.fail_on_data_loss:
            raise UnknownSplitError(
                labelled(
                    errors.PARTITIONS_DELETED,
                    f"{text}: was the topic deleted while the query was running? "
                    "To skip it set failOnDataLoss to false",
                )
            )
        for lost in gone:
            _log.warning(
                "%s does not exist any more; %d offsets from %d on are skipped because failOnDataLoss is false",
                place(lost.split),
                lost.left,
                lost.position,
            )
        return [p.at(p.range.end) if p in gone else p for p in pending]

    def _wait(self, problem: SourceError) -> None:
        if not self.patience.over:
            self.patience.pause()
        if self.patience.over:
            raise type(problem)(
                f"{problem}; no progress for {self.patience.spent_s:.3g} s (kafkaConsumer.pollTimeoutMs). "
                "Check the brokers and the network"
            )


def _names(group: Iterable[Pending]) -> str:
    return listed(pending.split for pending in group)
