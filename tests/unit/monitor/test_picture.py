"""What the picture of event time is drawn from: rows, places of texts, and markup that escapes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.monitor.example_pages import NOW, PAGES, many
from tests.unit.monitor.example_status import CHECKOUT
from watermark_source.monitor.history import Point, thinned
from watermark_source.monitor.lanes import MOST, Look, lanes_of
from watermark_source.monitor.page.flags import GAP, NARROW, WIDE, Flag, depth, placed, text_width
from watermark_source.monitor.page.markup import Markup, joined, percent, tag, with_code
from watermark_source.monitor.page_content import Page, QueryView
from watermark_source.planning.watermark import watermark_text
from watermark_source.status_model.hold_causes import short_time


def only(of: Page) -> QueryView:
    (query,) = of.queries
    return query


def test_rows_begin_with_what_holds_then_by_watermark_and_end_with_what_is_left_out() -> None:
    (source,) = only(CHECKOUT).clocks.sources
    lanes = lanes_of(source, NOW)
    assert [lane.name for lane in lanes] == ["orders-3", "orders-1", "orders-10", "orders-0", "orders-4", "orders-2"]
    assert [lane.look for lane in (lanes[0], lanes[2], lanes[-1])] == [Look.HOLDS, Look.SILENT, Look.LEFT_OUT]


@pytest.mark.parametrize(("partitions", "own"), [(MOST, MOST), (MOST + 1, 10), (10_000, 10)])
def test_of_many_partitions_the_lowest_are_rows_and_all_others_one_a_status(partitions: int, own: int) -> None:
    (source,) = only(many(partitions)).clocks.sources
    lanes = lanes_of(source, NOW)
    assert sum(not lane.is_several for lane in lanes) == own
    others = [lane for lane in lanes if lane.is_several]
    assert len(others) <= 2
    if partitions > 100:
        # Their band begins behind the rows above, which are the lowest.
        assert others[0].spread is not None
        assert others[0].spread.lowest == lanes[own - 1].watermark
        assert list(others[0].spread) == sorted(others[0].spread)


@pytest.mark.parametrize(("writers", "others"), [(MOST, []), (MOST + 1, ["1 more writer"]), (99, ["79 more writers"])])
def test_of_many_writers_those_without_a_row_are_counted(writers: int, others: list[str]) -> None:
    (source,) = next(of for page in PAGES.values() for q in page.queries if (of := q.clocks.sources)[0].is_announced)
    lanes = lanes_of(replace(source, writers=writers * source.writers[:1]), NOW)
    assert [lane.name for lane in lanes[MOST:]] == others


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    assert short_time(1_764_500_000_000_000, NOW) == watermark_text(1_764_500_000_000_000)


def test_another_source_that_is_silent_holds_the_group_and_says_until_when_it_is_waited_for() -> None:
    (source,) = only(PAGES["frozen-source"]).clocks.sources
    first = lanes_of(source, NOW)[0]
    assert (first.name, first.look, first.note) == (
        "payments", Look.HOLDS, "silent for 42 s; waited for until 12:11:29",
    )  # fmt: skip


@given(
    st.lists(st.tuples(st.floats(0, 1), st.text("abc 123", min_size=1, max_size=30)), max_size=4),
    st.sampled_from([WIDE, NARROW]),
)
def test_no_text_of_a_line_covers_another_and_none_leaves_the_picture(
    given_flags: list[tuple[float, str]], width: int
) -> None:
    flags = [Flag("now", share, text) for share, text in given_flags]
    found = placed(flags, width)
    assert [each.flag for each in found] == flags
    spans: dict[int, list[tuple[float, float]]] = {}
    for flag, level, is_left in found:
        x, long = flag.share * width, text_width(flag.text)
        begin = x - GAP - long if is_left else x + GAP
        spans.setdefault(level, []).append((begin, begin + long))
    lowest = depth(found) - 1
    for level, each in spans.items():
        # On the lowest of four levels a text may have to cover another one.
        if level < lowest or lowest < 3:
            assert all(begin >= 0 and end <= width for begin, end in each)
            assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(each)))


@given(st.integers(2, 60), st.integers(0, 500))
def test_of_points_over_time_the_worst_and_the_newest_remain(most: int, points: int) -> None:
    given_points = tuple(Point(n, n * 7 % 31, None if n % 3 else n) for n in range(points))
    found = thinned(given_points, most)
    assert len(found) <= most
    assert found[-1:] == given_points[-1:]
    assert [p.at for p in found[:1]] == [p.at for p in given_points[:1]]
    assert max((p.behind or 0 for p in found), default=0) == max((p.behind or 0 for p in given_points), default=0)


def test_markup_escapes_texts_once_and_elements_never() -> None:
    inner = tag("b", "<&")
    assert tag("p", inner, " >", title='"', hidden=True, class_=None) == (
        '<p title="&quot;" hidden><b>&lt;&amp;</b> &gt;</p>'
    )
    assert joined("<", Markup("<br>")) == "&lt;<br>"
    assert tag("line", x1="0", vector_effect="none") == '<line x1="0" vector-effect="none"/>'
    assert with_code('write .option("a", "<b>") <here>') == (
        "write <code>.option(&quot;a&quot;, &quot;&lt;b&gt;&quot;)</code> &lt;here&gt;"
    )
    command = "python -m watermark_source watch --a.b C:1"
    for after in (", and more", "; more", ". More", ""):
        assert with_code(f"write: {command}{after}") == f"write: <code>{command}</code>{after}"
    assert [percent(share) for share in (0, 0.5, 1 / 3, 1)] == ["0%", "50%", "33.33%", "100%"]
