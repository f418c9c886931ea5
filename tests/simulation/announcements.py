"""What a writer of a simulated log announces, and a process that reads it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.log import SimulatedLog
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    LoggedStatement,
    ObservedAnnouncements,
    advanced,
    reached,
    with_statements,
)
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.combined_watermark import positions_of
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import Millis

TOPIC, WRITER = "T", "w"
BY = AnnouncedBy(frozenset({WRITER}))


@dataclass
class Announcements:
    """The log of announcements beside a log."""

    log: SimulatedLog

    def __post_init__(self) -> None:
        self.records: list[LoggedStatement] = []
        self.is_current = True
        self._every = AnnouncedTable()
        """With all records up to ``_read``."""
        self._read = 0
        self.restart(SourceState(splits={}))

    def announce(self, watermark: int | None, *, idle: bool = False, writer: str = WRITER) -> None:
        """State that what comes from now on is later."""
        number, at = len(self.records), None if watermark is None else Millis(watermark)
        ends = {str(split.number): end for split, end in self.log.ends().items()}
        stated = Announcement(
            writer=writer, query="q", batch=number, watermark=at, idle=idle, topic=TOPIC, ends=ends
        )  # fmt: skip
        self.records.append(LoggedStatement(number, Millis(0), stated))

    def restart(self, state: SourceState) -> None:
        """Begin to read where a checkpoint says."""
        kept = state.announced
        self._table = AnnouncedTable() if kept is None else AnnouncedTable.of_names(kept.writers, dict(kept.former))
        self._next = 0 if kept is None else kept.position

    def observed(self, state: SourceState) -> ObservedAnnouncements:
        """Read to the end, unless the log does not answer."""
        if self.is_current:
            read, self._next = self.records[self._next :], len(self.records)
            self._table, _ = with_statements(self._table, read, TOPIC)
        self._table = advanced(self._table, positions_of(state.splits), state.future_cap)
        return ObservedAnnouncements(
            table=self._table, by=BY, log="L", next_position=self._next, is_current=self.is_current
        )  # fmt: skip

    def watermark_at(self, state: SourceState) -> Millis | None:
        """Return the watermark that is announced where a source is."""
        self._every, _ = with_statements(self._every, self.records[self._read :], TOPIC)
        self._read = len(self.records)
        seen = ObservedAnnouncements(table=self._every, by=BY, log="L", next_position=0, is_current=True)
        return reached(seen, positions_of(state.splits), state.watermark, None)

    def beyond(self, split: Split, start: int, end: int, limit: int) -> int:
        """Return of how many announcements beyond a watermark a batch has rows."""
        before, found = 0, 0
        for record in self.records:
            stated = record.statement
            assert isinstance(stated, Announcement)
            until = stated.ends[str(split.number)]
            is_beyond = stated.watermark is not None and stated.watermark > limit
            found += is_beyond and before < end and until > max(start, before)
            before = until
        return found
