"""Warnings of what in a plan may not be what the user wants: a watermark that stands or is of the future, late rows,
new splits and losses. ``status_model/watermark_warnings.py`` decides which are due and writes their texts.
"""

from __future__ import annotations

import logging
from itertools import groupby
from operator import attrgetter

from watermark_source.clock import Clock
from watermark_source.errors import listed
from watermark_source.planning.catch_up import is_done
from watermark_source.planning.generator import names_a_class
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.strategy import CLOCKS_DIFFER, WatermarkStrategy
from watermark_source.planning.watermark import LAST, MAX, MIN, Millis, is_moment, watermark_text
from watermark_source.spark.driver.status_from_plan import Seen, source_status
from watermark_source.spark.options import EngineOptions
from watermark_source.status_model.watermark_warnings import (
    Episode,
    LateSplit,
    Lead,
    Stand,
    Standing,
    clock_text,
    clocks_behind,
    end_text,
    future_text,
    late_text,
    lead,
    lead_text,
    moving_text,
    noted,
    reason_of,
    standing_text,
)
from watermark_source.words import NO_WORDS, Words

_log = logging.getLogger(__name__)

_FAR_FUTURE = 3_600_000
"""Milliseconds beyond the clock from which a watermark of the future is logged, where no cap holds it."""


_BY_OTHERS = (
    "No row of this source may move it so far (maxFutureSkew): another source of the alignment group did "
    "(idleFollows=group). Set maxFutureSkew there, too, and begin with a new checkpoint location"
)


def warn_of(
    state: SourceState, before: SourceState, now: Millis, max_future_skew: int | None, words: Words = NO_WORDS
) -> None:
    """Log warnings of a plan that led from the state ``before`` to ``state``, at ``now`` by the wall clock."""
    added = state.splits.keys() - before.splits.keys()
    # Writers announce a watermark of the rows of partitions that are found later, too.
    by_splits = not state.use_processing_time and state.announced is None
    if added and before.watermark is not None and by_splits:
        _log.warning(
            "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
            "watermark, %s, are late", listed(added), watermark_text(before.watermark),
        )  # fmt: skip
    if is_done(state.catch_up) and not is_done(before.catch_up):
        _log.info("the logs have been read to the ends that they had at the start")
    is_first = state.run > before.run
    stands = state.use_processing_time and before.watermark is not None and is_first
    if stands and before.watermark is not None and before.watermark > now + CLOCKS_DIFFER:
        _log.warning(
            "event time is the driver's clock, %s, and stands still at the checkpoint's, %s, until the clock has come "
            "there: rows are dated so, and no window closes. Set the clock, or start with a new checkpoint location",
            watermark_text(now), watermark_text(before.watermark),
        )  # fmt: skip
    watermark, soon = state.watermark, now + _far_future(max_future_skew)
    if watermark not in (LAST, MAX) and (before.watermark or MIN) <= soon < (watermark or MIN):
        _log.warning(
            "the watermark, %s, is more than an hour in the future: rows of now are late. %s",
            watermark_text(watermark),
            _future_cause(state, (watermark or MIN) - now, max_future_skew, words),
        )  # fmt: skip
    if is_first and not stands and before.watermark not in (None, LAST, MAX) and (before.watermark or MIN) > soon:
        _log.warning(
            "the checkpoint's watermark, %s, is more than an hour in the future: rows of now are late, and no window "
            "closes before rows with later event times come. %s",
            watermark_text(before.watermark),
            future_text(
                (before.watermark or MIN) - now, max_future_skew, words, is_announced=state.announced is not None
            ),
        )  # fmt: skip


def _future_cause(state: SourceState, ahead: int, max_future_skew: int | None, words: Words) -> str:
    is_announced = state.announced is not None
    if not is_announced and state.kept_by is not None and names_a_class(state.kept_by) and max_future_skew is None:
        return (
            f"Rows of the future, or watermarkStrategy {state.kept_by}, advanced it. Set maxFutureSkew, with which "
            "neither can. A watermark never goes back: begin with a new checkpoint location"
        )
    if not is_announced and max_future_skew is not None:
        return _BY_OTHERS
    return future_text(ahead, max_future_skew, words, is_announced=is_announced)


def _far_future(max_future_skew: int | None) -> int:
    """Return the milliseconds beyond the clock from which ``warn_of`` logs a watermark of the future."""
    return max(_FAR_FUTURE, max_future_skew or 0)


class WatermarkWarnings:
    """Logs what ``status_model.watermark_warnings`` decides; nothing where time is the clock, or without markers."""

    def __init__(self, options: EngineOptions, format_name: str, clock: Clock) -> None:
        self._options = options
        self._format_name = format_name
        self._clock = clock
        self._standing: Standing | None = None
        self._episode: Episode | None = None
        self._late_rows = 0
        self._late: set[Split] = set()
        """Splits whose late rows were warned of."""
        self._were_idle: set[Split] = set()
        self._were_added: set[Split] = set()
        self._ended = False
        self._set_back = False
        """Whether a clock was behind the watermark the last time that it was asked for."""
        self._lead: Lead | None = None
        self._warned_of_lead = False

    def note(self, seen: Seen, before: SourceState) -> None:
        """Take in a plan that began with the state ``before``."""
        state, options = seen.plan.state, self._options
        always_moves = options.policy.strategy.is_clock and options.policy.after_catch_up is None
        if not options.policy.sends_markers or always_moves or state.use_processing_time:
            return
        self._note_left_out(seen, before)
        self._warn_of_clocks(seen, before)
        if seen.counts.totals.late.rows != self._late_rows:
            self._late_rows = seen.counts.totals.late.rows
            self._warn_of_late_rows(seen, before.watermark)
        now, totals = self._clock.elapsed(), seen.counts.totals
        standing = self._standing or Standing(before.watermark, now, seen.counts.looked_again, before.watermark)
        standing = standing.at(state.watermark, totals.read, now, totals.late.rows)
        is_over = seen.plan.observation.logs.ends_are_final and not seen.plan.is_batch
        read = totals.read if state.watermark is None else totals.read - seen.counts.looked_again
        if is_over and not self._ended and standing.is_due_at_end(read):
            _log.warning("%s", end_text(self._stand(standing, now, seen), options.policy.max_future_skew))
        elif not is_over:
            self._warn_of_standing(standing, now, seen)
        self._warn_of_lead(seen, now, is_over=is_over)
        self._ended, self._standing = is_over, standing

    def _warn_of_standing(self, standing: Standing, now: Millis, seen: Seen) -> None:
        """Warn of a watermark that stands, once for each reason, then ever less often; and once it moves again."""
        patience, episode = self._options.watermark_warning_after, self._episode
        if standing.is_due(seen.counts.totals.read, now, patience):
            if episode is not None and episode.is_seen(standing, now, patience):
                return
            stand = self._stand(standing, now, seen)
            self._episode, warns = noted(episode, standing, reason_of(stand), now, patience)
            if warns:
                _log.warning("%s", standing_text(stand, self._options.policy.max_future_skew))
        elif episode is not None and episode.is_over(standing, now, patience):
            since = self._clock.wall() - (now - episode.since)
            _log.warning("%s", moving_text(standing.watermark, episode.stands, since))
            self._episode = None

    def _warn_of_lead(self, seen: Seen, now: Millis, *, is_over: bool) -> None:
        """Warn once of event times that are ahead as by a time zone, where ``warn_of`` does not."""
        options, watermark = self._options, seen.plan.state.watermark
        by_clock = self._ahead(watermark)
        if self._warned_of_lead or watermark is None or by_clock > _far_future(options.policy.max_future_skew):
            return
        ahead, patience = by_clock + (self._strategy(seen).behind_highest or 0), options.watermark_warning_after
        self._lead = lead(self._lead, watermark, ahead, now, patience) if by_clock else None
        if self._lead is not None and (is_over or self._lead.is_due(now, patience)):
            self._warned_of_lead = True
            _log.warning("%s", lead_text(ahead, 0 if is_over else now - self._lead.since, seen.words))

    def _note_left_out(self, seen: Seen, before: SourceState) -> None:
        """Note which splits' rows may be late because the watermark advanced without them."""
        state = seen.plan.state
        if before.watermark is not None and self._options.policy.strategy.has_split_watermarks:
            self._were_added |= state.splits.keys() - before.splits.keys()
        if self._options.policy.idleness.timeout is not None and seen.plan.has_rows:
            was, now = before.splits, state.splits
            self._were_idle |= {
                s for s, at in was.items()
                if at.status is SplitStatus.IDLE and s in now and now[s].status is not SplitStatus.IDLE
            }  # fmt: skip

    def _warn_of_clocks(self, seen: Seen, before: SourceState) -> None:
        """Warn once of each time that a clock which dates rows is behind the watermark."""
        policy, watermark, times = self._options.policy, before.watermark, seen.plan.observation.logs.times.reached
        if not times:
            return
        follows_group = policy.idleness.follows_group
        dating = {split: at for split, at in times.items() if policy.strategy.at_end(at) is not None}
        behind = clocks_behind(dating, watermark, follows_group=follows_group)
        if behind and watermark is not None and not self._set_back:
            _log.warning("%s", clock_text(behind, watermark, follows_group=follows_group))
        self._set_back = bool(behind)

    def _warn_of_late_rows(self, seen: Seen, watermark: Millis | None) -> None:
        idleness, timeouts = self._options.policy.idleness, seen.plan.observation.history.idle_timeouts
        found = [
            LateSplit(
                split,
                rows.late,
                split in self._were_idle,
                split in self._were_added,
                idleness.timeout_of(split, timeouts),
            )
            for split, rows in seen.counts.by_split.items()
            if rows.late.rows and split not in self._late
        ]
        self._late |= {each.split for each in found}
        strategy, skew = self._strategy(seen), self._options.policy.max_future_skew
        cause = attrgetter("was_idle", "was_added")
        for _, splits in groupby(sorted(found, key=cause), key=cause):
            _log.warning("%s", late_text(splits, strategy, seen.words, skew, self._ahead(watermark)))

    def _strategy(self, seen: Seen) -> WatermarkStrategy:
        """Return the strategy in force after a plan; ``note`` looks at none whose event time is the clock."""
        return self._options.policy.with_learned(seen.plan.state.learned).strategy

    def _ahead(self, watermark: int | None) -> int:
        """Return by how many milliseconds a watermark is ahead of the clock, 0 if it is not."""
        if watermark is None or not is_moment(watermark):
            return 0
        return max(0, watermark - self._clock.wall())

    def _stand(self, standing: Standing, now: Millis, seen: Seen) -> Stand:
        status = source_status(seen, self._options, self._format_name, self._clock.wall())
        lasted, totals = now - standing.since, seen.counts.totals
        return Stand(
            source=status,
            watermark=standing.watermark,
            since=status.at - lasted,
            lasted=lasted,
            rows=totals.read - standing.rows,
            late=totals.late.rows - standing.late,
            ahead=self._ahead(standing.watermark),
        )
