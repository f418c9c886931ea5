"""Drivers of alignment: aggregator, sampler, group with its announcer, reader."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.reference.alignment import announcer as ann
from tests.reference.alignment import group as groups
from tests.reference.alignment import pausing, sampling
from tests.reference.alignment.aggregator import Aggregator, latest
from tests.transcripts.drivers_time import named
from tests.transcripts.grammar import NAMES, Driver
from watermark_source.alignment.group import MemberStatus
from watermark_source.eventtime.watermark import MAX, MIN, Millis


class AggregatorDriver(Driver):
    """The minimum of the latest values."""

    def __init__(self) -> None:
        super().__init__()
        self.state: Aggregator[int] = Aggregator()

    def do_report(self, argument: tuple[int, Millis]) -> list[str]:
        before, self.state = self.state.minimum, latest(self.state, *argument)
        minimum = self.state.minimum
        assert minimum is not None
        return [named(minimum), "changed"] if minimum != before else [named(minimum)]

    def do_random_reports(self, spec: dict[str, int]) -> list[str]:
        """Compare with the true minimum after every report; returns how often it was right."""
        chance, truth, right = random.Random(spec["seed"]), {}, 0
        choices = [MIN, MAX, *range(-50, 50)]
        for _ in range(spec["reports"]):
            key, value = chance.randrange(spec["keys"]), Millis(chance.choice(choices))
            truth[key] = value
            self.state = latest(self.state, key, value)
            right += self.state.minimum == min(truth.values())
        return [f"{right} right"]

    def see_minimum(self) -> int | None:
        return self.state.minimum


class SamplerDriver(Driver):
    """The sampling buffer of one watermark."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.state = sampling.samples(size)

    def do_add(self, value: Millis) -> list[str]:
        self.state = sampling.add(self.state, value)
        return []

    def do_sample(self, _: object) -> list[str]:
        self.state = sampling.sample(self.state)
        return []

    def see_oldest(self) -> int:
        return self.state.oldest

    def see_latest(self) -> int:
        return self.state.latest


class GroupDriver(Driver):
    """Groups with their announcers; a report is followed by an announcement in its group, as long as one runs."""

    def __init__(self, groups: dict[str, dict[str, Any]], announce_on_report: bool = True) -> None:
        super().__init__()
        self.specs = groups
        self.announcers: dict[str, ann.Announcer[str]] = {}
        self.announce_on_report = announce_on_report
        for name, spec in groups.items():
            if spec.get("started", True):
                self.do_create(name)
                self.do_start(name)

    def do_create(self, name: str) -> list[str]:
        spec = self.specs[name]
        group: groups.Group[str] = groups.Group(name, spec["drift"])
        self.announcers[name] = ann.Announcer(group, concurrent_attempts=spec.get("concurrent-attempts", False))
        return []

    def do_start(self, name: str) -> list[str]:
        self.announcers[name] = ann.handle(self.announcers[name], ann.AnnouncerEvent.START)
        return []

    def do_close(self, name: str) -> list[str]:
        self.announcers[name] = ann.handle(self.announcers[name], ann.AnnouncerEvent.CLOSE)
        return []

    def _name(self, member: str) -> str:
        return next(name for name, spec in self.specs.items() if member.split(".", maxsplit=1)[0] in spec["sources"])

    def do_join(self, argument: tuple[str, int]) -> list[str]:
        member, drift = argument
        announcer = self.announcers[self._name(member)]
        self.announcers[self._name(member)] = replace(
            announcer, group=groups.join(announcer.group, member, drift=drift)
        )
        return []

    def do_report(self, argument: tuple[str, Millis | str]) -> list[str]:
        member, value = argument
        name = self._name(member)
        announcer = self.announcers[name]
        if isinstance(value, str):
            # One that failed does not count until it reports again, as one that is idle.
            status = MemberStatus.IDLE if value == "failed" else MemberStatus(value)
            announcer = ann.take_status(announcer, member, status)
        else:
            announcer = ann.take_report(announcer, member, value)
        if self.announce_on_report:
            announcer = ann.set_ready(announcer, member, ready=True)
        self.announcers[name] = announcer
        return self.do_announce(name) if self.announce_on_report else []

    def do_ready(self, member: str) -> list[str]:
        name = self._name(member)
        self.announcers[name] = ann.set_ready(self.announcers[name], member, ready=True)
        return []

    def do_no_more_splits(self, member: str) -> list[str]:
        """The member will get no further splits. No state holds that, so nothing can depend on it."""
        assert member in self.announcers[self._name(member)].group.members
        return []

    def do_gone(self, member: str) -> list[str]:
        name = self._name(member)
        self.announcers[name] = ann.set_ready(self.announcers[name], member, ready=False)
        return []

    def do_announce(self, name: str) -> list[str]:
        sent = ann.announcements(self.announcers[name])
        return [f"{member} {NAMES.get(limit, limit)}" for member, limit in sorted(sent.items())]

    def see_slowest(self) -> dict[str, str | None]:
        return {name: announcer.group.view().slowest for name, announcer in self.announcers.items()}

    def see_held_back(self) -> list[str]:
        return sorted(member for announcer in self.announcers.values() for member in announcer.group.held_back())


class ReaderDriver(Driver):
    """The reader's side of pausing."""

    def __init__(self, assigned: list[str], can_pause: bool = True, allow_unaligned: bool = False) -> None:
        super().__init__()
        self.assigned, self.paused = frozenset(assigned), frozenset[str]()
        self.can_pause, self.allow_unaligned = can_pause, allow_unaligned

    def do_request(self, spec: dict[str, list[str]]) -> list[str]:
        asked = pausing.PauseRequest(frozenset(spec.get("pause", [])), frozenset(spec.get("resume", [])))
        request = pausing.deliverable(
            asked, reader_can_pause=self.can_pause, allow_unaligned_splits=self.allow_unaligned
        )
        self.paused = pausing.apply_request(self.paused, request, self.assigned)
        return []

    def see_paused(self) -> list[str]:
        return sorted(self.paused)


DRIVERS: dict[str, type[Driver]] = {
    "aggregator": AggregatorDriver,
    "sampler": SamplerDriver,
    "group": GroupDriver,
    "reader": ReaderDriver,
}
