"""Runs of the tests in forked processes: once as the code is, to see what reaches what, and once for each fault."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import coverage
import pytest

from tests.soak.mutants.faults import Fault, with_fault

_OPTIONS = ("-q", "--hypothesis-profile=mutants", "--without-services", "--tb=no", "-W", "ignore")
_WITHOUT = ("cacheprovider", "xdist", "cov")
_CPU_SECONDS = 20
"""For one test with a fault, before it counts as noticed. Of the processor, as others may work on the machine too."""
_MEMORY = 12 << 30


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tests pass, run which lines, and take how long."""

    seconds: dict[str, float]
    lines: dict[tuple[str, int], set[str]]
    plugins: tuple[str, ...]

    def tests(self, file: Path, line: int) -> list[str]:
        """The tests that run a line, quickest first.

        Of one that runs while modules are imported all; of a part of a statement those of its file.
        """
        reached = self.lines.get((str(file), line), set())
        if "" in reached:
            reached = set(self.seconds)
        elif not reached:
            reached = {test for (name, _), tests in self.lines.items() if name == str(file) for test in tests}
        return sorted(reached & self.seconds.keys(), key=lambda test: self.seconds[test])


class _Watch:
    """Notes for each test what it runs and how much of the processor it takes."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.seconds: dict[str, float] = {}
        self.coverage = coverage.Coverage(data_file=None, include=[str(file) for file in files], config_file=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.coverage.switch_context(item.nodeid)
        began = time.process_time()
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")
            if item.nodeid in self.seconds:
                self.seconds[item.nodeid] = time.process_time() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = 0

    def lines(self) -> dict[tuple[str, int], set[str]]:
        data = self.coverage.get_data()
        return {
            (os.path.relpath(file), line): set(contexts)
            for file in data.measured_files()
            for line, contexts in data.contexts_by_lineno(file).items()
        }


class _Only:
    """Of what is collected, some tests in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
        )

    def pytest_runtest_setup(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _CPU_SECONDS, most))


def reach_of(files: Sequence[Path], folders: Sequence[str], slowest: float, *, compiled: bool) -> Reach:
    """Run all tests once, as the code is."""
    plugins = ("tests.soak.fuzz.interpreted",) if compiled else ()

    def watched() -> Any:
        watch = _Watch(files)
        with watch.coverage.collect():
            pytest.main(_arguments(folders, plugins), plugins=[watch])
        return watch.seconds, watch.lines()

    seconds, lines = _in_a_fork(watched)
    return Reach({test: took for test, took in seconds.items() if took <= slowest}, lines, plugins)


def run_with(file: Path, fault: Fault, tests: Sequence[str], reach: Reach) -> bool:
    """Run tests with the fault in the file; show whether one fails, or what is collected, or the time is over."""

    def faulty() -> Any:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        sys.meta_path.insert(0, _Faulty(file, fault))
        test_files = dict.fromkeys(test.partition("::")[0] for test in tests)
        return pytest.main(["-x", *_arguments(test_files, reach.plugins)], [_Only(tests)])

    return _in_a_fork(faulty) != pytest.ExitCode.OK


def _arguments(places: Sequence[str] | dict[str, None], plugins: Sequence[str]) -> list[str]:
    options = [option for plugin in plugins for option in ("-p", plugin)]
    return [*_OPTIONS, *(f"-pno:{plugin}" for plugin in _WITHOUT), *options, *places]


def _in_a_fork(function: Callable[[], Any]) -> Any:
    """What the function returns in a process of its own, which prints nothing; None if it dies."""
    with tempfile.TemporaryFile() as answer, Path(os.devnull).open("w") as nowhere:
        process = os.fork()
        if not process:
            try:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
                pickle.dump(function(), answer)
                answer.flush()
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        answer.seek(0)
        try:
            return pickle.load(answer)
        except EOFError:
            return None


class _Faulty(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):  # type: ignore[misc]
    """Imports one module with a fault in it."""

    def __init__(self, file: Path, fault: Fault) -> None:
        path = file.relative_to("connectors") if file.is_relative_to("connectors") else file
        super().__init__(".".join(path.with_suffix("").parts), str(file.resolve()))
        self._fault = fault

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> Any:
        return (
            importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None
        )

    def get_code(self, fullname: str) -> CodeType:
        return compile(with_fault(Path(self.path).read_text(encoding="utf-8"), self._fault), self.path, "exec")
