"""Target: one place where the watermark of a query is announced after its batches, and what was announced there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from watermark_source.errors import UsageError, shortened
from watermark_source.planning.announcement import Announcement, is_name
from watermark_source.planning.watermark import Millis


class Announced(Protocol):
    """What a target keeps of an announcement."""

    @property
    def batch(self) -> int:
        """The batch after which it was made."""

    @property
    def watermark(self) -> Millis | None:
        """``None``: readers wait for the writer, which has no watermark yet."""


class Target(Protocol):
    """One place where the watermark of a query is announced. The query's thread calls it, and ``prepare`` before that.

    Every call may raise ``WatermarkSourceError``: it is made again later, and the query continues.
    """

    rest: int = 0
    """Milliseconds that are announced below the output watermark."""

    @property
    def name(self) -> str:
        """The place, for logs."""

    @property
    def last(self) -> Announced | None:
        """The last announcement of this query that is certainly there."""

    def prepare(self, writer: str, query: str) -> None:
        """Read what is there, and have readers wait for a writer that is new."""

    def announce(self, writer: str, query: str, batch: int, watermark: Millis | None) -> None:
        """Announce a watermark after a batch that is committed."""

    def end(self, *, has_ended: bool) -> None:
        """Announce what readers need to know once nothing more is announced, because the query has ended or not."""

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""

    # Where readers can learn that they need not wait for a query, because all of its sources are idle.

    maybe_idle: Announcement | None = None
    """An announcement of idleness that readers may know: to be taken back."""

    def can_rest(self, batch: int) -> bool:
        """Return whether readers wait for the query after a batch, and could learn that they need not."""
        del batch
        return False

    def begin_rest(self, has_begun_another: Callable[[], bool]) -> None:
        """Announce that readers need not wait, unless the query goes on."""
        del has_begun_another

    def end_rest(self) -> None:
        """Announce that readers have to wait again where they may not be waiting."""
        self.maybe_idle = None


def need_name(writer: str) -> None:
    """Refuse a name that no announcement can have, or that readers cannot name in a list; raises ``UsageError``."""
    if not is_name(writer) or "," in writer or writer != writer.strip():
        raise UsageError(
            f"writer = {shortened(ascii(writer))}: expected a name of 1 to 255 characters without commas, control "
            'characters, and spaces at its ends, unique among the writers of one place, for example writer="hourly"'
        )
