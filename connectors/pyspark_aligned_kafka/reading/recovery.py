"""What to do when a fetch gave no records: another leader, a replica, data that is gone, or patience that is over."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

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

# What of a range is gone, given where the log begins and ends now.


class Resumption(NamedTuple):
    """Where reading goes on, and which offsets before that are gone."""

    position: int
    lost_from: int
    lost_to: int

    @property
    def lost(self) -> int:
        """Number of offsets gone; the rows may be fewer."""
        return self.lost_to - self.lost_from


def resumption(pending: Pending, earliest: int, latest: int) -> Resumption | None:
    """Return what is gone at the range's position, or ``None`` if the log still holds, or will hold, what is next.

    ``earliest`` and ``latest`` bound the log as its leader has them now: ``[earliest, latest)``. A log that ends at or
    before the position, with the range's end planned beyond, was truncated or made anew.
    """
    if pending.position < earliest:
        to = min(earliest, pending.range.end)
        return Resumption(to, pending.position, to)
    if latest <= pending.position:
        return Resumption(pending.range.end, pending.position, pending.range.end)
    return None


def loss_text(pending: Pending, gone: Resumption, earliest: int, latest: int) -> str:
    """Say what is gone."""
    why = (
        "they have been deleted by retention or by hand"
        if gone.position == min(earliest, pending.range.end) and pending.position < earliest
        else "the log was truncated, or the topic was deleted and made again"
    )
    return (
        f"{place(pending.split)}: offsets {gone.lost_from} to {gone.lost_to} "
        f"(exclusive) of the range {pending.range.start} to {pending.range.end} are gone; the log now begins at "
        f"{earliest} and ends at {latest}: {why}"
    )


def loss_error(text: str) -> DataLossError:
    """Return the error for ``failOnDataLoss`` true."""
    return DataLossError(labelled(errors.COULD_NOT_READ, f"{text}. To go on without them set failOnDataLoss to false"))


_log = logging.getLogger(__name__)

_LOG_CHECK_S: Final = 1.0
"""So long without a record, and the log's bounds are looked at: what is waited for may be gone."""


class Recovery:
    """Finds where a read goes on, or raises. Every wait is on the read's patience."""

    def __init__(
        self,
        session: Session,
        patience: Patience,
        *,
        fail_on_data_loss: bool,
        from_beginning: Set[Split] = frozenset(),
    ) -> None:
        self._session = session
        self._patience = patience
        self._fail_on_data_loss = fail_on_data_loss
        self._from_beginning = from_beginning
        self._absent_since: dict[Split, float] = {}
        """When the first of the answers in a row came that lacked a split."""

    def find_leaders(self, pending: Sequence[Pending]) -> list[Pending]:
        """Ask the cluster who leads the splits; return the ranges, without those that are gone.

        Raises:
            UnknownSplitError: a topic or partition does not exist (``fail_on_data_loss``).
            ResponseTimeoutError: patience is over. RefusedError, UnreachableError.
        """
        begun = time.monotonic()
        topics = {each.split.log for each in pending}
        self._session.refresh(topics, self._patience.left_ms, anyone=bool(self._absent_since))
        self._patience.spend(begun)
        absent = {each.split for each in pending if self._session.absent(each.split)}
        self._absent_since = absent_since(self._absent_since, absent)
        leaderless = [each for each in pending if self._session.node_of(each.split) is None]
        if not leaderless:
            return list(pending)
        latest = time.monotonic() - gone_after(self._patience.limit_s)
        gone = [each for each in leaderless if self._absent_since.get(each.split, math.inf) <= latest]
        if gone:
            return self._without(pending, gone)
        if len(leaderless) == len(pending):
            self._wait(ResponseTimeoutError(f"{_names(leaderless)} had no leader"))
        return list(pending)

    def look_elsewhere(self, node: int, group: Sequence[Pending], problem: SourceError) -> list[Pending]:
        """Forget that the broker leads the group's splits, so that it is asked anew who does, and wait a little.

        Raises:
            SourceError: ``problem``, with what was waited for, when patience is over.
        """
        for each in group:
            self._session.forget(each.split, node)
        self._wait(problem)
        return list(group)

    def resolve(self, node: int, step: Step) -> list[Pending]:
        """Return where to go on after a response with troubles."""
        left: list[Pending] = []
        moved: list[Pending] = []
        for each in step.left:
            trouble = step.troubles.get(each.split)
            if trouble is Trouble.MOVED or (trouble and self._session.replicas.get(each.split) == node):
                # A replica may be behind, or ahead, of its leader: only the leader knows what is out of range.
                moved.append(each)
            elif trouble is Trouble.OUT_OF_RANGE:
                found = self._within_log(each)
                moved += [each] if found is None else []
                left += [] if found is None else [found]
            else:
                if trouble is Trouble.REDIRECTED:
                    self._session.replicas[each.split] = step.redirections[each.split]
                left.append(each)
        if moved:
            problem = ResponseTimeoutError(f"broker {node} does not serve {_names(moved)}")
            left += self.look_elsewhere(node, moved, problem)
        return left

    def stalled(self, group: list[Pending]) -> list[Pending]:
        """Wait a little after a response without records; return the group anew if part of it is gone, or moved."""
        self._wait(ResponseTimeoutError(f"no record of {_names(group)} arrived"))
        redirected = [each for each in group if each.split in self._session.replicas]
        for each in redirected:
            # The replica may be behind; the leader is not.
            del self._session.replicas[each.split]
        if redirected:
            return list(group)
        if self._patience.spent_s - self._patience.checked_at_s < _LOG_CHECK_S:
            return group
        self._patience.checked_at_s = self._patience.spent_s
        before = [self._session.leader(each.split) for each in group]
        self._doubt_leaders(group)
        if [self._session.leader(each.split) for each in group] != before:
            return list(group)
        checked = [self._within_log(each) or each for each in group]
        return group if checked == group else checked

    def _doubt_leaders(self, group: Sequence[Pending]) -> None:
        """Ask others than the group's broker who leads it.

        A broker that is cut off from them does not know that it leads no more, and that its log is not the whole one.
        """
        begun = time.monotonic()
        topics, doubted = {each.split.log for each in group}, self._session.node_of(group[0].split)
        self._session.refresh(topics, self._patience.left_ms, anyone=True, doubted=doubted)
        self._patience.spend(begun)

    def _log_of(self, pending: Pending) -> SplitRange | None:
        begun = time.monotonic()
        log = self._session.log_ranges({pending.split}).get(pending.split)
        self._patience.spend(begun)
        return log

    def _within_log(self, pending: Pending) -> Pending | None:
        """Compare with the log's bounds; ``None`` if the log holds, or will hold, the position.

        Raises:
            DataLossError: it does not (``fail_on_data_loss``).
        """
        log = self._log_of(pending)
        if log is not None and log.end <= pending.position:
            self._doubt_leaders([pending])
            log = self._log_of(pending)
        if log is None:
            return self._without([pending], [pending])[0]
        gone = resumption(pending, log.start, log.end)
        if gone is None:
            return None
        text = loss_text(pending, gone, log.start, log.end)
        if pending.position < log.start and pending.split in self._from_beginning:
            _log.info("%s; no loss, since it is read from its beginning", text)
            return pending.at(gone.position)
        if self._fail_on_data_loss:
            raise loss_error(text)
        _log.warning("%s; %d offsets are skipped because failOnDataLoss is false", text, gone.lost)
        return pending.at(gone.position)

    def _without(self, pending: Sequence[Pending], gone: Sequence[Pending]) -> list[Pending]:
        text = f"{_names(gone)} does not exist (any more)"
        if self._fail_on_data_loss:
            raise UnknownSplitError(
                labelled(
                    errors.PARTITIONS_DELETED,
                    f"{text}: was the topic deleted while the query was running? "
                    "To go on without it set failOnDataLoss to false",
                )
            )
        for each in gone:
            _log.warning(
                "%s does not exist any more; %d offsets from %d on are skipped because failOnDataLoss is false",
                place(each.split),
                each.left,
                each.position,
            )
        return [each.at(each.range.end) if each in gone else each for each in pending]

    def _wait(self, problem: SourceError) -> None:
        if not self._patience.over:
            self._patience.pause()
        if self._patience.over:
            raise type(problem)(
                f"{problem}; no progress for {self._patience.spent_s:.3g} s (kafkaConsumer.pollTimeoutMs). "
                "Check the brokers and the network"
            )


def _names(group: Iterable[Pending]) -> str:
    return listed(each.split for each in group)
