from __future__ import annotations

from tests.reference.eventtime.accounting import (
    Activity,
    SplitAccounts,
    SplitTime,
    assign,
    enter,
    enter_split,
    metrics,
    release,
    set_watermark,
)
from watermark_source.eventtime.watermark import Millis


def test_rates_are_those_since_the_earlier_state() -> None:
    accounts = enter_split(assign(SplitAccounts(), "s"), "s", Activity.IDLE, 0)
    earlier = accounts.times["s"].at(60_000)
    accounts = enter_split(accounts, "s", Activity.PAUSED, 60_000)
    accounts = enter_split(accounts, "s", Activity.ACTIVE, 61_000)
    shown = metrics(accounts, "s", earlier, 64_000)
    assert shown is not None
    assert (shown.active_time_per_second, shown.paused_time_per_second, shown.idle_time_per_second) == (750, 250, 0)
    assert (shown.accumulated_active_time, shown.accumulated_paused_time) == (3_000, 1_000)
    assert shown.accumulated_idle_time == 60_000


def test_reading_an_account_changes_nothing() -> None:
    account = enter(SplitTime(), Activity.PAUSED, 100)
    assert account.at(150).at(160) == account.at(160)
    assert account.at(150).paused == 50


def test_a_released_split_leaves_nothing_behind_and_others_alone() -> None:
    accounts = set_watermark(assign(assign(SplitAccounts(), "s"), "t"), "s", Millis(5))
    accounts = release(accounts, "s")
    assert accounts == assign(SplitAccounts(), "t")


def test_what_was_paused_before_the_earlier_state_is_not_in_the_rate() -> None:
    accounts = enter_split(assign(SplitAccounts(), "s"), "s", Activity.PAUSED, 0)
    accounts = enter_split(accounts, "s", Activity.ACTIVE, 500)
    shown = metrics(accounts, "s", accounts.times["s"].at(1_000), 2_000)
    assert shown is not None
    assert (shown.active_time_per_second, shown.paused_time_per_second) == (1_000, 0)
