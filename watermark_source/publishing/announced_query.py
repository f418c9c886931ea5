"""Announces the output watermark of a running query, from a thread beside the query.

The thread polls the number of the last committed batch, ever less often the longer there is no new one; a listener
would have to be served by the session's event bus, which delays events and may drop them. After a batch it reads the
output watermark, and has each target announce it. It never holds the query up, and where it is slower than the batches
only the newest is announced.

Once all sources of the query are idle and a trigger has started no batch, it announces that readers need not wait, to
targets that can (``Target.can_rest``). It takes that back before the next batch has written, as far as it can without
holding the query up, and when it ends.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql.streaming import StreamingQuery

from watermark_source.durations import ACCEPTED, parse_duration
from watermark_source.errors import ResponseTimeoutError, SourceError, UsageError, WatermarkSourceError
from watermark_source.planning.watermark import LAST_MOMENT, MAX, MIN, Millis, watermark_text
from watermark_source.publishing.polls import Polls
from watermark_source.publishing.rest import MOST_INTERVAL_MS, awaited_text, is_at_rest, rest_text
from watermark_source.publishing.target import Announced, Target, need_name
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    OutputWatermark,
    Why,
    executed_batch,
    execution_of,
    has_begun_another,
    output_after,
    output_of,
    read_watermarks,
    trigger_interval,
)

_log = logging.getLogger(__name__)

_KEPT_EVENTS: Final = "spark.sql.streaming.numRecentProgressUpdates"
_ACTIVE_S: Final = 1.0
"""Seconds between two requests whether the query has ended."""
_AT_REST_S: Final = 0.1
"""Longest pause while readers do not wait for the query: they are to hear of its next batch before its rows."""
_FAILED_S: Final = 0.1
"""Pause after the first failure in a row; twice as long after each further one."""
_LONGEST_PAUSE_S: Final = 30.0
_FLUSH_S: Final = 60.0
_STOP_S: Final = 10.0
_WITHOUT_S: Final = 60.0
"""A query without a watermark is named in the log after this time."""
_AWAITED: Final = "announces no watermark for now, and its readers wait"
_NOT_AWAITED: Final = (
    "announces no watermark for now, and its readers may not wait for it: rows that it writes meanwhile may be late"
)
FOR_GOOD: Final = frozenset({Why.COMPLETE_MODE, Why.NO_PROMISE, Why.FOREIGN_SOURCE})
"""What no later batch changes."""


def announced_query(
    query: StreamingQuery, targets: Sequence[Target], writer: str, hold: str | int | None
) -> AnnouncedQuery:
    """Announce the watermark of a query to targets from now on.

    Args:
        query: a running query of a Spark Classic session.
        targets: where it is announced.
        writer: name of the query, unique among the writers of each target.
        hold: by how much the announced watermark is lower, as a duration or in milliseconds.

    Raises:
        UsageError: an argument is not accepted, or the query can have no output watermark.
        WatermarkSourceError: what a target's ``prepare`` raises.
    """
    need_name(writer)
    held = hold_of(hold)
    kept = execution_of(query).sparkSession().conf().get(_KEPT_EVENTS, "100")
    if int(kept) <= 1:
        raise UsageError(
            f"{_KEPT_EVENTS} is {kept}, with which Spark keeps no progress event, and none of its batches is seen; "
            f'write .config("{_KEPT_EVENTS}", "100")'
        )
    # In this order: a batch that ends in between is the newer one of the two only where that is allowed for.
    progress = query.lastProgress
    found = output_of(read_watermarks(query), progress, is_bounded=held is not None)
    if isinstance(found, NoWatermark) and found.why in FOR_GOOD:
        raise UsageError(f"query {query.name or query.id} cannot announce a watermark: {found}. {advice(found)}")
    announced = AnnouncedQuery(query, targets, writer, held)
    announced.start()
    return announced


def hold_of(hold: str | int | None) -> int | None:
    """Return a hold in milliseconds; raises ``UsageError``."""
    try:
        millis = parse_duration(hold) if isinstance(hold, str) else hold
    except ValueError:
        millis = -1
    if millis is None or (type(millis) is int and millis >= 0):
        return millis
    raise UsageError(
        f'hold = {hold!r}: expected milliseconds as an int, or a duration: {ACCEPTED}, for example "10 minutes"'
    )


def advice(found: NoWatermark) -> str:
    """Return what a user can do where no later batch has a watermark."""
    if found.why is Why.COMPLETE_MODE:
        return 'Write with outputMode("append") or outputMode("update")'
    if found.why is Why.FOREIGN_SOURCE:
        return (
            "Read with sources that have a watermark of their own, or drop late rows by a stateful operator, "
            "for example dropDuplicatesWithinWatermark"
        )
    return (
        'If you know how far behind the watermark its rows can be, state it, for example hold="10 minutes"; for '
        "transformWithState, name eventTimeColumnName"
    )


def to_announce(found: Millis, lower: int, last: Millis | None) -> Millis:
    """Return what is announced for an output watermark, so many milliseconds lower: never lower than before, for that
    was promised. Pure."""
    if found == MAX:
        return found
    # A row of no time that readers accept, such as one beyond the year 9999, must not stop the announcements.
    lowered = min(max(found - lower, MIN + 1), LAST_MOMENT)
    return Millis(lowered if last is None else max(lowered, last))


@dataclass(slots=True)
class TimeWithoutWatermark:
    """For how long the batches of a query have had no watermark."""

    since: float | None = None
    is_named: bool = False

    def due(self, found: OutputWatermark, now: float) -> float | None:
        """Return the seconds without a watermark for a warning: once, after a minute."""
        if not isinstance(found, NoWatermark):
            self.since = None
            return None
        self.since = now if self.since is None else self.since
        if self.is_named or now - self.since <= _WITHOUT_S:
            return None
        self.is_named = True
        return now - self.since


class AnnouncedQuery:
    """A query whose watermark is announced, until ``stop`` or the query's own end."""

    def __init__(self, query: StreamingQuery, targets: Sequence[Target], writer: str, hold: int | None) -> None:
        self._query = query
        self._handle: Any = query._jsq  # noqa: SLF001 - Spark Connect was refused
        self._id = str(query.id)
        self._targets = targets
        self._writer = writer
        self._hold = hold
        self._changed = threading.Condition()
        self._done: int | None = None
        """The last batch that was announced, or has nothing to announce."""
        self._trouble: WatermarkSourceError | None = None
        """What keeps the newest batch from being announced."""
        self._warned: set[str] = set()
        self._without = TimeWithoutWatermark()
        self._watermarks: BatchWatermarks | None = None
        """As they were read last: what does not change is not read again."""
        self._examined: str | None = None
        """Which progress event was last examined for whether the query is at rest."""
        self._has_rested = False
        """Whether it was logged what becomes of idleness."""
        self._is_wanted = False
        """Whether a caller waits for the last batch, so that the next poll is due."""
        self._stopped = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"watermarks of {writer}", daemon=True)

    def start(self) -> None:
        """Prepare the targets, and begin."""
        for each in self._targets:
            each.prepare(self._writer, self._id)
        self._thread.start()

    @property
    def announced(self) -> Mapping[str, Announced | None]:
        """The last announcement of this query for each topic or table, by its name; ``None``: none yet."""
        return {each.name: each.last for each in self._targets}

    def flush(self, timeout: float = _FLUSH_S) -> None:
        """Wait until the last committed batch is announced, as at the end of a run that ends by itself.

        Raises:
            UsageError: the query can have no output watermark, or ``stop`` was called before the last batch.
            SourceError: the last batch was not announced within ``timeout`` seconds; the message has the reason.
        """
        batch = self._committed()
        if batch is None:
            return
        with self._changed:
            self._is_wanted = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_done(batch) or isinstance(self._trouble, UsageError) or self._ended, timeout
            )
            trouble = self._trouble
        if trouble is not None and not self._is_done(batch):
            raise trouble
        if not self._is_done(batch) and self._ended:
            raise UsageError(
                f"the watermark of batch {batch} is not announced, because stop() was called before; call flush() "
                "before stop(), and to have it announced now, call the function again that returned this"
            )
        if not self._is_done(batch):
            raise ResponseTimeoutError(
                f"the watermark of batch {batch} was not announced within {timeout:g} s; allow more time: "
                "flush(timeout=300)"
            )

    def stop(self, timeout: float = _STOP_S) -> None:
        """Announce the last committed batch if that works within ``timeout`` seconds, and end. The query continues."""
        if self._thread.is_alive():
            try:
                self.flush(timeout)
            except WatermarkSourceError as error:
                _log.warning("writer %s: the last batch is not announced: %s", self._writer, error)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _is_done(self, batch: int) -> bool:
        return self._done is not None and self._done >= batch

    def _committed(self) -> int | None:
        """Return the number of the last committed batch; few and short calls to Spark's driver process."""
        progress = self._handle.lastProgress()
        if progress is None:
            return None
        batch = int(progress.batchId())
        if self._is_done(batch):
            return batch
        # As ``executed_batch``, without the event's whole JSON.
        batch -= not progress.durationMs().containsKey("addBatch")
        return batch if batch >= 0 else None

    # On the thread.

    def _run(self) -> None:
        failures, asked_at, is_active = 0, -_ACTIVE_S, True
        polls = Polls(time.monotonic())
        try:
            while not self._stopped:
                # In this order: a query that has ended has no later batch.
                if time.monotonic() - asked_at >= _ACTIVE_S:
                    asked_at, is_active = time.monotonic(), self._is_active()
                before = self._done
                is_done = self._step(is_active=is_active)
                failures = 0 if is_done else failures + 1
                if not is_active and (is_done or isinstance(self._trouble, UsageError)):
                    break
                now = time.monotonic()
                polls = polls.after(now, is_new=self._done != before)
                pause = polls.pause(now) if is_done else min(_LONGEST_PAUSE_S, _FAILED_S * 2.0 ** min(failures, 10))
                pause = min(pause, _AT_REST_S) if self._is_announced_idle else pause
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._is_wanted, pause)
                    self._is_wanted = False
        finally:
            for each in self._targets:
                try:
                    each.end(has_ended=not self._is_active())
                except Exception as error:  # noqa: BLE001 - the client library's: the thread ends in order
                    self._warn(error)
                each.close()
            atexit.unregister(self.stop)
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _is_active(self) -> bool:
        try:
            return bool(self._query.isActive)
        except (Py4JNetworkError, ConnectionError):
            return False

    def _step(self, *, is_active: bool) -> bool:
        """Announce what is due; false if it has to be tried again."""
        try:
            return self._announce_due(is_active=is_active)
        except WatermarkSourceError as error:
            self._note_trouble(error)
        except (Py4JNetworkError, ConnectionError):
            _log.info("writer %s announces no more: Spark's driver process has ended", self._writer)
            self._stopped = True
        except Exception as error:  # noqa: BLE001 - the client library's: the query must not be disturbed
            self._warn(error)
            for each in self._targets:
                each.close()
        return False

    def _announce_due(self, *, is_active: bool) -> bool:
        """Announce what is due after the last committed batch; false if a part has to be tried again."""
        batch = self._committed()
        if batch is None:
            return True
        is_done, is_sent = self._is_done(batch), True
        if self._is_announced_idle and (not is_done or not is_active or has_begun_another(self._query, batch)):
            # Before the batch is announced, which may fail: until then readers do not wait.
            is_sent = self._send_each(self._targets, lambda each: each.end_rest()) is None
            if is_sent:
                _log.info("writer %s: its readers wait for it again", self._writer)
        elif is_done:
            is_sent = self._begin_rest(batch)
        if is_done:
            return is_sent
        trouble = self._announce_last(batch, is_active=is_active)
        self._note_trouble(trouble)
        # Where Spark plans the batch after, the next poll asks again: nothing has failed.
        return is_sent and trouble is None

    def _note_trouble(self, trouble: WatermarkSourceError | None) -> None:
        with self._changed:
            self._trouble = trouble
            self._changed.notify_all()
        if trouble is not None:
            self._warn(trouble)

    @property
    def _is_announced_idle(self) -> bool:
        """Whether readers may know that they need not wait."""
        return any(each.maybe_idle is not None for each in self._targets)

    def _send_each(self, targets: Sequence[Target], announce: Callable[[Target], None]) -> WatermarkSourceError | None:
        """Announce something to targets; return what keeps it back from one of them.

        A target that is away, or was deleted, keeps nothing from the readers of the others.
        """
        trouble: WatermarkSourceError | None = None
        for each in targets:
            try:
                announce(each)
            except WatermarkSourceError as error:
                trouble = trouble or error
                self._warn(error)
        if trouble is None:
            self._note_success()
        return trouble

    def _begin_rest(self, batch: int) -> bool:
        """Announce that readers need not wait, if the query is idle after a batch: where that fails, again with each
        event of Spark's that shows it. False if it failed."""
        awaited = [each for each in self._targets if each.can_rest(batch)]
        event = self._handle.lastProgress() if awaited else None
        if event is None or event.timestamp() == self._examined:
            return True
        self._examined, progress = event.timestamp(), json.loads(event.json())
        # A run that ends by itself has none: its readers wait for the next one.
        interval = trigger_interval(self._query)
        if interval is None or not is_at_rest(progress, batch) or not self._query.isActive:
            return True
        if interval > MOST_INTERVAL_MS:
            self._log_rest(awaited_text(interval))
            return True
        trouble = self._send_each(awaited, lambda each: each.begin_rest(lambda: has_begun_another(self._query, batch)))
        if not all(each.can_rest(batch) for each in awaited):
            self._log_rest(rest_text(progress))
        # Behind the producer's, so that it is called first: what is taken back needs no other connection.
        atexit.unregister(self.stop)
        atexit.register(self.stop)
        return trouble is None

    def _log_rest(self, effect: str) -> None:
        # Once as a warning: a query may be idle every few minutes.
        level, self._has_rested = logging.INFO if self._has_rested else logging.WARNING, True
        _log.log(
            level, "writer %s: all sources of its query are idle, and readers of its announcements %s",
            self._writer, effect,
        )  # fmt: skip

    def _announce_last(self, batch: int, *, is_active: bool) -> WatermarkSourceError | None:
        began = time.monotonic()
        # In this order, as in ``announced_query``. The event's whole JSON costs as much as two polls.
        sources: Sequence[Mapping[str, Any]] = ()
        if self._watermarks is None or self._watermarks.depends_on_sources:
            progress = self._query.lastProgress
            assert progress is not None
            batch, sources = executed_batch(progress) or batch, progress["sources"]
        found: OutputWatermark | BatchWatermarks = read_watermarks(self._query, self._watermarks, only_last=True)
        if found == NoWatermark(Why.PLANNING) and not is_active:
            # The query ended while it planned the batch after: what an earlier one stated is as true, and less.
            found = self._watermarks or NoWatermark(Why.NO_BATCH)
        if isinstance(found, BatchWatermarks):
            self._watermarks = found
            found = output_after(found, batch, sources, is_bounded=self._hold is not None)
        if found == NoWatermark(Why.NO_BATCH) or (found == NoWatermark(Why.PLANNING) and not is_active):
            # An earlier run committed it, and nothing is there to be asked for its watermark.
            for each in self._targets:
                if each.last is None or each.last.batch < batch:
                    _log.warning(
                        "writer %s did not announce batch %d for %s before its last end, and its readers wait for the "
                        "next batch", self._writer, batch, each.name,
                    )  # fmt: skip
            with self._changed:
                self._done = batch
            return None
        if found == NoWatermark(Why.PLANNING):
            # A moment later the plan can be read.
            return None
        if isinstance(found, NoWatermark) and found.why is not Why.NO_WATERMARK:
            kind = UsageError if found.why in FOR_GOOD else SourceError
            return kind(
                f"batch {batch} has no watermark: {found}. {advice(found) if kind is UsageError else ''}".rstrip()
            )
        if (waited := self._without.due(found, began)) is not None:
            _log.warning(
                "writer %s: the query has had no watermark for %.0f s, so its readers wait: see why(query). A split "
                'without a row holds it: .option("idleTimeout", "30 seconds"); or a source has none '
                "(watermarkStrategy=none)",
                self._writer, waited,
            )  # fmt: skip
        trouble = self._send_each(self._targets, lambda each: self._announce(each, found, batch, began))
        if trouble is None:
            with self._changed:
                self._done = batch
        return trouble

    def _announce(self, target: Target, found: OutputWatermark, batch: int, began: float) -> None:
        """Announce a batch to one target, unless that was done."""
        last = target.last
        if last is not None and last.batch > batch:
            self._warn_once(
                "restored",
                "writer %s has announced batch %d of this checkpoint before, and is at batch %d now: the checkpoint "
                "was restored, or another copy of the query runs. It announces again after batch %d",
                last.batch, batch, last.batch,
            )  # fmt: skip
            return
        if last is not None and last.batch == batch and last.watermark is not None:
            # Of a try before: with the same batch the same was announced.
            return
        before = None if last is None else last.watermark
        lower = target.rest + (self._hold or 0)
        watermark = before if isinstance(found, NoWatermark) else to_announce(found, lower, before)
        target.announce(self._writer, self._id, batch, watermark)
        _log.debug(
            "writer %s announced %s for %s after batch %d, in %.0f ms",
            self._writer, watermark_text(watermark), target.name, batch, (time.monotonic() - began) * 1_000,
        )  # fmt: skip

    def _note_success(self) -> None:
        if self._warned:
            _log.info("writer %s announces watermarks again", self._writer)
            self._warned.clear()

    def _warn(self, error: Exception) -> None:
        effect = _NOT_AWAITED if self._is_announced_idle else _AWAITED
        kind = f"{effect} {type(error).__name__} {re.sub(r'[0-9]+', '', str(error))}"
        unknown = None if isinstance(error, WatermarkSourceError) else error
        self._warn_once(kind, "writer %s %s; the query continues: %s", effect, error, unknown=unknown)

    def _warn_once(self, kind: str, text: str, *values: object, unknown: Exception | None = None) -> None:
        """Log each kind of trouble once, until an announcement succeeds."""
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning(text, self._writer, *values, exc_info=unknown)
