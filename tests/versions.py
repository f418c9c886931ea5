"""The core of the suite with each combination of versions that the project promises (``make test-versions``).

Each interpreter that uv finds or can install gets an environment in ``build/versions`` for each
version of Spark, with the lowest and with the newest packages that ``pyproject.toml`` allows. Each combination is a
line of the summary: passed, failed, or why it was not tried.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARKS = ("4.2.1", "4.3.0")
RESOLUTIONS: Mapping[str, str] = {"lowest": "lowest-direct", "newest": "highest"}
CORE = ("tests/compat", "tests/unit/kafka", "tests/unit/spark", "tests/integration/test_kafka_windows.py")


@dataclass(frozen=True, slots=True)
class Combination:
    """What an environment has."""

    python: str
    spark: str
    packages: str

    def __str__(self) -> str:
        return f"Python {self.python}, PySpark {self.spark}, {self.packages} packages"


def combinations(pythons: Sequence[str], sparks: Sequence[str], packages: Sequence[str]) -> Iterator[Combination]:
    """Yield every combination."""
    for python in pythons:
        for spark in sparks:
            for each in packages:
                yield Combination(python, spark, each)


def tried(of: Combination, arguments: Sequence[str]) -> str:
    """Run the core in an environment of a combination, and return what came of it."""
    folder = ROOT / "build" / "versions" / f"{of.python}-{of.spark}-{of.packages}"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    if subprocess.run([*uv, "venv", "--clear", "--python", of.python, str(folder)], check=False).returncode:
        return "not tried: there is no such Python here"
    python = folder / "bin" / "python"
    install = [*uv, "pip", "install", "--python", str(python), "--resolution", RESOLUTIONS[of.packages]]
    install += ["--editable", f"{ROOT}[all]", "--group", f"{ROOT / 'pyproject.toml'}:test", f"pyspark=={of.spark}"]
    if subprocess.run(install, check=False).returncode:
        return "not tried: these versions cannot be installed together"
    pytest = [str(python), "-m", "pytest", *CORE, "-q"]
    variables = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run([*pytest, *arguments], cwd=ROOT, env=os.environ | variables, check=False)
    return "failed" if done.returncode else "passed"


def main() -> int:
    """Try the combinations one after the other; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--sparks", nargs="+", default=SPARKS)
    parser.add_argument("--packages", nargs="+", choices=RESOLUTIONS, default=tuple(RESOLUTIONS))
    given, arguments = parser.parse_known_args()
    results: dict[Combination, str] = {}
    for each in combinations(given.pythons, given.sparks, given.packages):
        sys.stdout.write(f"== {each}\n")
        sys.stdout.flush()
        results[each] = tried(each, arguments)
    for combination, result in results.items():
        sys.stdout.write(f"{combination}: {result}\n")
    return 1 if "failed" in results.values() else 0


if __name__ == "__main__":
    sys.exit(main())
