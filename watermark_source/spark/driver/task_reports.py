"""What the tasks of the last batch saw: their reports, and a second look where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from watermark_source.eventtime.summary import RangeSummary
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.planner import ranges_of
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.range_report import Coverage
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.replicas import Relocation
from watermark_source.spark.connector.stream import SourceDefinition
from watermark_source.spark.driver.observed_logs import Logs
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.driver.row_counts import RowCounts
from watermark_source.spark.driver.snapshot_row_counts import SnapshotCount
from watermark_source.spark.driver.unreported_ranges import ReadingAgain, again_of
from watermark_source.spark.exchange.report_protocol import ReportAddress
from watermark_source.spark.options.engine_options import ReportOptions


class TaskReports:
    """Receives reports until closed, and counts the rows they name."""

    def __init__(
        self,
        definition: SourceDefinition,
        strategy: WatermarkStrategy,
        address: ReportOptions,
        logs: Logs,
        *,
        anywhere: bool,
    ) -> None:
        self._book = ReportBook()
        self._server = ReportServer(self._book, host=address.host, ports=address.ports)
        self._reading_again = ReadingAgain(definition, self._book, self._server)
        self._logs = logs
        self._on_clock, self._learns = strategy.use_processing_time, strategy.percentile is not None
        self._by_highest = not (self._on_clock or strategy.punctuated or self._learns)
        """Whether the highest event time of a range is all that a strategy goes by."""
        self._anywhere = anywhere
        """Whether logs can be read from any position on."""
        self.late_at: Millis | None = None
        """The watermark that the last batch of this process began with."""
        self.rows = RowCounts()
        self.snapshots = SnapshotCount()

    @property
    def address(self) -> ReportAddress:
        """Where tasks report."""
        return self._server.address

    def close(self) -> None:
        """Receive no more."""
        self._server.close()

    def forget(self, splits: Iterable[Split]) -> None:
        """Drop what is known of splits: it is part of their watermarks now."""
        self._book.forget(*splits)

    def seen(
        self, state: SourceState, known: Set[Split], relocation: Relocation | None, *, is_first: bool
    ) -> dict[Split, RangeSummary]:
        """Return what is in each split's last range, looking again at what no task reported.

        Args:
            state: as of the last batch.
            known: splits that exist.
            relocation: how the copy that is read is read on.
            is_first: the first plan of a process: reports to an earlier one went with it.
        """
        seen: dict[Split, RangeSummary] = {}
        last = ranges_of(state)
        covered = self._book.cover_each(last)
        told: Mapping[Split, Millis] = {}
        if is_first and self._by_highest:
            told = self._logs.highest([w for w, c in zip(last, covered, strict=True) if c.missing])
        for wanted, reported in zip(last, covered, strict=True):
            coverage = reported
            at = told.get(wanted.split)
            if at is not None and (state.future_cap is None or at <= state.future_cap):
                coverage = Coverage(at, rows=0, future_rows=0, missing=())
            if wanted.split.log in state.snapshots.frontiers:
                # Rows of a snapshot are not of any time.
                coverage = coverage._replace(max_event_time=None)
                self.snapshots.add(wanted.split.log, coverage.rows)
            elif coverage.missing and wanted.split in known and not self._on_clock:
                again = again_of(
                    wanted, state, relocation, late_at=self.late_at, enters_anywhere=self._anywhere, learns=self._learns
                )
                coverage = self._reading_again.at(again, coverage, reports_due=not is_first)
            seen[wanted.split] = coverage.summary
            self.rows.add(wanted.split, coverage)
        return seen
