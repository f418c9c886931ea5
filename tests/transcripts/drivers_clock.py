"""Drivers of what lives by a clock: idle timers, assigners, time accounting."""

from __future__ import annotations

from dataclasses import replace

from tests.reference.eventtime import accounting as acc
from tests.reference.eventtime import assigner as asg
from tests.reference.eventtime import sql_assigner as sql
from tests.reference.eventtime import strategy as strat
from tests.reference.eventtime.idleness import IdleTimer, PausableClock, Verdict, probe, touch
from tests.reference.eventtime.watermark import END, Emission, Status, Watermark
from tests.transcripts.drivers_time import ProbedDriver, generator_of, named
from tests.transcripts.grammar import Driver, shown
from watermark_source.eventtime.watermark import Millis


class AssignerDriver(ProbedDriver):
    """An assigner in the middle of a stream; a probe every ``probe_interval`` ms of the clock."""

    def __init__(
        self,
        strategy: str,
        bound: int = 0,
        idle: int | None = None,
        probe_interval: int = 0,
        batch: bool = False,
    ) -> None:
        super().__init__(probe_interval)
        self.state = asg.Assigner(generator_of(strategy, bound, idle), batch=batch)

    def do_record(self, event_time: Millis) -> list[str]:
        self.state, sent = asg.on_record(self.state, event_time, self.now)
        return [f"record {named(event_time)}", *shown(sent)]

    def do_marked(self, event_time: Millis) -> list[str]:
        self.state, sent = asg.on_record(self.state, event_time, self.now, event_time)
        return [f"record {named(event_time)}", *shown(sent)]

    def do_probe(self, _: object) -> list[str]:
        self.state, sent = asg.on_probe(self.state, Millis(self.now))
        return shown(sent)

    def do_upstream(self, emission: Millis | str) -> list[str]:
        said: Emission = Status[emission] if isinstance(emission, str) else Watermark(emission)
        self.state, sent = asg.on_upstream(self.state, said)
        return shown(sent)

    def do_back_pressure(self, on: bool) -> list[str]:
        clock = self.state.clock.pause(self.now) if on else self.state.clock.resume(self.now)
        self.state = replace(self.state, clock=clock)
        return []

    def see_highest(self) -> int | None:
        assert isinstance(self.state.generator.generator, strat.BoundedOutOfOrderness)
        return self.state.generator.generator.max_event_time


class TimerDriver(ProbedDriver):
    """An idle timer on a pausable clock; a probe every ``probe_interval`` ms of the real clock."""

    def __init__(self, timeout: int, probe_interval: int = 0) -> None:
        super().__init__(probe_interval)
        self.timer, self.pausable = IdleTimer(timeout), PausableClock()

    def due_probe(self) -> list[str]:
        return [f"idle at {self.now}"] if self.do_probe(None) == ["idle"] else []

    def do_event(self, _: object) -> list[str]:
        self.timer = touch(self.timer)
        return []

    def do_probe(self, _: object) -> list[str]:
        self.timer, verdict = probe(self.timer, self.pausable.read(self.now))
        return {
            Verdict.ACTIVE: ["not idle"],
            Verdict.BECAME_IDLE: ["idle"],
            Verdict.STILL_IDLE: ["still idle"],
        }[verdict]

    def do_pause(self, _: object) -> list[str]:
        self.pausable = self.pausable.pause(self.now)
        return []

    def do_resume(self, _: object) -> list[str]:
        self.pausable = self.pausable.resume(self.now)
        return []

    def see_reading(self) -> int:
        return self.pausable.read(self.now)


class SqlDriver(Driver):
    """The assigner of SQL; a null watermark is null."""

    def __init__(self, interval: int, timeout: int = 0) -> None:
        super().__init__()
        self.state = sql.sql_assigner(interval, timeout, 0)

    def clock(self, now: int) -> list[str]:
        self.now = now
        self.state, sent = sql.advance(self.state, Millis(now))
        return shown(sent)

    def do_row(self, watermark: Millis | None) -> list[str]:
        self.state, before = sql.before_row(self.state)
        self.state, after = sql.after_row(self.state, watermark, Millis(self.now))
        return [*shown(before), "row", *shown(after)]

    def do_back_pressure(self, on: bool) -> list[str]:
        clock = self.state.clock.pause(self.now) if on else self.state.clock.resume(self.now)
        self.state = replace(self.state, clock=clock)
        return []

    def do_upstream(self, time: Millis) -> list[str]:
        self.state, sent = sql.on_upstream(self.state, Watermark(time))
        return shown(sent)

    def do_close(self, _: object) -> list[str]:
        self.state, sent = sql.on_upstream(self.state, END)
        return shown(sent)

    def see_tick_interval(self) -> int:
        return sql.tick_interval(self.state.watermark_interval, self.state.idle_timeout)


class MetricsDriver(Driver):
    """What a split shows of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts: acc.SplitAccounts[str] = acc.SplitAccounts()
        self.earlier = acc.SplitTime()

    def do_assign(self, split: str) -> list[str]:
        self.accounts = acc.assign(self.accounts, split)
        return []

    def do_enter(self, argument: tuple[str, str]) -> list[str]:
        split, activity = argument
        self.accounts = acc.enter_split(self.accounts, split, acc.Activity(activity), self.now)
        return []

    def do_watermark(self, argument: tuple[str, Millis]) -> list[str]:
        self.accounts = acc.set_watermark(self.accounts, *argument)
        return []

    def do_release(self, split: str) -> list[str]:
        self.accounts = acc.release(self.accounts, split)
        return []

    def _metrics(self) -> acc.SplitMetrics | None:
        return acc.metrics(self.accounts, "s", self.earlier, self.now)

    def see_accumulated(self) -> list[int]:
        """Active, paused, idle."""
        seen = self._metrics()
        assert seen is not None
        return [seen.accumulated_active_time, seen.accumulated_paused_time, seen.accumulated_idle_time]

    def see_rates(self) -> list[int]:
        seen = self._metrics()
        assert seen is not None
        return [seen.active_time_per_second, seen.paused_time_per_second, seen.idle_time_per_second]

    def see_watermark(self) -> int:
        seen = self._metrics()
        assert seen is not None
        return seen.current_watermark

    def see_shown(self) -> int:
        """How many values the split shows."""
        seen = self._metrics()
        return 0 if seen is None else len(acc.SplitMetrics.__dataclass_fields__)


DRIVERS: dict[str, type[Driver]] = {
    "assigner": AssignerDriver,
    "timer": TimerDriver,
    "sql": SqlDriver,
    "metrics": MetricsDriver,
}
