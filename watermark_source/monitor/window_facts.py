"""The facts about a query with an open window: its sources, splits and batches. Pure.

The facts are those of a running query's status, or those of a checkpoint's files, which know less; ``open_windows``
decides from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watermark_source.durations import count_text
from watermark_source.planning.hold_kinds import HoldKind, Motion
from watermark_source.planning.holds import HeldBy, Hold
from watermark_source.planning.watermark import MAX, is_moment, watermark_text
from watermark_source.status_model.source_status import SourceStatus, SplitView, WriterView

_END = 2**62 // 1_000
"""Half of Spark's range of times, in milliseconds: a watermark beyond it is the end of time."""


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """Spark's watermark and that of the sources, which differ."""

    spark: int | None
    """Spark's watermark, which is ahead of theirs; ``None``: it has none, and no window closes."""
    sources: int | None
    """The watermark of the sources; ``None``: they have none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAt:
    """A query at one moment."""

    sources: tuple[SourceStatus, ...]
    foreign: tuple[str, ...] = ()
    """Sources of other projects, whose watermark is not known."""
    batch: int | None
    """The last batch that was committed or planned; ``None`` before the first."""
    applied: int | None
    """The watermark up to which operators have emitted windows in committed batches."""
    committed: int | None = None
    """The watermark that Spark has committed for its next batch."""
    planned: int | None = None
    """The watermark of a batch that is planned and not committed; ``None`` without one, or if it has none."""
    takes_highest: bool = False
    """Whether Spark takes the highest watermark of several sources instead of the lowest."""
    unfollowed: Unfollowed | None = None
    """Both watermarks if Spark's is not that of the sources; ``None`` if it is."""
    waits_for_rows: bool = False
    """Whether Spark makes no batch without rows (``noDataMicroBatches``)."""
    running: int | None = None
    """For how many milliseconds the batch under way has been running, if one is."""
    waits_for_trigger: bool = False
    """Whether the next batch begins at the interval of the trigger."""
    has_ended: bool = False
    """Whether the query does not run any more, or its run reads no more rows."""
    knows_options: bool = True
    """Whether an absent ``idle_timeout`` is an absent option. A checkpoint does not hold the options."""
    remarks: tuple[str, ...] = ()

    @property
    def sent(self) -> int | None:
        """The watermark of the sources of this project together; ``None`` while one that counts has none."""
        known = [source.watermark for source in self.sources]
        if self.takes_highest:
            return max((mark for mark in known if mark is not None), default=None)
        return None if not known or None in known else min(mark for mark in known if mark is not None)


def reached(watermark: int | None, end: int) -> bool:
    """Return whether a watermark has passed the end of a window."""
    return watermark is not None and watermark >= end


def kind_at(view: SplitView, source: SourceStatus, target: int, end: int | None) -> HoldKind | None:
    """Return why a split has not passed a time; ``None`` if it has.

    Args:
        view: the split.
        source: its source.
        target: the time, milliseconds since 1970-01-01 UTC.
        end: the end of a window; ``None``: the time is that of the next window, whichever ends first, which records
            may have passed without any row of it.
    """
    if view.kind is HoldKind.LEFT_OUT:
        return HoldKind.LEFT_OUT
    # A batch may carry the watermark of its own rows, which those of the splits do not include yet.
    is_passed = reached(view.watermark, target) or reached(source.watermark, target)
    if source.processing_time or source.is_announced or is_passed:
        return None
    if end is None or view.watermark is None or not view.kind.is_caught_up:
        return view.kind
    waits_to_be_idle = view.kind.is_silence and timeout_of(view, source) is not None
    is_bound = reached(view.watermark + (source.out_of_orderness or 0), target) and not waits_to_be_idle
    return HoldKind.BOUND if is_bound else view.kind


def writer_at(writer: WriterView, source: SourceStatus, target: int) -> HoldKind | None:
    """Return why a writer that announces watermarks has not passed a time; ``None`` if it has."""
    if writer.kind is HoldKind.LEFT_OUT:
        return HoldKind.LEFT_OUT
    return None if reached(writer.watermark, target) or reached(source.watermark, target) else writer.kind


def timeout_of(view: SplitView, source: SourceStatus) -> int | None:
    """Return how long a split must be quiet to be left out."""
    return source.idle_timeout if view.idle_after is None else view.idle_after


def moves_without_quiet(source: SourceStatus, target: int, end: int | None) -> bool:
    """Return whether the watermark passes a time once the splits with nothing to read are left out."""
    kinds = {kind_at(view, source, target, end) for view in source.splits}
    left_out = (view for view in source.splits if view.kind is HoldKind.LEFT_OUT)
    has_others = any(kind is None or kind.motion not in (Motion.LACKS_ROWS, Motion.APART) for kind in kinds)
    return has_others or any(reached(view.watermark, target) for view in left_out)


def holds_at(source: SourceStatus, target: int, end: int | None) -> Iterator[Hold]:
    """Yield what holds a source below a time, one of each kind."""
    is_last, seen = not moves_without_quiet(source, target, end), set[HoldKind]()
    for view in sorted(source.splits, key=lambda v: v.split):
        kind = kind_at(view, source, target, end)
        if kind is None or kind is HoldKind.LEFT_OUT or kind in seen:
            continue
        seen.add(kind)
        yield Hold(
            name=str(view.split),
            kind=kind,
            watermark=view.watermark,
            lag=view.lag,
            quiet=view.quiet,
            timeout=timeout_of(view, source),
            is_last=is_last,
            began_behind=kind is HoldKind.NEVER and any(hold.began_behind for hold in source.slowest),
            why=view.why,
        )
    if source.unannounced is not None:
        yield from source.slowest
    for writer in source.writers:
        writes = writer_at(writer, source, target)
        if writes is not None and writes is not HoldKind.LEFT_OUT:
            quiet = None if writer.since is None else source.at - writer.since
            yield Hold(by=HeldBy.WRITER, name=writer.name, kind=writes, quiet=quiet, why=writer.why)
            return


def unfollowed(spark: int | None, sent: Sequence[int | None], *, takes_highest: bool) -> Unfollowed | None:
    """Return that Spark's watermark is not that of the sources; ``None`` if it is.

    Args:
        spark: the watermark that Spark has for a batch; ``None``: none.
        sent: the watermark of each source as of the batch before; ``None``: it had none.
        takes_highest: whether Spark takes the highest watermark of several sources instead of the lowest.
    """
    known = [watermark for watermark in sent if watermark is not None]
    highest = max(known, default=None)
    if not sent or (highest is not None and (not is_moment(highest) or highest <= 0)):
        return None
    if spark is None:
        if len(known) < len(sent):
            return None
        lowest = max(known) if takes_highest else min(known)
        return Unfollowed(None, lowest) if is_moment(lowest) and lowest > 0 else None
    return Unfollowed(spark, highest) if is_moment(spark) and (highest is None or spark > highest) else None


def time_text(watermark: int | None) -> str:
    """Return a time as UTC, without milliseconds that are zero."""
    if watermark is None or not is_moment(watermark) or watermark > _END:
        return watermark_text(MAX if watermark is not None and watermark > _END else watermark)
    return f"{watermark_text(watermark).removesuffix('.000')} UTC"


def names_text(names: Sequence[str], most: int = 3) -> str:
    """Return names as a list; of many the first ``most``, and how many more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {count_text(len(names) - most)} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
