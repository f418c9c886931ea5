"""What inputs come to, a line each: ``python -m tests.soak.fuzz.outcomes decoder FOLDER ... [--interpreted]``.

Run in a process of its own: an input may end it. The name is written before the input is run.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from tests.soak.fuzz.targets import TARGETS, check_of


def main() -> None:
    """Run every file of the folders, in the order of their names."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.fuzz.outcomes", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--interpreted", action="store_true", help="run compiled code as plain Python")
    given = parser.parse_args()
    check = check_of(given.target, interpreted=given.interpreted)
    for file in sorted(file for folder in given.folders for file in folder.iterdir()):
        sys.stdout.write(f"{file.name} ")
        sys.stdout.flush()
        outcome = check(file.read_bytes())
        sys.stdout.write(f"{hashlib.sha256(outcome.encode('utf-8', 'replace')).hexdigest()[:16]} {len(outcome)}\n")


if __name__ == "__main__":
    main()
