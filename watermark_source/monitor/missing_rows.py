"""Rows that windows have dropped, or have not counted, why, and the line to write. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.window_facts import names_text, timeout_of
from watermark_source.planning.watermark import is_moment
from watermark_source.status_model.hold_texts import wrong_time
from watermark_source.status_model.source_status import SourceStatus, SplitView
from watermark_source.status_model.watermark_warnings import future_text, option_line

_AHEAD: Final = 3_000_000
"""Milliseconds from which a watermark ahead of the clock is a wrong event time: the nearest zone's, less a delay."""
_KEEP_APART: Final = 'to keep them apart: .option("includeLate", "true")'


class Missing(NamedTuple):
    """Rows of this run that are not where they should be."""

    why: str
    """Which, and why, without a full stop."""
    to_do: str = ""
    """What to write or to check; empty where that is not known."""

    def __str__(self) -> str:
        return f"{self.why}: {self.to_do}" if self.to_do else self.why


def missing_rows(of: Sequence[SourceStatus]) -> Iterator[Missing]:
    """Yield which rows of this run windows have dropped, or have not counted."""
    for source in of:
        for found in _missing(source):
            yield found._replace(why=f"source {source.source_name}: {found.why}") if len(of) > 1 else found


def _missing(of: SourceStatus) -> Iterator[Missing]:
    ahead, rows = 0, of.rows
    if of.watermark is not None and is_moment(of.watermark):
        ahead = of.watermark - of.at
    if ahead > _AHEAD and not of.processing_time:
        far = future_text(ahead, None, of.words, is_announced=of.is_announced)
        yield Missing(f"rows of now are late: {far}")
    if rows.late.rows:
        yield _late_rows(of, is_ahead=ahead > _AHEAD)
    check = wrong_time(of.words)
    if rows.future:
        far = f"{_rows_text(rows.future)} too far in the future (maxFutureSkew), and moved no watermark"
        yield Missing(far, f"check the producer's clock, and {check}")
    if rows.undated:
        undated = count_text(rows.undated, "row")
        has, is_in = ("has", "is") if rows.undated == 1 else ("have", "are")
        yield Missing(f"{undated} of this run {has} no event time, and {is_in} in no window", check)
    if rows.malformed:
        yield Missing(f"{_rows_text(rows.malformed)} not as {of.words.payload}")


def _rows_text(n: int) -> str:
    return f"{count_text(n, 'row')} of this run {'is' if n == 1 else 'are'}"


def _late_rows(source: SourceStatus, *, is_ahead: bool) -> Missing:
    late = sorted((split for split in source.splits if split.late_rows), key=lambda s: -s.late_rows)
    of = f" of {names_text([str(split.split) for split in late])}" if late else ""
    rows, longest = count_text(source.rows.late.rows, "row"), format_duration(source.rows.late.longest)
    came = f"{rows}{of} came up to {longest} late in this run: windows, joins and deduplication drop such rows"
    if is_ahead:
        return Missing(came, _KEEP_APART)
    why, to_do = _why_late(source, late)
    return Missing(f"{came}. {why}", f"{to_do}; {_KEEP_APART}" if to_do else _KEEP_APART)


def _why_late(source: SourceStatus, late: Iterable[SplitView]) -> Missing:
    longest = source.rows.late.longest
    timeouts = [timeout_of(split, source) or 0 for split in late if split.times is not None and split.times.idle]
    if timeouts and source.idle_timeout is not None:
        option = option_line("idleTimeout", max(timeouts) + longest)
        why = "Partitions were idle in this run, and the watermark advanced without them"
        return Missing(why, option or _TOO_LONG)
    cause = source.late_cause
    if cause is None:
        return Missing("The log has the cause")
    if cause.option is None:
        return Missing(f"{cause.text}. {cause.hint}".removesuffix(". "))
    option = option_line(cause.option, cause.millis)
    price = f"{option}, with which windows close {format_duration(longest)} later" if option else _TOO_LONG
    return Missing(cause.text, price)


_TOO_LONG: Final = "that is long: check the event times first"
