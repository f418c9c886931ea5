"""Drivers of generators, output rule, combining and valve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.reference.eventtime import multiplexer as mux
from tests.reference.eventtime import operator as op
from tests.reference.eventtime import output as out
from tests.reference.eventtime import strategy as strat
from tests.reference.eventtime import valve as valves
from tests.reference.eventtime.idleness import IdleTimer
from tests.reference.eventtime.probing import probed, probing
from tests.reference.eventtime.strategy import WatermarkStrategy, bounded, monotonous, no_watermarks, punctuated
from tests.reference.eventtime.watermark import Emission, Status, Watermark
from tests.transcripts.grammar import NAMES, Driver, shown
from watermark_source.eventtime.watermark import Millis


@dataclass(frozen=True)
class LastSeen:
    """A user's periodic generator that forgets its maximum: the last event time plus ``shift``."""

    shift: int = 0
    last: Millis | None = None

    def on_event(self, event_time: Millis, punctuation: Millis | None = None) -> tuple[LastSeen, Millis | None]:
        return LastSeen(self.shift, event_time), None

    def on_probe(self) -> Millis | None:
        return None if self.last is None else Millis(self.last + self.shift)


def strategy_of(
    kind: str, bound: int = 0, idle: int | None = None, alignment: dict[str, Any] | None = None
) -> WatermarkStrategy:
    made = {
        "bounded": lambda: bounded(bound),
        "monotonous": monotonous,
        "punctuated": punctuated,
        "none": no_watermarks,
    }[kind]()
    if alignment is not None:
        made = made.with_alignment(**alignment)
    return made if idle is None else made.with_idleness(idle)


def generator_of(strategy: str, bound: int = 0, idle: int | None = None) -> strat.SplitGenerator:
    """Return a split's generator; ``last-seen`` is one that a user wrote."""
    if strategy == "last-seen":
        return strat.SplitGenerator(LastSeen(-bound), None if idle is None else IdleTimer(idle))
    return strategy_of(strategy, bound, idle).start()


def named(time: int) -> str:
    return NAMES.get(time, str(time))


class StrategyDriver(Driver):
    """Building strategies."""

    def do_build(self, spec: dict[str, Any]) -> list[str]:
        self.strategy = strategy_of(**spec)
        return []

    def do_probe_interval(self, interval: int) -> list[str]:
        probing(interval, 0)
        return []

    def see_idle(self) -> int | None:
        return self.strategy.idle_timeout

    def see_alignment(self) -> list[Any]:
        made = self.strategy.alignment
        assert made is not None
        return [made.group, made.max_drift, made.update_interval]

    def see_has_timer(self) -> bool:
        return self.strategy.start().timer is not None


class ProbedDriver(Driver):
    """Probes itself every ``interval`` ms of the clock; never with 0."""

    def __init__(self, interval: int) -> None:
        super().__init__()
        self.schedule = probing(interval, 0)

    def clock(self, now: int) -> list[str]:
        seen: list[str] = []
        while self.schedule.due is not None and self.schedule.due <= now:
            self.now = self.schedule.due
            seen += self.due_probe()
            self.schedule = probed(self.schedule, self.now)
        self.now = now
        return seen

    def due_probe(self) -> list[str]:
        return self.do_probe(None)

    def do_probe(self, _: object) -> list[str]:
        raise NotImplementedError


class GeneratorDriver(ProbedDriver):
    """A split's generator; outputs are the candidates, before any output rule."""

    def __init__(self, strategy: str, bound: int = 0, idle: int | None = None, probe_interval: int = 0) -> None:
        super().__init__(probe_interval)
        self.state = generator_of(strategy, bound, idle)

    def do_event(self, event_time: Millis) -> list[str]:
        self.state, found = strat.observe(self.state, event_time)
        return [] if found is None else [named(found)]

    def do_marked(self, event_time: Millis) -> list[str]:
        self.state, found = strat.observe(self.state, event_time, event_time)
        return [] if found is None else [named(found)]

    def do_probe(self, _: object) -> list[str]:
        self.state, found = strat.probe_split(self.state, self.now)
        if isinstance(found, strat.ProbeResult):
            return ["IDLE"] if found is strat.ProbeResult.IDLE else []
        return [named(found)]

    def see_highest(self) -> int | None:
        assert isinstance(self.state.generator, strat.BoundedOutOfOrderness)
        return self.state.generator.max_event_time


class OutputDriver(Driver):
    """The output rule."""

    def __init__(self) -> None:
        super().__init__()
        self.state = out.Output()

    def do_watermark(self, time: Millis) -> list[str]:
        self.state, sent = out.emit(self.state, Watermark(time), Millis(self.now))
        return shown(sent)

    def do_flagged(self, time: Millis) -> list[str]:
        watermark = Watermark(time, use_processing_time=True)
        self.state, sent = out.emit(self.state, watermark, Millis(self.now))
        return shown(sent)

    def do_idle(self, _: object) -> list[str]:
        self.state, sent = out.mark(self.state, Status.IDLE)
        return shown(sent)

    def do_active(self, _: object) -> list[str]:
        self.state, sent = out.mark(self.state, Status.ACTIVE)
        return shown(sent)

    def do_end(self, _: object) -> list[str]:
        self.state, sent = out.finish(self.state)
        return shown(sent)


class MultiplexerDriver(Driver):
    """A multiplexer behind the output rule."""

    def __init__(self, splits: list[str]) -> None:
        super().__init__()
        self.state: mux.Multiplexer[str] = mux.Multiplexer()
        self.source = out.SourceOutput()
        for split in splits:
            assert self.do_register(split) == []

    def _send(self, said: tuple[Emission, ...]) -> list[str]:
        seen: list[str] = []
        for emission in said:
            self.source, sent = out.feed(self.source, out.Feeder.SPLITS, emission, Millis(self.now))
            seen += shown(sent)
        return seen

    def do_register(self, split: str) -> list[str]:
        self.state, said = mux.register(self.state, split)
        return self._send(said)

    def do_unregister(self, split: str) -> list[str]:
        self.state, existed, said = mux.unregister(self.state, split)
        return [*self._send(said), "removed" if existed else "unknown"]

    def do_watermark(self, argument: tuple[str, Millis]) -> list[str]:
        split, time = argument
        self.state, said = mux.update(self.state, split, Watermark(time))
        return self._send(said)

    def do_deferred(self, argument: tuple[str, Millis]) -> list[str]:
        split, time = argument
        self.state, said = mux.update(self.state, split, Watermark(time), mux.Mode.DEFERRED)
        return self._send(said)

    def do_idle(self, split: str) -> list[str]:
        self.state, said = mux.set_status(self.state, split, Status.IDLE)
        return self._send(said)

    def do_deferred_idle(self, split: str) -> list[str]:
        self.state, said = mux.set_status(self.state, split, Status.IDLE, mux.Mode.DEFERRED)
        return self._send(said)

    def do_active(self, split: str) -> list[str]:
        self.state, said = mux.set_status(self.state, split, Status.ACTIVE)
        return self._send(said)

    def do_tick(self, _: object) -> list[str]:
        self.state, said = mux.tick(self.state)
        return self._send(said)

    def see_idle(self) -> bool:
        return self.source.output.status is Status.IDLE


class OperatorDriver(Driver):
    """An operator with several inputs."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.state = op.operator(inputs)

    def do_watermark(self, argument: tuple[int, Millis]) -> list[str]:
        self.state, sent = op.on_watermark(self.state, argument[0], Watermark(argument[1]))
        return shown(sent)

    def do_flagged(self, argument: tuple[int, Millis]) -> list[str]:
        watermark = Watermark(argument[1], use_processing_time=True)
        self.state, sent = op.on_watermark(self.state, argument[0], watermark)
        return shown(sent)

    def do_idle(self, number: int) -> list[str]:
        self.state, sent = op.on_status(self.state, number, Status.IDLE)
        return shown(sent)

    def do_active(self, number: int) -> list[str]:
        self.state, sent = op.on_status(self.state, number, Status.ACTIVE)
        return shown(sent)


class ValveDriver(Driver):
    """A valve over the channels of one input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.state = valves.valve(channels)

    def do_watermark(self, argument: tuple[int, Millis]) -> list[str]:
        self.state, sent = valves.on_watermark(self.state, argument[0], Watermark(argument[1]))
        return shown(sent)

    def do_flagged(self, argument: tuple[int, Millis]) -> list[str]:
        watermark = Watermark(argument[1], use_processing_time=True)
        self.state, sent = valves.on_watermark(self.state, argument[0], watermark)
        return shown(sent)

    def do_idle(self, number: int) -> list[str]:
        self.state, sent = valves.on_status(self.state, number, Status.IDLE)
        return shown(sent)

    def do_active(self, number: int) -> list[str]:
        self.state, sent = valves.on_status(self.state, number, Status.ACTIVE)
        return shown(sent)

    def see_stored(self) -> list[int]:
        return [channel.watermark.timestamp for channel in self.state.channels]

    def see_aligned(self) -> list[bool]:
        return [channel.aligned for channel in self.state.channels]


class TaskDriver(Driver):
    """A task: a valve in front of each input of one operator, and perhaps a chained source as its last input."""

    def __init__(self, inputs: list[int], chained_source: bool = False) -> None:
        super().__init__()
        self.valves = [valves.valve(channels) for channels in inputs]
        self.operator = op.operator(len(inputs) + chained_source)
        self.source = out.Output()

    def _into(self, number: int, emissions: tuple[Emission, ...]) -> list[str]:
        seen: list[str] = []
        for emission in emissions:
            if isinstance(emission, Watermark):
                self.operator, sent = op.on_watermark(self.operator, number, emission)
            else:
                self.operator, sent = op.on_status(self.operator, number, emission)
            seen += shown(sent)
        return seen

    def do_watermark(self, argument: tuple[int, int, Millis]) -> list[str]:
        number, channel, time = argument
        self.valves[number], sent = valves.on_watermark(self.valves[number], channel, Watermark(time))
        return self._into(number, sent)

    def do_idle(self, argument: tuple[int, int]) -> list[str]:
        number, channel = argument
        self.valves[number], sent = valves.on_status(self.valves[number], channel, Status.IDLE)
        return self._into(number, sent)

    def do_active(self, argument: tuple[int, int]) -> list[str]:
        number, channel = argument
        self.valves[number], sent = valves.on_status(self.valves[number], channel, Status.ACTIVE)
        return self._into(number, sent)

    def do_source_record(self, time: Millis) -> list[str]:
        """A record whose watermark wakes the source: the status goes first, for the record must not be late."""
        last = len(self.valves)
        self.source, woken = out.mark(self.source, Status.ACTIVE)
        self.source, sent = out.emit(self.source, Watermark(time), Millis(self.now))
        return [*self._into(last, woken), f"record {time}", *self._into(last, sent)]

    def do_source_idle(self, _: object) -> list[str]:
        self.source, sent = out.mark(self.source, Status.IDLE)
        return self._into(len(self.valves), sent)


DRIVERS: dict[str, type[Driver]] = {
    "strategy": StrategyDriver,
    "generator": GeneratorDriver,
    "output": OutputDriver,
    "multiplexer": MultiplexerDriver,
    "operator": OperatorDriver,
    "valve": ValveDriver,
    "task": TaskDriver,
}
