"""Accounting of a split's time: how long it has been active, paused and idle (FLIP-513)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

from watermark_source.eventtime.watermark import MIN, Millis

K = TypeVar("K", bound=Hashable)

_SECOND = 1_000


class Activity(Enum):
    """What a split that is being read is at; exactly one at a time."""

    ACTIVE = "active"
    PAUSED = "paused"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class SplitTime:
    """Accumulated milliseconds, which sum to the time since the start; nothing runs before ``start``."""

    active: int = 0
    paused: int = 0
    idle: int = 0
    current: Activity | None = None
    since: int = 0
    """Moment of the last change; meaningful once ``current`` is set."""

    def at(self, now: int) -> SplitTime:
        """Return the account with the running stretch added, up to ``now``."""
        if self.current is None:
            return self
        spent = now - self.since
        if self.current is Activity.ACTIVE:
            return replace(self, active=self.active + spent, since=now)
        if self.current is Activity.PAUSED:
            return replace(self, paused=self.paused + spent, since=now)
        return replace(self, idle=self.idle + spent, since=now)


def enter(account: SplitTime, activity: Activity, now: int) -> SplitTime:
    """Start the account, or go over to another activity."""
    return replace(account.at(now), current=activity, since=now)


@dataclass(frozen=True, slots=True)
class SplitMetrics:
    """The seven values a split shows while it is being read; all times in milliseconds."""

    current_watermark: Millis
    """``MIN`` before the first."""
    active_time_per_second: int
    paused_time_per_second: int
    idle_time_per_second: int
    accumulated_active_time: int
    accumulated_paused_time: int
    accumulated_idle_time: int


@dataclass(frozen=True, slots=True)
class SplitAccounts(Generic[K]):
    """Accounts and watermarks of the splits being read."""

    times: Mapping[K, SplitTime] = field(default_factory=dict)
    watermarks: Mapping[K, Millis] = field(default_factory=dict)


def assign(accounts: SplitAccounts[K], split: K) -> SplitAccounts[K]:
    """Open a split's account; its time runs from its first ``enter_split``."""
    return replace(accounts, times={**accounts.times, split: SplitTime()})


def enter_split(accounts: SplitAccounts[K], split: K, activity: Activity, now: int) -> SplitAccounts[K]:
    """Let a split go over to an activity."""
    return replace(accounts, times={**accounts.times, split: enter(accounts.times[split], activity, now)})


def set_watermark(accounts: SplitAccounts[K], split: K, watermark: Millis) -> SplitAccounts[K]:
    """Take a split's latest watermark."""
    return replace(accounts, watermarks={**accounts.watermarks, split: watermark})


def release(accounts: SplitAccounts[K], split: K) -> SplitAccounts[K]:
    """Close a split's account: it shows nothing any more (FLINK-37596)."""
    return SplitAccounts(
        {k: t for k, t in accounts.times.items() if k != split},
        {k: w for k, w in accounts.watermarks.items() if k != split},
    )


def metrics(accounts: SplitAccounts[K], split: K, earlier: SplitTime, now: int) -> SplitMetrics | None:
    """Return what a split shows at ``now``, with rates since the state ``earlier``; None if it is not read."""
    if split not in accounts.times:
        return None
    account = accounts.times[split].at(now)
    elapsed = max(1, now - earlier.since)
    paused = (account.paused - earlier.paused) * _SECOND // elapsed
    idle = (account.idle - earlier.idle) * _SECOND // elapsed
    return SplitMetrics(
        accounts.watermarks.get(split, MIN),
        max(0, _SECOND - paused - idle),
        paused,
        idle,
        account.active,
        account.paused,
        account.idle,
    )
