"""Put small faults into files, one at a time, and list those that no test notices.

    python -m tests.soak.mutants watermark_source/planning --each 30

Each fault runs in a forked process that imports the file with the fault in it; nothing is written into the tree. It
runs the tests that reach the fault's line, quickest first, until one fails. The compiled code of connectors runs as
plain Python, where every access to memory is checked. Tests see a fault only in their own process, not in those they
start.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"

from hypothesis import Phase, settings

from tests.soak.mutants.faults import Fault, faults_of
from tests.soak.mutants.runs import Reach, reach_of, run_with

_TESTS = {
    "watermark_source": (
        "unit/eventtime",
        "unit/planning",
        "unit/monitor",
        "unit/spark",
        "property",
        "transcripts",
    ),
    "connectors/pyspark_aligned_kafka": ("unit/kafka",),
    "connectors/pyspark_mysql_cdc_wm": ("unit/mysql",),
}
"""Where the tests of a package are, for those that run without a server."""
_NOT_RUN = {
    Path("connectors/pyspark_aligned_kafka/records/record_batches.py"): {
        "_shift", "_three_streams", "_by_instruction", "checksum",
    },
    Path("connectors/pyspark_mysql_cdc_wm/binlog/wire.py"): {"checksum"},
}  # fmt: skip
"""Functions that plain Python does not run, for other code stands in for them (``tests/soak/fuzz/interpreted.py``)."""
_IMPORTED_ONCE = (
    "_pytest.main",
    "numba",
    "numpy",
    "pyarrow.compute",
    "pyspark.sql.datasource",
    "kafka",
    "pymysql",
    "yaml",
)


def main() -> None:
    """Print a line for each fault that nothing noticed, and one for each file."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="files or folders")
    parser.add_argument("--each", type=int, default=30, help="most faults of a file, chosen at random (30)")
    parser.add_argument("--seed", type=int, default=1, help="chooses them (1)")
    parser.add_argument("--examples", type=int, default=30, help="of a property, for each fault (30)")
    parser.add_argument("--slowest", type=float, default=3, help="seconds of the slowest test that is asked (3)")
    parser.add_argument("--lines", default="", help="only faults of these lines: 12 or 12-30")
    parser.add_argument(
        "--tests", nargs="+", help="files or folders of tests, instead of all that might reach the code"
    )
    given = parser.parse_args()
    if moved := [str(file) for file in _NOT_RUN if not file.is_file()]:
        parser.error(f"_NOT_RUN names files that do not exist: {', '.join(moved)}")
    settings.register_profile(
        "mutants",
        max_examples=given.examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(settings.get_profile("default").suppress_health_check),
    )
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    totals = [0, 0, 0]
    for package, folders in _TESTS.items():
        files = [file for path in given.paths for file in _files(path) if file.is_relative_to(package)]
        if not files:
            continue
        tests = given.tests or [f"tests/{folder}" for folder in folders]
        reach = reach_of(files, tests, given.slowest, compiled=_is_compiled(package))
        for file in files:
            counts = _try(file, _chosen(file, given), reach)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
    _report("all", *totals)


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _is_compiled(package: str) -> bool:
    return package.startswith("connectors/")


def _chosen(file: Path, given: argparse.Namespace) -> list[Fault]:
    faults = faults_of(file.read_text(encoding="utf-8"), without=_NOT_RUN.get(file, ()))
    if given.lines:
        first, _, last = given.lines.partition("-")
        faults = [fault for fault in faults if int(first) <= fault.line <= int(last or first)]
    chosen = random.Random(f"{given.seed} {file}").sample(faults, min(given.each, len(faults)))
    return sorted(chosen, key=lambda fault: fault.number)


def _try(file: Path, faults: list[Fault], reach: Reach) -> tuple[int, int, int]:
    unnoticed = unreached = 0
    for fault in faults:
        tests = reach.tests(file, fault.line)
        if not tests:
            unreached += 1
            _say(f"{file}:{fault.line}: no test reaches: {fault.what}")
        elif not run_with(file, fault, tests, reach):
            unnoticed += 1
            _say(f"{file}:{fault.line}: unnoticed by {len(tests)} tests: {fault.what}")
    if faults:
        _report(str(file), len(faults), unnoticed, unreached)
    return len(faults), unnoticed, unreached


def _report(what: str, tried: int, unnoticed: int, unreached: int) -> None:
    left = unnoticed + unreached
    share = f"{100 * left / max(tried, 1):.0f} %"
    _say(f"{what}: {tried} tried, {tried - left} noticed, {unnoticed} not, {unreached} not reached ({share})")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
