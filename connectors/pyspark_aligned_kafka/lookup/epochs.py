"""The epochs of partitions' leaders: which records a log has before an offset, and since when it has others."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp
from watermark_source.contract.lineage import Lineage, ReadUpTo
from watermark_source.planning.lineage import History
from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch
from watermark_source.planning.watermark import MAX


class KafkaLineage(Lineage):
    """Implements ``Lineage``; ``newest`` are the epochs of the leaders that returned the last ends.

    Leaders are asked when another one has been elected, and for positions whose epoch is not known; what they return
    holds as long as they lead.
    """

    def __init__(self, admin: KafkaAdmin, newest: Mapping[Split, int]) -> None:
        self._admin = admin
        self._newest = newest
        self._known: dict[Split, _Known] = {}
        self._asked: Mapping[Split, ReadUpTo] = {}
        """The splits of the last answer, ``_histories``."""
        self._as_of: Mapping[Split, int] = {}
        """``newest`` then."""
        self._histories: Mapping[Split, History] = {}

    def histories(self, splits: Mapping[Split, ReadUpTo]) -> Mapping[Split, History]:
        """Return the epochs of the splits that have another leader than the one of the last record read."""
        newest = self._newest
        if splits is self._asked and newest == self._as_of:
            return self._histories
        wanted = {s: t for s, t in splits.items() if s in newest and (t.epoch is None or t.epoch.number != newest[s])}
        self._known = {s: known for s in wanted if (known := self._known.get(s)) and known.newest == newest[s]}
        walks = {s: _Walk(newest[s], wanted[s]) for s in wanted.keys() - self._known.keys()}
        while asked := {split: walk.asks_for for split, walk in walks.items() if walk.asks_for is not None}:
            ends = self._admin.epoch_ends(asked)
            for split in asked:
                if split in ends:
                    walks[split].take(ends[split])
                else:
                    # It does not exist any more.
                    del walks[split]
        self._known |= {split: _Known(newest[split], walk.found) for split, walk in walks.items()}
        # One that does not exist any more is asked for again.
        self._asked = splits if wanted.keys() <= self._known.keys() else {}
        self._as_of = dict(newest)
        self._histories = {split: known.history for split, known in self._known.items() if known.history}
        return self._histories

    def forget(self, logs: Set[str]) -> None:
        """Forget topics that were created again: their epochs begin at zero."""
        self._asked = {}
        self._known = {split: known for split, known in self._known.items() if split.log not in logs}


class _Known(NamedTuple):
    newest: int
    history: History
    """Empty for a log whose records have no epochs."""


class _Walk:
    """A look-up from a log's newest epoch back to that of a position: where one ends, the next one begins."""

    def __init__(self, newest: int, read: ReadUpTo) -> None:
        self._position, self._last = read.position, read.epoch
        self._number = newest
        self.found: list[Epoch] = []
        self.asks_for: int | None = newest - 1
        """The number up to which the highest epoch, and its end, are needed next; ``None`` when all are found."""
        if not newest:
            self._add(0, None)

    def take(self, answer: OffsetAndTimestamp) -> None:
        """Take in where the epoch before the one that is looked at ends."""
        if answer.offset is None or answer.epoch is None:
            self.asks_for, self.found = None, []
        elif self.found and self.found[-1].start == answer.offset:
            # Of an epoch before the log's first one a broker returns where that begins.
            self.asks_for = None
        else:
            self._add(answer.offset, answer.epoch)

    def _add(self, start: int, before: int | None) -> None:
        """Take in the epoch that is looked at; ``before``: the number of the one before it, if there may be one."""
        self.found.append(Epoch(self._number, start))
        self.asks_for = None
        if self._last is not None and before == self._last.number:
            self.found.append(self._last)
        elif before is not None and start >= self._lowest():
            self._number = before
            if before:
                self.asks_for = before - 1
            else:
                self._add(0, None)

    def _lowest(self) -> int:
        """Return the position before which the epochs of earlier rows are not needed."""
        last = self._last
        if last is None:
            return max(self._position, 1)
        if self._number > last.number:
            return 0
        later = [epoch.start for epoch in self.found if epoch.number > last.number]
        return min(later[-1], last.start) if later else MAX
