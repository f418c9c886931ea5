"""What the writers of a source announce: read beside each plan, after the ends of the data were requested.

The life of an announcement at its reader, all of it in the runner's thread:

1. A writer appends it after a committed batch; ``AnnouncementLog.read`` returns it to ``Announcements.poll``.
2. ``_take``: ``with_statements`` makes it a ``Cut`` of its writer, or a remark on why it does not count (``_remark``).
3. ``advanced``: it is pending until the planned positions have reached all its ends; then it is the one in force.
4. ``ObservedAnnouncements`` carry it into the plan, where ``reached`` combines it with those of the other writers.
5. The offset keeps the position of the first record that is still of use (``needed_from``); ``_restore`` begins there.
6. The next one of its writer takes its place. Without a next one ``_warn_of_silent`` names the writer, and
   ``_warn_of_left_out`` once its time to live has passed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from watermark_source.clock import Clock
from watermark_source.contract.announcements import AnnouncementLog, AnnouncementsRead
from watermark_source.contract.stream import Connector, SplitDiscovery
from watermark_source.durations import format_duration
from watermark_source.errors import InternalError, listed, shortened
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    Coming,
    LoggedStatement,
    ObservedAnnouncements,
    Remark,
    RemarkKind,
    advanced,
    coming,
    may_advance,
    silent_by_records,
    unknown_parts,
    with_statements,
)
from watermark_source.planning.announcement import Announcement, gone_line, writers_line
from watermark_source.planning.combined_watermark import kept_positions, positions_of
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import Millis
from watermark_source.status_model.watermark_warnings import option_line

_log = logging.getLogger(__name__)

_WAIT_FOR_ANNOUNCEMENTS = 0.5
"""Seconds that a plan waits for new announcements; without an answer the watermark stands."""
_WAIT_AT_FIRST = 5.0
"""The same for the first plan of a process, which connects first: it may be the only one (``Trigger.Once``)."""
_WAIT_AGAIN = 1.0
"""Seconds from such a wait without an answer to the next one: a slow or dead server must not slow down all plans."""
_WAIT_OF_RUN = 60.0
"""The same for ``Trigger.AvailableNow``, whose watermark is announced once, after its ends are fixed."""
_WARN_AFTER = 60_000
"""Milliseconds without an answer before a warning, and between two remarks on the announcements themselves."""
_SILENT_AFTER = 60_000
"""Milliseconds without an announcement before the first warning of a writer; twice as long before each further one."""
_WAIT_FOR_NEXT = 0.3
"""Seconds that rows wait for their announcement. Spark commits a batch after its sink has written, and announces then:
in a batch together, they need one batch less until windows close."""
_PAUSE_BETWEEN_READS = 0.02
_MOST_SKIPPED = 64
"""Batches with rows that do not wait, at most, after one whose announcement did not come in time."""
_MOST_KINDS = 10
"""Remarks that are logged in a minute, each of another kind."""
_ANOTHER_TOPIC = "the topic with the data was created again, and its new one is being looked for"
_LOOK_AGAIN = 1.0
"""Seconds between two discoveries because a writer names a partition that is not known yet."""


class Announcements:
    """The announcements of the writers of one source, as far as this process has read them."""

    def __init__(self, log: AnnouncementLog, by: AnnouncedBy, discovery: SplitDiscovery, clock: Clock) -> None:
        self._log = log
        self._by = by
        self._discovery = discovery
        self._clock = clock
        self._table = AnnouncedTable()
        self._is_restored = False
        """Whether the table has what the checkpoint knows, as from the first plan on."""
        self._position: int | None = None
        self._id: str | None = None
        self._silent: dict[str, int] = {}
        self._warn_at: dict[str, int] = {}
        """By writer, the milliseconds of silence before the next warning."""
        self._quiet: set[str] = set()
        """Writers whose present silence was warned of."""
        self._left_out: set[str] = set()
        """Writers whose present silence has been longer than the time to live, and was warned of."""
        self._heard: set[str] = set()
        """Writers that announced since the last read that was current."""
        self._current_at: Millis | None = None
        """When the last read was requested that was current; ``None`` if the last one was not."""
        self._not_since: Millis | None = None
        self._waited_at = 0.0
        """When a plan last waited, by ``time.monotonic()``, while there was no answer."""
        self._warned = False
        self._other_topics: set[str] = set()
        """Ids of other topics that announcements were about."""
        self._remarked_at: Millis | None = None
        self._remarked: set[tuple[RemarkKind, str | None]] = set()
        """The kinds of this minute's remarks, each with what it is about."""
        self._unremarked = 0
        self._looked_at = 0.0
        self._skip, self._next_skip = 0, 1
        """How many batches with rows do not wait, and how many after the next wait without an announcement."""
        self._of_run: ObservedAnnouncements | None = None

    @classmethod
    def of(cls, connector: Connector, policy: PlanPolicy, clock: Clock) -> Announcements | None:
        """Return the announcements of a source; ``None`` if its watermark is not announced."""
        by, log = policy.strategy.announced_by, connector.announcements
        if by is None:
            return None
        if log is None:
            raise InternalError(
                "the connector declares announcements, and has no log of them (Connector.announcements)"
            )
        return cls(log, by, connector.discovery, clock)

    def poll(self, state: SourceState, logs: ObservedLogs, cap: Millis | None) -> ObservedAnnouncements:
        """Return the announcements as they are now.

        Args:
            state: as of the last batch.
            logs: polled before. With final ends the announcements are final, too, once all are read.
            cap: the latest watermark that counts.
        """
        is_run, splits = logs.ends_are_final, logs.ends.keys() | logs.unknown
        if not self._is_restored:
            self._restore(state)
        if self._of_run is not None:
            table = self._table = _advanced(self._of_run.table, state, logs, cap)
            self._of_run = replace(self._of_run, table=table)
            return self._of_run
        until = time.monotonic() + (_WAIT_OF_RUN if is_run else self._wait())
        asked_at = self._clock.steady()
        while True:
            wait, topic_now = max(0.0, until - time.monotonic()), self._may_advance(state, asked_at, cap)
            read = self._log.read(self._position, self._id, wait=wait, topic_now=topic_now)
            self._take(read, state, logs, cap)
            is_of_another = read.topic is not None and not _is_one_of(read.topic, logs.ids)
            if is_of_another:
                read = replace(read, is_current=False, trouble=_ANOTHER_TOPIC)
            # A run waits for what another try may cure: its next plans come too late.
            gives_up = is_of_another or read.is_missing or (read.trouble is not None and not is_run)
            if read.is_current or gives_up or time.monotonic() >= until:
                break
        self._note_answer(read, asked_at, is_run=is_run)
        observed = self._observed(read, is_run=is_run)
        if is_of_another or unknown_parts(observed.table, {str(split.number) for split in splits}):
            self._look_for_splits()
        if is_run:
            self._of_run = observed
        return observed

    def wait_for_next(self, state: SourceState, logs: ObservedLogs, cap: Millis | None) -> bool:
        """Wait a moment for the announcement of rows that are to be read next; return whether one came.

        Then the logs have to be polled again, since its cut is behind those rows. After a wait in vain fewer batches
        wait: a writer may announce once a minute.
        """
        positions = positions_of(state.splits)
        ends = {str(split.number): end for split, end in logs.ends.items()}
        found = Coming.WITH_THEM if logs.ends_are_final else coming(self._table, positions, ends)
        if found is not Coming.NEXT:
            # Of a broker that does not answer the ends are not known now either.
            return found is Coming.THERE and not logs.unknown
        if self._skip:
            self._skip -= 1
            return False
        until = time.monotonic() + _WAIT_FOR_NEXT
        while (left := until - time.monotonic()) > 0:
            read = self._log.read(self._position, self._id, wait=left)
            self._take(read, state, logs, cap)
            if read.statements:
                self._next_skip = 1
                return True
            if read.trouble is not None:
                break
            time.sleep(_PAUSE_BETWEEN_READS)
        self._skip, self._next_skip = self._next_skip, min(2 * self._next_skip, _MOST_SKIPPED)
        return False

    def close(self) -> None:
        """Read no more."""
        self._log.close()

    def _may_advance(self, state: SourceState, now: Millis, cap: Millis | None) -> bool:
        """Return whether the plan can advance the watermark by what was read before: a topic that was created again
        since may have rows beyond the cuts of the earlier one."""
        passed = 0 if self._current_at is None else now - self._current_at
        silent = {name: milliseconds + passed for name, milliseconds in self._silent.items()}
        return may_advance(self._table, self._by, silent, state.watermark, cap)

    def _wait(self) -> float:
        now = time.monotonic()
        if self._not_since is not None and now - self._waited_at < _WAIT_AGAIN:
            return 0.0
        wait = _WAIT_FOR_ANNOUNCEMENTS if self._waited_at else _WAIT_AT_FIRST
        self._waited_at = now + wait
        return wait

    def _restore(self, state: SourceState) -> None:
        kept, self._is_restored = state.announced, True
        if kept is None:
            return
        if kept.name in (None, self._log.name):
            self._table = AnnouncedTable.of_names(kept.writers, kept.former, left_out=kept.left_out)
            self._position, self._id = kept.position, kept.log
            return
        self._table = AnnouncedTable.of_names(kept.writers, left_out=kept.left_out)
        self._warn_of_beginning(f"announcements were read in {kept.name} so far, and now in {self._log.name}, which")

    def _take(self, read: AnnouncementsRead, state: SourceState, logs: ObservedLogs, cap: Millis | None) -> None:
        created_again = self._id is not None and read.log not in (None, self._id)
        if created_again or read.truncated:
            what = "deleted and created again" if created_again else "truncated, as by an unclean leader election"
            self._warn_of_beginning(f"{self._log.name} was {what}: it")
            self._table = AnnouncedTable.of_names(self._table.writers, left_out=self._table.left_out)
        if read.deleted is not None:
            _log.warning(
                "announcements %d to %d of %s were deleted before they were read. A writer that announced only there "
                'is waited for if the checkpoint names it, or .option("announcedBy", …), and is not known otherwise: '
                "give the topic the retention of the data", read.deleted[0], read.deleted[1] - 1, self._log.name,
            )  # fmt: skip
        self._id = read.log or self._id
        self._position = self._position if read.next_position is None else read.next_position
        if read.topic is not None:
            table, remarks = with_statements(self._table, read.statements, read.topic)
            self._table = _advanced(table, state, logs, cap)
            self._remark(remarks)
        self._heard.update(name for each in read.statements if (name := self._writer_of(each)) is not None)
        about_others = {a.topic: a for each in read.statements if isinstance(a := each.statement, Announcement)}
        for topic in about_others.keys() - self._other_topics - {read.topic}:
            self._other_topics.add(topic)
            self._remark([Remark(
                RemarkKind.OTHER_TOPIC,
                f"{about_others[topic].writer} announced a watermark of a topic with the id {shortened(topic)}, and "
                f"the topic has the id {read.topic}: what is announced of another topic, or of an earlier one of the "
                "name, is ignored", topic,
            )])  # fmt: skip

    def _writer_of(self, logged: LoggedStatement) -> str | None:
        """Return whom a record shows to be there; what an earlier run announces does not show it of the present one."""
        of = logged.statement
        if not isinstance(of, Announcement):
            return logged.writer if of is None else of.writer
        writer = self._table.writers.get(of.writer)
        return None if writer is not None and of.query in writer.former else of.writer

    def _warn_of_beginning(self, what: str) -> None:
        _log.warning(
            "%s is read from its beginning. The watermark waits until each writer that is known has announced again: "
            "%s%s", what, listed(self._table.writers) or "none",
            f"; {gone_line([*self._table.writers], limit=self._by.time_to_live)}" if self._table.writers else "",
        )  # fmt: skip

    def _remark(self, remarks: Sequence[Remark]) -> None:
        """Log what is not as it should be: of each kind one a writer and minute, and the number of the others."""
        now = self._clock.steady()
        if self._remarked_at is None or now - self._remarked_at >= _WARN_AFTER:
            self._remarked_at, self._remarked = now, set()
        for kind, text, about in remarks:
            if (kind, about) in self._remarked or len(self._remarked) == _MOST_KINDS:
                self._unremarked += 1
                continue
            more = f" ({self._unremarked} more remarks since the last one)" if self._unremarked else ""
            _log.warning("%s: %s%s", self._log.name, text, more)
            self._remarked.add((kind, about))
            self._unremarked = 0

    def _note_answer(self, read: AnnouncementsRead, asked_at: Millis, *, is_run: bool) -> None:
        if read.is_current:
            passed = 0 if self._current_at is None else asked_at - self._current_at
            heard, self._heard = self._heard, set()
            self._silent = {
                name: 0 if name in heard else self._silent.get(name, 0) + passed for name in self._table.writers
            }
            self._quiet -= heard
            self._left_out -= heard
            if is_run:
                self._silent = silent_by_records(self._table, self._clock.wall())
            else:
                self._warn_of_silent()
            self._warn_of_left_out()
            if self._warned and self._not_since is not None:
                _log.warning("%s is read again, after %s", self._log.name, format_duration(asked_at - self._not_since))
            self._current_at, self._not_since, self._warned = asked_at, None, False
            return
        self._current_at = None
        self._not_since = asked_at if self._not_since is None else self._not_since
        if is_run:
            _log.warning(
                "%s was not read to its end, so the watermark stays where it is until the next run: %s",
                self._log.name, self._trouble(read),
            )  # fmt: skip
        elif not self._warned and asked_at - self._not_since >= _WARN_AFTER:
            self._warned = True
            _log.warning(
                "%s has not been read to its end for %s, and the watermark stands: %s", self._log.name,
                format_duration(asked_at - self._not_since), self._trouble(read),
            )  # fmt: skip

    def _warn_of_silent(self) -> None:
        """Warn of each writer that the watermark waits for and that announces nothing, ever less often."""
        for name, silent in self._silent.items():
            limit, is_awaited = self._by.time_to_live, self._table.writers[name].is_awaited
            due = self._warn_at.get(name, _SILENT_AFTER)
            if is_awaited and name not in self._quiet and silent >= due and (limit is None or limit > due):
                self._quiet.add(name)
                self._warn_at[name] = 2 * due
                _log.warning(
                    "%s: writer %s has announced nothing for %s, and the watermark waits for it. It announces after "
                    "each of its batches: %s",
                    self._log.name, name, format_duration(silent), writers_line([name], limit=limit),
                )  # fmt: skip

    def _warn_of_left_out(self) -> None:
        """Warn of each writer whose time to live has passed, once for each silence."""
        limit = self._by.time_to_live
        for name, silent in self._silent.items():
            is_out = limit is not None and silent > limit and self._table.writers[name].is_awaited
            if limit is not None and is_out and name not in self._left_out:
                self._left_out.add(name)
                _log.warning(
                    "%s: writer %s has announced nothing for %s, longer than writerTimeToLive (%s): once the rows "
                    "before its last announcement are read, the watermark does not wait for it, and rows that it "
                    "writes later may be late. To wait longer, write %s",
                    self._log.name, name, format_duration(silent), format_duration(limit),
                    option_line("writerTimeToLive", silent + limit) or "a longer writerTimeToLive",
                )  # fmt: skip

    def _trouble(self, read: AnnouncementsRead) -> str:
        return read.trouble or f"{self._log.name} is still being read, at position {self._position}"

    def _observed(self, read: AnnouncementsRead, *, is_run: bool) -> ObservedAnnouncements:
        return ObservedAnnouncements(
            table=self._table,
            by=self._by,
            log=self._id,
            name=self._log.name,
            next_position=self._position,
            is_current=read.is_current,
            is_run=is_run,
            silent=dict(self._silent),
            trouble=None if read.is_current else self._trouble(read),
        )

    def _look_for_splits(self) -> None:
        if time.monotonic() - self._looked_at >= _LOOK_AGAIN:
            self._looked_at = time.monotonic()
            self._discovery.looked_since(self._looked_at, wait=0)


def _advanced(table: AnnouncedTable, state: SourceState, logs: ObservedLogs, cap: Millis | None) -> AnnouncedTable:
    """Return the table as of the state's positions, which reach nothing that is announced of another topic."""
    return advanced(table, kept_positions(state, logs), cap) if _is_one_of(table.topic, state.ids) else table


def _is_one_of(topic: str | None, ids: Mapping[str, str]) -> bool:
    """Return whether announcements are about a topic with one of these ids, as far as ids are known."""
    return not ids or topic in ids.values()
