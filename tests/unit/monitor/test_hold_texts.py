from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.monitor.example_pages import PAGES
from tests.unit.monitor.example_status import KAFKA, NOON
from watermark_source.monitor.history import ChangeHistory
from watermark_source.monitor.three_clocks import diagnose
from watermark_source.monitor.verdict import ended_verdict, verdict_of
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    LoggedStatement,
    ObservedAnnouncements,
    holding_writers,
    with_statements,
    writers_at,
)
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.group_limit import TO_COME
from watermark_source.planning.hold_kinds import NOTHING_KNOWN, AlignmentWait, Behind, HoldKind, SplitFacts, split_kind
from watermark_source.planning.holds import NOTABLE, THE_ANNOUNCEMENTS, HeldBy, Hold, writer_hold
from watermark_source.planning.range_report import NO_ROWS, RowTotals
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.strategy import Announced, Bounded, Punctuated, WatermarkStrategy
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.driver.status import batch_line
from watermark_source.spark.driver.status_from_plan import unannounced, writer_views
from watermark_source.status_model.hold_causes import cause
from watermark_source.status_model.hold_texts import advice, held_text, sentence
from watermark_source.status_model.source_status import Unprocessed, WriterView

SLOWEST = "orders-3"
MARKED, OWN, ANNOUNCED = Punctuated(), Bounded(), Announced(AnnouncedBy())


def reason(*, status: SplitStatus = SplitStatus.ACTIVE, strategy: WatermarkStrategy = OWN, **facts: Any) -> str:
    """Return the sentence about a split of which this is known, with the kind that the planner gives it."""
    given = {"lag": 0, "watermark": 1_000, "timeout": None} | facts
    watermark, pending, timeout = given.pop("watermark"), given.pop("pending", False), given.pop("timeout")
    counted = given.pop("counted", True)
    about = SplitFacts(at=SplitState(5, 5 - pending, watermark, status), strategy=strategy, **given)
    hold = Hold(
        name="orders-0",
        kind=split_kind(about),
        watermark=watermark,
        lag=about.lag if counted else None,
        quiet=about.quiet,
        timeout=timeout,
    )
    return sentence(hold, KAFKA, about)


IDLED = "20 min behind the watermark (it was idle): its rows up to there are late"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"lag": 12_000}, "behind by 12 000 records"),
        ({"lag": 1}, "behind by 1 record"),
        ({"lag": 5, "watermark": None}, "behind by 5 records"),
        ({"lag": 5, "waits_for_budget": True}, "behind by 5 records; slower ones go first (maxOffsetsPerTrigger)"),
        ({"lag": 5, "waits_for_more": True}, "behind by 5 records; waits for more to come"),
        ({"lag": 7, "counted": False}, "has more to read"),
        ({"watermark": None, "holds": True}, "no record seen yet; holds the watermark"),
        ({"watermark": None}, "no record seen yet"),
        ({"watermark": None, "pending": True, "holds": True}, "its first records are being read"),
        ({"watermark": None, "resumed": True}, "no record seen since the query was started"),
        ({}, "caught up"),
        ({"pending": True}, "caught up"),
        (
            {"lag": 5, "hidden_ahead": True},
            "behind by 5 records; its next rows cannot be read ahead (see the log), and it holds the watermark",
        ),
        ({"lag": None, "hidden_ahead": True}, "no answer about its log"),
        ({"quiet": 0, "timeout": 30_000}, "caught up"),
        ({"quiet": 3, "holds": True}, "caught up"),
        ({"quiet": 12_000}, "nothing to read for 12 s"),
        ({"quiet": 12_000, "timeout": 30_000}, "nothing to read for 12 s; idle after 30 s"),
        ({"quiet": 12_000, "holds": True}, "nothing to read for 12 s; never idle without idleTimeout"),
        ({"has_open_transaction": True}, "its next records are in a transaction that is open"),
    ],
)
def test_an_active_split_says_what_it_is_waiting_for(facts: dict[str, Any], text: str) -> None:
    assert reason(**facts) == text


def test_what_holds_although_all_is_read_states_of_when_its_newest_record_is() -> None:
    held = Hold(name="orders-0", kind=HoldKind.READ, watermark=NOON - 1, newest=NOON)
    assert sentence(held, KAFKA, replace(NOTHING_KNOWN, holds=True)) == (
        "all is read; its newest record is of 2026-11-21 12:00:00.000 UTC"
    )
    assert advice(held, KAFKA) == "its next newer record alone moves it on"
    assert sentence(held, KAFKA) == "caught up"


@pytest.mark.parametrize(
    ("behind", "left_out", "text"),
    [
        (
            Behind(1_200_000, was_idle=True),
            False,
            f"{IDLED}; the watermark waits for it, with idleReturn=pass it would not",
        ),
        (Behind(1_200_000, was_idle=True), True, f"{IDLED}, and the watermark advances without it (idleReturn=pass)"),
        (
            Behind(5_000, was_idle=False),
            False,
            "5 s behind the watermark: its rows up to there are late; the watermark waits for it",
        ),
    ],
)
def test_a_split_behind_the_watermark_says_that_its_rows_are_late_and_why(
    behind: Behind, left_out: bool, text: str
) -> None:
    assert reason(behind=behind, is_left_out=left_out) == f"caught up; {text}"
    assert reason(behind=behind, is_left_out=left_out, lag=7) == f"behind by 7 records; {text}"


@pytest.mark.parametrize(
    ("rows", "facts", "text"),
    [
        (RowTotals(read=20, undated=20), {}, "20 records, none with an event time"),
        (RowTotals(read=1, undated=1), {"pending": True}, "1 record, none with an event time"),
        (RowTotals(read=20, future=20), {}, "20 records, all too far in the future (maxFutureSkew)"),
        (
            RowTotals(read=20, undated=12, future=8),
            {},
            "20 records: 12 without an event time, 8 too far in the future (maxFutureSkew)",
        ),
        (RowTotals(read=20), {"strategy": MARKED}, "20 records, none with a watermark (watermarkColumn)"),
        (
            RowTotals(read=20, future=3),
            {"strategy": MARKED},
            "20 records, none with a watermark (watermarkColumn) but 3 too far in the future (maxFutureSkew)",
        ),
    ],
)
def test_a_split_without_a_watermark_says_what_its_records_lack(
    rows: RowTotals, facts: dict[str, Any], text: str
) -> None:
    known: dict[str, Any] = {"watermark": None, "rows": rows} | facts
    assert reason(**known) == text
    assert reason(holds=True, **known).startswith(f"{text}; holds the watermark")
    assert reason(lag=3, **known) == f"behind by 3 records; {text} so far"


def test_where_writers_announce_the_watermark_a_split_needs_none_and_its_records_lack_nothing() -> None:
    facts: dict[str, Any] = {"watermark": None, "rows": RowTotals(read=202), "strategy": ANNOUNCED}
    assert reason(**facts) == "caught up"
    assert reason(**facts, quiet=4_000) == "nothing to read for 4 s"
    assert reason(**facts, lag=3) == "behind by 3 records"
    assert reason(**(facts | {"rows": NO_ROWS})) == "no record seen yet"


def test_a_split_whose_records_have_no_event_time_says_when_it_stops_holding_the_watermark() -> None:
    facts: dict[str, Any] = {"watermark": None, "holds": True, "rows": RowTotals(read=20, undated=20)}
    held = "20 records, none with an event time; holds the watermark"
    assert reason(**facts) == f"{held}, and is never idle without idleTimeout"
    assert reason(**facts, timeout=30_000) == f"{held} until it is idle (idleTimeout 30 s)"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"quiet": 302_000, "timeout": 30_000}, "nothing to read for 5 min 02 s (idleTimeout 30 s)"),
        ({"quiet": 302_000}, "nothing to read for 5 min 02 s"),
        ({"timeout": 30_000}, "nothing to read (idleTimeout 30 s)"),
        (
            {"quiet": 40_000, "timeout": 30_000, "rows": RowTotals(read=9, undated=9)},
            "nothing with an event time for 40 s (idleTimeout 30 s)",
        ),
    ],
)
def test_an_idle_split_names_the_timeout_it_passed(facts: dict[str, Any], text: str) -> None:
    assert reason(status=SplitStatus.IDLE, watermark=None, **facts) == text


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (AlignmentWait(SLOWEST, 30_000, ahead=37_000), "37 s ahead of orders-3 (alignmentMaxDrift 30 s)"),
        (AlignmentWait(SLOWEST, 30_000, ahead=30_000), "next record over 30 s ahead of orders-3 (alignmentMaxDrift)"),
        (AlignmentWait(SLOWEST, 30_000), "next record over 30 s ahead of orders-3 (alignmentMaxDrift)"),
        (AlignmentWait("users", None), "reads nothing before its alignment group may begin: waits for users"),
        (None, "waits for its alignment group"),
    ],
)
def test_a_paused_split_names_whom_it_waits_for(wait: AlignmentWait | None, text: str) -> None:
    assert reason(status=SplitStatus.PAUSED, lag=9, wait=wait) == text


def test_finished_and_unknown_need_no_further_facts() -> None:
    assert reason(is_final=True) == "read to the end of this run"
    assert reason(lag=None) == "no answer about its log"


def test_a_finished_split_without_a_record_holds_the_watermark_still() -> None:
    facts: dict[str, Any] = {"is_final": True, "watermark": None, "holds": True}
    assert reason(**facts) == "no record seen yet; holds the watermark"
    assert reason(**facts, pending=True) == "read to the end of this run"


@pytest.mark.parametrize(
    ("rows", "strategy", "text"),
    [
        (RowTotals(read=20, undated=20), OWN, "20 records of this run, none with an event time"),
        (RowTotals(read=20, future=20), OWN, "20 records of this run, all too far in the future (maxFutureSkew)"),
        # Of how many records the watermark was read in this run is not counted.
        (RowTotals(read=20), MARKED, "caught up"),
    ],
)
def test_what_the_records_of_a_run_lack_is_reported_of_a_split_that_has_a_watermark_from_before_too(
    rows: RowTotals, strategy: WatermarkStrategy, text: str
) -> None:
    assert reason(rows=rows, strategy=strategy) == text
    assert reason(rows=rows, strategy=strategy, lag=5) == "behind by 5 records"


@pytest.mark.parametrize("kind", HoldKind)
@pytest.mark.parametrize("is_last", [False, True])
def test_every_kind_has_a_sentence_and_an_advice(kind: HoldKind, is_last: bool) -> None:
    hold = Hold(name="orders-0", kind=kind, is_last=is_last)
    why, to_do = sentence(hold, KAFKA), advice(hold, KAFKA)
    assert why
    # Whom a paused split waits for is in its sentence.
    assert bool(to_do) == (kind is not HoldKind.PAUSED)
    assert not why.endswith(".")
    assert not to_do.endswith(".")


@pytest.mark.parametrize("kind", HoldKind)
@pytest.mark.parametrize("by", HeldBy)
def test_every_kind_has_a_cause_that_names_the_holder_once(kind: HoldKind, by: HeldBy) -> None:
    bare = Hold(name="{who}", kind=kind, by=by)
    for hold in (bare, replace(bare, newest=NOON, watermark=NOON, lag=3, quiet=5_000)):
        found = cause(hold, NOON)
        assert found.who.endswith("{who}")
        assert str(found).count("{who}") == 1
        assert not str(found).endswith(".")


def test_only_silence_is_advised_to_be_left_out_as_it_is() -> None:
    line = 'to continue without a silent partition, write .option("idleTimeout", "30 seconds")'
    reported = {kind for kind in HoldKind if advice(Hold(name="orders-0", kind=kind), KAFKA) == line}
    assert reported == {kind for kind in HoldKind if kind.is_silence}


@pytest.mark.parametrize("kind", HoldKind)
@pytest.mark.parametrize(("timeout", "is_last"), [(None, False), (30_000, False), (30_000, True)])
def test_that_no_option_is_needed_is_said_of_a_running_query_alone(
    kind: HoldKind, timeout: int | None, is_last: bool
) -> None:
    """Where a query has ended, nothing ends by itself."""
    (query,) = PAGES["held-back"].queries
    by = HeldBy.READING if kind is HoldKind.SNAPSHOT else HeldBy.SPLIT
    hold = Hold(name="orders-2", kind=kind, by=by, timeout=timeout, is_last=is_last)
    assert "no option is needed" not in advice(hold, KAFKA)
    clocks = replace(query.clocks, sources=(replace(query.clocks.sources[0], slowest=(hold,)),))
    (option,) = [fact for fact in verdict_of(clocks, diagnose(clocks)).facts if fact.title == "Option"]
    said = option.value == "none is needed" and bool(option.about)
    silence = kind.is_silence and timeout is not None and not is_last
    assert said == (silence or kind in (HoldKind.BACKLOG, HoldKind.SNAPSHOT))
    ended = ended_verdict(clocks, NOON, 7, None, NOON).facts[2]
    assert (ended.value == "none is needed") == (said or kind is HoldKind.PAUSED)
    assert "start the query again with its checkpoint location: it continues with batch 8" in ended.about


FIRST_WORDS = {
    HoldKind.SILENT: "idleTimeout",
    HoldKind.NEVER: "idleTimeout",
    HoldKind.UNDATED: "eventTimeColumn and eventTimeFormat",
    HoldKind.FUTURE: "maxFutureSkew",
    HoldKind.BOUND: "maxOutOfOrderness",
    HoldKind.BACKLOG: "none is needed",
    HoldKind.SNAPSHOT: "none is needed",
    HoldKind.PAUSED: "none is needed",
    HoldKind.LEFT_OUT: "none is needed while rows come",
}


@pytest.mark.parametrize("kind", HoldKind)
def test_the_first_words_about_an_option_are_the_answer(kind: HoldKind) -> None:
    (query,) = PAGES["held-back"].queries
    bare = Hold(name="orders-2", kind=kind, by=HeldBy.READING if kind is HoldKind.SNAPSHOT else HeldBy.SPLIT)
    for hold, answer in (
        (bare, FIRST_WORDS.get(kind, "no option helps")),
        (replace(bare, by=HeldBy.SOURCE, kind=HoldKind.PAUSED), "none is needed here"),
        (replace(bare, by=HeldBy.SOURCE, kind=HoldKind.PAUSED, name=str(TO_COME)), "alignmentMembers"),
        (replace(bare, by=HeldBy.WRITER, kind=HoldKind.NEVER), "writerTimeToLive"),
        (replace(bare, by=HeldBy.WRITER, kind=HoldKind.NEVER, name=THE_ANNOUNCEMENTS), "watermarkStrategy"),
        (replace(bare, by=HeldBy.WRITER, kind=HoldKind.SILENT, quiet=9_000), "none is needed here"),
        (replace(bare, by=HeldBy.SPLIT, kind=HoldKind.LEFT_OUT, follows_group=True), "idleFollows"),
        (replace(bare, by=HeldBy.SPLIT, kind=HoldKind.SILENT, is_last=True), "none is needed while rows come"),
    ):
        source = replace(query.clocks.sources[0], slowest=(hold,), words=KAFKA)
        clocks = replace(query.clocks, sources=(source,))
        option = verdict_of(clocks, diagnose(clocks)).facts[2]
        assert option.value == answer
        assert "no option" not in option.about


@pytest.mark.parametrize("by", [HeldBy.WRITER, HeldBy.SOURCE])
@pytest.mark.parametrize("kind", HoldKind)
def test_the_advice_about_a_writer_or_another_source_has_no_full_stop(by: HeldBy, kind: HoldKind) -> None:
    """It may be empty, where nothing has to be done here."""
    assert not advice(Hold(name="orders-0", kind=kind, by=by), KAFKA).endswith(".")


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
    writers = writers_at(observed, {"0": read}, Millis(10**12))
    held = [writer_hold(each, observed) for each in holding_writers(writers, NOTABLE)]
    return {each.name: each for each in writer_views(observed, writers, held)}


def test_a_writer_states_what_the_watermark_waits_for() -> None:
    found = views(
        announcement(50, {}), announcement(60, {"0": 5_210}, batch=17), announcement(90, {}, writer="b"), names={"c"}
    )
    assert found["a"].why == "5 210 rows before the cut of batch 17"
    assert (found["a"].watermark, found["a"].announced, found["a"].rows_before_next) == (50, 60, 5_210)
    assert (found["a"].since, found["a"].batch) == (1_001, 17)
    assert found["c"].why == "has announced nothing yet (announcedBy)"
    assert [each.holds_back for each in found.values()] == [False, False, True]
    found = views(announcement(50, {}), announcement(10_051, {}, writer="b"), silent={"a": 40_900})
    assert found["a"].why == "has announced nothing for 40 s"
    assert [each.holds_back for each in found.values()] == [True, False]
    found = views(announcement(50, {}), announcement(10_050, {}, writer="b"))
    assert [each.holds_back for each in found.values()] == [True, True], "within ten seconds they take turns"


@pytest.mark.parametrize(("statements", "changes", "why"), [
    ([announcement(50, {}, idle=True)], {}, "announced that it is idle"),
    ([announcement(MAX, {})], {}, "announced that it writes no more"),
    ([announcement(None, {})], {}, "asked to be waited for, and has no watermark yet"),
    ([announcement(50, {}), "a"], {}, "its last record cannot be read, so the watermark waits for the next one: no JS"),
    ([announcement(50, {})], {"time_to_live": 5_000, "silent": {"a": 9_000}},
     "has announced nothing for 9 s, longer than writerTimeToLive (5 s): the watermark does not wait"),
    ([announcement(10**13, {}, batch=4)], {}, "its watermark of batch 4 is in the future (maxFutureSkew)"),
    ([announcement(50, {})], {}, "its newest announcement is in force"),
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


def test_a_source_of_the_group_is_named_everywhere_as_what_holds_the_limit() -> None:
    (query,) = PAGES["frozen-source"].queries
    (source,) = query.clocks.sources
    assert held_text(source).startswith("payments (limit of the group): orders-0 is paused: next record over 1 min")
    assert "held by payments (limit of the group), limit 2026-11-21 12:09:58.000" in batch_line(source)
    late = replace(query.clocks, unprocessed=Unprocessed(query.clocks.at), newest=query.clocks.at)
    assert "it is held by payments (limit of the group): orders-0 is paused" in str(diagnose(late))
    history = ChangeHistory()
    history.record("sales", [replace(source, slowest=())])
    history.record("sales", [replace(source, at=source.at + 1)])
    assert [change.after for change in history.changes()] == ["payments (limit of the group)"]
