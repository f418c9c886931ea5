"""The words of a connector: what sentences about its sources call their parts, and which of its options they name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A connector's words; ``None`` where it has nothing of the kind. The defaults are right for every source."""

    split: str = "split"
    """What users call a split, such as ``partition``."""
    limit: str | None = None
    """The option that limits the rows of a batch."""
    minimum: str | None = None
    """The option with which few rows wait for more."""
    event_time: str | None = None
    """The options that state where the event time is and its form, joined by "and"."""
    profile: str | None = None
    """The command that shows the event times of a log."""
    watermarks: str | None = None
    """The command about the writers that announce watermarks for a log."""
    from_start: str | None = None
    """The line with which a new query reads what was there before it."""
    at_rest: str | None = None
    """The line with which a clock advances the watermark while no rows come."""
    dated_by: str = "name these times in the source's options"
    """What to write where a column has the event times of rows; ``{column}`` is its name."""
    zone: str | None = None
    """What to write, beside their zones, for times without a zone."""
    clock: str = '.option("watermarkStrategy", "none")'
    """What to write for processing time."""
    reads_first: str = '.option("whenCaughtUp", "watermark")'
    """What to write so that a new query has no watermark before it has read what was there."""
    undated_delete: str = "Give deleted rows an event time"
    """What to write where rows that report a deletion have no event time."""
    marks: str | None = None
    """The option that states where rows carry their watermarks."""
    payload: str = "its schema"
    """What a malformed row does not agree with, and the options about such rows."""


NO_WORDS = Words()
"""The words for a source whose connector is not known, as of a checkpoint."""
