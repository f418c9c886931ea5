"""What holds a watermark under hypothesis: all views name the same holder, the same reason, and the same advice."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.spark.file_log import TABLE
from tests.unit.monitor.example_status import KAFKA
from tests.unit.planning.example_states import NOW, A, B, C, at, log_of, observation
from watermark_source.monitor.followed_queries import QueryStatus, query_view
from watermark_source.monitor.history import ChangeHistory
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.page.document import page_html
from watermark_source.monitor.page_content import Page
from watermark_source.monitor.three_clocks import DelayVerdict, diagnose, query_clocks
from watermark_source.monitor.window_facts import QueryAt, kind_at
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    LoggedStatement,
    ObservedAnnouncements,
    with_statements,
)
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.group import OtherMember, OtherMembers
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import HeldBy
from watermark_source.planning.planner import plan
from watermark_source.planning.range_report import RowTotals
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermarks import waited_for
from watermark_source.planning.state import Returning, SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import Announced, Punctuated
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark.driver.status import batch_line
from watermark_source.spark.driver.status_from_plan import Seen, source_status
from watermark_source.spark.driver.task_reports import RowCounts
from watermark_source.spark.options import EngineOptions
from watermark_source.status_model.hold_texts import ENGLISH, advice_of, as_sentence, holder_name, subject
from watermark_source.status_model.source_status import SourceStatus, Unprocessed
from watermark_source.status_model.status_json import status_from_json, status_to_json
from watermark_source.status_model.watermark_warnings import Stand, reason_of, standing_text

MINUTE = 60_000
SPLITS = (A, B, C)


def options_of(**given: str) -> EngineOptions:
    return EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)


OPTIONS = [
    options_of(),
    options_of(idleTimeout="30 seconds", maxOutOfOrderness="1 minute"),
    options_of(idleTimeout="30 seconds", idleReturn="pass"),
    options_of(alignmentGroup="g", alignmentMaxDrift="1 minute"),
    options_of(alignmentGroup="g", alignmentMaxDrift="1 minute", idleTimeout="30 seconds"),
    replace(options_of(), policy=replace(options_of().policy, strategy=Punctuated())),
]
PASSING = OPTIONS[2]
_TIMES = st.integers(0, 20).map(lambda n: NOW - 20 * MINUTE + n * MINUTE)


@st.composite
def splits(draw: st.DrawFn) -> tuple[SplitState, int]:
    """A split, and how many rows it has to read."""
    watermark = draw(st.none() | _TIMES)
    status = draw(st.sampled_from([SplitStatus.ACTIVE, SplitStatus.ACTIVE, SplitStatus.IDLE]))
    quiet = draw(st.none() | st.integers(0, 100_000))
    since = NOW if status is SplitStatus.IDLE else None if quiet is None else NOW - quiet
    returning = draw(st.none() | st.sampled_from(Returning)) if status is SplitStatus.ACTIVE else None
    read = draw(st.integers(0, 3))
    return at(read, watermark, status=status, since=since, returning=returning), draw(st.integers(0, 2))


_ROWS = st.builds(lambda read, kind: RowTotals(read=read, **({kind: read} if kind else {})), st.integers(0, 9),
                  st.sampled_from(["", "undated", "future"]))  # fmt: skip
_OTHERS = st.just(OtherMembers()) | st.builds(lambda mark: OtherMembers(mark, OtherMember("users"), 1), _TIMES)


def seen_of(
    members: list[tuple[SplitState, int]],
    sent: int | None,
    options: EngineOptions,
    others: OtherMembers = OtherMembers(),  # noqa: B008 - frozen
    rows: dict[Split, RowTotals] | None = None,
    opened: bool = False,
    max_rows: int | None = None,
) -> Seen:
    """Return a plan of such splits, whose unread rows are of now."""
    states = {split: state for split, (state, _) in zip(SPLITS, members, strict=False)}
    log = log_of(*([NOW - MINUTE] * state.position + [NOW] * unread for state, unread in members))
    begun = SourceState(splits=states, watermark=None if sent is None else Millis(sent), run=1)
    planned = plan(begun, observation(log, others=others, max_rows=max_rows), options.policy, log)
    counts = RowCounts(by_split=rows or {})
    return Seen(planned, counts, words=KAFKA, open_transactions=set(states) if opened else frozenset())


def status_of(seen: Seen, options: EngineOptions) -> SourceStatus:
    """Return the status as a view gets it: from its JSON."""
    status = source_status(seen, options, "file-log", NOW)
    read = status_from_json(status_to_json(status))
    assert read == status
    return read


def text_of(html: str) -> str:
    whole = re.sub(r'<span class="name">([^<]*)</span>', r"\1", re.sub("</?code>", "", html))
    return (
        re.sub(r"<[^>]*>", "\n", whole)
        .replace("\u00a0", " ")
        .replace("&quot;", '"')
        .replace("&#x27;", "'")
        .replace("&gt;", ">")
    )


def assert_views_agree(status: SourceStatus) -> None:
    """Hold log, line of the batch, terminal, page, ``why`` and ``why_open`` to the status."""
    clocks = query_clocks({}, (status,), NOW)
    found = open_window(QueryAt(sources=(status,), batch=1, applied=None), None)
    stand = Stand(source=status, watermark=status.watermark, since=NOW, lasted=MINUTE, rows=1)
    warning, line = standing_text(stand, None), batch_line(status)
    query = SimpleNamespace(lastProgress={}, id="1", isActive=True, exception=lambda: None)
    history = ChangeHistory()
    history.record("q", [status])
    shown = query_view(query, "q", QueryStatus(clocks, diagnose(clocks)), history)
    page = text_of(page_html(Page(at=NOW, queries=(shown,))))
    holder, to_do = next(iter(status.holds), None), advice_of(status)
    if holder is None:
        assert "held by nothing" in line
        assert "holds the" not in page
        assert "\nnothing\n" in page
        assert "Nothing holds it" in warning
        assert not any(view.holds_back for view in status.splits)
        return
    name = subject(holder)
    assert f"held by {holder_name(holder)}" in line
    assert re.search(rf"\nHeld by\n+{re.escape(name)}", page)
    assert holder.why in page
    assert f"{holder_name(holder)}: {holder.why}" in warning
    assert reason_of(stand)[1] == holder.name
    assert as_sentence(to_do) in warning
    assert to_do in page
    assert shown.held_since.keys() == {status.source_name}
    if holder.by is HeldBy.SPLIT and holder.kind is not HoldKind.LEFT_OUT:
        (view,) = [view for view in status.splits if str(view.split) == holder.name]
        assert view.holds_back
        assert view.kind is holder.kind
        assert kind_at(view, status, MIN if status.watermark is None else status.watermark + 1, None) in (
            holder.kind,
            None,
        )
        assert any(name in line for line in shown.verdict.lines) or status.first_reading is not None
    if holder.kind not in (HoldKind.BACKLOG, HoldKind.READ, HoldKind.PENDING) or holder.by is not HeldBy.SPLIT:
        assert not found.remarks or not to_do or any(to_do in remark for remark in found.remarks)
    if holder.by is HeldBy.WRITER or (holder.by is HeldBy.SPLIT and "{why}" in ENGLISH[holder.kind].clause):
        assert any(hold.why in found.sentence for hold in status.holds if hold.kind is holder.kind)
    rows = [row for row in found.rows if row.hold not in (None, HoldKind.LEFT_OUT)]
    is_lowest = holder.watermark is None or holder.watermark == status.watermark
    if rows and is_lowest and holder.by is HeldBy.SPLIT and holder.kind is not HoldKind.LEFT_OUT:
        assert holder.name in {row.name for row in rows}


PLANS: dict[str, st.SearchStrategy[Any]] = {
    "members": st.lists(splits(), min_size=1, max_size=3),
    "sent": st.none() | _TIMES,
    "options": st.sampled_from(OPTIONS),
    "others": _OTHERS,
    "rows": st.lists(_ROWS, min_size=3, max_size=3).map(lambda rows: dict(zip(SPLITS, rows, strict=True))),
    "opened": st.booleans(),
    "max_rows": st.none() | st.just(1),
}
"""The arguments of ``seen_of``."""


def test_every_kind_of_hold_that_a_split_can_have_occurs_and_all_views_agree_on_it() -> None:
    found = set[HoldKind]()

    @settings(max_examples=500, derandomize=True, database=None)
    @given(st.fixed_dictionaries(PLANS))
    def note(given: dict[str, Any]) -> None:
        status = source_status(seen_of(**given), given["options"], "file-log", NOW)
        if new := {hold.kind for hold in status.holds if hold.by is HeldBy.SPLIT} - found:
            assert_views_agree(status)
            found.update(new)

    note()
    # Others than a split hold so, a window does, or the log of a split that does not answer.
    assert set(HoldKind) - found == {HoldKind.PAUSED, HoldKind.SNAPSHOT, HoldKind.BOUND, HoldKind.NO_ANSWER}


PLAIN = {"sent": None, "others": OtherMembers(), "opened": False, "max_rows": None}


@given(st.fixed_dictionaries(PLANS))
@example(
    {
        **PLAIN,
        "members": [(at(1, NOW - MINUTE), 0), (at(1, NOW - 20 * MINUTE, returning=Returning.READ), 0)],
        "sent": NOW - MINUTE,
        "options": PASSING,
        "rows": dict.fromkeys(SPLITS, RowTotals(read=1)),
    }
)
@example(
    {
        **PLAIN,
        "members": [(at(0, NOW - 20 * MINUTE), 0), (at(0, NOW - 19 * MINUTE), 0)],
        "options": OPTIONS[1],
        "rows": dict.fromkeys(SPLITS, RowTotals()),
    }
)
def test_all_views_name_the_same_holder_for_the_same_reason_with_the_same_advice(given: dict[str, Any]) -> None:
    seen, options = seen_of(**given), given["options"]
    status = status_of(seen, options)
    assert_views_agree(status)
    members_of = waited_for(seen.plan.state, seen.plan.watermarks.counted, options.policy.idleness)
    holding = {view.split for view in status.splits if view.holds_back}
    # Only members that the combined watermark counts hold it, unless all are left out.
    assert not members_of or holding <= members_of


def statement(writer: str, watermark: int | None, ends: int, *, idle: bool) -> LoggedStatement:
    mark = None if watermark is None else Millis(watermark)
    about = Announcement(writer=writer, query=writer, batch=0, watermark=mark, idle=idle, topic="T", ends={"0": ends})
    return LoggedStatement(0, NOW, about)


@given(
    writers=st.dictionaries(
        st.sampled_from("abc"), st.tuples(st.none() | _TIMES, st.integers(0, 5), st.booleans()), max_size=3
    ),
    names=st.sets(st.sampled_from("abcd"), max_size=1),
    silent=st.integers(0, 200_000),
    is_current=st.booleans(),
)
def test_all_views_name_the_same_writer(
    writers: dict[str, tuple[int | None, int, bool]], names: set[str], silent: int, is_current: bool
) -> None:
    logged = [statement(name, mark, ends, idle=idle) for name, (mark, ends, idle) in writers.items()]
    table, _ = with_statements(AnnouncedTable(), logged, "T")
    by = AnnouncedBy(frozenset(names))
    announced = ObservedAnnouncements(
        table=table, by=by, log="L", next_position=1, is_current=is_current, silent=dict.fromkeys("abc", silent)
    )
    options = replace(options_of(), policy=replace(options_of().policy, strategy=Announced(by)))
    log = log_of([NOW - MINUTE] * 3)
    seen = observation(log, announced=announced)
    planned = plan(SourceState(splits={A: at(3)}), seen, options.policy, log)
    assert_views_agree(status_of(Seen(planned, RowCounts(), words=KAFKA), options))


def test_a_returned_split_that_is_left_out_holds_nothing_in_any_view() -> None:
    returned = at(1, NOW - 20 * MINUTE, returning=Returning.READ)
    late = [(at(1, NOW - 2 * MINUTE), 0), (returned, 0), (at(1, NOW - MINUTE), 0)]
    status = status_of(seen_of(late, NOW - 2 * MINUTE, PASSING), PASSING)
    (held,) = status.holds
    assert held.name == str(A)
    by_name = {view.split: view for view in status.splits}
    assert by_name[B].kind is HoldKind.LEFT_OUT
    assert "the watermark advances without it (idleReturn=pass)" in by_name[B].why
    found = open_window(QueryAt(sources=(status,), batch=1, applied=None), NOW)
    assert f"{B} is left out until caught up with the watermark (idleReturn=pass)" in found.sentence
    assert_views_agree(status)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [(RowTotals(read=2, undated=2), HoldKind.UNDATED), (RowTotals(read=2, future=2), HoldKind.FUTURE)],
)
def test_a_split_whose_records_of_this_run_have_no_time_is_one_thing_in_all_views(
    rows: RowTotals, kind: HoldKind
) -> None:
    """It has its watermark from before a restart."""
    members = [(at(3, NOW - 20 * MINUTE), 0), (at(1, NOW), 0)]
    counted = {A: rows, B: RowTotals(read=1)}
    status = status_of(seen_of(members, NOW - 20 * MINUTE, options_of(), rows=counted), options_of())
    (held,) = status.holds
    assert (held.name, held.kind) == (str(A), kind)
    assert held.why.startswith("2 records of this run, ")
    found = open_window(QueryAt(sources=(status,), batch=1, applied=None), NOW)
    assert f"{A} is 20 min behind: {held.why}" in found.sentence
    assert_views_agree(status)


@pytest.mark.parametrize(("opened", "holds"), [(True, [(str(A), HoldKind.OPEN_TRANSACTION)]), (False, [])])
def test_what_nothing_leaves_out_holds_a_source_of_which_no_other_split_is_ahead(
    opened: bool, holds: list[tuple[str, HoldKind]]
) -> None:
    quiet = at(1, NOW - 20 * MINUTE, since=NOW - 15 * MINUTE)
    status = status_of(seen_of([(quiet, 0)], NOW - 20 * MINUTE, options_of(), opened=opened), options_of())
    assert [(hold.name, hold.kind) for hold in status.holds] == holds
    assert_views_agree(status)


def test_splits_within_ten_seconds_of_each_other_hold_no_one_and_make_no_history() -> None:
    """Eight splits of a healthy source take turns with each report."""
    history, options = ChangeHistory(), options_of()
    for n in range(60):
        marks = [NOW + 1_000 * n + (7 * (n + k)) % 800 for k in range(3)]
        status = status_of(seen_of([(at(1, mark), 0) for mark in marks], min(marks), options), options)
        assert status.holds == ()
        assert [hold.takes_turns for hold in status.slowest] == [True]
        history.record("q", [replace(status, at=NOW + n)])
    assert history.changes() == ()


def test_two_writers_that_take_turns_hold_a_source_together_and_make_no_history() -> None:
    history, by = ChangeHistory(), AnnouncedBy(frozenset("ab"))
    options = replace(options_of(), policy=replace(options_of().policy, strategy=Announced(by)))
    log = log_of([NOW - MINUTE] * 3)
    for n in range(6):
        marks = {"a": NOW + 2_000 * n, "b": NOW + 2_000 * n + (1_000 if n % 2 else -1_000), "c": NOW + MINUTE}
        logged = [statement(writer, mark, 0, idle=False) for writer, mark in marks.items()]
        table, _ = with_statements(AnnouncedTable(), logged, "T")
        announced = ObservedAnnouncements(
            table=table, by=by, log="L", next_position=1, is_current=True, silent=dict.fromkeys("abc", 0)
        )
        planned = plan(SourceState(splits={A: at(3)}), observation(log, announced=announced), options.policy, log)
        status = status_of(Seen(planned, RowCounts(), words=KAFKA), options)
        assert [(hold.by, hold.name) for hold in status.holds] == [(HeldBy.WRITER, "a"), (HeldBy.WRITER, "b")]
        assert_views_agree(status)
        history.record("q", [replace(status, at=NOW + n)])
    assert history.changes() == ()


def test_two_silent_splits_that_are_as_far_behind_the_others_both_hold_them() -> None:
    quiet = [at(1, NOW - 20 * MINUTE + n, since=NOW - 15 * MINUTE) for n in (0, 5_000)]
    members = [(quiet[0], 0), (quiet[1], 0), (at(1, NOW), 0)]
    status = status_of(seen_of(members, NOW - 20 * MINUTE, options_of()), options_of())
    assert [(hold.name, hold.kind) for hold in status.holds] == [(str(A), HoldKind.SILENT), (str(B), HoldKind.SILENT)]
    assert status.without_holder == NOW
    assert_views_agree(status)


def test_a_source_whose_splits_are_all_idle_without_a_record_is_reported_with_its_group() -> None:
    """An idleTimeout leaves all of them out, and no watermark comes of it: that of the group could lead."""
    options = OPTIONS[4]
    idle = at(0, None, status=SplitStatus.IDLE, since=NOW - MINUTE)
    seen = seen_of([(idle, 0)], None, options, OtherMembers(Millis(NOW), OtherMember("users"), 2))
    status = status_of(seen, options)
    assert status.holds[0].kind is HoldKind.LEFT_OUT
    assert advice_of(status).startswith('.option("idleFollows", "group") lets it follow the other sources')
    assert_views_agree(status)


@pytest.mark.parametrize("unread", [0, 5])
def test_ten_thousand_splits_report_the_slowest_hundred(unread: int) -> None:
    states: dict[Split, Any] = {Split("log", n): at(10, NOW - n) for n in range(10_000)}
    ends = dict.fromkeys(states, 10 + unread)
    seen = replace(observation(log_of([])), logs=replace(observation(log_of([])).logs, ends=ends))
    planned = plan(SourceState(splits=states, watermark=Millis(NOW - 10_000)), seen, options_of().policy, None)
    status = status_of(Seen(planned, RowCounts()), options_of())
    assert {view.split.number for view in status.splits} == set(range(9_900, 10_000))


def test_a_watermark_that_one_partition_holds_is_a_verdict_with_its_advice() -> None:
    options = options_of()
    quiet = at(1, NOW - 20 * MINUTE, since=NOW - 15 * MINUTE)
    status = status_of(seen_of([(at(1, NOW), 0), (quiet, 0)], NOW - 20 * MINUTE, options), options)
    state = {"operatorName": "stateStoreSave", "numRowsTotal": 5}
    event = {
        "eventTime": {"watermark": "2023-11-14T21:53:20.000Z"},
        "batchId": 1,
        "durationMs": {"addBatch": 1},
        "stateOperators": [state],
        "sources": [],
    }
    clocks = query_clocks(event, (replace(status, newest=NOW, rows_at=NOW, unread=Unprocessed(NOW)),), NOW)
    found = diagnose(clocks)
    assert found.verdict is DelayVerdict.ROWS_WAIT
    assert str(found).endswith(f"{status.holds[0].why}; {advice_of(status)}")
