"""Reading again what no task reported: the driver reads event times, and says what may be wrong."""

from __future__ import annotations

import logging
from dataclasses import replace

from watermark_source.errors import DataLossError, EventTimeError, UnknownSplitError, UnsupportedFormatError
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.range_report import Coverage
from watermark_source.planning.snapshot_ranges import last_batch
from watermark_source.planning.split import SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.replicas import Relocation
from watermark_source.spark.connector.stream import SourceDefinition
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.exchange.read_tasks import ReadTask, beginnings_of
from watermark_source.spark.tasks.event_time_observer import observe
from watermark_source.spark.tasks.reading import batches_of

_log = logging.getLogger(__name__)


def again_of(
    wanted: SplitRange,
    state: SourceState,
    relocation: Relocation | None,
    *,
    late_at: Millis | None,
    enters_anywhere: bool,
    learns: bool = False,
) -> ReadTask:
    """Return a range of the last planned batch, which ends in ``state``, as work to do again.

    ``enters_anywhere``: its log can be read from any position on, and not only from where a range begins. ``learns``:
    how disordered its rows are matters.
    """
    by_positions = relocation is None or relocation.left_out is None
    if relocation is not None and late_at is not None:
        # As the task dated the rows.
        relocation = replace(relocation, floor=Millis(late_at + 1))
    return ReadTask(
        ranges=(wanted,),
        markers=(),
        future_cap=state.future_cap,
        clock=None,
        late_at=late_at,
        report_to=None,
        snapshot=last_batch(state),
        relocation=relocation,
        whole=wanted if by_positions and not enters_anywhere else None,
        beginnings=beginnings_of([wanted], state) if learns else None,
    )


class ReadingAgain:
    """Of one run of a query."""

    def __init__(self, definition: SourceDefinition, book: ReportBook, server: ReportServer) -> None:
        self._definition = definition
        self._book = book
        self._server = server
        self._warned: set[bool] = set()
        """Whether strangers were the reason, for each of the warnings that were logged."""

    def at(self, again: ReadTask, missing: Coverage, *, reports_due: bool) -> Coverage:
        """Return what is in a task's one range, of which something is missing, as far as it can still be read.

        ``reports_due``: this process asked for them. Reports to an earlier one went with it.
        """
        (wanted,), parts = again.ranges, missing.missing
        shown = wanted.shown(self._definition.position_text)
        _log.info("no report about %s; looking at %d positions again", shown, sum(part.size for part in parts))
        if reports_due:
            self._warn()
        reader = self._definition.observing_reader
        try:
            for part in parts:
                batches = batches_of(reader, replace(again, ranges=(part,)))
                self._book.add(observe(batches, [part], again.future_cap, again.late_at, again.beginnings))
        except (DataLossError, EventTimeError, UnknownSplitError, UnsupportedFormatError) as error:
            # Delivered long ago, only no longer there to look at, or with another event time then: the watermark goes
            # on with the next range.
            _log.warning("%s cannot be looked at again, its watermark stays: %s", shown, error)
        return self._book.cover(wanted)

    def _warn(self) -> None:
        """Say once for each reason why what no task reported is read twice."""
        strangers = self._server.strangers()
        if (strangers is not None) in self._warned:
            return
        self._warned.add(strangers is not None)
        where, port = " or ".join(self._server.address.hosts), self._server.address.port
        if strangers is None:
            _log.warning(
                "no task reported what it read to %s, port %d, so the driver reads it again by itself. If executors "
                "cannot reach that address, set reportHost and reportPorts",
                where, port,
            )  # fmt: skip
        else:
            _log.warning(
                "no task reported what it read to %s, port %d, so the driver reads it again by itself. Meanwhile "
                "connections that are no tasks of this query were closed there: %s. Keep them away from that port; "
                "reportPorts names others",
                where, port, strangers,
            )  # fmt: skip
