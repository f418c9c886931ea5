"""What guards a part that seldom changes: it runs when anything of that part has changed since it last passed.

``make test-long`` runs it whatever has changed, and so does a run that names it. ``make test-guarded`` runs all of it
and records what it passed with, in ``tests/guarded.txt``, which is committed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = "tests/guarded.txt"
_PACKAGES = "requirements.lock"

GUARDED: Mapping[str, Sequence[str]] = {
    "tests/services": ("services/**/*", "docker-compose.yml", _PACKAGES),
    "tests/integration/test_pages_in_browser.py": (
        "README.md", "docs/monitoring.md", "docs/options.md", "docs/site.py", "services/browser.py",
        "tests/unit/monitor/example_*.py", "watermark_source/durations.py", "watermark_source/monitor/**/*",
        "watermark_source/status_model/*.py",
        "watermark_source/planning/group.py", "watermark_source/planning/hold*.py", "watermark_source/words.py",
        _PACKAGES,
    ),
    "tests/unit/test_code_cache.py": (
        "watermark_source/__init__.py", "watermark_source/errors.py", "watermark_source/installation.py",
        "watermark_source/machine_code/*.py", _PACKAGES,
    ),
    "tests/unit/test_left_open.py": ("tests/left_open.py", _PACKAGES),
    "tests/unit/test_whole_files.py": ("tests/most_memory.py", "tests/whole_files.py", _PACKAGES),
}  # fmt: skip
"""A file or folder of tests, and what it guards: all that could make it fail, except what every other test uses too."""


def digest(root: Path, place: str, guarded: Sequence[str]) -> str:
    """Return a digest of the tests at a place and of what they guard: names and content."""
    own = f"{place}/**/*" if (root / place).is_dir() else place
    files = {file for pattern in (own, *guarded) for file in root.glob(pattern) if file.is_file()}
    found = hashlib.sha256()
    for file in sorted(file for file in files if "__pycache__" not in file.parts):
        found.update(f"{file.relative_to(root).as_posix()}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def unchanged(root: Path, named: Iterable[Path], guarded: Mapping[str, Sequence[str]] = GUARDED) -> list[Path]:
    """Return the places whose tests passed with what exists now, and of which a run that names these names none."""
    passed, asked_for = _passed(root), tuple(named)
    return [
        root / place
        for place, files in guarded.items()
        if not any(path.is_relative_to(root / place) for path in asked_for)
        and passed.get(place) == digest(root, place, files)
    ]


def record(root: Path, place: str, passed_with: str) -> None:
    """Record the digest with which the tests of a place have passed."""
    passed = {**_passed(root), place: passed_with}
    text = "".join(f"{passed[each]}  {each}\n" for each in sorted(passed))
    (root / RECORD).write_text(text, encoding="utf-8")


def _passed(root: Path) -> dict[str, str]:
    """Return what is recorded: the digest of each place."""
    file = root / RECORD
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {place: passed for passed, _, place in (line.partition("  ") for line in lines)}


def main(places: Sequence[str]) -> int:
    """Run the tests of these places, or of all, and record those that pass; return 1 if any has failed."""
    failed = 0
    for place in places or tuple(GUARDED):
        # What changes while they run has not passed.
        found = digest(ROOT, place, GUARDED[place])
        if subprocess.run([sys.executable, "-m", "pytest", place], cwd=ROOT, check=False).returncode == 0:
            record(ROOT, place, found)
        else:
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
