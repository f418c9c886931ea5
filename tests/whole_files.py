"""A file's tests run in one process, as with ``--dist loadfile``, and the run continues when such a process dies.

pytest-xdist gives the files of a dead process to the others, among them those that were done: a process that gets such
a file has nothing to report, is asked for nothing more, and the run waits for ever. The test that ended a process would
be run again, and end the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


class WholeFiles(LoadFileScheduling):  # type: ignore[misc]
    """What runs where: each file in one process, and what a dead process had not begun in another."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which the process died, which is not run again; None when it had none to run."""
        files = self.assigned_work.pop(node)
        fatal = next((test for tests in files.values() for test, is_done in tests.items() if not is_done), None)
        if fatal is not None:
            files[self._split_scope(fatal)][fatal] = True
            self.workqueue.update({file: tests for file, tests in files.items() if not all(tests.values())})
            for other in self.assigned_work:
                self._reschedule(other)
        return fatal

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it still collects, and is given files when it is done
        super()._reschedule(node)
        # A process begins a test when it knows the next one, or that there is none.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WholeFiles | None:
    return WholeFiles(config, log) if config.getoption("dist") == "loadfile" else None
