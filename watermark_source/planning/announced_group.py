"""A reader of announced watermarks in its alignment group: which positions have which watermark, and what is read.

Partitions have no watermark of their own: rows of several writers lie in each. Only announcements show how far event
time has come at a position. So rows are there to be read once they are announced, and a batch ends with a cut: with the
last one whose watermark is within the limit of the group (FLIP-182, which aligns sources by their watermarks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from watermark_source.errors import UsageError, listed
from watermark_source.planning.announced import (
    Cut,
    ObservedAnnouncements,
    WriterAt,
    WriterStatus,
    announced_at,
    holding_writers,
    reached,
    writers_at,
)
from watermark_source.planning.backlog import Backlog
from watermark_source.planning.combined_watermark import positions_of
from watermark_source.planning.group import GroupMember, MemberStatus, OwnWriter, without_rows
from watermark_source.planning.observation import Observation
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState
from watermark_source.planning.watermark import LAST, MAX, Millis


@dataclass(frozen=True, slots=True)
class AnnouncedPositions:
    """Positions of a source by partition, and the watermarks that are announced there."""

    observed: ObservedAnnouncements
    start: Mapping[str, int]
    """Where the source is."""
    end: Mapping[str, int]
    """Where its log ends, as far as that is known."""
    is_known: bool
    """Whether that is known of each partition."""
    sent: Millis | None
    """The watermark that has gone out."""
    cap: Millis | None
    """As of ``reached``."""

    @classmethod
    def of(
        cls, splits: Mapping[Split, SplitState], observation: Observation, sent: Millis | None, cap: Millis | None
    ) -> AnnouncedPositions | None:
        """Return them where watermarks are announced; ``splits``: all of the source."""
        if observation.announced is None:
            return None
        start, ends = positions_of(splits), observation.logs.ends
        end = {str(s.number): max(t.position, ends.get(s, 0)) for s, t in splits.items()}
        is_known = not observation.logs.unknown & splits.keys()
        return cls(observation.announced, start, end, is_known=is_known, sent=sent, cap=cap)

    def watermark(self, at: Mapping[str, int]) -> Millis | None:
        """Return the combined watermark of the writers at positions."""
        return reached(self.observed, at, self.sent, self.cap)

    def writers(self, at: Mapping[str, int]) -> tuple[WriterAt, ...]:
        """Return the writers as they are at positions."""
        return writers_at(self.observed, at, self.cap)

    @property
    def unread(self) -> int:
        """How many positions are left to the log's end."""
        return self._rows(self.end)

    def _rows(self, ends: Mapping[str, int]) -> int:
        return sum(ends[part] - start for part, start in self.start.items())

    @property
    def slowest(self) -> OwnWriter | None:
        """The writer that holds the watermark at the log's end; ``None`` if all have ended."""
        return next((OwnWriter(w.writer.name) for w in holding_writers(self.writers(self.end))), None)

    def lead(self, at: Mapping[str, int], limit: Millis) -> Millis | None:
        """Return the highest watermark of an announcement that is reached at positions, or behind which rows are.

        The one to which a batch reads across a gap, beyond the limit of the group, does not count.
        """
        marks = [mark for w in self.writers(at) if (mark := announced_at(w)) is not None and mark <= limit]
        for cut in (cut for writer in self.writers(self.start) for cut in writer.writer.pending):
            ends = dict(self._ends(cut))
            if cut.watermark not in (None, MAX) and any(end > ends.get(part, 0) for part, end in at.items()):
                marks.append(cut.watermark)
        return max(marks, default=None)

    def reach(self, most: int | None) -> Millis | None:
        """Return the watermark after a batch of at most so many rows that no limit holds; ``None``: not known."""
        if not self.observed.is_current:
            return None
        ends = self._cuts_within(MAX, most)
        return self.watermark(ends if most is None or self._rows(ends) <= most else self.start)

    def ends_within(self, limit: Millis, floor: Millis | None, most: int | None) -> Mapping[str, int]:
        """Return where a batch ends whose watermark stays within a limit.

        Across a gap in time it ends with the next cut: members would wait for each other if this source were the
        slowest, and read nothing.

        Args:
            limit: of the group.
            floor: the lowest watermark of the other members, if any counts.
            most: the row limit.
        """
        ends = self._cuts_within(limit, most)
        while floor is not None and self.observed.is_current:
            at = self.watermark(ends)
            if at is not None and (at > floor or (at == floor and ends != self.start)):
                break
            following = [w.next for w in holding_writers(self.writers(ends)) if w.next is not None and not w.is_future]
            further = self._up_to(ends, following)
            # Of rows that cannot be read yet nothing follows.
            is_there = following and all(map(self._is_there, following))
            if not is_there or self._is_too_long(further, ends, most):
                break
            ends = further
        # Behind the last cut only rows are left that none will follow.
        return ends if any(w.next is not None for w in self.writers(ends)) else self.end

    def _cuts_within(self, limit: Millis, most: int | None) -> Mapping[str, int]:
        """Return where the last cut within a limit ends, and within a row limit; with that, the first one at least."""
        every = (cut for writer in self.writers(self.start) for cut in writer.writer.pending)
        ends = self.start
        for cut in sorted(every, key=lambda cut: cut.position):
            if cut.watermark is None or cut.watermark <= limit:
                further = self._up_to(ends, [cut])
                if self._is_too_long(further, ends, most):
                    break
                ends = further
        return ends

    def _is_too_long(self, further: Mapping[str, int], ends: Mapping[str, int], most: int | None) -> bool:
        """Return whether a batch that reads up to ``ends`` would exceed the row limit if it read further."""
        return most is not None and ends != self.start and self._rows(further) > most

    def _up_to(self, ends: Mapping[str, int], cuts: Iterable[Cut]) -> Mapping[str, int]:
        found = dict(ends)
        for cut in cuts:
            # Nothing is read of a partition that has not been found yet.
            known = ((part, end) for part, end in self._ends(cut) if part in self.end)
            found.update({part: max(found.get(part, 0), min(end, self.end[part])) for part, end in known})
        return found

    def _is_there(self, cut: Cut) -> bool:
        return all(end <= self.end.get(part, 0) for part, end in self._ends(cut))

    def _ends(self, cut: Cut) -> Iterable[tuple[str, int]]:
        return zip(self.observed.table.parts, cut.ends, strict=False)

    def backlog(self, of: Backlog, *, is_final: bool) -> Backlog:
        """Return a backlog without rows that are not announced yet, unless no announcement of them is to come.

        That is so in a run with an end (``is_final``), and where no writer is waited for.
        """
        writers = self.writers(self.end)
        if is_final or (writers and not any(map(_is_waited_for, writers))):
            return of
        announced = self._up_to({}, [cut for w in writers if (cut := w.writer.newest) is not None])
        ends = {s: min(end, announced.get(str(s.number), 0)) for s, end in of.ends.items()}
        there = {s for s, end in ends.items() if end > of.splits[s].position}
        return replace(of.only(there), ends={s: ends[s] for s in there})

    def member(self, *, is_final: bool, waits_for_first: bool) -> GroupMember:
        """Return the source as a member of its group once ``start`` is read: see ``group_limit.membership``."""
        at, writers = self.watermark(self.start), self.writers(self.start)
        if at == LAST or (is_final and not self.unread):
            return GroupMember(MemberStatus.FINISHED)
        if at is None and self.unread:
            return GroupMember(MemberStatus.STARTING)
        if at is None:
            return without_rows(waits_for_first=waits_for_first, may_have_rows=not self.is_known)
        is_active = any(w.next is not None or _is_waited_for(w) for w in writers)
        return GroupMember(MemberStatus.ACTIVE if is_active else MemberStatus.IDLE, at)


def check_writers(observed: ObservedAnnouncements, queries: Set[str]) -> None:
    """Check that no query whose announcements are read has sources in the group itself.

    Its sources are always ahead of what it has announced. So they would wait for the reader before each gap in time,
    and the reader for them.

    Args:
        observed: what is announced.
        queries: ids of queries that have other sources in the group.

    Raises:
        UsageError: one has.
    """
    within = [writer.name for writer in observed.table.writers.values() if writer.query in queries]
    if within:
        raise UsageError(
            f"this source reads what the query of writer {listed(within)} writes, and that query has sources in the "
            "same alignment group: each would wait for the other. Leave alignmentGroup out of one of the two, or name "
            "another group"
        )


def _is_waited_for(writer: WriterAt) -> bool:
    return writer.status in (WriterStatus.AWAITED, WriterStatus.ACTIVE)
