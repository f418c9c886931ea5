"""The ends of a run with an end (``Trigger.AvailableNow``): what comes while it reads is not part of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from watermark_source.contract.stream import Connector, Relocation, SourceDefinition
from watermark_source.errors import OptionError, StartMismatchError, StreamEndedError, listed
from watermark_source.planning.catch_up import reads_first
from watermark_source.planning.combined_watermark import come_since, last_was_sent
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.planner import Plan
from watermark_source.planning.snapshot_ranges import snapshot_split
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SnapshotState, SourceState, SplitState
from watermark_source.spark.driver.logs import Logs
from watermark_source.spark.driver.offsets import Offsets
from watermark_source.spark.driver.task_reports import reread_task
from watermark_source.spark.executor.reading import batches_of
from watermark_source.spark.options import EngineOptions

_log = logging.getLogger(__name__)

# What a query may do with a stream that has an end (``finalWatermark``), and with one that has come to it.


class StreamEnd:
    """Checks of one run of a query whose stream has an end."""

    def __init__(self, options: EngineOptions) -> None:
        """``options``: with the policy of the run."""
        self._options = options
        self._logged: set[str] = set()

    def check(self, state: SourceState, *, is_run: bool) -> None:
        """Refuse to continue from a state.

        Args:
            state: as of a batch that is done.
            is_run: whether the ends of this run are fixed.

        Raises:
            StreamEndedError: the stream has ended, and this is no run that only lets others of its query end too.
            OptionError: this is to be the stream's last run, and its trigger fixes no end.
        """
        final = self._options.policy.final_watermark
        has_no_end = not is_run and not final
        if (state.ended and not (is_run and final)) or (has_no_end and last_was_sent(state)):
            raise StreamEndedError(
                f"{self._ended}, so rows that have come since would all be late. What other sources of the query still "
                "have is read with finalWatermark and Trigger.AvailableNow; to read this one on, begin with a new "
                "checkpoint location"
            )
        if final and not is_run:
            raise OptionError(
                "finalWatermark",
                "true",
                "needs a run that has an end, and this trigger fixes none: start the query with "
                "Trigger.AvailableNow, or leave the option out",
                example="trigger(availableNow=True)",
            )

    def check_later_rows(
        self, state: SourceState, observation: Observation, definition: SourceDefinition, relocation: Relocation | None
    ) -> None:
        """Log or raise that rows were added since the stream ended, if there are any: no batch reads them.

        Args:
            state: of a stream that has ended.
            observation: the logs as they are now.
            definition: reads the rows.
            relocation: which copy of the log is read, and from where.

        Raises:
            StreamEndedError: there are, and ``failOnDataLoss`` is set.
            SourceError: the system does not answer.
        """

        def has_rows(wanted: SplitRange) -> bool:
            # A table that is new has no positions to look at yet.
            if wanted.split.log in observation.snapshots.chunks:
                return True
            _log.info("looking whether rows have come in %s since the stream ended", wanted)
            again = reread_task(wanted, state, relocation, self._options.policy, late_at=None)
            return any(batch.rows for batch in batches_of(definition.observing_reader, again))

        since = [wanted for wanted in come_since(state, observation.logs) if has_rows(wanted)]
        if not since:
            return
        shown = ", ".join(wanted.shown(definition.position_text) for wanted in since[:_SHOWN])
        more = f" and {len(since) - _SHOWN} more" if len(since) > _SHOWN else ""
        text = f"{self._ended}. Rows have come since: {shown}{more}. They would all be late, so none is read"
        if self._options.policy.on_loss.fails:
            raise StreamEndedError(
                f"{text}. To read them, begin with a new checkpoint location; to let the query's other sources come to "
                "their ends without them, set failOnDataLoss to false"
            )
        _log.warning("failOnDataLoss is false, so the query continues: %s", text)

    def note(self, planned: Plan, logs: ObservedLogs) -> None:
        """Warn once why a run ends without the last watermark, or without having read the first ends."""
        if planned.is_batch or last_was_sent(planned.state):
            return
        why = self._why_no_watermark(planned.state, logs)
        if self._options.policy.final_watermark:
            why = why or _why_not_last(logs)
        if why is not None and why not in self._logged:
            self._logged.add(why)
            _log.warning("%s", why)

    def _why_no_watermark(self, state: SourceState, logs: ObservedLogs) -> str | None:
        if not logs.ends_are_final or not reads_first(self._options.policy.after_catch_up, state.catch_up):
            return None
        ends = {} if state.catch_up is None else state.catch_up.ends
        return (
            f"whenCaughtUp=watermark: this run ends before {listed(ends)} have been read to the ends that they "
            "had when the query began, and without a watermark: rows that wait for it wait for a later run. Their "
            "last rows are in a transaction that is open, or behind it, or the topic was truncated since"
        )

    @property
    def _ended(self) -> str:
        return (
            f"the stream of {self._options.source_name} has ended: a run had finalWatermark, and its watermark is the "
            "end of time"
        )


def _why_not_last(logs: ObservedLogs) -> str | None:
    if not logs.all_found:
        return (
            "finalWatermark: it was not answered in time whether there are new partitions, so this run is not the "
            "last, and its watermark stays where it was. Run the query again when the system answers"
        )
    if logs.uncommitted:
        return (
            f"finalWatermark: {listed(logs.uncommitted)} have rows of a transaction that is open, or it was not "
            "answered in time whether they have, so this run is not the last. Run the query again when the "
            "transaction is over"
        )
    return None


_SHOWN = 10
"""So many ranges are named."""


class AvailableNowEnds:
    """The ends of one run; a run without an end has none."""

    def __init__(self, connector: Connector, logs: Logs) -> None:
        self._connector = connector
        self._logs = logs
        self._tables: Set[str] | None = None
        """What there was to take snapshots of, before the ends were asked for."""
        self.logs: ObservedLogs | None = None
        """The logs as the run found them."""

    def fix(self) -> None:
        """Ask for the ends."""
        if self._connector.snapshots is not None:
            self._tables = self._connector.snapshots.logs()
        self.logs = self._logs.poll_run()

    def move(self) -> None:
        """Ask for the ends again before the next chunks of a snapshot, and of no table that came since the run began.

        Rows of a chunk are as of the end of its batch. As of the run's first end each chunk would have to read, and
        undo, all changes since.
        """
        began = self._tables
        self.fix()
        if began is not None and self._tables is not None:
            self._tables &= began

    def expect(self, splits: Set[Split], ids: Mapping[str, str]) -> None:
        """Discover again if the run has other logs than the checkpoint: a broker may not know all for a moment."""
        discovery = self._connector.discovery
        discovery.expect(splits, ids)
        if self.logs is None:
            return
        if (splits - self.logs.ends.keys()) & discovery.discover() or discovery.ids() != self.logs.ids:
            self.fix()

    def tables(self) -> Set[str]:
        """Return the tables to snapshot that existed before the planned ends were requested.

        A later list may have a table that was renamed after those ends: its rows are in no log behind them.
        """
        if self._connector.snapshots is None:
            return frozenset()
        return self._connector.snapshots.logs() if self._tables is None else self._tables

    def reach(self, starts: Mapping[Split, int]) -> None:
        """Take in where a new query starts: rows and splits may have come since; the run reads none of them."""
        if self.logs is not None:
            self.logs = replace(self.logs, ends={s: max(at, self.logs.ends.get(s, at)) for s, at in starts.items()})


# Where a new query starts: asked of the connector once, and why it cannot start.


class InitialOffset:
    """Spark asks more than once; the answer stays the same in a process."""

    def __init__(self, connector: Connector, ends: AvailableNowEnds, offsets: Offsets) -> None:
        self._connector = connector
        self._ends = ends
        self._offsets = offsets
        self._offset: dict[str, Any] | None = None
        self._mismatch: StartMismatchError | None = None

    def offset(self) -> dict[str, Any]:
        """Return the offset a new query starts from."""
        if self._offset is None:
            self._offset = self._offsets.encode(self._state())
        return self._offset

    def is_unknown(self, start: Mapping[str, Any]) -> bool:
        """Return whether this is where a new query starts, and the user's options do not fit what there is now."""
        return self._mismatch is not None and start == self._offset

    def check(self, start: Mapping[str, Any]) -> None:
        """Raise ``StartMismatchError`` if a batch would have to be planned from a start that is unknown."""
        if self._mismatch is not None and start == self._offset:
            raise self._mismatch

    def _state(self) -> SourceState:
        snapshots = self._connector.snapshots
        takes_snapshots = snapshots is not None and snapshots.come_first
        tables = self._ends.tables() if takes_snapshots else frozenset()
        splits, ids = self._connector.discovery.discover(), self._connector.discovery.ids()
        try:
            starts = self._connector.starts.initial_positions(splits)
        except StartMismatchError as error:
            # Only a first batch that is not logged yet raises it: a logged end determines the rows, whatever was added
            # since.
            starts, self._mismatch = {}, error
        else:
            self._ends.reach(starts)
        positions = {**starts, **{snapshot_split(log): 0 for log in tables}}
        return SourceState(
            splits={s: SplitState(p, p) for s, p in sorted(positions.items())},
            ids={log: id_ for log, id_ in ids.items() if log in {split.log for split in positions}},
            snapshots=SnapshotState(
                frontiers=dict.fromkeys(sorted(tables), ()), complete=frozenset() if takes_snapshots else None
            ),
            origin=self._offsets.replica.beginning(),
        )
