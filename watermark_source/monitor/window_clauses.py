"""What the splits and writers of a source do for a time, in English: the clauses of ``why_open``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.window_facts import kind_at, names_text, reached, time_text, writer_at
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.watermark import MIN
from watermark_source.status_model.hold_texts import ENGLISH
from watermark_source.status_model.source_status import SourceStatus, SplitView, Status


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
        first = ENGLISH[HoldKind.SNAPSHOT].clause.format(who=f"the snapshot of {names_text(tables)}", are="is")
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
        held.setdefault(kind_at(split, source, target, end), []).append(split)
    highest = max((s.watermark for s in source.splits if s.watermark is not None), default=None)
    base = highest if end is None else end
    if None in held and end is not None:
        yield "{two} {have}".format_map(_facts(held[None], source, base))
    for kind in HoldKind:
        for alike in _alike(kind, held.get(kind, ())):
            yield ENGLISH[kind].clause.format_map(_facts(alike, source, base))
    if None in held and held.keys() <= {None, HoldKind.LEFT_OUT} and not reached(source.watermark, target):
        yield f"its watermark, {time_text(source.watermark)}, follows with the next batch"
    if more := source.splits_total - len(source.splits):
        yield f"{count_text(more, f'more {source.words.split}')} {'is' if more == 1 else 'are'} not in the status"


def _alike(kind: HoldKind, splits: Sequence[SplitView]) -> Iterator[Sequence[SplitView]]:
    """Yield the splits of a kind of which one clause is true: without a record, some never had one."""
    had_one = [split for split in splits if kind is not HoldKind.NEVER or split.backlog.end]
    yield from filter(None, ([split for split in splits if split not in had_one], had_one))


def _facts(splits: Sequence[SplitView], source: SourceStatus, base: int | None) -> Mapping[str, str]:
    """Return what clauses state of splits; ``base``: the time that they are behind of."""
    is_one, group = len(splits) == 1, source.group
    furthest_first = sorted(splits, key=lambda split: MIN if split.watermark is None else split.watermark)
    marks = [split.watermark for split in furthest_first if split.watermark is not None]
    lags = [split.lag for split in splits if split.lag is not None]
    is_uncounted, is_over = any(s.backlog.uncounted for s in splits), splits[0].status is Status.FINISHED
    are, have = ("is", "has") if is_one else ("are", "have")
    first = furthest_first[0]
    is_same = all(split.why == first.why for split in splits)
    why = first.why if is_same else f"for example {first.split}: {first.why}"
    is_idle = all(split.status is Status.IDLE for split in splits)
    return {
        "who": names_text([str(split.split) for split in furthest_first]),
        "two": names_text([str(split.split) for split in splits], most=2),
        "are": are,
        "have": have,
        "were": "was" if is_one else "were",
        "their": "its" if is_one else "their",
        "watermarks_are": "its watermark is" if is_one else "their watermarks are",
        "logs_do": "its log does" if is_one else "their logs do",
        "and_are": " and" if marks else f", and {are}",
        "behind": _behind(marks, base, are) if marks else f"{have} no watermark yet",
        "lag": count_text(sum(lags), "record") if lags else "records",
        "pending": "records" if is_uncounted else count_text(sum(split.unobserved for split in splits), "record"),
        "why": why,
        "never": f"no watermark: {why}" if first.backlog.end else "never had a record",
        "elsewhere": f"; the slowest other source is {group.slowest}" if group and group.slowest else "",
        "nothing": " and read to the end of this run" if is_over else ", with nothing to read",
        "bound": format_duration(source.out_of_orderness or 0),
        "left_out": "idle and left out" if is_idle else "left out until caught up with the watermark (idleReturn=pass)",
    }


def _behind(marks: Sequence[int], base: int | None, are: str) -> str:
    """Return how far watermarks, the lowest first, are behind a base."""
    if base is None or marks[0] >= base:
        return f"{are} at {time_text(marks[0])}"
    return f"{are} {'up to ' if are == 'are' else ''}{format_duration(base - marks[0])} behind"


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
