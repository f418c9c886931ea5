"""What everybody asks of a query first, in four lines that are always there, in the same words in each view. Pure.

Who holds the watermark, why, and since when; when the next window closes; which option would change it; and which rows
are lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.errors import DataLossError, UnskippableLossError
from watermark_source.monitor.failure import Failure
from watermark_source.monitor.history import NO_HOLDER
from watermark_source.monitor.holder import Since, begin_text, holders_text, holding, since_text, slow_batch
from watermark_source.monitor.missing_rows import Missing, missing_rows
from watermark_source.monitor.three_clocks import DelayVerdict, Diagnosis, QueryClocks
from watermark_source.monitor.window_closing import Closing, closing_after_end, next_closing, silent_peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import NOTABLE, HeldBy, Hold
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import advice_of, ends_by_itself, holder_name, option_of
from watermark_source.status_model.source_status import SourceStatus, Status


class Fact(NamedTuple):
    """An answer: its title, and a sentence whose first words a view sets off."""

    title: str
    value: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.title}: {self.value}{self.about}"


_NO_OPTION: Final = "none is needed"
_NONE_HELPS: Final = "no option helps"
_WHILE_ROWS_COME: Final = f"{_NO_OPTION} while rows come"


class Seen(NamedTuple):
    """Facts about a running query beside its clocks, from those that followed it."""

    since: Since | None = None
    """Since when what holds its watermark has held it; ``None`` if unknown, or if nothing holds it."""
    until_read: int | None = None
    """In how many milliseconds nothing is unread at the present pace; ``None`` if unknown."""
    dropped: int = 0
    """Rows that its operators are known to have dropped as late."""


NOTHING_SEEN: Final = Seen()


def facts_of(of: QueryClocks, why: Diagnosis, seen: Seen, reason: str) -> tuple[Fact, ...]:
    """Return the facts about a running query.

    Args:
        of: its clocks.
        why: what ``diagnose`` found.
        seen: what else is known of it.
        reason: why results are late, where nothing holds them.
    """
    missing = tuple(missing_rows(of.sources))
    return (
        _held_by(of, why, seen.since, reason),
        _closing(next_closing(of, why, seen.until_read)),
        _option(of, why, missing),
        _lost(of, missing, seen.dropped),
    )


def facts_after_end(
    of: QueryClocks | None, at: int, now: int, *, batch: int | None, error: Failure | None, dropped: int = 0
) -> tuple[Fact, ...]:
    """Return the facts about a query that has ended.

    Args:
        of: its clocks, as its last batch left them; ``None`` if it had none.
        at: when it ended, milliseconds since 1970-01-01 UTC.
        now: the present.
        batch: the last one that it committed.
        error: what ended it; ``None`` if it was stopped.
        dropped: rows that its operators are known to have dropped.
    """
    held, ended = None if of is None else of.held, "ended" if error is None else "failed"
    then = "" if held is None else f"; {holders_text(held[0])} held the watermark then"
    when = f"the query {ended} at {short_time(at, now)} ({age_text(max(0, now - at))} ago)"
    return (
        Fact("Held by", NO_HOLDER, f"; {when}{then}"),
        _closing(closing_after_end(of, now)),
        _option_after_end(of, batch, error),
        _lost_by_end(of, error, dropped),
    )


def _option_after_end(of: QueryClocks | None, batch: int | None, error: Failure | None) -> Fact:
    again = "start the query again with its checkpoint location"
    if batch is not None:
        again += f": it continues with batch {count_text(batch + 1)}"
    if error is not None and error.own:
        if error.own == DataLossError.__name__:
            return Fact("Option", "failOnDataLoss", f", as the error states; then {again}")
        return Fact("Option", "see the error", f", which states what to do; then {again}")
    if error is not None:
        again = f"once the cause of the error is gone, {again}"
    if of is None:
        return Fact("Option", _NO_OPTION, f"; {again}")
    return _option(of, None, tuple(missing_rows(of.sources)), again)


def _lost_by_end(of: QueryClocks | None, error: Failure | None, dropped: int) -> Fact:
    none = Fact("Rows lost", "none", "; none was read")
    lost = none if of is None else _lost(of, tuple(missing_rows(of.sources)), dropped)
    if error is None:
        return lost
    if error.own in (DataLossError.__name__, UnskippableLossError.__name__):
        read = f", deleted before they were read; of those that were read: {lost.value}{lost.about}"
        return lost._replace(value="those that the error names", about=read)
    return lost._replace(about=f"{lost.about}; the batch that failed is repeated from the checkpoint")


def _closing(of: Closing) -> Fact:
    return Fact("Next window", of.when, of.about)


def _held_by(of: QueryClocks, why: Diagnosis, since: Since | None, reason: str) -> Fact:
    held, batch = of.held, slow_batch(of, why)
    if held is not None:
        source, hold = held
        who = holder_name(hold) if hold.by is HeldBy.SOURCE else holders_text(source)
        whose = f" of source {source.source_name}" if len(of.sources) > 1 else ""
        peer, is_silent = silent_peer(source, hold), hold.kind is HoldKind.SILENT
        # The reason of a silent one states a time of its own: two in one sentence are taken for each other.
        text = begin_text if is_silent or peer is not None else since_text
        long = "" if since is None else f" {text(since, of.at)}"
        first = f"{hold.name}: " if len(holding(source)) > 1 else ""
        if peer is not None:
            first += f"it has reported nothing for {age_text(peer.silent)}; "
        elif is_silent and hold.newest is not None:
            first += f"its newest record is from {short_time(hold.newest, of.at)}; "
        return Fact("Held by", who, f"{whose}{long}: {first}{hold.why}")
    if batch is not None:
        before = None if of.batch is None else of.batch.lasted
        took = "" if before is None else f"; the one before took {age_text(before)}"
        return Fact("Held by", batch.name, f", running {since_text(Since(batch.begin), batch.end)}{took}")
    if of.first_batch is not None:
        return Fact("Held by", "the first batch", f", running {since_text(Since(of.at - of.first_batch), of.at)}")
    if why.verdict is DelayVerdict.BATCH_SLOW:
        return Fact("Held by", "slow batches", f"; {reason}")
    return Fact("Held by", NO_HOLDER, f"; {reason or _apart(of)}")


def _apart(of: QueryClocks) -> str:
    """Return how far the partitions are apart that take turns."""
    if all(source.processing_time for source in of.sources):
        return "event time is the clock"
    if of.input_watermark is not None and not is_moment(of.input_watermark):
        return "the sources have ended"
    views = [view for source in of.sources for view in source.splits if view.status is not Status.IDLE]
    marks = [view.watermark for view in views if view.watermark is not None]
    if len(marks) < 2 or sum(s.splits_total for s in of.sources) > sum(len(s.splits) for s in of.sources):
        return f"all are within {age_text(NOTABLE)} of each other"
    spread = age_text(max(marks) - min(marks))
    return f"all {count_text(len(views), 'active partition')} are within {spread} of each other"


def _option(of: QueryClocks, why: Diagnosis | None, missing: Sequence[Missing], again: str = "") -> Fact:
    """Return which option would move the watermark on, and which would keep rows from being late.

    Args:
        of: the clocks of the query.
        why: its diagnosis; ``None`` of one that has ended.
        missing: its rows that are not where they should be.
        again: how to start one again that has ended.
    """
    held, value, about = of.held, _NO_OPTION, "" if why is None else _WITHOUT_HOLDER.get(why.verdict, "")
    if of.unfollowed is not None:
        value, about = _NONE_HELPS, "; the query has to follow the watermark of its sources"
    elif held is not None:
        value, about = _of_holder(*held, is_one=len(of.sources) == 1, has_ended=why is None)
    elif why is not None and why.verdict in (DelayVerdict.QUIET, DelayVerdict.ROWS_WAIT):
        silent = (source for source in of.sources if any(hold.kind.is_silence for hold in source.slowest))
        if to_do := "; ".join(map(advice_of, silent)):
            value, about = _WHILE_ROWS_COME, f": {to_do}"
    about += f"; {again}" if again else ""
    others = "; ".join(each.to_do for each in missing if each.to_do and each.to_do not in about)
    if others:
        value = f"{value} for the watermark" if value == _NO_OPTION else value
        about = f"{about}; for the rows below: {others}"
    return Fact("Option", value, about)


_WITHOUT_HOLDER: Final[Mapping[DelayVerdict, str]] = {
    DelayVerdict.BATCH_SLOW: "; Spark's UI shows what takes long, its tasks or the sink",
    DelayVerdict.TRIGGER: "; batches begin at the interval that the query's trigger has",
}


def _of_holder(source: SourceStatus, hold: Hold, *, is_one: bool, has_ended: bool) -> tuple[str, str]:
    to_do = advice_of(source)
    if not to_do or ends_by_itself(hold):
        # What ends while the query runs does so once it runs again.
        return _NO_OPTION, f"; {to_do}" if to_do and not has_ended else ""
    is_elsewhere = hold.by in (HeldBy.SOURCE, HeldBy.WRITER)
    value = option_of(hold, source.words) or (f"{_NO_OPTION} here" if is_elsewhere else _NONE_HELPS)
    has_no_later = hold.is_last if hold.kind.is_silence else hold.kind is HoldKind.LEFT_OUT and not hold.follows_group
    if has_no_later and not is_elsewhere:
        value = _NONE_HELPS if has_ended else _WHILE_ROWS_COME
    return value, f"{'' if is_one else f' for source {source.source_name}'}: {to_do}"


def _lost(of: QueryClocks, missing: Sequence[Missing], dropped: int) -> Fact:
    """Return how many rows no window has, as far as that is known.

    Operators count rows after they have combined those of a task, and a late row may still have had its window.
    """
    rows = [source.rows for source in of.sources]
    read, late, undated = sum(r.read for r in rows), sum(r.late.rows for r in rows), sum(r.undated for r in rows)
    found = []
    if of.unfollowed is not None and of.unfollowed.spark is not None:
        found.append("those behind Spark's own watermark")
    if dropped or late:
        found.append(f"at least {count_text(dropped)} dropped as late" if dropped else f"up to {count_text(late)} late")
    if undated:
        found.append(f"{count_text(undated)} undated")
    of_all = f"{',' if found else ''} of {count_text(read, 'row')} read"
    return Fact("Rows lost", ", ".join(found) or "none", "".join(f"; {each.why}" for each in missing) or of_all)
