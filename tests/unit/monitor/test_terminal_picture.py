"""The picture of event time in a terminal: the axis, rows and words of the page, in characters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.monitor.example_status import CHECKOUT, NOON, checkout, page, source_status, split_view, view
from watermark_source.monitor.history import NO_HOLDER, Change, ChangeKind, Point
from watermark_source.monitor.lanes import Look
from watermark_source.monitor.page_content import Page, page_json
from watermark_source.monitor.terminal_picture import Line, Shown, picture_lines, shown_of_page
from watermark_source.planning.group import OwnSilence, Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.status_model.source_status import GroupStatus, SnapshotProgress, SourceStatus, Status
from watermark_source.status_model.status_json import status_from_json

MINUTE = 60_000


def drawn(of: Page, width: int = 100, height: int | None = None) -> list[str]:
    return [line.text for line in picture_lines(shown(of), width, height)]


def shown(of: Page) -> Shown:
    (query,) = json.loads(json.dumps(page_json(of)))["queries"]
    return shown_of_page(query, [status_from_json(report) for report in query["sources"]], of.at)


def held_back(**fields: Any) -> SourceStatus:
    """The topic of ``make play``, ten minutes after orders-2 had its last record."""
    given = {
        "watermark": NOON - 10 * MINUTE - 11_000, "at": NOON, "out_of_orderness": 4_999,
        "group": GroupStatus("demo", 10 * MINUTE, NOON - 11_000, 4, holder="orders-2"),
    } | fields  # fmt: skip
    return source_status(
        split_view(0, Status.PAUSED, watermark=NOON + 58 * MINUTE, position=0, end=857, kind=HoldKind.PAUSED),
        split_view(1, Status.PAUSED, watermark=NOON - 24_000, position=0, end=141, kind=HoldKind.PAUSED),
        split_view(2, watermark=NOON - 10 * MINUTE - 11_000, position=9, end=9, holds_back=True, kind=HoldKind.SILENT),
        split_view(3, Status.IDLE, watermark=None, position=3, end=3, kind=HoldKind.LEFT_OUT),
        **given,
    )


def test_the_shortest_bar_is_the_one_that_holds_and_ends_at_the_watermark() -> None:
    query = view(held_back())
    lines = drawn(page(query), 100)
    held, near, far, idle = (line.text for line in picture_lines(shown(page(query)), 100) if line.look is not None)
    assert held.startswith("orders-2 HOLDS")
    assert [line.split()[1] for line in (near, far, idle)] == ["paused", "paused", "idle"]
    assert held.count("█") < near.count("▒") < far.count("▒")
    assert "▶" in far
    assert "58 min ahead" not in held
    assert idle.split()[2].startswith("···")
    assert held.split()[-1] == "0"
    assert near.split()[-1] == "141"
    head = next(line for line in lines if "behind" in line and "unread" in line)
    assert "11:49:49" in head
    assert "now 12:00:05" in head
    # The watermark's mark in the idle row is where the bar of the holder ends.
    assert abs(idle.index("│") - held.rindex("█")) <= 1


def test_over_time_has_who_held_it_and_how_far_it_was_behind() -> None:
    points = [Point(NOON + MINUTE * n - 10 * MINUTE, 1_000 * n, 0) for n in range(10)]
    change = Change(NOON - 5 * MINUTE, "sales", "orders", ChangeKind.HOLDER, "watermark", NO_HOLDER, "orders-2")
    lines = drawn(page(view(held_back(), points={"orders": points}), changes=(change,)), 100)
    ribbon = next(line for line in lines if line.startswith("who held it"))
    assert ribbon.index("·") < ribbon.index("█")
    assert " orders-2 " in ribbon
    assert ribbon.endswith("orders-2")
    spark = next(line for line in lines if line.startswith("behind clock")).split("  ")
    assert spark[1].strip() == "".join(sorted(spark[1].strip()))
    assert lines[-1].split()[0:3:2] == ["10", "ago"]
    assert lines[-1].endswith("now")


@pytest.mark.parametrize("width", [60, 80, 100, 118, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int) -> None:
    for shown in (CHECKOUT, page(view(held_back())), page(view(source_status()))):
        assert max(map(len, drawn(shown, width))) <= width


@pytest.mark.parametrize("height", range(14, 30))
def test_the_picture_keeps_within_the_lines_of_the_terminal(height: int) -> None:
    many = page(view(source_status(*(split_view(n, watermark=NOON - n) for n in range(300)))))
    assert len(drawn(many, 100, height)) <= height


def test_no_number_or_duration_of_a_sentence_is_torn() -> None:
    shown = Shown(at=NOON, words=("There are 35 999 600 records to read",), sources=(), watermark=None, applied=None)
    assert [line.text for line in picture_lines(shown, 18)] == ["There are", "35 999 600 records", "to read"]


def test_what_has_no_room_is_counted() -> None:
    query = view(held_back())
    lines = picture_lines(shown(page(query)), 100, 15)
    assert "and 1 row more" in [line.text for line in lines]
    assert [line.look for line in lines if line.look is not None] == [Look.HOLDS, Look.PAUSED, Look.PAUSED]


def test_rows_have_the_look_of_the_page_and_other_lines_none() -> None:
    query = view(held_back())
    lines = [line for line in picture_lines(shown(page(query)), 100) if line.look is not None]
    assert [line.look for line in lines] == [Look.HOLDS, Look.PAUSED, Look.PAUSED, Look.LEFT_OUT]


def test_what_is_wrong_with_the_group_and_the_rows_is_said_above_the_picture_and_snapshots_have_bars() -> None:
    peer = Peer("payments", "active", None, 42_000, is_waited_for=True)
    group = GroupStatus(
        "shop", MINUTE, None, 1, others=1, peers=(peer,), own_silence=OwnSilence(Millis(NOON), 4_000, True)
    )
    copied = SnapshotProgress(log="shop.a", rows=70, chunks=7, expected=100, rate=5, done=False)
    text = "\n".join(
        drawn(page(view(source_status(split_view(0), group=group, undated_rows=4, snapshots=[copied]))), 400)
    )
    assert "source payments of the alignment group shop has reported nothing for 42 s" in text
    assert "this source itself reported nothing for 4 s" in text
    assert "rows without an event time: 4" in text
    assert "shop.a  [###" in text


def test_plain_text_has_no_control_characters() -> None:
    evil = source_status(split_view(0), source_name="x\x07")
    assert "".join(drawn(page(view(evil, checkout(source_name="a\x1b[31m\tb"))))).isprintable()


marks = st.one_of(st.none(), st.sampled_from([MIN, MAX, 10**17]), st.integers(NOON - 10**9, NOON + 10**9))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(marks, st.sampled_from(Status), st.booleans()), max_size=30),
    marks,
    st.lists(st.none() | st.integers(-(10**6), 10**9), max_size=30),
    st.integers(60, 140),
)
def test_every_source_has_a_picture(
    splits: list[tuple[int | None, Status, bool]], watermark: int | None, behind: list[int | None], width: int
) -> None:
    views = [split_view(n, status, watermark=mark, holds_back=h) for n, (mark, status, h) in enumerate(splits)]
    points = [Point(NOON - 1_000 * (len(behind) - n), value, None) for n, value in enumerate(behind)]
    query = view(source_status(*views, watermark=watermark), points={"orders": points})
    lines: list[Line] = picture_lines(shown(page(query)), width)
    assert all(len(line.text) <= width and line.text.isprintable() for line in lines)
    assert sum(line.look is not None for line in lines) >= min(len(views), 10)
