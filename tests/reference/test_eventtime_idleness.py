"""Properties of idle timers and pausable clocks: time a split was held up for is not its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.reference.eventtime.accounting import Activity, SplitTime, enter
from tests.reference.eventtime.idleness import RUNNING_CLOCK, IdleTimer, Verdict, probe, touch
from tests.reference.eventtime.strategy import ProbeResult, monotonous, observe, probe_split
from watermark_source.eventtime.watermark import Millis

# A script: milliseconds that pass, then an event or a probe.
scripts = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["event", "probe"])), max_size=30)


def verdicts(script: list[tuple[int, str]], held_up: dict[int, int]) -> list[Verdict]:
    """Run a script; ``held_up`` says for how long the clock is paused before a step."""
    timer, clock, now, seen = IdleTimer(20), RUNNING_CLOCK, 0, []
    for position, (passed, what) in enumerate(script):
        pause = held_up.get(position, 0)
        clock = clock.pause(now)
        now += pause
        clock = clock.resume(now)
        now += passed
        if what == "event":
            timer = touch(timer)
        else:
            timer, verdict = probe(timer, clock.read(now))
            seen.append(verdict)
    return seen


@given(scripts, st.dictionaries(st.integers(0, 29), st.integers(0, 1_000)))
def test_being_held_up_changes_no_verdict(script: list[tuple[int, str]], held_up: dict[int, int]) -> None:
    assert verdicts(script, held_up) == verdicts(script, {})


@given(scripts)
def test_idle_is_said_once_a_period(script: list[tuple[int, str]]) -> None:
    said = [v for v in verdicts(script, {}) if v is not Verdict.ACTIVE]
    periods = "".join("B" if v is Verdict.BECAME_IDLE else "s" for v in said)
    assert periods == "" or periods[0] == "B"


@given(scripts, st.integers(0, 10_000))
def test_a_split_that_is_held_up_is_never_idle(script: list[tuple[int, str]], later: int) -> None:
    split, now = monotonous().with_idleness(20).start(), 0
    for passed, what in script:
        now += passed
        if what == "event":
            split, _ = observe(split, Millis(now))
        else:
            split, _ = probe_split(split, now)
    _, found = probe_split(split, now + later, held_up=True)
    assert not isinstance(found, ProbeResult)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=10), st.integers(0, 100))
def test_overlapping_pauses_lose_the_time_between_the_first_and_the_last(starts: list[int], more: int) -> None:
    clock, now = RUNNING_CLOCK, 0
    for step in starts:
        now += step
        clock = clock.pause(now)
    first = starts[0]
    for _ in starts:
        assert clock.read(now) == first
        now += more
        clock = clock.resume(now)
    assert clock.read(now) == first
    assert clock.read(now + 7) == first + 7


@given(st.lists(st.tuples(st.sampled_from(list(Activity)), st.integers(0, 100)), min_size=1, max_size=20))
def test_active_paused_and_idle_time_add_up_to_the_time_since_the_start(steps: list[tuple[Activity, int]]) -> None:
    account, now = SplitTime(), 40
    for activity, passed in steps:
        account = enter(account, activity, now)
        now += passed
    total = account.at(now)
    assert total.active + total.paused + total.idle == now - 40
