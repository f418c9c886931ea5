"""Driver of a whole source subtask, put together from the parts of event time and alignment."""

from __future__ import annotations

from typing import Any

from tests.reference.alignment import pausing
from tests.reference.alignment import subtask as sub
from tests.reference.eventtime import accounting as acc
from tests.reference.eventtime import multiplexer as mux
from tests.reference.eventtime import output as out
from tests.reference.eventtime import strategy as strat
from tests.reference.eventtime.idleness import PausableClock
from tests.reference.eventtime.watermark import Emission, Status, Watermark
from tests.transcripts.drivers_time import ProbedDriver, generator_of
from tests.transcripts.grammar import Driver, shown
from watermark_source.alignment.group import MemberStatus
from watermark_source.eventtime.watermark import Millis


class SourceDriver(ProbedDriver):
    """One source subtask: splits with records, their generators, clocks and statuses, its output and its alignment.

    ``output: main`` lets all records go through the main output. Probes run with the clock if ``probe_interval`` is
    given; ``probe`` and ``interval`` (of updates) run them by hand. A record's watermark is its own time, unless the
    strategy says otherwise.
    """

    def __init__(
        self,
        splits: dict[str, list[int]] | None = None,
        buffer: int = 0,
        strategy: str = "punctuated",
        bound: int = 0,
        idle: int | None = None,
        probe_interval: int = 0,
        output: str = "splits",
    ) -> None:
        super().__init__(probe_interval)
        self.spec = {"strategy": strategy, "bound": bound, "idle": idle}
        self.to_main = output == "main"
        self.records: dict[str, list[int]] = {}
        self.generators: dict[str, strat.SplitGenerator] = {}
        self.clocks: dict[str, PausableClock] = {}
        self.mux: mux.Multiplexer[str] = mux.Multiplexer()
        self.out = out.SourceOutput()
        self.pausing: pausing.SplitPausing[str] = pausing.SplitPausing(buffer)
        self.subtask = sub.subtask(buffer)
        self.accounts: acc.SplitAccounts[str] = acc.SplitAccounts()
        self.main, self.main_clock, self.main_waits = generator_of(**self.spec), PausableClock(), False
        self.pressure = 0
        for split, records in (splits or {}).items():
            assert self.do_add_split([split, records]) == []

    # The clock and what it runs.

    def do_probe(self, _: object) -> list[str]:
        """Probe the main output, then all splits, then recompute once."""
        held_up = bool(self.pressure)
        self.main, found = strat.probe_split(
            self.main, self.main_clock.read(self.now), held_up=held_up or self.main_waits
        )
        seen = self._main_says(found)
        if self.to_main:
            return seen
        for split in self.generators:
            paused = split in self.pausing.paused
            self.generators[split], found = strat.probe_split(
                self.generators[split], self.clocks[split].read(self.now), held_up=held_up or paused
            )
            if found is strat.ProbeResult.IDLE:
                self.mux, said = mux.set_status(self.mux, split, Status.IDLE, mux.Mode.DEFERRED)
                self.pausing = pausing.on_quiet(self.pausing, split)
                seen += [*self._feed(out.Feeder.SPLITS, said), *self._account(split)]
            elif not isinstance(found, strat.ProbeResult):
                seen += self._split_says(split, found, mux.Mode.DEFERRED)
        self.mux, said = mux.tick(self.mux)
        return seen + self._feed(out.Feeder.SPLITS, said)

    def do_interval(self, count: int) -> list[str]:
        """Let so many update intervals pass: each samples, judges again, and reports."""
        seen: list[str] = []
        for _ in range(count):
            self.pausing, request = pausing.on_sample(self.pausing)
            self.subtask = sub.on_sample(self.subtask)
            seen += self._settle(request)
        return seen

    # What is sent.

    def _feed(self, feeder: out.Feeder, said: tuple[Emission, ...]) -> list[str]:
        seen: list[str] = []
        for emission in said:
            self.out, sent = out.feed(self.out, feeder, emission, Millis(self.now))
            for one in sent:
                if isinstance(one, Watermark):
                    self.subtask = sub.on_watermark(self.subtask, one.timestamp)
                else:
                    self.subtask = sub.on_idle(self.subtask, idle=one is Status.IDLE)
            seen += shown(sent)
        return seen

    def _main_says(self, found: Millis | strat.ProbeResult) -> list[str]:
        if found is strat.ProbeResult.IDLE:
            return self._feed(out.Feeder.MAIN, (Status.IDLE,))
        if isinstance(found, strat.ProbeResult):
            return []
        seen = self._feed(out.Feeder.MAIN, (Watermark(found),))
        return seen + self._settle(pausing.PauseRequest())

    def _split_says(self, split: str, found: Millis, mode: mux.Mode) -> list[str]:
        self.mux, said = mux.update(self.mux, split, Watermark(found), mode)
        seen = self._feed(out.Feeder.SPLITS, said)
        self.pausing, request = pausing.on_watermark(self.pausing, split, found)
        self.accounts = acc.set_watermark(self.accounts, split, found)
        return seen + self._account(split) + self._settle(request)

    def _settle(self, request: pausing.PauseRequest[str]) -> list[str]:
        """Stop and start clocks after a judgement."""
        for split in sorted(request.pause):
            self.clocks[split] = self.clocks[split].pause(self.now)
        for split in sorted(request.resume):
            self.clocks[split] = self.clocks[split].resume(self.now)
        if self.subtask.blocked != self.main_waits:
            clock = self.main_clock
            self.main_clock = clock.pause(self.now) if self.subtask.blocked else clock.resume(self.now)
            self.main_waits = self.subtask.blocked
        seen = [f"pause {s}" for s in sorted(request.pause)] + [f"resume {s}" for s in sorted(request.resume)]
        for split in (*request.pause, *request.resume):
            self._account(split)
        return seen

    def _account(self, split: str) -> list[str]:
        state = self.pausing.splits[split].state
        self.accounts = acc.enter_split(self.accounts, split, state, self.now)
        return []

    # Events.

    def do_add_split(self, argument: list[Any]) -> list[str]:
        split, records = argument
        self.records[split] = list(records)
        if self.to_main:
            return []
        self.generators[split], self.clocks[split] = generator_of(**self.spec), PausableClock()
        for _ in range(self.pressure):
            self.clocks[split] = self.clocks[split].pause(self.now)
        self.mux, said = mux.register(self.mux, split)
        self.pausing = pausing.add_split(self.pausing, split)
        self.accounts = acc.assign(self.accounts, split)
        self._account(split)
        return self._feed(out.Feeder.SPLITS, said)

    def do_release(self, split: str) -> list[str]:
        self.mux, existed, said = mux.unregister(self.mux, split)
        assert existed
        self.pausing = pausing.release_split(self.pausing, split)
        self.accounts = acc.release(self.accounts, split)
        del self.generators[split], self.records[split], self.clocks[split]
        return self._feed(out.Feeder.SPLITS, said)

    def do_read(self, split: str) -> list[str]:
        """Read the split's next record; nothing if it, or the whole subtask, has to wait."""
        if self.subtask.blocked or split in self.pausing.paused or not self.records[split]:
            return ["nothing"]
        return self._emit(split, Millis(self.records[split].pop(0)))

    def do_poll(self, _: object) -> list[str]:
        """Read the next record of the first split that may be read."""
        for split, records in self.records.items():
            if records and split not in self.pausing.paused and not self.subtask.blocked:
                return self.do_read(split)
        return ["nothing"]

    def do_quiet_record(self, argument: tuple[str, Millis]) -> list[str]:
        """A record that carries no watermark."""
        split, time = argument
        if self.subtask.blocked:
            return ["nothing"]
        generator, found = strat.observe(self.main if self.to_main else self.generators[split], time)
        assert found is None
        if self.to_main:
            self.main = generator
        else:
            self.generators[split] = generator
        return [f"record {time}"]

    def _emit(self, split: str, time: Millis) -> list[str]:
        seen = [f"record {time}"]
        if self.to_main:
            self.main, found = strat.observe(self.main, time, time)
            return seen + ([] if found is None else self._main_says(found))
        self.generators[split], found = strat.observe(self.generators[split], time, time)
        return seen + ([] if found is None else self._split_says(split, found, mux.Mode.IMMEDIATE))

    def do_main_record(self, time: Millis) -> list[str]:
        self.main, found = strat.observe(self.main, time, time)
        return [f"record {time}", *([] if found is None else self._main_says(found))]

    def do_main_idle(self, _: object) -> list[str]:
        return [*self._feed(out.Feeder.MAIN, (Status.IDLE,)), *self._settle(pausing.PauseRequest())]

    def do_main_active(self, _: object) -> list[str]:
        return [*self._feed(out.Feeder.MAIN, (Status.ACTIVE,)), *self._settle(pausing.PauseRequest())]

    def do_split_record(self, argument: tuple[str, Millis]) -> list[str]:
        """A record of a split whose output is made at its first record."""
        split, time = argument
        seen = self.do_add_split([split, []]) if split not in self.generators else []
        return seen + self._emit(split, time)

    def do_split_idle(self, split: str) -> list[str]:
        self.mux, said = mux.set_status(self.mux, split, Status.IDLE)
        self.pausing = pausing.on_quiet(self.pausing, split)
        self._account(split)
        return [*self._feed(out.Feeder.SPLITS, said), *self._settle(pausing.PauseRequest())]

    def do_limit(self, limit: Millis) -> list[str]:
        self.pausing, request = pausing.on_limit(self.pausing, limit)
        self.subtask = sub.on_limit(self.subtask, limit)
        return self._settle(request)

    def do_back_pressure(self, on: bool) -> list[str]:
        """One more listener is on, or off; they may overlap."""
        self.pressure += 1 if on else -1
        for split, clock in self.clocks.items():
            self.clocks[split] = clock.pause(self.now) if on else clock.resume(self.now)
        self.main_clock = self.main_clock.pause(self.now) if on else self.main_clock.resume(self.now)
        return []

    def do_backlog(self, on: bool) -> list[str]:
        """The backlog flag changes: one probe round comes first."""
        return [*self.do_probe(None), f"backlog {str(on).lower()}"]

    def do_end_of_input(self, _: object) -> list[str]:
        self.subtask = sub.on_end_of_input(self.subtask)
        return []

    def do_stop(self, _: object) -> list[str]:
        self.subtask = sub.on_stop(self.subtask)
        return self._settle(pausing.PauseRequest())

    # What can be seen.

    def see_report(self) -> int | str:
        told = sub.report_of(self.subtask)
        if told is None:
            return "nothing"
        if told.status is not MemberStatus.ACTIVE:
            return told.status.value
        assert told.watermark is not None
        return told.watermark

    def see_available(self) -> bool:
        return not self.subtask.blocked

    def see_paused(self) -> list[str]:
        return sorted(self.pausing.paused)

    def see_splits(self) -> dict[str, str]:
        return {split: s.state.value for split, s in self.pausing.splits.items()}

    def see_status(self) -> str:
        return self.out.output.status.name

    def see_times(self) -> dict[str, list[int]]:
        """Active, paused and idle time of each split."""
        seen = {split: time.at(self.now) for split, time in self.accounts.times.items()}
        return {split: [time.active, time.paused, time.idle] for split, time in seen.items()}


DRIVERS: dict[str, type[Driver]] = {"source": SourceDriver}
