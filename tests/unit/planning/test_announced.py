"""Which announcements positions have reached, and the watermark of several writers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from watermark_source.planning import announced
from watermark_source.planning.announced import (
    MOST_CUTS,
    AnnouncedBy,
    AnnouncedFrom,
    AnnouncedTable,
    Coming,
    LoggedStatement,
    ObservedAnnouncements,
    Remark,
    WriterStatus,
    advanced,
    coming,
    needed_from,
    reached,
    silent_by_records,
    unknown_parts,
    with_statements,
    writers_at,
)
from watermark_source.planning.announcement import Announcement, Removal, Statement
from watermark_source.planning.observation import Observation, ObservedLogs, PlanHistory
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.strategy import Announced
from watermark_source.planning.watermark import LAST, MAX, MIN, Millis

TOPIC = "T"


def stated(
    watermark: int | None, ends: Mapping[str, int], *, writer: str = "a", query: str = "q", batch: int = 0, **more: Any
) -> Announcement:
    at = None if watermark is None else Millis(watermark)
    return Announcement(
        **{"writer": writer, "query": query, "batch": batch, "watermark": at, "topic": TOPIC, "ends": ends, **more}
    )


def table_of(*statements: Statement | str, topic: str = TOPIC) -> tuple[AnnouncedTable, tuple[Remark, ...]]:
    """Take in statements; a text is the key of a record that cannot be read."""
    logged = [
        LoggedStatement(at, None, None, each, "no JSON") if isinstance(each, str) else LoggedStatement(at, None, each)
        for at, each in enumerate(statements)
    ]
    return with_statements(AnnouncedTable(), logged, topic)


def observed(table: AnnouncedTable, *names: str, **changes: Any) -> ObservedAnnouncements:
    by = AnnouncedBy(frozenset(names), changes.pop("time_to_live", None))
    given = {"log": "L", "next_position": 100, "is_current": True, **changes}
    return ObservedAnnouncements(table=table, by=by, **given)


def watermark(
    statements: Sequence[Statement | str],
    positions: Mapping[str, int],
    *names: str,
    sent: int | None = None,
    **more: Any,
) -> int | None:
    cap = more.pop("cap", None)
    at = observed(table_of(*statements)[0], *names, **more)
    return reached(at, positions, None if sent is None else Millis(sent), cap)


def test_a_cut_counts_once_it_is_reached_in_every_partition_it_names() -> None:
    statements = [stated(10, {"0": 3, "1": 0}), stated(20, {"0": 5, "1": 2}, batch=1)]
    assert watermark(statements, {"0": 2, "1": 0}) is None
    assert watermark(statements, {"0": 3}) == 10
    assert watermark(statements, {"0": 9, "1": 1}) == 10
    assert watermark(statements, {"0": 5, "1": 2, "2": 0}) == 20


def test_a_partition_that_the_reader_has_not_found_is_not_reached_if_it_has_rows() -> None:
    statements = [stated(10, {"0": 1, "1": 0}), stated(20, {"0": 1, "1": 7}, batch=1)]
    assert watermark(statements, {"0": 5}) == 10
    table, _ = table_of(*statements)
    assert unknown_parts(table, {"0"}) == {"1"}
    assert unknown_parts(table, {"0", "1"}) == set()


def test_writers_combine_as_channels_of_a_valve() -> None:
    a, b = stated(50, {}), stated(20, {}, writer="b")
    assert watermark([a, b], {}) == 20
    assert watermark([a], {}, "b") is None
    assert watermark([a], {}, "b", sent=7) == 7
    assert watermark([a, stated(None, {}, writer="b")], {}) is None
    assert watermark([a, b, stated(20, {}, writer="b", batch=1, idle=True)], {}) == 50
    assert watermark([stated(50, {}, idle=True), stated(20, {}, writer="b", idle=True)], {}) == 50
    assert watermark([a, stated(MAX, {}, writer="b")], {}) == 50
    assert watermark([stated(MAX, {}), stated(MAX, {}, writer="b")], {}) == LAST
    assert watermark([a, b], {}, sent=30) == 30
    assert watermark([a, b, Removal("b")], {}) == 50
    assert watermark([a], {}, is_current=False, sent=5) == 5


def test_the_end_does_not_count_beside_a_writer_that_is_idle() -> None:
    """Unlike in a valve: a writer that comes back from idleness would be late with all its rows."""
    assert watermark([stated(MAX, {}), stated(20, {}, writer="b", idle=True)], {}) == 20


def test_idleness_and_the_end_apply_where_their_cut_is_reached() -> None:
    statements = [
        stated(50, {}), stated(20, {"0": 0}, writer="b"), stated(20, {"0": 9}, writer="b", batch=1, idle=True),
        stated(MAX, {"0": 10}, writer="b", batch=2),
    ]  # fmt: skip
    assert [watermark(statements, {"0": at}) for at in (0, 8, 9, 10)] == [20, 20, 50, 50]


def test_a_new_query_under_an_old_name_supersedes_it_and_one_that_comes_back_is_named_and_ignored() -> None:
    """As in a rolling restart, where the earlier process announces once more."""
    first, second = stated(50, {}), stated(None, {"0": 4}, query="q2")
    assert watermark([first, second], {"0": 9}) is None
    assert watermark([first, second, stated(30, {"0": 4}, query="q2", batch=1)], {"0": 9}, sent=10) == 30
    turns = [first, second, stated(60, {}, batch=7)]
    assert watermark(turns, {"0": 9}, sent=50) == 50
    assert watermark([*turns, stated(30, {"0": 4}, query="q2", batch=1)], {"0": 9}) == 30
    (remark,) = table_of(*turns)[1]
    assert "a: the earlier run q announced again, at 2, after q2 began" in remark.text
    assert remark.text.endswith("if the newer one is gone: drop a (see python -m watermark_source watermarks --help)")
    assert watermark([*turns, Removal("a"), stated(70, {}, batch=9)], {}) == 70


def test_a_restart_does_not_take_a_superseded_query_for_a_new_one() -> None:
    """Its rows are not those of the query that superseded it, and what it announces holds only for its own."""
    logged = [
        LoggedStatement(at, None, each)
        for at, each in enumerate(
            [
                stated(10, {}, query="q0"),
                stated(50, {}, query="q1"),
                stated(20, {}, query="q2"),
                stated(90, {}, query="q1"),
            ]
        )
    ]
    before, _ = with_statements(AnnouncedTable(), logged[:3], TOPIC)
    kept = needed_from(observed(before), {}, None, None, None)
    assert kept is not None
    assert (kept.position, kept.former) == (2, {"a": ("q0", "q1")})
    # From the present query's first record, from the beginning because of another writer, and without it.
    for first in (2, 0):
        table, _ = with_statements(AnnouncedTable.of_names(kept.writers, kept.former), logged[first:3], TOPIC)
        assert reached(observed(table), {}, None, None) == 20
        table, (remark,) = with_statements(table, logged[3:], TOPIC)
        assert "the earlier run q1 announced again, at 3, after q2 began" in remark.text
        assert reached(observed(table), {}, None, None) == 20
    table, _ = with_statements(AnnouncedTable.of_names(kept.writers, kept.former), logged[3:], TOPIC)
    assert reached(observed(table), {}, None, None) is None
    again = [LoggedStatement(4, None, Removal("a")), LoggedStatement(5, None, stated(95, {}, query="q1"))]
    assert reached(observed(with_statements(table, again, TOPIC)[0]), {}, None, None) == 95


@pytest.mark.parametrize(("later", "positions", "expected", "remark"), [
    (stated(99, {"0": 5}, batch=3), {"0": 9}, 50, "batch 3 after batch 5, as where"),
    (stated(40, {"0": 5}, batch=6), {"0": 9}, 40, "announced 1970-01-01 00:00:00.040 at 1 after 1970"),
    (stated(None, {"0": 5}, batch=6), {"0": 9}, None, "announced none yet at 1 after 1970"),
    (stated(60, {"0": 2}, batch=6), {"0": 2}, 60, "truncated"),
    (stated(60, {"0": 0}, batch=6), {"0": 0}, 60, "truncated"),
    (stated(60, {}, batch=6), {"0": 0}, None, "lags behind"),
    (stated(60, {"0": 3}, batch=5), {"0": 4}, 50, "arrives late"),
    (stated(60, {"0": 5}, batch=5), {"0": 5}, 60, None),
])  # fmt: skip
def test_what_goes_back_can_only_make_the_watermark_later_and_is_named(
    later: Announcement, positions: Mapping[str, int], expected: int | None, remark: str | None
) -> None:
    first = stated(50, {"0": 4}, batch=5)
    assert watermark([first, later], positions) == expected
    _, remarks = table_of(first, later)
    assert [remark in each.text for each in remarks] == [True] if remark else remarks == ()


def test_one_record_whose_number_or_cut_no_later_one_reaches_delays_by_one_announcement() -> None:
    """Of a second copy, or of a program that counts otherwise, once: the records after it are right."""
    wrong = stated(50, {"0": 2**62}, batch=2**62)
    after = [stated(at, {"0": 4}, batch=at) for at in (60, 61)]
    assert watermark([stated(50, {}), wrong, after[0]], {"0": 4}, sent=50) == 50
    assert watermark([stated(50, {}), wrong, *after], {"0": 4}) == 61
    _, remarks = table_of(stated(50, {}), wrong, *after)
    assert [each.text.partition(", as where")[0] for each in remarks] == [
        f"a announced batch {at} after batch {2**62}" for at in (60, 61)
    ]
    # Two that contradict each other, too, are not treated as right.
    assert watermark([stated(50, {}), wrong, after[1], after[0]], {"0": 4}) == 50


def test_a_watermark_of_the_future_that_is_not_applied_binds_no_one() -> None:
    later = [stated(10, {"0": 1}), stated(900, {"0": 2}, batch=1), stated(20, {"0": 3}, batch=2)]
    assert watermark(later, {"0": 5}, cap=Millis(100)) == 20
    # What was applied stays in force, as in a valve.
    table = advanced(table_of(*later[:2])[0], {"0": 5}, None)
    table, _ = with_statements(table, [LoggedStatement(2, None, later[2])], TOPIC)
    assert reached(observed(table), {"0": 5}, Millis(15), None) == 900


def test_a_record_that_cannot_be_read_holds_the_writer_of_its_key_until_the_next() -> None:
    a = stated(50, {})
    assert watermark([a, "b"], {}, sent=3) == 3
    assert watermark([a, "b", stated(60, {}, writer="b")], {}) == 50
    assert watermark([a, stated(70, {}, writer="b", idle=True), "b"], {}) == 50
    assert watermark([a, stated(MAX, {}, writer="b"), "b"], {}, sent=3) == 3
    assert watermark([a, "b", Removal("b")], {}) == 50
    _, remarks = with_statements(AnnouncedTable(), [LoggedStatement(4, None, None, None, "no JSON")], TOPIC)
    assert [each.text for each in remarks] == ["a record without a writer's name as its key, at 4, is ignored: no JSON"]
    _, (remark,) = with_statements(AnnouncedTable(), [LoggedStatement(4, None, None, "b", "no JSON")], TOPIC)
    assert 'waits for its next one: no JSON; if it is gone for good: .option("writerTimeToLive", ' in remark.text
    assert "or drop b (see python -m watermark_source watermarks --help), and remove its name from" in remark.text


def test_announcements_about_another_topic_are_ignored_and_a_new_topic_keeps_only_names() -> None:
    table, remarks = table_of(stated(50, {"0": 1}), stated(70, {}, writer="old", topic="before"))
    assert (list(table.writers), remarks) == (["a"], ())
    table, remarks = with_statements(table, [], "T2")
    assert f"it had the id {TOPIC}, and has T2. What was announced of the earlier one is dropped" in remarks[0].text
    assert with_statements(table, [], "T2") == (table, ())
    assert reached(observed(table), {"0": 9}, None, None) is None
    table, _ = with_statements(table, [LoggedStatement(9, None, stated(4, {}, batch=1, topic="T2"))], "T2")
    assert reached(observed(table), {}, None, None) == 4


def test_a_watermark_of_the_future_waits_and_earlier_ones_and_the_end_apply() -> None:
    statements = [stated(10, {"0": 1}), stated(900, {"0": 2}, batch=1)]
    assert watermark(statements, {"0": 5}, cap=Millis(100)) == 10
    assert watermark(statements, {"0": 5}, cap=Millis(900)) == 900
    table, _ = table_of(*statements)
    later = advanced(table, {"0": 5}, Millis(100))
    assert reached(observed(later), {"0": 5}, None, Millis(900)) == 900
    (at,) = writers_at(observed(table), {"0": 5}, Millis(100))
    assert at.is_future
    assert watermark([stated(10, {}), stated(MAX, {}, batch=1)], {}, cap=Millis(100)) == LAST


@pytest.mark.parametrize(("since", "is_sent"), [(None, True), (199, False), (200, True)])
def test_a_watermark_without_rows_makes_a_batch_at_once_and_at_most_one_in_an_interval(
    since: int | None, is_sent: bool
) -> None:
    by, split, now = AnnouncedBy(), Split("t", 0), Millis(10_000)
    policy = PlanPolicy(strategy=Announced(by), watermark_interval=200)
    table, _ = table_of(stated(50, {"0": 3}))
    seen = Observation(
        now=now,
        logs=ObservedLogs(asked_at=now, ends={split: 3}),
        announced=observed(table),
        history=PlanHistory(since_batch_without_rows=None if since is None else Millis(since)),
    )
    planned = plan(SourceState({split: SplitState(3, 3)}, watermark=Millis(40)), seen, policy, None)
    assert planned.is_batch is is_sent
    assert planned.state.watermark == (50 if is_sent else 40)


@pytest.mark.parametrize(("statements", "ends", "expected"), [
    ([stated(10, {"0": 3})], {"0": 3}, Coming.WITH_THEM),
    ([stated(10, {"0": 3})], {"0": 4}, Coming.NEXT),
    ([stated(10, {"0": 3})], {"0": 3, "1": 1}, Coming.NEXT),
    ([stated(10, {"0": 3}), stated(20, {"0": 5}, batch=1)], {"0": 4}, Coming.THERE),
    ([stated(10, {"0": 3}), stated(20, {"0": 5}, batch=1)], {"0": 5}, Coming.WITH_THEM),
    ([stated(10, {"0": 3}), stated(20, {"0": 5}, batch=1), stated(30, {"0": 7}, batch=2)], {"0": 6}, Coming.WITH_THEM),
    ([stated(10, {"0": 3}), stated(20, {"0": 5, "1": 9}, batch=1)], {"0": 5, "1": 8}, Coming.THERE),
    ([], {"0": 4}, Coming.WITH_THEM),
    (["a"], {"0": 4}, Coming.WITH_THEM),
])  # fmt: skip
def test_rows_have_an_announcement_with_them_or_one_that_was_made_since_or_a_later_one(
    statements: Sequence[Statement | str], ends: Mapping[str, int], expected: Coming
) -> None:
    at = {"0": 3}
    assert coming(advanced(table_of(*statements)[0], at, None), at, ends) is expected


def test_a_silent_writer_is_left_out_after_its_time_to_live_unless_it_is_new_to_the_reader() -> None:
    statements = [stated(50, {}), stated(20, {}, writer="b")]
    assert watermark(statements, {}, time_to_live=10, silent={"b": 10}) == 20
    assert watermark(statements, {}, time_to_live=10, silent={"b": 11}) == 50
    assert watermark(statements, {}, "c", time_to_live=10, silent={"b": 11, "c": 11}) is None
    names = observed(AnnouncedTable.of_names(["a"]), time_to_live=10, silent={"a": 99})
    assert [each.status for each in writers_at(names, {}, None)] == [WriterStatus.SILENT]


def test_a_writer_that_has_announced_to_be_idle_is_not_silent_however_long_ago_that_was() -> None:
    idle = observed(table_of(stated(50, {}, idle=True))[0], time_to_live=10, silent={"a": 99})
    assert [each.status for each in writers_at(idle, {}, None)] == [WriterStatus.IDLE]


def test_a_time_to_live_ends_the_wait_for_a_record_that_can_be_read() -> None:
    statements: list[Statement | str] = [stated(50, {}), stated(20, {}, writer="b"), "b"]
    assert watermark(statements, {}, time_to_live=10, silent={"b": 10}) == 20
    assert watermark(statements, {}, time_to_live=10, silent={"b": 11}) == 50
    assert watermark([stated(50, {}), "new"], {}, time_to_live=10, silent={"new": 11}) == 50


def test_in_a_run_a_writer_is_silent_from_its_last_record_to_the_newest_of_all() -> None:
    logged = [
        LoggedStatement(at, None if written is None else Millis(written), stated(1, {}, writer=writer, query=writer))
        for at, (writer, written) in enumerate({"dead": 1_000, "alive": 9_000, "undated": None}.items())
    ]
    table, _ = with_statements(AnnouncedTable.of_names(["expired"]), logged, TOPIC)
    assert silent_by_records(table, Millis(50_000)) == {"alive": 0, "dead": 8_000, "expired": 0, "undated": 0}
    # A record of a clock that is ahead shows no more than now.
    assert silent_by_records(table, Millis(3_000)) == {"alive": 0, "dead": 2_000, "expired": 0, "undated": 0}
    # An outage, or a night without any job: no one announced after the others.
    assert silent_by_records(with_statements(AnnouncedTable(), logged[:1], TOPIC)[0], Millis(50_000)) == {"dead": 0}


def test_a_silent_writer_is_waited_for_until_its_announcements_are_reached() -> None:
    statements = [stated(100, {"0": 10}), stated(500, {"0": 5}, writer="b")]
    assert watermark(statements, {"0": 5}, time_to_live=10, silent={"a": 11}) is None
    assert watermark(statements, {"0": 10}, time_to_live=10, silent={"a": 11}) == 500


def test_a_record_that_arrives_late_lowers_no_cut() -> None:
    statements = [stated(50, {"0": 5}), stated(200, {"0": 20}, batch=1), stated(100, {"0": 10}, batch=1)]
    assert watermark(statements, {"0": 10}) == 50
    assert watermark(statements, {"0": 20}) == 200


def test_a_cut_without_a_partition_that_an_earlier_one_has_is_ignored() -> None:
    statements = [stated(50, {"0": 5, "1": 5}), stated(200, {"1": 6}, batch=1)]
    assert watermark(statements, {"0": 0, "1": 6}) is None
    assert watermark(statements, {"0": 5, "1": 6}) == 50


def test_thinning_does_not_make_a_writer_idle() -> None:
    by_turns = [stated(n, {"0": n + 1}, batch=n, idle=n % 2 == 0) for n in range(MOST_CUTS + 3)]
    table, _ = table_of(*by_turns, stated(10**6, {}, writer="b"))
    for position in range(10, MOST_CUTS, 97):
        found = reached(observed(table), {"0": position}, None, None)
        assert found is not None
        assert found <= position


def test_a_checkpoint_keeps_the_first_record_that_is_still_of_use() -> None:
    table, _ = table_of(
        stated(10, {}), stated(10, {}, writer="b"), stated(20, {"0": 3}, batch=1), stated(30, {"0": 9}, batch=2)
    )
    kept = needed_from(observed(table), {"0": 3}, None, None, None)
    assert kept is not None
    assert (kept.position, kept.log, kept.writers) == (1, "L", ("a", "b"))
    table, _ = with_statements(table, [LoggedStatement(5, None, Removal("b"))], TOPIC)
    kept = needed_from(observed(table), {"0": 3}, None, kept, None)
    assert kept is not None
    assert (kept.position, kept.writers) == (2, ("a",))
    assert needed_from(observed(table, is_current=False), {"0": 9}, None, kept, None) is kept
    nothing = needed_from(observed(AnnouncedTable()), {}, None, None, None)
    assert nothing is not None
    assert (nothing.position, nothing.writers) == (100, ())


@pytest.mark.parametrize("ends", ["ended", "idle", "silent"])
def test_a_checkpoint_does_not_grow_with_writers_that_are_gone(ends: str) -> None:
    """Such as one under a new name each night."""
    gone = [
        stated(MAX if ends == "ended" else 10 * n, {"0": n}, writer=f"night-{n}", query=f"q{n}", idle=ends == "idle")
        for n in range(400)
    ]
    table, _ = table_of(*gone, stated(5_000, {"0": 400}, writer="day", query="d"))
    silent = {each.writer: 90_000 for each in gone}
    seen = observed(table, time_to_live=60_000, silent=silent)
    sent = reached(seen, {"0": 400}, None, None)
    assert sent == 5_000
    kept = needed_from(seen, {"0": 400}, None, None, sent)
    newest = tuple(sorted(["day", *(f"night-{n}" for n in range(350, 400))]))
    assert kept == AnnouncedFrom(350, "L", newest, left_out=ends != "ended")
    # One that is named is waited for until it announces, so a restart must find what it announced.
    named = observed(table, "night-7", time_to_live=60_000, silent=silent)
    kept = needed_from(named, {"0": 400}, None, None, sent)
    assert kept == AnnouncedFrom(7, "L", (*newest, "night-7"), left_out=ends != "ended")
    # So must it while the rows before an announcement are to be read.
    before = needed_from(seen, {"0": 398}, None, None, None)
    assert before is not None
    assert {"day", "night-399"} <= set(before.writers)


def history(chance: random.Random) -> list[tuple[list[LoggedStatement], int]]:
    """Return what three writers announce, and positions; in the end each begins again, and all is read."""
    end, position, times, queries = 0, 0, dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    begins_again: set[str] = set()
    steps: list[tuple[list[LoggedStatement], int]] = []
    for step in range(20):
        is_last, made = step == 19, list[LoggedStatement]()
        for writer in "abc" if is_last else chance.choice("abc"):
            queries[writer] += is_last or writer in begins_again or chance.random() < 0.1
            begins_again -= {writer}
            times[writer] += 1_000 if is_last else chance.choice((1, 5))
            end = max(end, position + chance.choice((0, 1, 4)))
            watermark, idle = times[writer], not is_last and chance.random() < 0.4
            if not is_last and chance.random() < 0.1:
                watermark, begins_again = MAX, begins_again | {writer}
            at = sum(len(earlier) for earlier, _ in steps) + len(made)
            query = f"{writer}{queries[writer]}"
            of = stated(watermark, {"0": end}, writer=writer, query=query, batch=at, idle=idle)
            made.append(LoggedStatement(at, None, of))
        position += 9 if is_last else chance.choice((0, 1, 4))
        steps.append((made, position))
    return steps


@pytest.mark.parametrize("histories", [300, pytest.param(20_000, marks=pytest.mark.long("300 of them"))])
def test_a_restart_never_has_a_later_watermark_and_in_the_end_the_same(
    histories: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(histories):
        # Those that are left out never make it later, and without such it is the same.
        most = seed % 4 or 3
        monkeypatch.setattr(announced, "_UNAWAITED_IN_CHECKPOINT", most)
        chance = random.Random(seed)
        log, table, again = list[LoggedStatement](), AnnouncedTable(), AnnouncedTable()
        sent = sent_again = None
        restart = chance.randrange(19)
        for step, (made, position) in enumerate(history(chance)):
            log += made
            (table, _), (again, _) = with_statements(table, made, TOPIC), with_statements(again, made, TOPIC)
            seen = observed(table, next_position=len(log))
            sent = reached(seen, {"0": position}, sent, None)
            sent_again = reached(observed(again), {"0": position}, sent_again, None)
            assert (sent_again or MIN) <= (sent or MIN), f"seed {seed}, step {step}"
            if step == restart:
                kept = needed_from(seen, {"0": position}, None, None, sent)
                assert kept is not None
                known = AnnouncedTable.of_names(kept.writers, kept.former, left_out=kept.left_out)
                again, _ = with_statements(known, log[kept.position :], TOPIC)
        assert sent_again == sent or most < 3, f"seed {seed}"


def test_thinning_keeps_the_newest_announcement_and_only_delays() -> None:
    many = [stated(at, {"0": at}, batch=at) for at in range(3 * MOST_CUTS)]
    table, _ = table_of(*many)
    assert len(table.writers["a"].pending) <= MOST_CUTS
    last = len(many) - 1
    assert reached(observed(table), {"0": last}, None, None) == last
    for at in (100, 5_000, last - 1):
        found = reached(observed(table), {"0": at}, None, None)
        assert found is not None
        assert at - 8 <= found <= at


class Naive:
    """Each writer's markers as if each partition had them in its log: the minimum over splits of the newest reached."""

    def __init__(self) -> None:
        self.markers: dict[str, list[Announcement]] = {}

    def watermark(self, writer: str, positions: Mapping[str, int]) -> int | None:
        newest = []
        for part, at in positions.items():
            reached_here = [m.watermark for m in self.markers[writer] if m.ends.get(part, 0) <= at]
            newest.append(reached_here[-1] if reached_here else None)
        return None if None in newest else min(at for at in newest if at is not None)

    def combined(self, positions: Mapping[str, int]) -> int | None:
        found = [self.watermark(writer, positions) for writer in self.markers]
        return None if None in found else min((at for at in found if at is not None), default=None)


@pytest.mark.parametrize("histories", [300, pytest.param(20_000, marks=pytest.mark.long("300 of them"))])
def test_the_newest_cut_reached_everywhere_is_the_minimum_over_splits_of_the_newest_reached_there(
    histories: int,
) -> None:
    for seed in range(histories):
        chance = random.Random(seed)
        parts = [str(at) for at in range(chance.randint(1, 4))]
        writers = "abc"[: chance.randint(1, 3)]
        ends, times = dict.fromkeys(parts, 0), dict.fromkeys(writers, 0)
        positions, sent, naive, table = dict.fromkeys(parts, 0), None, Naive(), AnnouncedTable()
        for step in range(chance.randint(1, 25)):
            writer = chance.choice(writers)
            ends = {part: end + chance.choice((0, 0, 1, 3)) for part, end in ends.items()}
            times[writer] += chance.choice((0, 1, 5))
            named = {part: end for part, end in ends.items() if end or chance.random() < 0.5}
            made = stated(times[writer], named, writer=writer, query=f"q{writer}", batch=step)
            naive.markers.setdefault(writer, []).append(made)
            table, remarks = with_statements(table, [LoggedStatement(step, None, made)], TOPIC)
            assert remarks == ()
            positions = {part: min(ends[part], at + chance.choice((0, 1, 4))) for part, at in positions.items()}
            expected = naive.combined(positions)
            found = reached(observed(table), positions, sent, None)
            if expected is not None:
                assert found == max(expected, sent or 0), f"seed {seed}, step {step}"
            else:
                assert found == sent, f"seed {seed}, step {step}"
            sent = found
            if chance.random() < 0.5:
                table = advanced(table, positions, None)


def test_whatever_a_writer_announces_nothing_is_applied_that_it_did_not_promise_there() -> None:
    """With batches, watermarks, ends and partitions that go back, and with queries that follow one another."""
    for seed in range(500):
        chance = random.Random(seed)
        table, made = AnnouncedTable(), list[Announcement]()
        query = 0
        for step in range(chance.randint(1, 12)):
            query += chance.random() < 0.1
            ends = {part: chance.randint(0, 6) for part in "01" if chance.random() < 0.9}
            time = None if chance.random() < 0.1 else chance.randint(0, 50)
            made.append(stated(time, ends, query=f"q{query}", batch=max(0, step - chance.choice((0, 0, 0, 1, 2)))))
            table, _ = with_statements(table, [LoggedStatement(step, None, made[-1])], TOPIC)
            positions = {part: chance.randint(0, 7) for part in "01"}
            found = reached(observed(table), positions, None, None)
            promised = [
                each.watermark
                for each in made
                if each.query == f"q{query}" and all(positions[part] >= each.ends.get(part, 0) for part in "01")
            ]
            most = max((at for at in promised if at is not None), default=None)
            assert found is None or (most is not None and found <= most), f"seed {seed}, step {step}"
