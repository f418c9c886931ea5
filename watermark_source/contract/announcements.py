"""What a connector answers about announced watermarks: a log in which the writers of the data announce how far its
event time has advanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from watermark_source.planning.announced import LoggedStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementsRead:
    """What a log of announcements holds from a position on."""

    statements: Sequence[LoggedStatement] = ()
    """Statements in the order of the log, from the position on; not all of them if there are many. One about this
    topic that names a partition that does not exist counts as one that cannot be read."""
    next_position: int | None = None
    """Where to continue; ``None`` while nothing has been read."""
    is_current: bool = False
    """Whether these are all announcements up to an end of the log that was requested after the call began."""
    log: str | None = None
    """Id of the log, which is another one once the log was deleted and created again."""
    topic: str | None = None
    """Id of the data's own topic, as announcements name it (``Announcement.topic``). With statements, or where
    ``topic_now`` was given, it is that of a moment after the call began, if these are current."""
    deleted: tuple[int, int] | None = None
    """First and end position of records that were deleted before they were read."""
    truncated: bool = False
    """Whether the log ends before the position: it was truncated, or created again, and is read from its beginning."""
    trouble: str | None = None
    """Why it is not current, as a sentence."""
    is_missing: bool = False
    """Whether that is because the log does not exist: then a run with an end does not wait for it."""


class AnnouncementLog(Protocol):
    """The log of announcements of one source (docs/between-jobs.md). Cuts name partitions by their numbers."""

    @property
    def name(self) -> str:
        """What users know the log by, such as the name of its topic."""

    def read(self, position: int | None, log: str | None, *, wait: float, topic_now: bool = False) -> AnnouncementsRead:
        """Return the announcements from a position on; ``None``: from the first one.

        Waits at most ``wait`` seconds. What another try may cure is ``trouble``, and reading continues beside the plan.

        Args:
            position: where to continue.
            log: id of the log that the position is of; ``None`` if it is not known.
            wait: seconds.
            topic_now: whether the id of the data's topic is requested again; otherwise it may be some seconds old.

        Raises:
            RefusedError: the user may not read the log.
            UnsupportedFormatError: the system does not name the ids of topics.
        """

    def close(self) -> None:
        """Read no more."""
