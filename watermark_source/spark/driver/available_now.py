"""The ends of a run with an end (``Trigger.AvailableNow``): what comes while it reads is not part of it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.stream import Connector
from watermark_source.spark.driver.observed_logs import Logs
from watermark_source.spark.driver.stream_end import StreamEnd


class AvailableNowEnds:
    """Of one run; of a run without an end there are none."""

    def __init__(self, connector: Connector, logs: Logs, stream: StreamEnd) -> None:
        self._connector = connector
        self._stream = stream
        self._logs = logs
        self._tables: Set[str] | None = None
        """What there was to take snapshots of, before the ends were asked for."""
        self.logs: ObservedLogs | None = None
        """The logs as the run found them."""

    def fix(self) -> None:
        """Ask for the ends."""
        if self._connector.snapshots is not None:
            self._tables = self._connector.snapshots.logs()
        self.logs = self._logs.of_run()

    def check(self, state: SourceState) -> None:
        """Raise what ``StreamEnd.check`` does of a state to go on from."""
        self._stream.check(state, is_run=self.logs is not None)

    def expect(self, splits: Set[Split]) -> None:
        """Look again if the run found less than the checkpoint has: the system may not have told all for a moment."""
        self._connector.discovery.expect(splits)
        if self.logs is not None and (splits - self.logs.ends.keys()) & self._connector.discovery.discover():
            self.fix()

    def tables(self) -> Set[str]:
        """Return what there was to take snapshots of before the ends were asked for that are planned with.

        Not later: what came in whole after those ends, by another name before, is not in the log behind them.
        """
        if self._connector.snapshots is None:
            return frozenset()
        return self._connector.snapshots.logs() if self._tables is None else self._tables

    def reach(self, starts: Mapping[Split, int]) -> None:
        """Take in where a new query starts: rows and splits may have come since; the run reads none of them."""
        if self.logs is not None:
            self.logs = replace(self.logs, ends={s: max(at, self.logs.ends.get(s, at)) for s, at in starts.items()})
