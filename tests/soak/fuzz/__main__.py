"""Fuzz one target with libFuzzer: ``python -m tests.soak.fuzz decoder --minutes 10``.

What is found interesting stays under ``build/fuzz`` and is where the next run begins.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import atheris

from tests.soak.fuzz.targets import COMPILED, SEEDS, TARGETS, check_of

_CORPUS = Path("build/fuzz")
_LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=4096")
"""Seconds for one input, memory for all, and bytes of an input."""


def main() -> None:
    """Fuzz until the time is over or something is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("inputs", nargs="*", help="run only these files")
    given = parser.parse_args()
    folder = _CORPUS / given.target
    folder.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["pyspark_aligned_kafka", "pyspark_mysql_cdc_wm", "watermark_source"]):
        check = check_of(given.target, interpreted=given.target in COMPILED)
    where = given.inputs or [str(folder), str(SEEDS / given.target)]
    limits = [*_LIMITS, f"-max_total_time={int(60 * given.minutes)}", f"-artifact_prefix={_CORPUS}/{given.target}-"]
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", *where], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
