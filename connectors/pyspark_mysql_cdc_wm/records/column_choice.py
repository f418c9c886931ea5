"""Which columns of tables the user wants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that the user wants, by names in any case."""

    only: tuple[str, ...] | None = None
    """``None`` is all."""
    without: tuple[str, ...] = ()
    event_time: str | None = None
    """Of which column rows have their event time; ``None``: they have that of their commit."""

    def has(self, name: str) -> bool:
        """Return whether a column is wanted."""
        lowered = name.lower()
        wanted = self.only is None or lowered in map(str.lower, self.only)
        return wanted and lowered not in map(str.lower, self.without)

    def tells(self, name: str) -> bool:
        """Return whether a column about changes is wanted: all are that are not named to be left out."""
        return name not in map(str.lower, self.without)

    def reads(self, name: str) -> bool:
        """Return whether a column is wanted, or is event time."""
        return self.has(name) or (self.event_time is not None and name.lower() == self.event_time.lower())
