from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import pytest

from watermark_source.monitor.source_status import RowTotals, Status, WriterView
from watermark_source.monitor.status_reasons import (
    AlignmentWait,
    Behind,
    Facts,
    first_reading,
    reason,
    unannounced,
    writer_views,
)
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    LoggedStatement,
    ObservedAnnouncements,
    with_statements,
    writers_at,
)
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.catch_up import CatchUp
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import MAX, Millis

SLOWEST = "orders-3"
IDLED = "20 min behind the watermark (it was idle): its rows up to there are late"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"lag": 12_000}, "behind by 12 000 records"),
        ({"lag": 1}, "behind by 1 record"),
        ({"lag": 5, "watermark": None}, "behind by 5 records"),
        ({"lag": 5, "waits_for_budget": True}, "behind by 5 records; slower splits go first (maxOffsetsPerTrigger)"),
        ({"lag": None}, "its end is unknown yet"),
        ({"lag": None, "has_more": True}, "has more to read"),
        ({"watermark": None, "holds_back": True}, "no record seen yet; holds the watermark"),
        ({"watermark": None}, "no record seen yet"),
        ({"watermark": None, "reading": True, "holds_back": True}, "its first records are being read"),
        ({"watermark": None, "resumed": True}, "no record seen since the query was started"),
        ({}, "caught up"),
        (
            {"lag": 5, "hidden_ahead": True},
            "behind by 5 records; its next rows cannot be read ahead (see the log), and it holds the watermark",
        ),
        ({"quiet": 0, "idle_timeout": 30_000}, "caught up"),
        ({"quiet": 3, "holds_back": True}, "caught up"),
        ({"quiet": 12_000}, "nothing to read for 12 s"),
        ({"quiet": 12_000, "idle_timeout": 30_000}, "nothing to read for 12 s; idle after 30 s"),
        ({"quiet": 12_000, "holds_back": True}, "nothing to read for 12 s; never idle without idleTimeout"),
    ],
)
def test_an_active_split_says_what_it_is_waiting_for(facts: dict[str, Any], sentence: str) -> None:
    known: dict[str, Any] = {"lag": 0, "watermark": 1_000} | facts
    assert reason(Facts(status=Status.ACTIVE, **known)) == sentence


@pytest.mark.parametrize(
    ("behind", "sentence"),
    [
        (
            Behind(1_200_000, was_idle=True, is_left_out=False),
            f"{IDLED}; the watermark waits for it, with idleReturn=pass it would not",
        ),
        (
            Behind(1_200_000, was_idle=True, is_left_out=True),
            f"{IDLED}, and the watermark advances without it (idleReturn=pass)",
        ),
        (
            Behind(5_000, was_idle=False, is_left_out=False),
            "5 s behind the watermark: its rows up to there are late; the watermark waits for it",
        ),
    ],
)
def test_a_split_behind_the_watermark_says_that_its_rows_are_late_and_why(behind: Behind, sentence: str) -> None:
    facts = Facts(status=Status.ACTIVE, lag=0, watermark=1_000, behind=behind)
    assert reason(facts) == f"caught up; {sentence}"
    assert reason(replace(facts, lag=7)) == f"behind by 7 records; {sentence}"


@pytest.mark.parametrize(
    ("rows", "facts", "sentence"),
    [
        (RowTotals(read=20, undated=20), {}, "20 records, none with an event time"),
        (RowTotals(read=1, undated=1), {"reading": True}, "1 record, none with an event time"),
        (RowTotals(read=20, future=20), {}, "20 records, all too far in the future (maxFutureSkew)"),
        (
            RowTotals(read=20, undated=12, future=8),
            {},
            "20 records: 12 without an event time, 8 too far in the future (maxFutureSkew)",
        ),
        (RowTotals(read=20), {"by_marks": True}, "20 records, none with a watermark (watermarkColumn)"),
        (
            RowTotals(read=20, future=3),
            {"by_marks": True},
            "20 records, none with a watermark (watermarkColumn) but 3 too far in the future (maxFutureSkew)",
        ),
    ],
)
def test_a_split_without_a_watermark_says_what_its_records_lack(
    rows: RowTotals, facts: dict[str, Any], sentence: str
) -> None:
    known: dict[str, Any] = {"lag": 0, "watermark": None, "rows": rows} | facts
    assert reason(Facts(status=Status.ACTIVE, **known)) == sentence
    held = reason(Facts(status=Status.ACTIVE, holds_back=True, **known))
    assert held.startswith(f"{sentence}; holds the watermark")
    behind = reason(Facts(status=Status.ACTIVE, **(known | {"lag": 3})))
    assert behind == f"behind by 3 records; {sentence} so far"


def test_where_writers_announce_the_watermark_a_split_needs_none_and_its_records_lack_nothing() -> None:
    facts = Facts(
        status=Status.ACTIVE, lag=0, watermark=None, rows=RowTotals(read=202), has_watermark_of_own=False
    )  # fmt: skip
    assert reason(facts) == "caught up"
    assert reason(replace(facts, quiet=4_000)) == "nothing to read for 4 s"
    assert reason(replace(facts, lag=3)) == "behind by 3 records"
    assert reason(replace(facts, rows=RowTotals())) == "no record seen yet"


def test_a_split_whose_records_have_no_event_time_says_when_it_stops_holding_the_watermark() -> None:
    facts = Facts(status=Status.ACTIVE, lag=0, watermark=None, holds_back=True, rows=RowTotals(read=20, undated=20))
    held = "20 records, none with an event time; holds the watermark"
    assert reason(facts) == f"{held}, and is never idle without idleTimeout"
    assert reason(replace(facts, idle_timeout=30_000)) == f"{held} until it is idle (idleTimeout 30 s)"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"quiet": 302_000, "idle_timeout": 30_000}, "nothing to read for 5 min 02 s (idleTimeout 30 s)"),
        ({"quiet": 302_000}, "nothing to read for 5 min 02 s"),
        ({"idle_timeout": 30_000}, "nothing to read (idleTimeout 30 s)"),
        (
            {"quiet": 40_000, "idle_timeout": 30_000, "rows": RowTotals(read=9, undated=9)},
            "nothing with an event time for 40 s (idleTimeout 30 s)",
        ),
    ],
)
def test_an_idle_split_names_the_timeout_it_passed(facts: dict[str, Any], sentence: str) -> None:
    assert reason(Facts(status=Status.IDLE, lag=0, watermark=None, **facts)) == sentence


@pytest.mark.parametrize(
    ("wait", "sentence"),
    [
        (AlignmentWait(SLOWEST, 30_000, ahead=37_000), "37 s ahead of orders-3 (alignmentMaxDrift 30 s)"),
        (AlignmentWait(SLOWEST, 30_000, ahead=30_000), "next record over 30 s ahead of orders-3 (alignmentMaxDrift)"),
        (AlignmentWait(SLOWEST, 30_000), "next record over 30 s ahead of orders-3 (alignmentMaxDrift)"),
        (AlignmentWait("users", None), "reads nothing before its alignment group may begin: waits for users"),
        (None, "waits for its alignment group"),
    ],
)
def test_a_paused_split_names_whom_it_waits_for(wait: AlignmentWait | None, sentence: str) -> None:
    assert reason(Facts(status=Status.PAUSED, lag=9, watermark=1_000, wait=wait)) == sentence


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(Status.FINISHED, "read to the end of this run"), (Status.UNKNOWN, "no answer about its log")],
)
def test_finished_and_unknown_need_no_further_facts(status: Status, sentence: str) -> None:
    assert reason(Facts(status=status, lag=None, watermark=None)) == sentence


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_sentence(status: Status) -> None:
    assert reason(Facts(status=status, lag=0, watermark=None))


def test_a_finished_split_without_a_record_holds_the_watermark_still() -> None:
    facts = Facts(status=Status.FINISHED, lag=0, watermark=None, holds_back=True)
    assert reason(facts) == "no record seen yet; holds the watermark"
    assert reason(replace(facts, reading=True)) == "read to the end of this run"


# Writers that announce watermarks.


def announcement(watermark: int | None, ends: Mapping[str, int], *, writer: str = "a", **more: Any) -> Announcement:
    at = None if watermark is None else Millis(watermark)
    given = {"query": f"q{writer}", "batch": 0, "topic": "T", **more}
    return Announcement(writer=writer, watermark=at, ends=ends, **given)


def views(
    *statements: Announcement | str, read: int = 0, names: Set[str] = frozenset(), **changes: Any
) -> dict[str, WriterView]:
    logged = [
        LoggedStatement(at, None, None, each, "no JSON")
        if isinstance(each, str)
        else LoggedStatement(at, Millis(1_000 + at), each)
        for at, each in enumerate(statements)
    ]
    table, _ = with_statements(AnnouncedTable(), logged, "T")
    by = AnnouncedBy(frozenset(names), changes.pop("time_to_live", None))
    observed = ObservedAnnouncements(table=table, by=by, log="L", next_position=9, **{"is_current": True, **changes})
    return {each.name: each for each in writer_views(writers_at(observed, {"0": read}, Millis(10**12)), observed)}


def test_a_writer_states_what_the_watermark_waits_for() -> None:
    found = views(
        announcement(50, {}), announcement(60, {"0": 5_210}, batch=17), announcement(90, {}, writer="b"), names={"c"}
    )
    assert found["a"].why == "5 210 rows before the cut of batch 17"
    assert (found["a"].watermark, found["a"].announced, found["a"].rows_before_next) == (50, 60, 5_210)
    assert (found["a"].since, found["a"].batch) == (1_001, 17)
    assert found["c"].why == "has announced nothing yet (announcedBy)"
    assert [each.holds_back for each in found.values()] == [False, False, True]
    found = views(announcement(50, {}), announcement(90, {}, writer="b"), silent={"a": 40_900})
    assert found["a"].why == "has announced nothing for 40 s"
    assert [each.holds_back for each in found.values()] == [True, False]


@pytest.mark.parametrize(("statements", "changes", "why"), [
    ([announcement(50, {}, idle=True)], {}, "announced that it is idle"),
    ([announcement(MAX, {})], {}, "announced that it writes no more"),
    ([announcement(None, {})], {}, "asked to be waited for, and has no watermark yet"),
    ([announcement(50, {}), "a"], {}, "its last record cannot be read, so the watermark waits for the next one: no JS"),
    ([announcement(50, {})], {"time_to_live": 5_000, "silent": {"a": 9_000}},
     "has announced nothing for 9 s, longer than writerTimeToLive (5 s): the watermark does not wait"),
    ([announcement(10**13, {}, batch=4)], {}, "its watermark of batch 4 is in the future (maxFutureSkew)"),
    ([announcement(50, {})], {}, "announces"),
    ([announcement(50, {}, batch=4)], {"is_run": True}, "announced last at 1970-01-01 00:00:01.000 UTC, after batch 4"),
])  # fmt: skip
def test_a_writer_has_a_reason(statements: list[Announcement | str], changes: dict[str, Any], why: str) -> None:
    assert views(*statements, **changes)["a"].why.startswith(why)


def test_announcements_that_cannot_be_read_are_a_reason_of_their_own() -> None:
    observed = ObservedAnnouncements(
        table=AnnouncedTable(), by=AnnouncedBy(), log=None, next_position=None, is_current=False, trouble="no broker"
    )
    assert unannounced(observed) == "no broker"
    assert unannounced(replace(observed, is_current=True)) == "no writer has announced a watermark yet"
    assert unannounced(replace(observed, is_current=True, by=AnnouncedBy(frozenset("a")))) is None


def test_a_first_reading_counts_the_records_up_to_its_ends() -> None:
    orders = [Split("orders", n) for n in range(3)]
    state = SourceState(splits={s: SplitState(40, 40) for s in orders})
    assert first_reading(replace(state, catch_up=CatchUp({orders[0]: 1_050, orders[1]: 45}))) == (
        "it is read to its end first (readToEndFirst), 1 015 records to go"
    )
    assert first_reading(replace(state, catch_up=CatchUp({}, again=True))) is None
    assert first_reading(state) is not None
