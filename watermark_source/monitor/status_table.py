"""The status table as text cells: which columns fit a width, and their content. It does not use a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import NamedTuple

from watermark_source.durations import count_text, format_duration, format_seconds, share_text, unbroken
from watermark_source.errors import printable
from watermark_source.planning.watermark import is_moment, watermark_text
from watermark_source.status_model.source_status import (
    BoundInForce,
    SourceStatus,
    SplitView,
    Status,
    most_interesting,
    own_silence_text,
    progress_line,
    silence_text,
)

GAP = 2
"""Blanks between two columns."""
_WHY_AT_LEAST = 24


class TableColumn(NamedTuple):
    """A visible column, and its width in characters."""

    title: str
    width: int
    is_number: bool


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The table for one width."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[tuple[str, ...], ...], ...]
    """Of each split its cells in the order of ``columns``, each a list of lines."""
    hidden: int
    """Number of the source's splits that are not in the table."""


class _Context(NamedTuple):
    now: int
    raw: bool
    day: str | None
    """The day of all watermarks, which rows leave out; ``None`` if they have several days."""
    status: SourceStatus


class _Kind(NamedTuple):
    title: str
    cell: Callable[[SplitView, _Context], str]
    rank: int
    """Columns with a higher rank are dropped first if the width is too small."""
    is_number: bool = False


def _watermark_cell(view: SplitView, context: _Context) -> str:
    if context.status.processing_time:
        return "the clock"
    return _short(view.watermark, raw=context.raw, day=context.day)


def _short(watermark: int | None, *, raw: bool, day: str | None) -> str:
    """Return a watermark's text without the given day."""
    text = watermark_text(watermark, raw=raw)
    return text if day is None else text.removeprefix(f"{day} ")


def _ago(millis: int) -> str:
    # The driver's clock may be ahead of the reader's.
    return "now" if millis < 1_000 else f"{format_seconds(millis)} ago"


def _drift_cell(view: SplitView) -> str:
    if not view.drift:
        return "" if view.drift is None else "0"
    sign = "+" if view.drift > 0 else ""
    return f"{sign}{format_duration(view.drift)}"


def _holds_back_cell(view: SplitView, context: _Context) -> str:
    if not view.holds_back:
        return ""
    waiting = context.status.counts.get(Status.PAUSED, 0)
    return f"yes, {waiting} wait{'s' if waiting == 1 else ''}" if waiting else "yes"


_ONLY_IF_ANY = "looked ahead"
_KINDS = (
    _Kind("partition", lambda view, _: str(view.split), 0),
    _Kind("position", lambda view, _: count_text(view.backlog.position), 9, is_number=True),
    _Kind("end", lambda view, _: "?" if view.backlog.end is None else count_text(view.backlog.end), 8, is_number=True),
    _Kind("lag", lambda view, _: "?" if view.lag is None else count_text(view.lag), 5, is_number=True),
    _Kind("watermark", _watermark_cell, 2),
    _Kind("status", lambda view, _: view.status.name, 1),
    _Kind("since", lambda view, of: "" if view.since is None else _ago(of.now - view.since), 7, is_number=True),
    _Kind("why", lambda view, _: view.why, 3),
    _Kind("drift", lambda view, _: _drift_cell(view), 6, is_number=True),
    _Kind("looked ahead", lambda view, _: "" if view.looked_ahead is None else count_text(view.looked_ahead), 10, True),
    _Kind("holds back", _holds_back_cell, 4),
)


def split_cells(
    status: SourceStatus, views: Iterable[SplitView], titles: Iterable[str], *, now: int
) -> Iterator[list[str]]:
    """Yield the cells of splits in the columns with these titles, each on one line."""
    kinds = {kind.title: kind for kind in _KINDS}
    context = _Context(now, raw=False, day=None, status=status)
    return ([kinds[title].cell(view, context) for title in titles] for view in views)


def layout(
    status: SourceStatus, *, width: int, now: int | None = None, raw: bool = False, lines: int | None = None
) -> TableLayout:
    """Fit the table into ``width`` characters and, if given, ``lines`` lines.

    Columns are dropped in this order: position, end, since, drift, lag, holds back. ``why`` wraps. If there are too
    many splits, the most interesting ones remain. ``now`` is the reader's clock, by default the time of the report;
    ``raw`` shows watermarks as milliseconds.
    """
    context = _Context(status.at if now is None else now, raw, _common_day(status), status)
    ordered = most_interesting(status.splits, len(status.splits))
    cells = {kind: [printable(kind.cell(view, context)) for view in ordered] for kind in _KINDS}
    kinds, widths = _fitting(cells, width)
    wrapped = ([_lines(cell, w) for cell in cells[kind]] for kind, w in zip(kinds, widths, strict=True))
    rows = list(zip(*wrapped, strict=True))
    heights = accumulate(max(map(len, row)) for row in rows)
    fitting = [i for i, height in enumerate(heights) if lines is None or height <= lines]
    shown = sorted(fitting, key=lambda i: ordered[i].split)
    return TableLayout(
        columns=tuple(TableColumn(k.title, w, k.is_number) for k, w in zip(kinds, widths, strict=True)),
        rows=tuple(rows[i] for i in shown),
        hidden=status.splits_total - len(shown),
    )


def render_text(
    status: SourceStatus, *, width: int = 120, now: int | None = None, raw: bool = False, lines: int | None = None
) -> str:
    """Return headline and table as plain lines without control characters.

    Args:
        status: the source's status.
        width: characters of a line; the least important columns are dropped if they do not fit.
        now: the reader's clock, milliseconds since 1970-01-01 UTC, for ages; by default the time of the report.
        raw: whether to show watermarks as milliseconds.
        lines: limit on the lines in all, the headline included; the most interesting splits remain.
    """
    head = join_pieces(headline(status, now=now, raw=raw), width)
    # Three more lines: column titles, their rule, and the number of hidden splits.
    room = None if lines is None else max(1, lines - len(head) - 3)
    bars = snapshot_lines(status, width=width, lines=None if room is None else max(1, room // 2))
    shown = layout(status, width=width, now=now, raw=raw, lines=None if room is None else max(1, room - len(bars)))
    titles = _line([column.title for column in shown.columns], shown.columns)
    rule = "-" * (sum(column.width for column in shown.columns) + GAP * (len(shown.columns) - 1))
    rows = (_line(cells, shown.columns) for row in shown.rows for cells in zip_longest(*row, fillvalue=""))
    more = [f"and {count_text(shown.hidden)} more"] if shown.hidden else []
    return "\n".join([*head, *bars, titles, rule, *rows, *more])


def _line(cells: Sequence[str], columns: Sequence[TableColumn]) -> str:
    sized = (
        cell.rjust(column.width) if column.is_number else cell.ljust(column.width)
        for column, cell in zip(columns, cells, strict=True)
    )
    return (" " * GAP).join(sized).rstrip()


def counts_text(of: SourceStatus) -> str:
    """Return how many partitions a source has, and how many of them have each status."""
    counts = ", ".join(f"{count_text(n)} {status.name.lower()}" for status in Status if (n := of.counts.get(status, 0)))
    return f"{count_text(of.splits_total, of.words.split)}: {counts}" if counts else f"no {of.words.split}s"


def headline(status: SourceStatus, *, now: int | None = None, raw: bool = False) -> tuple[str, ...]:
    """Return the texts about the source as a whole, which ``join_pieces`` arranges into lines."""
    as_of = f"{watermark_text(status.at)} UTC" if now is None else _ago(now - status.at)
    name = printable(f"{status.source_name} ({status.format_name})")
    clock = status.at if now is None else now
    head = (name, _combined(status, raw=raw), f"as of {as_of}", *group_pieces(status, clock, raw=raw))
    lag = f"lag {'?' if status.lag is None else count_text(status.lag)}"
    return (*head, counts_text(status), lag, *row_pieces(status, clock))


def row_pieces(status: SourceStatus, now: int) -> Iterator[str]:
    """Yield what there is to say of the rows that were read: those that were late, undated or malformed."""
    if late := status.rows.late.rows:
        longest = format_duration(status.rows.late.longest)
        most = format_duration(status.rows.late.behind_at_most(0.99))
        share = share_text(status.late_share or 0)
        yield f"late rows: {count_text(late)} ({share}), 99 % by at most {most}, all by at most {longest}"
    if status.bound is not None:
        yield _bound(status.bound, now)
    if status.rows.future:
        yield f"rows too far in the future: {count_text(status.rows.future)}"
    if status.rows.undated:
        yield f"rows without an event time: {count_text(status.rows.undated)}"
    if status.rows.malformed:
        yield f"values or keys that do not fit their schema: {count_text(status.rows.malformed)}"


def _bound(of: BoundInForce, now: int) -> str:
    since = "" if of.since is None else f" for {format_seconds(now - of.since)}"
    wish = f"for at most {share_text(of.wish)} late, never more than {format_duration(of.most)}"
    return f"bound {format_duration(of.bound)}{since}, learned {wish}"


def snapshot_lines(status: SourceStatus, *, width: int, lines: int | None = None) -> list[str]:
    """Return a line with a bar for each snapshot. If not all fit, those that are being read take precedence."""
    ordered = sorted(status.snapshots, key=lambda snapshot: (snapshot.done, not snapshot.chunks))
    fits = len(ordered) if lines is None or len(ordered) <= lines else lines - 1
    visible = [snapshot for snapshot in status.snapshots if snapshot in ordered[:fits]]
    longest = max((len(snapshot.log) for snapshot in visible), default=0)
    text = [printable(progress_line(snapshot, min(longest, width // 3), width)) for snapshot in visible]
    return text if fits == len(ordered) else [*text, f"and {count_text(len(ordered) - fits)} more tables"]


def group_pieces(status: SourceStatus, now: int, *, raw: bool = False) -> Iterator[str]:
    """Yield what there is to say of a source's alignment group."""
    group = status.group
    if group is None:
        return
    limit = "no limit now"
    if group.limit is not None:
        limit = f"limit {_short(group.limit, raw=raw, day=_day(status.watermark))}"
    members = count_text(group.members, "member")
    others = f" and {count_text(group.others, 'other source')}" if group.others else ""
    drift = "" if group.max_drift is None else f", max drift {format_duration(group.max_drift)}"
    if group.max_drift_of is not None and group.own_max_drift is not None:
        drift += f" of {printable(group.max_drift_of)} (here {format_duration(group.own_max_drift)})"
    allowed = "nothing is read yet" if group.hold else limit
    store = "" if group.store is None else f", store {printable(group.store)}"
    yield f"group {printable(group.name)}: {allowed}{drift}, {members}{others}{store}"
    if group.slowest is not None:
        since = "" if group.since is None else f" for {format_duration(max(0, now - group.since))}"
        yield f"slowest elsewhere: {printable(group.slowest)}{since}"
    if group.trouble is not None:
        yield printable(group.trouble)
    for peer in group.silent:
        yield printable(silence_text(peer, group))
    if group.own_silence is not None:
        yield printable(own_silence_text(group.own_silence))


def join_pieces(pieces: Iterable[str], width: int) -> list[str]:
    """Arrange pieces side by side, in lines of at most ``width`` characters."""
    packed: list[str] = []
    for piece in pieces:
        if packed and len(packed[-1]) + 3 + len(piece) <= width:
            packed[-1] += f" | {piece}"
        else:
            packed.extend(_lines(piece, width))
    return packed


def _combined(status: SourceStatus, *, raw: bool) -> str:
    unit = " UTC" if is_moment(status.watermark) and not raw else ""
    if status.processing_time:
        clock = "" if status.watermark is None else f", {watermark_text(status.watermark, raw=raw)}{unit}"
        return f"watermark follows the clock{clock}"
    if status.watermark is None:
        return "no watermark yet"
    return f"watermark {watermark_text(status.watermark, raw=raw)}{unit}"


def _common_day(status: SourceStatus) -> str | None:
    """Return the day that all watermarks share, the combined one in the headline included."""
    marks = {view.watermark for view in status.splits if view.watermark is not None} | {status.watermark}
    days = {_day(mark) for mark in marks}
    return days.pop() if len(days) == 1 else None


def _day(watermark: int | None) -> str | None:
    day, _, time = watermark_text(watermark).partition(" ")
    return day if ":" in time else None


def _fitting(cells: dict[_Kind, list[str]], width: int) -> tuple[list[_Kind], list[int]]:
    """Return the columns that fit and their widths. Empty columns are dropped first."""
    cells = {kind: column for kind, column in cells.items() if kind.title != _ONLY_IF_ANY or any(column)}
    natural = {kind: max(map(len, [kind.title, *column])) for kind, column in cells.items()}
    shown = list(cells)
    least = {kind: min(n, _WHY_AT_LEAST) if kind.title == "why" else n for kind, n in natural.items()}

    def spare() -> int:
        return width - sum(least[kind] for kind in shown) - GAP * (len(shown) - 1)

    while spare() < 0 and len(shown) > 1:
        shown.remove(max(shown, key=lambda kind: (kind.rank > 0 and not any(cells[kind]), kind.rank)))
    room = spare()
    widths = [max(1, least[kind] + min(room, natural[kind] - least[kind])) for kind in shown]
    return shown, widths


def _lines(text: str, width: int) -> tuple[str, ...]:
    joined = unbroken(text)
    wrapped = textwrap.wrap(joined, width, break_on_hyphens=False)
    return tuple(line.replace("\u00a0", " ") for line in wrapped) or ("",)


def text_table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Set[str] = frozenset()) -> Iterator[str]:
    """Yield a table as plain lines, as wide as its texts; ``numbers``: titles of columns that are set to the right."""
    cells = [[printable(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    columns = [TableColumn(title, width, title in numbers) for title, width in zip(titles, widths, strict=True)]
    yield from (_line(line, columns) for line in [titles, ["-" * width for width in widths], *cells])
