"""What a connector can do for a watermark strategy, as it declares itself; ``load()`` refuses a strategy that needs
more. And how many rows a batch of its stream has."""

from __future__ import annotations

from dataclasses import dataclass

from watermark_source.planning.policy import MinimumRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What is not declared cannot be relied on, and a strategy that needs it is refused."""

    marks: bool = False
    """Its batches carry the watermarks of records (``ReadBatch.marks``)."""
    row_positions: bool = False
    """Each position is about one row, and batches carry the position of each row (``ReadBatch.positions``)."""
    rows_ahead: bool = False
    """Reading may begin at any position of a log, so that the driver can read the event times behind a batch."""
    announcements: bool = False
    """Writers can announce watermarks of its logs (``Connector.announcements``)."""
    dates_rows: bool = False
    """The system dates rows when it writes them, in the order of its log, and names its time with a log's end
    (``Ends.reached``)."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """How many rows a batch of a stream has."""

    most: int | None = None
    """``None``: no limit."""
    minimum: MinimumRows | None = None
    """Fewer rows wait for more, up to a delay; ``None``: rows never wait."""
