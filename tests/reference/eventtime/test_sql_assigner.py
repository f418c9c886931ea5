from __future__ import annotations

from tests.reference.eventtime.assigner import on_upstream
from tests.reference.eventtime.sql_assigner import SqlAssigner, advance, after_row, before_row, sql_assigner
from tests.reference.eventtime.watermark import Emission, Status, Watermark
from watermark_source.eventtime.watermark import MIN, Millis


def read(state: SqlAssigner, watermark: int | None, now: int) -> tuple[SqlAssigner, tuple[Emission, ...]]:
    state, before = before_row(state)
    state, after = after_row(state, None if watermark is None else Millis(watermark), Millis(now))
    return state, (*before, *after)


def test_a_jump_of_the_interval_waits_for_the_timer_and_a_longer_one_does_not() -> None:
    assert read(sql_assigner(5, 0, 0), 5, 1)[1] == ()
    assert read(sql_assigner(5, 0, 0), 6, 1)[1] == (Watermark(Millis(6)),)


def test_a_negative_watermark_is_never_sent() -> None:
    state, sent = read(sql_assigner(5, 0, 0), MIN, 1)
    assert sent == ()
    assert advance(state, Millis(10))[1] == ()


def test_the_timer_fires_at_a_fixed_delay_after_it_fired() -> None:
    state, sent = advance(sql_assigner(0, 10, 0), Millis(7))
    assert sent == ()
    state, _ = read(state, None, 9)
    state, sent = advance(state, Millis(17))
    assert sent == ()
    state, _ = read(state, None, 20)
    seen = []
    for now in (25, 27, 35, 36, 37):
        state, sent = advance(state, Millis(now))
        seen += [(now, one) for one in sent]
    assert seen == [(37, Status.IDLE)]


def test_only_the_end_of_time_passes_from_upstream() -> None:
    state = sql_assigner(5, 0, 0)
    assert on_upstream(state, Status.IDLE) == (state, ())
    assert on_upstream(state, Watermark(Millis(7))) == (state, ())


def test_the_first_tick_comes_one_interval_after_opening() -> None:
    state, _ = read(sql_assigner(5, 0, 100), 3, 101)
    state, sent = advance(state, Millis(104))
    assert sent == ()
    assert advance(state, Millis(105))[1] == (Watermark(Millis(3)),)
