"""The topic in which the writers of a topic announce watermarks, read on a thread beside planning.

A plan waits a moment for what was announced before it; a slow or dead broker only keeps the watermark where it is.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import EARLIEST, LATEST
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.options.subscription import announcements_of
from watermark_source.arrow_columns import integers
from watermark_source.contract.announcements import AnnouncementLog, AnnouncementsRead
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import (
    CorruptDataError,
    DataLossError,
    InternalError,
    RefusedError,
    SourceError,
    UnsupportedFormatError,
    WatermarkSourceError,
    listed,
)
from watermark_source.planning.announced import LoggedStatement
from watermark_source.planning.announcement import NO_WRITER, Announcement, decoded, is_name
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis

_log = logging.getLogger(__name__)

COLUMNS: Final = ("key", "value", "offset", "timestamp")
"""What ``ReadRange`` delivers, in this order."""
_AT_ONCE: Final = 5_000
"""Records that are read before they are handed over: announcements about a thousand partitions have 15 kB each."""
_IDS_LAST: Final = 5.0
"""Seconds after which the ids of both topics are requested again; new announcements, and a plan that may apply earlier
ones, request them at once."""
_AFTER_FAILURE: Final = 1.0
"""Seconds from a failure to the next try."""
_TRUNCATED_AFTER: Final = 3.0
"""Seconds after which a topic that ends before the position counts as truncated: a broker that has just become leader
may be behind for a moment."""

ReadRange = Callable[[SplitRange], Iterator[ReadBatch]]
"""Reads a range of the topic with the announcements."""


class _MissingError(SourceError):
    """A topic does not exist."""


class KafkaAnnouncements(AnnouncementLog):
    """Implements ``AnnouncementLog`` for a topic of data. The topic with the announcements has one partition.

    ``admin`` is used on the thread of the announcements alone.
    """

    def __init__(self, admin: KafkaAdmin, read_range: ReadRange, topic: str) -> None:
        self._admin = admin
        self._read_range = read_range
        self._topic = topic
        self._split = Split(announcements_of(topic), 0)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._asked_at = 0.0
        """When a plan asked last."""
        self._topic_now = False
        """Whether that plan needs the id of the data's topic as of now."""
        self._ready = AnnouncementsRead()
        """What no plan has taken yet."""
        self._current_as_of = 0.0
        """When the end was requested up to which everything is ready, or was taken."""
        self._answered_at = 0.0
        """When the thread began its last try, whether or not it succeeded."""
        self._refused: WatermarkSourceError | None = None
        self._ids_at: float | None = None
        self._data: Topic | None = None
        """The topic of the data, as of then."""
        self._missing = False
        self._behind_since: float | None = None

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._split.log

    def read(self, position: int | None, log: str | None, *, wait: float, topic_now: bool = False) -> AnnouncementsRead:
        """Return what has been read, once that is all there is, or ``wait`` seconds have passed.

        The position and its log matter in the first call; later ones continue where the one before ended.
        """
        began = time.monotonic()
        with self._changed:
            if self._thread is None:
                self._ready = AnnouncementsRead(next_position=position, log=log)
                self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)
                self._thread.start()
            self._asked_at, self._topic_now = began, topic_now
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_answered(began), wait)
            if self._refused is not None:
                raise self._refused
            ready = self._ready
            self._ready = replace(ready, statements=(), deleted=None, truncated=False)
            self._changed.notify_all()
            is_current = self._current_as_of >= began
        return replace(ready, is_current=is_current, trouble=None if is_current else ready.trouble)

    def close(self) -> None:
        """End the thread, which closes its connections."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_answered(self, began: float) -> bool:
        is_full = len(self._ready.statements) >= _AT_ONCE
        return self._answered_at >= began or is_full or self._refused is not None or self._closed

    # On the thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._is_wanted())
                if self._closed:
                    break
                before = self._ready
            began = time.monotonic()
            after, is_over = self._next(before, began)
            with self._changed:
                # A plan may have taken the earlier statements meanwhile.
                is_new = after.truncated or after.log != before.log
                taken = 0 if is_new else len(before.statements) - len(self._ready.statements)
                self._ready = replace(after, statements=after.statements[taken:])
                self._answered_at = began if is_over else self._answered_at
                self._changed.notify_all()
                if after.trouble is not None:
                    self._changed.wait_for(lambda: self._closed, _AFTER_FAILURE)
        with contextlib.suppress(SourceError):
            self._admin.close()

    def _is_wanted(self) -> bool:
        return self._asked_at > self._answered_at and len(self._ready.statements) < _AT_ONCE

    def _next(self, before: AnnouncementsRead, began: float) -> tuple[AnnouncementsRead, bool]:
        """Return what is ready after one more request, and whether there is no more for now."""
        try:
            after = self._with_more(before)
        except (RefusedError, UnsupportedFormatError) as error:
            self._refused = error
        except WatermarkSourceError as error:
            self._ids_at = None
            is_missing = isinstance(error, _MissingError)
            text = str(error) if is_missing else f"{self.name} cannot be read: {error}"
            return replace(before, trouble=text, is_missing=is_missing), True
        except Exception as error:  # noqa: BLE001 - see below
            # A thread that ended without a word would hold the watermark for ever.
            _log.exception("%s cannot be read", self.name)
            self._refused = InternalError(f"{self.name} cannot be read: {error!r}")
        else:
            is_over = after.is_current
            self._current_as_of = began if is_over else self._current_as_of
            return replace(after, trouble=None, is_missing=False), is_over
        return before, True

    def _with_more(self, before: AnnouncementsRead) -> AnnouncementsRead:
        """Return the next part of the log; ``is_current`` if it reaches the end that was requested first."""
        found = self._with_ids(before)
        answers = self._admin.list_offsets({self._split: LATEST})
        end = answers[self._split].offset if self._split in answers else None
        if end is None:
            raise _MissingError(f"topic {self.name} has no leader, or was deleted just now")
        if found.next_position is None or found.next_position > end:
            is_truncated = self._confirm_truncation(found.next_position, end)
            found = replace(found, next_position=self._first(), truncated=is_truncated, statements=())
        start, self._behind_since = found.next_position, None
        if start is None or start >= end:
            return replace(found, is_current=True)
        # Announcements name the topic that they are about: whether that is the topic of now must be known.
        self._ids_at = None
        found, until = self._with_ids(found), min(end, start + _AT_ONCE)
        if found.next_position != start:
            return replace(found, is_current=False)
        try:
            new = tuple(statements_of(self._read_range(SplitRange(self._split, start, until))))
            new = self._checked(new)
        except DataLossError:
            first = self._first()
            if first <= start:
                raise
            return replace(found, next_position=first, deleted=(start, first), is_current=False)
        return replace(found, statements=(*found.statements, *new), next_position=until, is_current=until == end)

    def _checked(self, records: tuple[LoggedStatement, ...]) -> tuple[LoggedStatement, ...]:
        """Return records with those refused that name a partition that no broker knows."""
        assert self._data is not None
        checked = with_known_partitions(records, self._data)
        if checked == records:
            return records
        # That broker may lag behind: another one knows a partition that was just added.
        data = self._admin.topic_by_all_brokers(self._topic)
        if data is None or data.id != self._data.id:
            raise _MissingError(f"topic {self._topic} was deleted just now")
        return with_known_partitions(records, data)

    def _confirm_truncation(self, position: int | None, end: int) -> bool:
        if position is None:
            return False
        now = time.monotonic()
        self._behind_since = now if self._behind_since is None else self._behind_since
        if now - self._behind_since < _TRUNCATED_AFTER:
            # That broker may be behind.
            raise SourceError(f"it ends at {end}, before {position}; the broker is asked again")
        return True

    def _first(self) -> int:
        answers = self._admin.list_offsets({self._split: EARLIEST})
        if self._split not in answers:
            raise _MissingError(f"topic {self.name} was deleted just now")
        return answers[self._split].offset or 0

    def _with_ids(self, found: AnnouncementsRead) -> AnnouncementsRead:
        """Return it with the ids of both topics, and at no position if the topic was created again."""
        # A cut of an earlier topic must not be applied to the rows of one created again, whose ends a plan has by now.
        since = self._asked_at if self._topic_now or found.statements else time.monotonic() - _IDS_LAST
        if self._ids_at is not None and self._ids_at >= since:
            return found
        asked_at = time.monotonic()
        topics = self._admin.topics({self._topic, self.name})
        announced, data = topics.get(self.name), topics.get(self._topic)
        if announced is None:
            self._note_missing(was_there=found.log is not None)
            why = "was deleted" if found.log is not None else f"does not exist: {NO_WRITER}"
            raise _MissingError(f"topic {self.name} {why}")
        self._missing = False
        if data is None:
            raise _MissingError(f"topic {self._topic} does not exist")
        if announced.id is None or data.id is None:
            raise UnsupportedFormatError(
                "the Kafka brokers name no ids of topics, which show whether an announcement is about this topic or an "
                "earlier one of its name: watermarkStrategy announced needs Kafka 2.8 or later"
            )
        if len(announced.leaders) != 1:
            raise UnsupportedFormatError(
                f"topic {self.name} has {len(announced.leaders)} partitions; announcements have the order of one "
                "partition, so create the topic with one, or let announce_watermark create it"
            )
        self._ids_at, self._data = asked_at, data
        if found.log not in (None, announced.id):
            # Positions are of the earlier one.
            found = replace(found, next_position=None, statements=())
        return replace(found, log=announced.id, topic=data.id)

    def _note_missing(self, *, was_there: bool) -> None:
        if not self._missing and was_there:
            _log.warning(
                "topic %s was deleted, which has the announcements of the writers of %s: the watermark stands where it "
                "was until each of them has announced again, which creates the topic again", self.name, self._topic,
            )  # fmt: skip
        elif not self._missing:
            _log.warning(
                "topic %s does not exist: no writer of %s has announced a watermark yet, so there is none, and it "
                "stands where it was. Start a writer with announce_watermark (docs/between-jobs.md)",
                self.name, self._topic,
            )  # fmt: skip
        self._missing = True


def statements_of(batches: Iterable[ReadBatch]) -> Iterator[LoggedStatement]:
    """Yield what the records of a topic of announcements state, read with ``COLUMNS``."""
    for batch in batches:
        keys, values, offsets, times = batch.columns
        rows = zip(keys.to_pylist(), values.to_pylist(), offsets.to_pylist(), integers(times).tolist(), strict=True)
        for key, value, offset, micros in rows:
            written_at = Millis(micros // 1_000)
            try:
                yield LoggedStatement(offset, written_at, decoded(value))
            except CorruptDataError as error:
                writer = key.decode(errors="backslashreplace") if key else None
                yield LoggedStatement(offset, written_at, None, writer if is_name(writer) else None, str(error))


def with_known_partitions(records: Iterable[LoggedStatement], topic: Topic) -> tuple[LoggedStatement, ...]:
    """Return records with those refused that are about this topic, and name a partition that it does not have.

    No position would ever reach their cut.
    """
    known = {str(number) for number in topic.leaders}

    def checked(record: LoggedStatement) -> LoggedStatement:
        of = record.statement
        if not isinstance(of, Announcement) or of.topic != topic.id or of.ends.keys() <= known:
            return record
        unknown = listed(ascii(part) for part in sorted(of.ends.keys() - known))
        fault = f'"ends" names partition {unknown}, and the topic has {len(known)}: "0" is the first'
        return record._replace(statement=None, writer=of.writer, fault=fault)

    return tuple(checked(each) for each in records)
