"""Topics of announcements with records that no writer can have meant: from bytes to watermarks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pytest

from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.lookup.announcements import statements_of, with_known_partitions
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    LoggedStatement,
    ObservedAnnouncements,
    advanced,
    needed_from,
    reached,
    with_statements,
)
from watermark_source.planning.announcement import Removal, encoded
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

TOPIC: Final = "T"
START: Final = 1_700_000_000_000
CAP: Final = Millis(START + 10**9)
"""What ``maxFutureSkew`` allows; ``FUTURE`` is a time in the years that a record may name."""
FUTURE: Final = 10**14


@dataclass
class Writer:
    """A writer that keeps to the format, whatever others write under its name."""

    name: str
    chance: random.Random
    run: int = 0
    batch: int = 0
    watermark: int | None = None
    former: dict[str, Any] | None = None
    """The last announcement of the run before."""

    def announce(self, ends: Mapping[str, int], *, begins: bool = False) -> dict[str, Any]:
        if begins:
            self.former = self.record(ends)
            self.run, self.batch, self.watermark = self.run + 1, 0, None
        else:
            self.batch += 1
            self.watermark = (self.watermark or START) + self.chance.randint(0, 5)
        return self.record(ends)

    def record(self, ends: Mapping[str, int], **wrong: Any) -> dict[str, Any]:
        return {
            "v": 1, "writer": self.name, "query": f"{self.name}-{self.run}", "batch": self.batch, "wm": self.watermark,
            "idle": False, "topic": TOPIC, "ends": dict(ends), **wrong,
        }  # fmt: skip


Hostile = Callable[[Writer, Mapping[str, int]], tuple[str | None, bytes | dict[str, Any]]]
"""Returns the key and the value of a record."""


def _changed(**wrong: Any) -> Hostile:
    return lambda of, ends: (of.name, of.record(ends, **wrong))


REFUSED: Final[Mapping[str, Hostile]] = {
    "microseconds": _changed(wm=START * 1_000),
    "nanoseconds": _changed(wm=START * 1_000_000),
    "beyond all": _changed(wm=9 * 10**18),
    "a float": _changed(wm=float(START)),
    "a text": _changed(wm=str(START)),
    "no such partition": lambda of, ends: (of.name, of.record({**ends, "7": 3})),
    "no partition": lambda of, ends: (of.name, of.record({**ends, "all": 3})),
    "another version": _changed(v=2),
    "another key": _changed(more=1),
    "bytes": lambda of, _: (of.name, b"\xff\x00"),
    "bytes of an unknown writer": lambda *_: ("zed", b"{}"),
    "no key": lambda *_: (None, b"null"),
}
CONTRADICTING: Final[Mapping[str, Hostile]] = {
    "a future": _changed(wm=FUTURE),
    "a batch far ahead": lambda of, ends: (of.name, of.record(ends, batch=2**62)),
    "a batch far behind": lambda of, ends: (of.name, of.record(ends, batch=0, wm=START - 9)),
    "ends that no log has": lambda of, ends: (of.name, of.record(dict.fromkeys(ends, 2**62))),
    "both": lambda of, ends: (of.name, of.record(dict.fromkeys(ends, 2**62), batch=2**62, wm=FUTURE)),
    "ends that go back": lambda of, ends: (of.name, of.record(dict.fromkeys(ends, 0), wm=START - 9)),
    "no ends": lambda of, _: (of.name, of.record({}, wm=START - 9)),
    "no watermark any more": _changed(wm=None),
    "seconds": _changed(wm=START // 1_000),
    "another topic": _changed(topic="another", wm=FUTURE),
    "the run before": lambda of, ends: (of.name, of.former or of.record(ends)),
}


def logged(position: int, key: str | None, value: bytes | dict[str, Any], parts: int) -> LoggedStatement:
    """Return a record as the connector reads it."""
    encoded_value = value if isinstance(value, bytes) else json.dumps(value).encode()
    times = pa.array([START * 1_000], pa.timestamp("us", "UTC"))
    columns = (
        pa.array([None if key is None else key.encode()], pa.binary()), pa.array([encoded_value], pa.binary()),
        pa.array([position]), times,
    )  # fmt: skip
    topic = Topic(dict.fromkeys(range(parts)), internal=False, id=TOPIC)
    return with_known_partitions(statements_of([ReadBatch(Split("t", 0), 1, columns, times)]), topic)[0]


@dataclass
class Reader:
    """A process that follows the announcements."""

    table: AnnouncedTable = field(default_factory=AnnouncedTable)
    watermark: Millis | None = None
    remarks: list[str] = field(default_factory=list)

    def read(self, records: list[LoggedStatement], positions: Mapping[str, int], next_position: int) -> None:
        self.table, remarks = with_statements(self.table, records, TOPIC)
        self.remarks += [each.text for each in remarks]
        seen = self.seen(next_position)
        self.watermark = reached(seen, positions, self.watermark, CAP)
        self.table = advanced(self.table, positions, CAP)

    def seen(self, next_position: int) -> ObservedAnnouncements:
        return ObservedAnnouncements(
            table=self.table, by=AnnouncedBy(), log="L", next_position=next_position, is_current=True
        )

    def restarted(self, log: list[LoggedStatement], positions: Mapping[str, int]) -> Reader:
        kept = needed_from(self.seen(len(log)), positions, CAP, None, self.watermark)
        assert kept is not None
        again = Reader(AnnouncedTable.of_names(kept.writers, kept.former, left_out=kept.left_out), self.watermark)
        again.read(log[kept.position :], positions, len(log))
        return again


@pytest.mark.parametrize("logs", [500, pytest.param(10_000, marks=pytest.mark.long("500 of them"))])
def test_no_record_advances_the_watermark_beyond_what_its_writer_meant_or_holds_it_for_good(logs: int) -> None:
    for seed in range(logs):
        chance = random.Random(seed)
        parts = chance.randint(1, 3)
        ends = {str(part): 0 for part in range(parts)}
        positions = dict(ends)
        writers = [Writer(name, chance) for name in "ab"[: chance.randint(1, 2)]]
        meant = {writer.name: START - 9 for writer in writers}
        log, reader, of_unknown = list[LoggedStatement](), Reader(), False

        def write(key: str | None, value: bytes | dict[str, Any]) -> LoggedStatement:
            log.append(logged(len(log), key, value, parts))  # noqa: B023 - called in this turn
            return log[-1]  # noqa: B023

        def read(new: list[LoggedStatement]) -> None:
            reader.read(new, positions, len(log))  # noqa: B023 - called in this turn

        for writer in writers:
            read([write(writer.name, writer.record(ends))])
        for _ in range(chance.randint(3, 12)):
            new: list[LoggedStatement] = []
            for _ in range(chance.randint(1, 3)):
                writer = chance.choice(writers)
                if chance.random() < 0.5:
                    ends = {part: end + chance.choice((0, 1, 4)) for part, end in ends.items()}
                    new.append(write(writer.name, writer.announce(ends, begins=chance.random() < 0.1)))
                    meant[writer.name] = max(meant[writer.name], writer.watermark or 0)
                    continue
                name = chance.choice((*REFUSED, *CONTRADICTING))
                key, value = (REFUSED.get(name) or CONTRADICTING[name])(writer, ends)
                of_unknown |= key == "zed"
                before = len(reader.remarks)
                made = write(key, value)
                new.append(made)
                assert (made.statement is None) == (name in REFUSED), name
                if name in REFUSED and chance.random() < 0.3:
                    read(new)
                    new = []
                    assert any(f"at {made.position}" in remark for remark in reader.remarks[before:]), name
            positions = {part: min(ends[part], at + chance.choice((0, 1, 9))) for part, at in positions.items()}
            read(new)
            assert reader.watermark is None or reader.watermark <= min(meant.values()), f"seed {seed}"
            if chance.random() < 0.2:
                reader = reader.restarted(log, positions)
        # Each writer announces right again; whom no one knows is dropped, as the log advises.
        if of_unknown:
            read([write("zed", encoded(Removal("zed")))])
        for _ in range(2):
            for writer in writers:
                ends = {part: end + 1 for part, end in ends.items()}
                read([write(writer.name, writer.announce(ends))])
        positions = dict(ends)
        restarted, fresh = reader.restarted(log, positions), Reader()
        fresh.read(log, positions, len(log))
        read([])
        right = min(writer.watermark or 0 for writer in writers)
        assert fresh.watermark == right, f"seed {seed}"
        assert reader.watermark == restarted.watermark == max(reader.watermark or 0, right), f"seed {seed}"
