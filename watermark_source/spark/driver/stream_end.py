"""What a query may do with a stream that has an end (``finalWatermark``), and with one that has come to it."""

from __future__ import annotations

from watermark_source.errors import OptionError, StreamEndedError
from watermark_source.planning.final_watermark import has_said_the_last
from watermark_source.planning.state import SourceState
from watermark_source.spark.options.engine_options import EngineOptions


class StreamEnd:
    """Of one run of a query."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._reached = False
        """Whether this process has read, or read again, the batch that ends the stream."""

    def note(self, after: SourceState) -> None:
        """Note the end of a batch that is read."""
        self._reached |= after.ended

    def check(self, state: SourceState, *, is_run: bool) -> None:
        """Refuse to go on from a state.

        Args:
            state: as of a batch that is done.
            is_run: whether the ends of this run are fixed.

        Raises:
            StreamEndedError: the stream ended in an earlier run.
            OptionError: this is to be the stream's last run, and its trigger lets it go on.
        """
        goes_on = not is_run and not self._options.final_watermark
        if (state.ended and not self._reached) or (goes_on and has_said_the_last(state)):
            raise StreamEndedError(
                f"the stream of {self._options.source_name} has ended: its last run had finalWatermark, and its "
                "watermark is the end of time. Rows that have come since would all be late, so none is read. The "
                "query has nothing more to do; to read on, begin with a new checkpoint location"
            )
        if self._options.final_watermark and not is_run:
            raise OptionError(
                "finalWatermark",
                "true",
                "needs a run that has an end, and with this trigger the query goes on: start it with "
                "Trigger.AvailableNow, or leave the option out",
                example="trigger(availableNow=True)",
            )
