"""What the splits and writers of a source do for a time, in English: the clauses of ``why_open``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.window_facts import kind_at, names_text, reached, time_text, writer_at
from watermark_source.planning.holds import LACKING, HoldKind
from watermark_source.planning.watermark import MIN
from watermark_source.status_model.source_status import SourceStatus, SplitView, Status


class _Window(NamedTuple):
    """A window and a source that it waits for."""

    source: SourceStatus
    base: int | None
    """The time that splits are behind of: the window's end, or the highest watermark of the source."""


def clauses(source: SourceStatus, target: int, end: int | None) -> Iterator[str]:
    """Yield what holds a source below a time, and what does not.

    Args:
        source: the source.
        target: milliseconds since 1970-01-01 UTC.
        end: of the window; ``None``: any that is open.
    """
    if source.processing_time:
        yield f"event time is the clock, and its watermark is {time_text(source.watermark)}"
        return
    tables = [snapshot.log for snapshot in source.snapshots if not snapshot.done]
    if tables or source.first_reading is not None:
        first = f"the snapshot of {names_text(tables)} is read first, and rows of a snapshot have no watermark"
        yield source.first_reading or first
        return
    if source.group is not None and source.group.hold:
        slowest = "" if source.group.slowest is None else f": the slowest source is {source.group.slowest}"
        yield f"its alignment group lets no source read yet{slowest}"
    if source.is_announced:
        yield from _writers(source, target)
        return
    yield from _splits(source, target, end)


def _splits(source: SourceStatus, target: int, end: int | None) -> Iterator[str]:
    if not source.splits:
        yield "it has no split yet"
    held: dict[HoldKind | None, list[SplitView]] = {}
    for split in source.splits:
        kind = kind_at(split, source, target, end)
        held.setdefault(HoldKind.UNDATED if kind in LACKING else kind, []).append(split)
    highest = max((s.watermark for s in source.splits if s.watermark is not None), default=None)
    window = _Window(source, highest if end is None else end)
    for kind in _CLAUSES:
        splits = held.get(kind)
        if splits and not (end is None and kind is None):
            yield _CLAUSES[kind](splits, window)
    if None in held and held.keys() <= {None, HoldKind.LEFT_OUT} and not reached(source.watermark, target):
        yield f"its watermark, {time_text(source.watermark)}, follows with the next batch"
    if more := source.splits_total - len(source.splits):
        yield f"{count_text(more)} more {source.words.split}s are not in the status"


def _passed(splits: Sequence[SplitView], _: _Window) -> str:
    return f"{names_text([str(s.split) for s in splits], most=2)} {_have(splits)}"


def _backlog(splits: Sequence[SplitView], at: _Window) -> str:
    lags = [s.lag for s in splits if s.lag is not None]
    records = f", with {count_text(sum(lags), 'record')} to read" if lags else ", with records to read"
    return f"{_subject(splits)} {_behind(splits, at.base)}{records}"


def _read(splits: Sequence[SplitView], at: _Window) -> str:
    was = "was" if len(splits) == 1 else "were"
    return f"{_subject(splits)} {_behind(splits, at.base)}, and {was} read to the end just now"


def _pending(splits: Sequence[SplitView], at: _Window) -> str:
    count = sum(s.unobserved for s in splits)
    records = "records" if any(s.backlog.uncounted for s in splits) else count_text(count, "record")
    if all(s.watermark is None for s in splits):
        return f"{_subject(splits)} {_have(splits)} {records} in the last batch, and had no watermark before it"
    return f"{_subject(splits)} {_behind(splits, at.base)} without the {records} of the last batch"


def _paused(splits: Sequence[SplitView], at: _Window) -> str:
    group = at.source.group
    elsewhere = "" if group is None or group.slowest is None else f"; the slowest other source is {group.slowest}"
    if all(s.watermark is None for s in splits):
        where = f"{_have(splits)} no watermark yet, and {'is' if len(splits) == 1 else 'are'}"
    else:
        where = f"{_behind(splits, at.base)} and"
    return f"{_subject(splits)} {where} paused by the alignment group: {splits[0].why}{elsewhere}"


def _open(splits: Sequence[SplitView], at: _Window) -> str:
    its = "its" if len(splits) == 1 else "their"
    return f"{_subject(splits)} {_behind(splits, at.base)}, and {its} next records are in a transaction that is open"


def _bound(splits: Sequence[SplitView], at: _Window) -> str:
    its = "its watermark is" if len(splits) == 1 else "their watermarks are"
    bound = format_duration(at.source.out_of_orderness or 0)
    return f"{_subject(splits)} {_have(splits)} records that late, and {its} maxOutOfOrderness ({bound}) behind them"


def _silent(splits: Sequence[SplitView], at: _Window) -> str:
    nothing = " and read to the end of this run" if splits[0].status is Status.FINISHED else ", with nothing to read"
    return f"{_subject(splits)} {_behind(splits, at.base)}{nothing}"


def _without(splits: Sequence[SplitView], _: _Window) -> str:
    return f"{_subject(splits)} {_have(splits)} no watermark: {splits[0].why}"


def _never(splits: Sequence[SplitView], at: _Window) -> str:
    if any(s.backlog.end != 0 for s in splits):
        return _without(splits, at)
    return f"{_subject(splits)} {_have(splits)} never had a record"


def _no_answer(splits: Sequence[SplitView], at: _Window) -> str:
    whose = "its log does" if len(splits) == 1 else "their logs do"
    return f"{_subject(splits)} {_behind(splits, at.base)}, and {whose} not answer"


def _left_out(splits: Sequence[SplitView], _: _Window) -> str:
    idle = "idle and " if all(s.status is Status.IDLE for s in splits) else ""
    behind = "" if idle else " until caught up with the watermark (idleReturn=pass)"
    return f"{_subject(splits)} {'is' if len(splits) == 1 else 'are'} {idle}left out{behind}"


_CLAUSES: Mapping[HoldKind | None, Callable[[Sequence[SplitView], _Window], str]] = {
    None: _passed,
    HoldKind.BACKLOG: _backlog,
    HoldKind.READ: _read,
    HoldKind.PENDING: _pending,
    HoldKind.PAUSED: _paused,
    HoldKind.OPEN_TRANSACTION: _open,
    HoldKind.SILENT: _silent,
    HoldKind.BOUND: _bound,
    HoldKind.UNDATED: _without,
    HoldKind.NEVER: _never,
    HoldKind.NO_ANSWER: _no_answer,
    HoldKind.LEFT_OUT: _left_out,
}
"""In the order of the sentence; ``None``: they have passed the time. Rows that lack something are one kind here."""


def _writers(source: SourceStatus, target: int) -> Iterator[str]:
    if source.unannounced is not None:
        yield source.unannounced
    at = {writer: writer_at(writer, source, target) for writer in source.writers}
    none_counts = all(kind is HoldKind.LEFT_OUT for kind in at.values())
    for writer, kind in at.items():
        if kind is None:
            yield f"writer {writer.name} has"
        elif kind is not HoldKind.LEFT_OUT:
            mark = "" if writer.watermark is None else f" is at {time_text(writer.watermark)}:"
            yield f"writer {writer.name}{mark or ':'} {writer.why}"
        elif none_counts:
            yield f"writer {writer.name} {writer.why}"
    if not source.writers and source.unannounced is None:
        yield "no writer has announced a watermark"


def _subject(splits: Sequence[SplitView]) -> str:
    """Return the names of splits, the furthest behind first."""
    worst = sorted(splits, key=lambda s: MIN if s.watermark is None else s.watermark)
    return names_text([str(view.split) for view in worst])


def _have(splits: Sequence[SplitView]) -> str:
    """Return the verb behind ``_subject``."""
    return "has" if len(splits) == 1 else "have"


def _behind(splits: Sequence[SplitView], base: int | None) -> str:
    """Return how far splits are behind a base, as a verb and what follows it."""
    marks = [s.watermark for s in splits if s.watermark is not None]
    verb = "is" if len(splits) == 1 else "are"
    if not marks:
        return f"{_have(splits)} no watermark yet"
    if base is None or min(marks) >= base:
        return f"{verb} at {time_text(min(marks))}"
    up_to = "up to " if len(splits) > 1 else ""
    return f"{verb} {up_to}{format_duration(base - min(marks))} behind"
