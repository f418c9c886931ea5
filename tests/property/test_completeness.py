"""Runs of writers in any order: what a reader of their table sees is never ahead, and never goes back."""

from __future__ import annotations

import tempfile
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from watermark_source.errors import UsageError
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.publishing.folder import Folder
from watermark_source.publishing.mark import or_least
from watermark_source.publishing.places import holder_at
from watermark_source.publishing.table_target import TableTarget

WRITERS = ("hourly", "other")


class Runs(RuleBasedStateMachine):
    """Two writers of a table: their runs begin, continue, sleep and are superseded, with checkpoints old and new."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="completeness-")
        self.table = Folder.at(self.folder.name)
        self.numbers = count()
        self.checkpoints = dict.fromkeys(WRITERS, 0)
        self.batches: dict[tuple[str, int], list[int]] = {}
        """The watermark of each batch of a checkpoint, which is the same in each run that repeats it."""
        self.runs: list[tuple[str, int, TableTarget]] = []
        self.promised: dict[str, int] = {}
        self.seen: int | None = None

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize()
    def start_both(self) -> None:
        for writer in WRITERS:
            self.begin(writer)

    @rule(writer=st.sampled_from(WRITERS))
    def begin(self, writer: str) -> None:
        target = TableTarget(self.table, f"run-{next(self.numbers)}", "file:/none", None)
        target.prepare(writer, f"query-{self.checkpoints[writer]}")
        self.runs.append((writer, self.checkpoints[writer], target))
        self.look()

    @rule(writer=st.sampled_from(WRITERS))
    def begin_anew(self, writer: str) -> None:
        self.checkpoints[writer] += 1
        self.begin(writer)

    @rule(writer=st.sampled_from(WRITERS), advance=st.integers(0, 5))
    def commit(self, writer: str, advance: int) -> None:
        """A batch is committed, and its run has announced nothing yet."""
        done = self.batches.setdefault((writer, self.checkpoints[writer]), [])
        done.append((done[-1] if done else 0) + advance)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def announce(self, data: st.DataObject) -> None:
        """Any run, also one that was superseded, announces a batch that was committed in its time."""
        writer, checkpoint, target = data.draw(st.sampled_from(self.runs))
        done = self.batches.get((writer, checkpoint), [])
        last = target.last
        first = 0 if last is None else last.batch
        if first < len(done):
            batch = data.draw(st.integers(first, len(done) - 1))
            try:
                target.announce(writer, f"query-{checkpoint}", batch, Millis(done[batch]))
            except UsageError:
                # A later run has begun. It may have done so a moment later.
                assert target._mark is not None
                target._write(target._mark)
            else:
                self.promised[writer] = max(self.promised.get(writer, MIN), done[batch])
        self.look()

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        _, _, target = data.draw(st.sampled_from(self.runs))
        target.end(has_ended=True)
        self.look()

    def look(self) -> None:
        holder = holder_at(self.folder.name, WRITERS)
        assert holder is not None
        lowest = min(self.promised.get(writer, MIN) for writer in WRITERS)
        assert or_least(holder.mark.watermark if holder.mark else None) == lowest
        assert self.seen is None or lowest >= self.seen
        self.seen = lowest


def test_what_a_reader_sees_is_the_lowest_promise_of_all_writers_and_never_goes_back() -> None:
    run_state_machine_as_test(Runs)
