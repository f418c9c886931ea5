from __future__ import annotations

import itertools

import pytest

from tests.unit.monitor.example_status import NOON, checkout, source_status, split_view
from watermark_source.durations import count_text
from watermark_source.monitor.status_table import GAP, TableLayout, headline, join_pieces, layout
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.watermark import MAX, MIN, watermark_text
from watermark_source.status_model.source_status import BoundInForce, GroupStatus, SourceStatus, Status


def cells(table: TableLayout, title: str) -> list[str]:
    i = [column.title for column in table.columns].index(title)
    return [" ".join(row[i]) for row in table.rows]


def titles(status: SourceStatus, width: int) -> list[str]:
    return [column.title for column in layout(status, width=width).columns]


def test_a_wide_table_has_every_column() -> None:
    assert titles(checkout(), 200) == [
        "partition", "position", "end", "lag", "watermark", "status", "since", "why", "drift", "holds back"
    ]  # fmt: skip


def test_cells_say_what_a_reader_asks_for() -> None:
    table = layout(checkout(), width=200, now=NOON + 8_000)
    assert cells(table, "partition") == [f"orders-{n}" for n in (0, 1, 2, 3, 4, 10)]
    assert cells(table, "position")[0] == "1 204 332"
    assert cells(table, "end")[-1] == "?"
    assert cells(table, "lag") == ["1 295 668", "0", "0", "112 344", "340", "?"]
    assert cells(table, "watermark")[:3] == ["12:01:59.000", "12:00:03.000", "none yet"]
    assert cells(table, "status") == ["PAUSED", "ACTIVE", "IDLE", "ACTIVE", "PAUSED", "UNKNOWN"]
    assert cells(table, "since") == ["20 s ago", "8 s ago", "5 min 10 s ago", "", "1 h 01 min ago", ""]
    assert cells(table, "why")[3] == "behind by 112 344 records"
    assert cells(table, "drift") == ["+1 min 59 s", "+3 s", "", "0", "+2 min 37 s", "+7 s"]
    assert cells(table, "holds back") == ["", "", "", "yes, 2 wait", "", ""]


def test_the_least_important_columns_go_first() -> None:
    seen = [titles(checkout(), width) for width in range(200, 10, -1)]
    lost = [title for wide, narrow in itertools.pairwise(seen) for title in wide if title not in narrow]
    assert lost == ["position", "end", "since", "drift", "lag", "holds back", "why", "watermark", "status"]


def test_a_column_with_nothing_in_it_goes_before_all_others() -> None:
    lone = source_status(split_view(0))
    width = sum(column.width for column in layout(lone, width=200).columns) + 9 * GAP
    assert set(titles(lone, width)) - set(titles(lone, width - 3)) == {"since"}


@pytest.mark.parametrize("width", range(1, 200))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    table = layout(checkout(), width=width)
    assert sum(column.width for column in table.columns) + GAP * (len(table.columns) - 1) <= width
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            assert max(map(len, cell)) <= column.width
    assert all(len(line) <= width for line in join_pieces(headline(checkout()), width))


def test_nothing_of_a_sentence_is_lost_when_it_wraps_and_no_duration_is_torn() -> None:
    narrow = layout(checkout(), width=80)
    why = [column.title for column in narrow.columns].index("why")
    assert narrow.rows[4][why] == ("2 min 37 s ahead of orders-3", "(alignmentMaxDrift 2 min)")
    assert cells(narrow, "why") == [view.why for view in checkout().splits]


def test_when_lines_are_short_the_splits_to_look_at_stay_in_split_order() -> None:
    table = layout(checkout(), width=200, lines=3)
    assert cells(table, "partition") == ["orders-1", "orders-3", "orders-10"]
    assert table.hidden == 3


def test_a_wrapped_row_takes_as_many_lines_as_it_has() -> None:
    assert len(layout(checkout(), width=80, lines=3).rows) == 2
    assert len(layout(checkout(), width=80, lines=4).rows) == 3


def test_splits_that_the_report_left_out_are_counted_as_hidden() -> None:
    many = source_status(*(split_view(i) for i in range(250)))
    assert layout(many, width=120).hidden == 150


def test_a_source_without_splits_has_a_table_with_titles_only() -> None:
    table = layout(source_status(watermark=None), width=120)
    assert table.rows == ()
    assert table.columns[0].title == "partition"


def test_the_day_is_shown_in_the_rows_as_soon_as_they_differ() -> None:
    same = layout(source_status(split_view(0), split_view(1, watermark=None)), width=200)
    assert cells(same, "watermark") == ["12:00:00.000", "none yet"]
    before = layout(source_status(split_view(0), split_view(1, watermark=NOON - 43_200_001)), width=200)
    assert cells(before, "watermark") == ["2026-11-21 12:00:00.000", "2026-11-20 23:59:59.999"]
    headless = layout(source_status(split_view(0), watermark=None), width=200)
    assert cells(headless, "watermark") == ["2026-11-21 12:00:00.000"]


def test_watermarks_that_are_no_time_are_words() -> None:
    limits = layout(source_status(split_view(0, watermark=MIN), split_view(1, watermark=MAX)), width=200)
    assert cells(limits, "watermark") == ["start of time", "end of time"]
    lonely = layout(source_status(split_view(0, watermark=MIN), watermark=MIN), width=200)
    assert cells(lonely, "watermark") == ["start of time"]
    assert headline(source_status(watermark=MAX))[1] == "watermark end of time"


def test_raw_watermarks_are_milliseconds_everywhere() -> None:
    status = checkout()
    assert cells(layout(status, width=200, raw=True), "watermark")[3] == str(NOON)
    text = " ".join(headline(status, raw=True))
    assert f"watermark {NOON} " in text
    assert f"limit {NOON + 120_000}," in text


def test_with_processing_time_the_watermark_is_the_clock() -> None:
    status = source_status(split_view(0, watermark=None), processing_time=True)
    assert cells(layout(status, width=200), "watermark") == ["the clock"]
    assert headline(status)[1] == "watermark follows the clock, 2026-11-21 12:00:00.000 UTC"
    unset = source_status(processing_time=True, watermark=None)
    assert headline(unset)[1] == "watermark follows the clock"


def test_the_headline_names_source_watermark_culprit_group_and_counts() -> None:
    assert headline(checkout(), now=NOON + 8_000) == (
        "orders (aligned-kafka)",
        "watermark 2026-11-21 12:00:00.000 UTC",
        "as of 3 s ago",
        "group checkout: limit 12:02:00.000, max drift 2 min, 9 members",
        "6 partitions: 2 active, 1 idle, 2 paused, 1 unknown",
        "lag 1 408 352",
        "rows too far in the future: 3",
    )


def test_the_headline_has_a_sentence_where_there_is_no_value() -> None:
    group = GroupStatus("checkout", 30_000, None, 1)
    status = source_status(
        *(split_view(i, watermark=None, holds_back=True) for i in range(3)), watermark=None, group=group
    )
    assert headline(status)[1] == "no watermark yet"
    assert headline(status)[3] == "group checkout: no limit now, max drift 30 s, 1 member"
    assert headline(source_status(watermark=None))[1:4] == (
        "no watermark yet", "as of 2026-11-21 12:00:05.000 UTC", "no partitions"
    )  # fmt: skip
    assert headline(source_status(split_view(0)))[3] == "1 partition: 1 active"


def test_the_headline_tells_which_bound_is_in_force_and_how_many_rows_were_late() -> None:
    late = LateRows((3, *[0] * 13), longest=900, total=1_000)
    status = checkout(bound=BoundInForce(1_049, 600_000, 999_000, NOON - 57_000), late=late, rows=1_000)
    pieces = headline(status, now=NOON + 8_000)
    assert "bound 1 s for 1 min 05 s, learned for at most 0.1 % late, never more than 10 min" in pieces
    assert "late rows: 3 (0.3 %), 99 % by at most 900 ms, all by at most 900 ms" in pieces
    new = checkout(bound=BoundInForce(600_000, 600_000, 990_000, NOON), group=None)
    assert "bound 10 min for 0 ms, learned for at most 1 % late, never more than 10 min" in headline(new, now=NOON)


def test_the_headline_tells_of_the_groups_other_sources() -> None:
    group = GroupStatus(
        "g", 1_000, NOON, 2, others=3, slowest="users", since=NOON - 60_000, trouble="no answer", store="postgresql h/d"
    )
    assert headline(source_status(group=group), now=NOON)[3:6] == (
        "group g: limit 12:00:00.000, max drift 1 s, 2 members and 3 other sources, store postgresql h/d",
        "slowest elsewhere: users for 1 min",
        "no answer",
    )
    lower = GroupStatus("g", 1_000, NOON, 1, max_drift_of="users", own_max_drift=60_000)
    shown = headline(source_status(group=lower), now=NOON)[3]
    assert shown == "group g: limit 12:00:00.000, max drift 1 s of users (here 1 min), 1 member"
    held = GroupStatus("g", None, None, 1, hold=True, others=1, slowest="users")
    assert headline(source_status(group=held))[3:5] == (
        "group g: nothing is read yet, 1 member and 1 other source", "slowest elsewhere: users"
    )  # fmt: skip


def test_a_limit_on_another_day_is_shown_with_its_day() -> None:
    group = GroupStatus("checkout", 86_400_000, NOON + 86_400_000, 2)
    assert "limit 2026-11-22 12:00:00.000," in headline(source_status(group=group))[3]


@pytest.mark.parametrize(
    ("ago", "text"), [(-5_000, "now"), (999, "now"), (1_000, "1 s ago"), (2_999, "2 s ago"), (9_999, "9 s ago")]
)
def test_the_age_of_a_report_is_in_whole_seconds_and_never_negative(ago: int, text: str) -> None:
    status = source_status()
    assert headline(status, now=status.at + ago)[2] == f"as of {text}"


@pytest.mark.parametrize(
    ("drift", "text"), [(None, ""), (0, "0"), (37_000, "+37 s"), (-1_500, "-1.5 s"), (90_000, "+1 min 30 s")]
)
def test_drift_has_a_sign(drift: int | None, text: str) -> None:
    assert cells(layout(source_status(split_view(0, drift=drift)), width=200), "drift") == [text]


@pytest.mark.parametrize(("paused", "text"), [(0, "yes"), (1, "yes, 1 waits"), (2, "yes, 2 wait")])
def test_who_holds_back_learns_how_many_wait(paused: int, text: str) -> None:
    waiting = (split_view(i + 1, Status.PAUSED) for i in range(paused))
    assert cells(layout(source_status(split_view(0, holds_back=True), *waiting), width=200), "holds back")[0] == text


def test_names_cannot_steer_the_terminal() -> None:
    evil = source_status(split_view(0, why="\x1b[2Jgone\n", holds_back=True), source_name="or\x1bders\r")
    assert cells(layout(evil, width=200), "why") == ["?[2Jgone?"]
    assert all(piece.isprintable() for piece in headline(evil))


@pytest.mark.parametrize(
    ("watermark", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (-1, "1969-12-31 23:59:59.999"),
        (NOON + 7, "2026-11-21 12:00:00.007"),
        (10**15, "1000000000000000"),
        (-(10**15), "-1000000000000000"),
        (None, "none yet"),
    ],
)
def test_watermarks_are_utc_and_beyond_the_calendar_plain_numbers(watermark: int | None, text: str) -> None:
    assert watermark_text(watermark) == text


def test_counts_are_set_apart_in_thousands() -> None:
    assert [count_text(n) for n in (0, 999, 1_000, 1_234_567)] == ["0", "999", "1 000", "1 234 567"]


def test_pieces_stand_side_by_side_while_there_is_room() -> None:
    assert join_pieces(["aaaa", "bbbb", "cccc"], 11) == ["aaaa | bbbb", "cccc"]
    assert join_pieces(["aaaa", "bbbb"], 10) == ["aaaa", "bbbb"]
    assert join_pieces(["aa bb cc"], 5) == ["aa bb", "cc"]
