"""WrittenTopic: one topic of a query whose watermark is announced, and what was announced for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.publishing.target import Target


class WrittenTopic(Target):
    """One topic of a query, and what was announced for it."""

    rest = 1
    """Spark compares microseconds: a row after its watermark may be less than a millisecond after it, as
    ``window_time`` is, and a record's event time is cut to milliseconds."""

    last: Announcement | None = None
    """The last announcement, which was acknowledged."""

    def __init__(self, of: AnnouncementTopic, last: Announcement | None = None) -> None:
        self._of = of
        self.last = last

    @property
    def name(self) -> str:
        """The topic."""
        return self._of.topic

    def prepare(self, writer: str, query: str) -> None:
        """Create the topic of announcements if need be, and have readers wait for a new writer."""
        self._of.prepare()
        last = self._of.last_of(writer)
        if last is not None and last.query == query:
            self.last = last
            self.maybe_idle = last if last.idle else None
        if self.last is None:
            self.announce(writer, query, 0, None)
        self.end_rest()

    def announce(self, writer: str, query: str, batch: int, watermark: Millis | None) -> None:
        """Announce a watermark after a batch, with a cut behind all that the query has written by then."""
        cut = self._of.cut()
        self._send(Announcement(writer=writer, query=query, batch=batch, watermark=watermark, **cut._asdict()))

    def end(self, *, has_ended: bool) -> None:
        """Have readers wait: of a query that is stopped, or not watched any more, they do not learn when it writes."""
        del has_ended
        self.end_rest()

    def close(self) -> None:
        """Close the connections."""
        self._of.close()

    def can_rest(self, batch: int) -> bool:
        """Return whether readers wait for the query after a batch, and could learn that they need not."""
        last = self.last
        return last is not None and last.batch == batch and not last.idle and last.watermark != MAX

    def begin_rest(self, has_begun_another: Callable[[], bool]) -> None:
        """Announce that readers need not wait, with a cut behind all that the query has written."""
        assert self.last is not None
        made = replace(self.last, idle=True, **self._of.cut()._asdict())
        if not has_begun_another():
            # It may be in the log although it is not acknowledged.
            self.maybe_idle = made
            self._send(made)

    def end_rest(self) -> None:
        """Announce that readers have to wait again: at once, without a new cut, since what was promised before
        idleness still holds."""
        if self.maybe_idle is not None:
            self._send(replace(self.maybe_idle, idle=False))

    def _send(self, made: Announcement) -> None:
        self._of.send(made)
        self.last = made
        if not made.idle:
            self.maybe_idle = None
