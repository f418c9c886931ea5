"""Announced watermarks as a reader keeps and applies them: which announcements its positions have reached.

Several writers may write to one topic. Of each, the reader keeps the newest announcement that its planned positions
have reached in all partitions, and those not yet reached; ``reached`` combines the writers by the rules of Flink's
``StatusWatermarkValve``. The format is in ``announcement.py``; this module does not know where announcements are kept.

What is out of the ordinary is a remark, and never ends a reader: it is ignored, or can only make the watermark later.
No single record does either for good. What a writer announces right counts again at its next record, or the one after.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import le
from typing import Final, NamedTuple

from watermark_source.errors import listed
from watermark_source.planning.announcement import Announcement, Removal, Statement, gone_line, on_writers
from watermark_source.planning.watermark import (
    LAST,
    MAX,
    MIN,
    Millis,
    lowest_of_active,
    saturating_add,
    watermark_text,
)

MOST_CUTS: Final = 4_096
"""Announcements that are kept of a writer while they are not reached: dropping one in between only delays."""
_MOST_FORMER: Final = 100
"""Earlier queries that are kept of a writer."""
_FORMER_IN_CHECKPOINT: Final = 4
"""How many of them a checkpoint keeps, the newest: if queries announce by turns, the last one is among them."""
_UNAWAITED_IN_CHECKPOINT: Final = 50
"""How many writers that no plan waits for a checkpoint keeps, the newest: each night may bring one under a new name."""


class LoggedStatement(NamedTuple):
    """A record of the log of announcements."""

    position: int
    """Position of the record in the log."""
    written_at: Millis | None
    """The record's own timestamp, for people; nothing is decided by it."""
    statement: Statement | None
    """``None``: the record cannot be read."""
    writer: str | None = None
    """The key of a record that cannot be read, which names its writer; ``None`` without one."""
    fault: str = ""
    """Why it cannot be read."""


class RemarkKind(Enum):
    """Kinds of remarks: of each, one a writer is logged in a while."""

    NEW_TOPIC = "the data's topic was created again"
    OTHER_TOPIC = "an announcement of another topic"
    NO_WRITER = "a record without a writer"
    UNREADABLE = "a record that cannot be read"
    EARLIER_RUN = "an earlier run that announces again"
    MISSING_PARTS = "a cut without partitions of an earlier one"
    CONTRADICTION = "a record that contradicts the newest one"
    CONTRADICTION_AGAIN = "a second one, which is believed"
    EARLIER_END = "a cut that ends before an earlier one"
    LOWER = "a lower watermark"


class Remark(NamedTuple):
    """What is not as it should be, as a sentence."""

    kind: RemarkKind
    text: str
    about: str | None = None
    """The writer, with the fault of a record that cannot be read; or the other topic; ``None`` if it is neither."""


@dataclass(frozen=True, slots=True)
class Cut:
    """An announcement, with what the reader must have planned before it applies."""

    position: int
    """Position of its record in the log of announcements."""
    batch: int
    watermark: Millis | None
    """``None``: the writer has no watermark yet. ``MAX``: it writes no more."""
    idle: bool
    ends: array[int] = field(hash=False)
    """End positions in the order of ``AnnouncedTable.parts``; partitions that are not there count from 0."""
    written_at: Millis | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer of announcements as the reader knows it."""

    name: str
    query: str | None = None
    """The query that announces; ``None`` while only the name is known, from a checkpoint."""
    former: tuple[str, ...] = ()
    """Queries that this one, or one before, superseded, oldest first: what they announce since is ignored."""
    unreadable: str | None = None
    """Why its last record cannot be read; ``None`` if it can."""
    reached: Cut | None = None
    """The newest announcement that was reached by an earlier plan."""
    pending: tuple[Cut, ...] = ()
    """Later ones, oldest first; ``ends`` never decrease from one to the next, nor do watermarks."""
    doubted: Cut | None = None
    """The last record, if it was ignored because it contradicts the newest one: another one like it is not."""

    @property
    def newest(self) -> Cut | None:
        """The last announcement."""
        return self.pending[-1] if self.pending else self.reached

    @property
    def is_awaited(self) -> bool:
        """Whether it is waited for after its last record, which is neither of idleness nor of the end."""
        newest = self.newest
        return self.unreadable is not None or newest is None or not (newest.idle or newest.watermark == MAX)

    @property
    def needed(self) -> int | None:
        """Position of the first record that is still of use; ``None`` without one."""
        first = self.reached or (self.pending[0] if self.pending else None)
        return None if first is None else first.position


@dataclass(frozen=True, slots=True)
class AnnouncedTable:
    """All writers of a topic, as of a position in the log of announcements."""

    writers: Mapping[str, Writer] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    """Names of the partitions in the order of ``Cut.ends``."""
    topic: str | None = None
    """Id of the data topic that the announcements are about; ``None`` before it is known."""
    left_out: bool = False
    """Whether a checkpoint has left out writers that had not ended. Then the end of all others is not the end."""

    @classmethod
    def of_names(
        cls, names: Iterable[str], former: Mapping[str, tuple[str, ...]] | None = None, *, left_out: bool = False
    ) -> AnnouncedTable:
        """Return a table that knows only who has announced: each is waited for until it is read again.

        ``former``: by writer, the queries that the checkpoint knows to be superseded; their records are passed over.
        """
        writers = {name: Writer(name, former=(former or {}).get(name, ())) for name in sorted(names)}
        return cls(writers, left_out=left_out)

    def ends_of(self, positions: Mapping[str, int]) -> array[int]:
        """Return positions by partition in the order of ``parts``; 0 for a partition that is not read yet."""
        return array("q", [positions.get(part, 0) for part in self.parts])


# Taking in statements.


def with_statements(
    table: AnnouncedTable, logged: Iterable[LoggedStatement], topic: str
) -> tuple[AnnouncedTable, tuple[Remark, ...]]:
    """Return the table with more statements, and remarks on those that are not as they should be.

    Args:
        table: as of the statements before.
        logged: in the order of the log.
        topic: id of the data topic now. Announcements about an earlier topic of the same name are ignored, and the
            cuts of such are dropped; their writers are waited for, since what they write now is not known.
    """
    is_new = table.topic not in (None, topic)
    changing = _Changing(_of_new_topic(table) if is_new else table)
    if is_new:
        changing.remark(
            RemarkKind.NEW_TOPIC,
            f"the data's topic was deleted and created again: it had the id {table.topic}, and has {topic}. What was "
            "announced of the earlier one is dropped, and the watermark waits until each known writer has announced "
            "again",
        )
    for each in logged:
        statement = each.statement
        if statement is None:
            changing.note_unreadable(each)
        elif isinstance(statement, Removal):
            changing.remove(statement.writer)
        elif statement.topic == topic:
            changing.announce(statement, each)
    return changing.done(topic), tuple(changing.remarks)


def _of_new_topic(table: AnnouncedTable) -> AnnouncedTable:
    writers = {name: replace(w, reached=None, pending=()) for name, w in table.writers.items()}
    return AnnouncedTable(writers, left_out=table.left_out)


class _Changing:
    """A table while statements are taken in."""

    def __init__(self, table: AnnouncedTable) -> None:
        self._writers = dict(table.writers)
        self._pending: dict[str, list[Cut]] = {}
        """Announcements by writer that this update has added."""
        self._parts = list(table.parts)
        self._left_out = table.left_out
        self._index = {part: at for at, part in enumerate(table.parts)}
        self.remarks: dict[Remark, None] = {}

    def remark(self, kind: RemarkKind, text: str, about: str | None = None) -> None:
        self.remarks[Remark(kind, text, about)] = None

    def done(self, topic: str) -> AnnouncedTable:
        writers = {
            name: replace(w, pending=tuple(self._pending[name])) if name in self._pending else w
            for name, w in self._writers.items()
        }
        return AnnouncedTable(dict(sorted(writers.items())), tuple(self._parts), topic, self._left_out)

    def remove(self, name: str) -> None:
        self._writers.pop(name, None)
        self._pending.pop(name, None)

    def note_unreadable(self, logged: LoggedStatement) -> None:
        if logged.writer is None:
            # The key is the writer: without one no writer can be meant.
            self.remark(
                RemarkKind.NO_WRITER,
                f"a record without a writer's name as its key, at {logged.position}, is ignored: {logged.fault}",
            )
            return
        writer = self._writers.get(logged.writer, Writer(logged.writer))
        self._writers[logged.writer] = replace(writer, unreadable=logged.fault)
        self.remark(
            RemarkKind.UNREADABLE,
            f"the record at {logged.position}, of {logged.writer}, is refused, and the watermark waits for its next "
            f"one: {logged.fault}; {gone_line([logged.writer])}",
            f"{logged.writer}: {logged.fault}",
        )

    def announce(self, of: Announcement, logged: LoggedStatement) -> None:
        writer = self._writers.get(of.writer, Writer(of.writer))
        if of.query in writer.former:
            self.remark(
                RemarkKind.EARLIER_RUN,
                f"{of.writer}: the earlier run {of.query} announced again, at {logged.position}, after "
                f"{writer.query or 'another one'} began. The newer run counts, and the record is ignored: stop the "
                "earlier one, whose rows may be late from now on, or give it a name of its own; if the newer one is "
                f"gone: {on_writers(f'drop {of.writer}')}",
                of.writer,
            )
            return
        if writer.query != of.query:
            writer = self._begun(writer, of.query)
        pending = self._pending.setdefault(of.writer, list(writer.pending))
        newest = pending[-1] if pending else writer.reached
        ends = self._ends_of(of.ends)
        if newest is not None and (missing := self._missing(of, newest)):
            self.remark(
                RemarkKind.MISSING_PARTS,
                f"{of.writer} announced a cut without partitions {listed(missing)} of an earlier one, as of a server "
                f"that lags behind: the record at {logged.position} is ignored",
                of.writer,
            )
            self._writers[of.writer] = writer
            return
        cut = Cut(logged.position, of.batch, of.watermark, of.idle, ends, logged.written_at)
        if newest is not None and (contradiction := _contradiction(cut, newest)):
            is_ignored = writer.doubted is None or _contradiction(cut, writer.doubted) is not None
            self.remark(
                RemarkKind.CONTRADICTION if is_ignored else RemarkKind.CONTRADICTION_AGAIN,
                f"{of.writer} announced {contradiction}, at {logged.position}: {_EFFECT[is_ignored]}",
                of.writer,
            )
            if is_ignored:
                self._writers[of.writer] = replace(writer, doubted=cut)
                return
            pending.clear()
        elif newest is not None and not _is_within(newest.ends, ends):
            self.remark(
                RemarkKind.EARLIER_END,
                f"{of.writer} announced a cut that ends before an earlier one, at {logged.position}: the earlier one "
                "was wrong, or the topic was truncated, as by an unclean leader election, and rows may be lost",
                of.writer,
            )
        elif newest is not None and not _is_not_lower(cut.watermark, newest.watermark):
            self.remark(
                RemarkKind.LOWER,
                f"{of.writer} announced {watermark_text(cut.watermark)} at {logged.position} after "
                f"{watermark_text(newest.watermark)}: where the later is not applied yet, it counts no more",
                of.writer,
            )
        # Without an earlier announcement the watermark is only later: what was not applied binds no reader.
        while pending and not _may_follow(cut, pending[-1]):
            pending.pop()
        applied = writer.reached
        if (
            applied is not None
            and _is_within(applied.ends, ends)
            and not _is_not_lower(cut.watermark, applied.watermark)
        ):
            cut = replace(cut, watermark=applied.watermark)
        pending.append(cut)
        if len(pending) > MOST_CUTS:
            self._pending[of.writer] = _thinned(pending)
        self._writers[of.writer] = replace(writer, unreadable=None, doubted=None)

    def _begun(self, writer: Writer, query: str) -> Writer:
        """Return the writer with a new query, whose rows may be of any time: a fresh checkpoint reads all again."""
        self._pending[writer.name] = []
        if writer.query is None:
            return replace(writer, query=query, pending=())
        return Writer(writer.name, query, (*writer.former, writer.query)[-_MOST_FORMER:])

    def _missing(self, of: Announcement, newest: Cut) -> list[str]:
        """Return the partitions that a cut is not whole without: where it ends in them is not known."""
        return [part for part, end in zip(self._parts, newest.ends, strict=False) if end and part not in of.ends]

    def _ends_of(self, ends: Mapping[str, int]) -> array[int]:
        for part in ends.keys() - self._index.keys():
            self._index[part] = len(self._parts)
            self._parts.append(part)
        found = array("q", bytes(8 * (1 + max((self._index[part] for part in ends), default=-1))))
        for part, end in ends.items():
            found[self._index[part]] = end
        return found


_EFFECT: Final[Mapping[bool, str]] = {
    True: "the earlier announcements remain in force, unless its next record is like it",
    False: "so was its last record, and both count: the one before them was wrong, or its checkpoint was restored",
}
"""What becomes of a record that contradicts the newest one: by whether it is ignored."""


def _contradiction(cut: Cut, newest: Cut) -> str | None:
    """Return how a record of the same query shows that it was written before the newest one, or that this is wrong."""
    if cut.batch < newest.batch:
        return f"batch {cut.batch} after batch {newest.batch}, as where a checkpoint is restored or a second copy runs"
    if cut.batch == newest.batch and not _may_follow(cut, newest):
        return f"batch {cut.batch} again with a lower watermark or cut, as where a record arrives late"
    return None


def _may_follow(cut: Cut, earlier: Cut) -> bool:
    return _is_not_lower(cut.watermark, earlier.watermark) and _is_within(earlier.ends, cut.ends)


def _is_not_lower(watermark: Millis | None, other: Millis | None) -> bool:
    return other is None or (watermark is not None and watermark >= other)


def _thinned(pending: Sequence[Cut]) -> list[Cut]:
    """Return the oldest cut and every second one, the newest among them; none is idle where one dropped was not."""
    kept: list[Cut] = []
    for at, cut in enumerate(pending):
        if at == 0 or (len(pending) - at) % 2:
            kept.append(cut)
        elif kept[-1].idle and not cut.idle:
            kept[-1] = replace(kept[-1], idle=False)
    return kept


def _is_within(ends: Sequence[int], limits: Sequence[int]) -> bool:
    """Return whether no end is beyond its limit; where there are fewer limits, they are 0."""
    return all(map(le, ends, limits)) and not any(ends[len(limits) :])


# Applying them.


class WriterStatus(Enum):
    """Whether the combined watermark waits for a writer."""

    AWAITED = "awaited"
    """Has not announced, or no announcement of it has been reached, or it has no watermark yet: nothing advances."""
    ACTIVE = "active"
    IDLE = "idle"
    """Announced that readers need not wait for it until its next announcement."""
    SILENT = "silent"
    """Has announced nothing for longer than ``writerTimeToLive``."""
    ENDED = "ended"
    """Announced that it writes no more."""


@dataclass(frozen=True, slots=True)
class AnnouncedBy:
    """Whose announcements a source follows."""

    names: frozenset[str] = frozenset()
    """Writers that must have announced; others count once they do."""
    time_to_live: int | None = None
    """Milliseconds without an announcement after which the watermark no longer waits for a writer; ``None``: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAnnouncements:
    """The announcements as they are when a plan is made."""

    table: AnnouncedTable
    by: AnnouncedBy
    log: str | None
    """Id of the log of announcements; ``None`` while there is none."""
    next_position: int | None
    """Where it is read on; ``None`` before the first read."""
    is_current: bool
    """Whether it was read to an end that was requested after the ends of the data: if not, the watermark stands."""
    silent: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds for which each writer has announced nothing. Only time in which the log could be read counts, in
    this process: a writer never counts as silent because its announcements did not arrive. For a run that reads up to
    fixed ends see ``silent_by_records``."""
    trouble: str | None = None
    """Why it is not current, as a sentence."""
    name: str | None = None
    """What users know the log by."""
    is_run: bool = False
    """Whether it was read once, for a run that reads up to fixed ends (``Trigger.AvailableNow``)."""


def silent_by_records(table: AnnouncedTable, now: Millis) -> dict[str, int]:
    """Return the milliseconds from each writer's last announcement to the newest one of all, by the records' times.

    For a run that reads the log once. The newest record shows that the log could be written then: where it could not,
    or where no writer ran, no writer is silent. A record from a clock that is ahead counts as of ``now``. A writer
    whose last record is not there, or has no time, is not silent.
    """
    times = {
        name: cut.written_at
        for name, writer in table.writers.items()
        if (cut := writer.newest) is not None and cut.written_at is not None
    }
    newest = min(max(times.values(), default=now), now)
    return {name: max(0, newest - times.get(name, newest)) for name in table.writers}


class WriterAt(NamedTuple):
    """A writer as a plan leaves it."""

    writer: Writer
    status: WriterStatus
    at: Cut | None
    """The announcement in force."""
    next: Cut | None
    """The first one that is not reached."""
    is_future: bool
    """Whether the next one is reached, and waits until the clock has come near its watermark (``maxFutureSkew``)."""
    ends: array[int]
    """The planned ends, in the order of ``AnnouncedTable.parts``."""

    @property
    def rows_before_next(self) -> int:
        """Positions to be planned before the next one is in force."""
        if self.next is None:
            return 0
        return sum(max(0, end - have) for end, have in zip(self.next.ends, self.ends, strict=False))


def writers_at(
    observed: ObservedAnnouncements, positions: Mapping[str, int], cap: Millis | None
) -> tuple[WriterAt, ...]:
    """Return all writers, in the order of their names, those that must announce and have not included.

    Args:
        observed: the announcements.
        positions: end of the planned range of each partition, by its name.
        cap: the latest watermark that counts; a later one waits until the clock has come near it.
    """
    table, ends = observed.table, observed.table.ends_of(positions)
    missing = {name: Writer(name) for name in observed.by.names - table.writers.keys()}
    return tuple(_writer_at(w, ends, cap, observed) for _, w in sorted({**table.writers, **missing}.items()))


def _writer_at(writer: Writer, ends: array[int], cap: Millis | None, observed: ObservedAnnouncements) -> WriterAt:
    count, within_cap = _reached(writer.pending, ends, cap)
    at = writer.pending[within_cap - 1] if within_cap else writer.reached
    pending = writer.pending[within_cap] if within_cap < len(writer.pending) else None
    status = _status(writer, at, observed, all_reached=pending is None)
    return WriterAt(writer, status, at, pending, within_cap < count, ends)


def _reached(pending: Sequence[Cut], ends: array[int], cap: Millis | None) -> tuple[int, int]:
    """Return how many cuts the planned ends have reached, and how many of these are not too far in the future."""
    count = bisect_left(pending, True, key=lambda cut: not _is_within(cut.ends, ends))
    if cap is None:
        return count, count

    def is_too_far(cut: Cut) -> bool:
        return cut.watermark is not None and cap < cut.watermark < MAX

    if count and pending[count - 1].watermark == MAX:
        return count, count
    return count, bisect_left(pending, True, hi=count, key=is_too_far)


def _status(writer: Writer, at: Cut | None, observed: ObservedAnnouncements, *, all_reached: bool) -> WriterStatus:
    # Rows before an announcement that is not reached are on time, however long ago it was made.
    limit = observed.by.time_to_live if all_reached and writer.name in observed.table.writers else None
    if writer.unreadable is None and at is not None and at.watermark == MAX:
        return WriterStatus.ENDED
    # It has announced that nothing comes for now: that is not silence.
    if writer.unreadable is None and at is not None and at.idle:
        return WriterStatus.IDLE
    if limit is not None and observed.silent.get(writer.name, 0) > limit:
        return WriterStatus.SILENT
    return WriterStatus.AWAITED if at is None or at.watermark in (None, MAX) else WriterStatus.ACTIVE


def holding_writers(writers: Iterable[WriterAt], near: int = 0) -> Sequence[WriterAt]:
    """Return the writers that the watermark waits for: those without one, or else those at most so many milliseconds
    ahead of the lowest.

    If none counts, those that may announce again.
    """
    every = list(writers)
    for awaited in (WriterStatus.AWAITED, WriterStatus.ACTIVE):
        found = [writer for writer in every if writer.status is awaited]
        if found:
            lowest = min(announced_at(writer) or 0 for writer in found)
            most = saturating_add(lowest, near)
            return found if awaited is WriterStatus.AWAITED else [w for w in found if (announced_at(w) or 0) <= most]
    return [writer for writer in every if writer.status is not WriterStatus.ENDED]


def announced_at(of: WriterAt) -> Millis | None:
    """Return the watermark of the announcement in force."""
    return None if of.at is None else of.at.watermark


def reached(
    observed: ObservedAnnouncements, positions: Mapping[str, int], sent: Millis | None, cap: Millis | None
) -> Millis | None:
    """Return the combined watermark of the writers at the planned positions, never lower than the one that was sent.

    The minimum of the active writers. With all of them idle or silent the maximum of these, so that the order of going
    idle does not matter. Writers that have ended do not count beside others: once all have, the result is ``LAST``.
    ``None`` before the first watermark. O(log of the cuts) for each writer.
    """
    if not observed.is_current:
        # What is not read yet may hold a removal, too.
        return sent
    return _combined(observed.table, writers_at(observed, positions, cap), sent)


def may_advance(
    table: AnnouncedTable, by: AnnouncedBy, silent: Mapping[str, int], sent: Millis | None, cap: Millis | None
) -> bool:
    """Return whether a plan can advance the watermark without a new announcement: by cuts that are not reached yet, or
    by writers that are ``silent`` by now (milliseconds)."""
    if any(writer.pending for writer in table.writers.values()):
        return True
    observed = ObservedAnnouncements(table=table, by=by, log=None, next_position=None, is_current=True, silent=silent)
    found = _combined(table, writers_at(observed, {}, cap), sent)
    return found is not None and (sent is None or found > sent)


def _combined(table: AnnouncedTable, writers: Sequence[WriterAt], sent: Millis | None) -> Millis | None:
    if not writers or any(w.status is WriterStatus.AWAITED for w in writers):
        return sent
    counting = [w for w in writers if w.status is not WriterStatus.ENDED]
    if not counting:
        return sent if table.left_out else LAST
    members = ((MIN if (at := announced_at(w)) is None else at, w.status is not WriterStatus.ACTIVE) for w in counting)
    found = lowest_of_active(members, MIN if sent is None else sent)
    return None if found == MIN else found


def advanced(table: AnnouncedTable, positions: Mapping[str, int], cap: Millis | None) -> AnnouncedTable:
    """Return the table without cuts that are of no use once these positions are planned."""
    ends = table.ends_of(positions)
    changed: dict[str, Writer] = {}
    for name, writer in table.writers.items():
        _, within_cap = _reached(writer.pending, ends, cap)
        if within_cap:
            changed[name] = replace(writer, reached=writer.pending[within_cap - 1], pending=writer.pending[within_cap:])
    return replace(table, writers={**table.writers, **changed}) if changed else table


@dataclass(frozen=True, slots=True)
class AnnouncedFrom:
    """What a checkpoint keeps: from where the log of announcements is read again. Replays never read it."""

    position: int
    """Position of the first record that is still of use for a writer."""
    log: str | None
    """Id of the log that the position is of."""
    writers: tuple[str, ...]
    """Who has announced, was not removed, and still matters. They are waited for even if their records expire."""
    former: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """By writer, the newest queries that announced under its name before the present one. A restart must not take one
    of them for a new query."""
    left_out: bool = False
    """Whether it leaves out writers that had not ended."""
    name: str | None = None
    """What users know the log by; ``None`` in offsets that do not have it."""


class Coming(Enum):
    """Where the announcement is of the rows that a batch would read next."""

    WITH_THEM = "with them"
    """A cut is reached at their ends; or there is no row, or no writer that announces."""
    THERE = "there"
    """It was made after the ends were requested: they have to be requested again."""
    NEXT = "next"
    """No announcement covers the rows yet."""


def coming(table: AnnouncedTable, positions: Mapping[str, int], ends: Mapping[str, int]) -> Coming:
    """Return where the announcement is of the rows from ``positions`` to ``ends``, both by partition."""
    at_ends = table.ends_of(ends)
    pending = [writer.pending for writer in table.writers.values() if writer.pending]
    has_rows = any(end > positions.get(part, 0) for part, end in ends.items())
    if not has_rows or any(_reached(cuts, at_ends, None)[0] for cuts in pending):
        return Coming.WITH_THEM
    if pending:
        return Coming.THERE
    return Coming.NEXT if any(writer.reached is not None for writer in table.writers.values()) else Coming.WITH_THEM


def needed_from(
    observed: ObservedAnnouncements,
    positions: Mapping[str, int],
    cap: Millis | None,
    before: AnnouncedFrom | None,
    sent: Millis | None,
) -> AnnouncedFrom | None:
    """Return what the checkpoint keeps of a plan; ``before`` while the log has not been read to its end yet.

    All but the newest of the writers that no plan waits for are left out, so that a checkpoint does not grow with each
    that is gone: a restart learns of them when they announce again. A run leaves out each whose time to live has
    passed: once the log has no record of it, none shows the next run for how long it has been silent. ``sent``: the
    watermark as the plan leaves it.
    """
    if not observed.is_current or observed.next_position is None:
        return before
    every, table = writers_at(observed, positions, cap), advanced(observed.table, positions, cap)
    # While a watermark waits for its interval, all matter.
    is_sent = _combined(table, every, sent) == sent
    past = [w for w in every if is_sent and w.writer.name not in observed.by.names and _is_past(w, sent)]
    by_age = sorted(past, key=lambda w: w.at.position if w.at else -1)
    older = by_age[:-_UNAWAITED_IN_CHECKPOINT]
    past = older + [w for w in by_age[len(older) :] if observed.is_run and w.status is WriterStatus.SILENT]
    gone = {w.writer.name for w in past}
    kept = {name: writer for name, writer in table.writers.items() if name not in gone}
    needed = (at for writer in kept.values() if (at := writer.needed) is not None)
    former = {name: queries for name, writer in kept.items() if (queries := writer.former[-_FORMER_IN_CHECKPOINT:])}
    left_out = table.left_out or any(w.status is not WriterStatus.ENDED for w in past)
    position = min(needed, default=observed.next_position)
    return AnnouncedFrom(position, observed.log, tuple(kept), former, left_out, observed.name)


def _is_past(of: WriterAt, sent: Millis | None) -> bool:
    """Return whether the watermark neither waits for a writer nor can advance to what it announced last."""
    if of.next is not None or of.status in (WriterStatus.AWAITED, WriterStatus.ACTIVE):
        return False
    at = announced_at(of)
    return of.status is WriterStatus.ENDED or at is None or (sent is not None and at <= sent)


def unknown_parts(table: AnnouncedTable, known: Set[str]) -> Set[str]:
    """Return partitions that writers name with rows in them, and that the reader does not know yet."""
    named = set(table.parts) - known
    if not named:
        return frozenset()
    newest = [cut for writer in table.writers.values() if (cut := writer.newest) is not None]
    return {
        part
        for at, part in enumerate(table.parts)
        if part in named and any(at < len(cut.ends) and cut.ends[at] for cut in newest)
    }
