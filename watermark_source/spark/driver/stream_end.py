"""What a query may do with a stream that has an end (``finalWatermark``), and with one that has come to it."""

from __future__ import annotations

import logging

from watermark_source.errors import OptionError, StreamEndedError, listed
from watermark_source.planning.final_watermark import come_since, has_said_the_last
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.planner import Plan
from watermark_source.planning.split import SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.replicas import Relocation
from watermark_source.spark.connector.stream import SourceDefinition
from watermark_source.spark.driver.unreported_ranges import again_of
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.spark.tasks.reading import batches_of

_log = logging.getLogger(__name__)


class StreamEnd:
    """Of one run of a query."""

    def __init__(self, options: EngineOptions, *, fails_on_loss: bool) -> None:
        self._options = options
        self._fails_on_loss = fails_on_loss
        self._told: set[str] = set()

    def check(self, state: SourceState, *, is_run: bool) -> None:
        """Refuse to go on from a state.

        Args:
            state: as of a batch that is done.
            is_run: whether the ends of this run are fixed.

        Raises:
            StreamEndedError: the stream has ended, and this is no run that only lets others of its query end too.
            OptionError: this is to be the stream's last run, and its trigger lets it go on.
        """
        final = self._options.final_watermark
        goes_on = not is_run and not final
        if (state.ended and not (is_run and final)) or (goes_on and has_said_the_last(state)):
            raise StreamEndedError(
                f"{self._ended}, so rows that have come since would all be late. What other sources of the query still "
                "have is read with finalWatermark and Trigger.AvailableNow; to read this one on, begin with a new "
                "checkpoint location"
            )
        if final and not is_run:
            raise OptionError(
                "finalWatermark",
                "true",
                "needs a run that has an end, and with this trigger the query goes on: start it with "
                "Trigger.AvailableNow, or leave the option out",
                example="trigger(availableNow=True)",
            )

    def look(
        self,
        state: SourceState,
        observation: Observation,
        definition: SourceDefinition,
        relocation: Relocation | None,
        *,
        enters_anywhere: bool,
    ) -> None:
        """Say that rows have come since a stream ended, if there are any: nobody reads them.

        Args:
            state: of a stream that has ended.
            observation: what there is now.
            definition: reads it.
            relocation: how the copy that is read is read on.
            enters_anywhere: whether logs can be read from any position on.

        Raises:
            StreamEndedError: there are, and ``failOnDataLoss`` is set.
            SourceError: it cannot be told.
        """

        def has_rows(wanted: SplitRange) -> bool:
            # A table that is new has no positions to look at yet.
            if wanted.split.log in observation.snapshots.chunks:
                return True
            _log.info("looking whether rows have come in %s since the stream ended", wanted)
            again = again_of(wanted, state, relocation, late_at=None, enters_anywhere=enters_anywhere)
            return any(batch.rows for batch in batches_of(definition.observing_reader, again))

        since = [wanted for wanted in come_since(state, observation.logs) if has_rows(wanted)]
        if not since:
            return
        shown = ", ".join(wanted.shown(definition.position_text) for wanted in since[:_SHOWN])
        more = f" and {len(since) - _SHOWN} more" if len(since) > _SHOWN else ""
        text = f"{self._ended}. Rows have come since: {shown}{more}. They would all be late, so none is read"
        if self._fails_on_loss:
            raise StreamEndedError(
                f"{text}. To read them, begin with a new checkpoint location; to let the query's other sources come to "
                "their ends without them, set failOnDataLoss to false"
            )
        _log.warning("failOnDataLoss is false, going on: %s", text)

    def note(self, planned: Plan, logs: ObservedLogs) -> None:
        """Say in the log, once, why a run that was to be the last leaves the stream open."""
        if planned.is_batch or not self._options.final_watermark or has_said_the_last(planned.state):
            return
        why = None
        if not logs.all_found:
            why = (
                "it was not answered in time whether there are new partitions, so this run is not the last, and its "
                "watermark stays where it was. Run the query again when the system answers"
            )
        elif logs.uncommitted:
            why = (
                f"{listed(logs.uncommitted)} have rows of a transaction that is open, so this run is not the last. Run "
                "the query again when it is over"
            )
        if why is not None and why not in self._told:
            self._told.add(why)
            _log.warning("finalWatermark: %s", why)

    @property
    def _ended(self) -> str:
        return (
            f"the stream of {self._options.source_name} has ended: a run had finalWatermark, and its watermark is the "
            "end of time"
        )


_SHOWN = 10
"""So many ranges are named."""
