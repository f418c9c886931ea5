"""Driver of a job: several source subtasks in one alignment group."""

from __future__ import annotations

import itertools

from tests.reference.alignment import announcer as ann
from tests.reference.alignment import group as groups
from tests.reference.alignment import subtask as sub
from tests.transcripts.drivers_source import SourceDriver
from tests.transcripts.grammar import Driver
from watermark_source.alignment.group import MemberStatus
from watermark_source.eventtime.watermark import MAX


class JobDriver(Driver):
    """Several subtasks of one group, each reading one record in so many milliseconds, until all have finished."""

    def __init__(self, subtasks: dict[str, dict[str, int]], drift: int, update_interval: int, buffer: int) -> None:
        super().__init__()
        self.specs, self.update_interval = subtasks, update_interval
        self.sources = {
            name: SourceDriver({name: list(range(s["from"], s["to"]))}, buffer) for name, s in subtasks.items()
        }
        group: groups.Group[str] = groups.Group("g", drift)
        self.announcer = ann.handle(ann.Announcer(group), ann.AnnouncerEvent.START)
        for name in subtasks:
            self.announcer = ann.set_ready(self.announcer, name, ready=True)
        self.emitted = 0
        self.drifts: dict[str, list[int]] = {name: [] for name in subtasks}

    def clock(self, now: int) -> list[str]:
        while self.now < now:
            self.now += 1
            for name, source in self.sources.items():
                source.clock(self.now)
                if self.now % self.specs[name]["every"] == 0:
                    self._read(name, source)
            if self.now % self.update_interval == 0:
                self._align()
        return []

    def _read(self, name: str, source: SourceDriver) -> None:
        self.emitted += source.do_read(name)[0].startswith("record")
        # A subtask knows that no further splits will come, and still reads: only the end of its data finishes it.
        if not source.records[name] and not source.subtask.finished:
            source.do_end_of_input(None)

    def _align(self) -> None:
        for name, source in self.sources.items():
            source.do_interval(1)
            told = sub.report_of(source.subtask)
            if told is None:
                continue
            if told.watermark is not None and told.status is MemberStatus.ACTIVE:
                self.announcer = ann.take_report(self.announcer, name, told.watermark)
            elif name in self.announcer.group.members:
                self.announcer = ann.take_status(self.announcer, name, told.status)
        for name, limit in ann.announcements(self.announcer).items():
            source = self.sources[name]
            source.do_limit(limit)
            if source.subtask.watermark is not None and limit != MAX:
                self.drifts[name].append(source.subtask.watermark - limit)

    def see_records(self) -> int:
        return self.emitted

    def see_ended(self) -> bool:
        return all(source.subtask.finished for source in self.sources.values())

    def see_drift_never_grows(self) -> list[str]:
        return [n for n, d in self.drifts.items() if all(b <= a for a, b in itertools.pairwise(d))]

    def see_last_drifts(self) -> dict[str, int]:
        return {name: drifts[-1] for name, drifts in self.drifts.items()}

    def see_first_drifts(self) -> dict[str, int]:
        return {name: drifts[0] for name, drifts in self.drifts.items()}


DRIVERS: dict[str, type[Driver]] = {"job": JobDriver}
