"""A query's progress, shown to other systems where the connector has a place for it."""

from __future__ import annotations

from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.progress_sink import ProgressSink


class ShownProgress:
    """Shows each batch that is done once; nothing without a place for it."""

    def __init__(self, sink: ProgressSink | None) -> None:
        self._sink = sink
        self._is_shown = False

    def show(self, state: SourceState) -> None:
        """Show that the batch before a state is done: Spark asks for the next one only when its commit is logged.

        Spark's own word for it, ``commit``, comes when the next batch is logged: for the last one of a run never, and
        while nothing new comes not either.
        """
        if self._sink is not None and not self._is_shown:
            self._sink.processed({s: t.position for s, t in state.splits.items()})
            self._is_shown = True

    def expect(self) -> None:
        """Take in that another batch is planned."""
        self._is_shown = False

    def close(self) -> None:
        """Show the last."""
        if self._sink is not None:
            self._sink.close()
