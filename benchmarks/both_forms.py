"""The same benchmarks with both forms of the decoders in turn: machine code that was built, and numba's.

``python -m benchmarks.both_forms --turns 3 throughput payload --rounds 1``: in each turn a run of ``benchmarks`` with
each form, one after the other, with the arguments that follow. ``make decoders`` builds the one. Ratios to Spark's own
sources are of one run each, so the machine's drift cancels out there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import spread
from watermark_source.machine_code.built_library import CHOICE, is_there

_FORMS = ("built", "numba")


def main() -> None:
    """Run, and print of each figure what both forms had: smallest, median, largest; and the medians' ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3, help="runs with each form (default 3)")
    given, arguments = parser.parse_known_args()
    if not all(map(is_there, ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm"))):
        parser.error("no machine code of these sources was built; expected: make decoders")
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(given.turns):
        # The first has a machine that is cooler, or whose caches are cold.
        for form in _FORMS if turn % 2 else reversed(_FORMS):
            for name, value in _figures(form, arguments).items():
                found.setdefault(name, {each: [] for each in _FORMS})[form].append(value)
    for name, values in found.items():
        ratio = statistics.median(values["built"]) / statistics.median(values["numba"])
        print(f"{ratio:6.3f}  {name}: built {spread(values['built'], 3)}, numba {spread(values['numba'], 3)}")


def _figures(form: str, arguments: Sequence[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="benchmark-") as results:
        command = [sys.executable, "-m", "benchmarks", *arguments, "--results", results]
        subprocess.run(command, check=True, env={**os.environ, CHOICE: form})
        saved = json.loads(Path(results, "results.json").read_text(encoding="utf-8"))
    return {each["name"]: each["value"] for each in saved["figures"]}


if __name__ == "__main__":
    main()
