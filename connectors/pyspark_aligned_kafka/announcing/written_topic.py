"""WrittenTopic: one topic of a query whose watermark is announced, and what was announced for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic, TopicEnds
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.watermark import Millis


@dataclass(slots=True)
class WrittenTopic:
    """One topic of a query, and what was announced for it."""

    of: AnnouncementTopic
    last: Announcement | None = None

    def prepare(self, writer: str, query: str) -> None:
        """Create the topic of announcements if need be, and have readers wait for a new writer."""
        self.of.prepare()
        last = self.of.last_of(writer)
        if last is not None and last.query == query:
            self.last = last
        if self.last is None:
            self.announce(writer, query, 0, None)
        self.end_rest()

    def announce(self, writer: str, query: str, batch: int, watermark: Millis | None) -> None:
        """Announce a watermark after a batch, with a cut behind all that the query has written by then."""
        self._send(
            Announcement(writer=writer, query=query, batch=batch, watermark=watermark, topic="", ends={}),
            self.of.cut(),
        )

    def begin_rest(self, has_begun_another: Callable[[], bool]) -> None:
        """Announce that readers need not wait, with a cut behind all that the query has written."""
        assert self.last is not None
        cut = self.of.cut()
        if not has_begun_another():
            # A record that is not acknowledged may be in the log nevertheless: it has to be taken back as well.
            self.last = replace(self.last, idle=True)
            self._send(self.last, cut)

    def end_rest(self) -> None:
        """Announce, if readers do not wait, that they have to: also before the query runs again, or nobody watches."""
        if self.last is not None and self.last.idle:
            self._send(replace(self.last, idle=False), self.of.cut())

    def _send(self, made: Announcement, cut: TopicEnds) -> None:
        made = replace(made, topic=cut.topic, ends=cut.ends)
        self.of.send(made)
        self.last = made
