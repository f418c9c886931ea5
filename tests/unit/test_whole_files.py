"""A process of tests that dies, also of too much memory, costs its test, and neither the others nor the run's end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *options: str, **files: str) -> list[str]:
    """Run so many files of tests in two processes, and return what pytest prints."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.whole_files", "-n", "2", "--dist", "loadfile",
         "--no-loadscope-reorder", "-p", "no:cacheprovider", *options, "--rootdir", folder, folder],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()


FINE = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_fine(n): pass\n"


@pytest.mark.parametrize(("fatal", "others"), [(0, 12), (3, 1)])
def test_the_run_goes_on_when_a_process_dies(tmp_path: Path, fatal: int, others: int) -> None:
    dies = FINE.replace("pass", f"n == {fatal} and __import__('os')._exit(9)")
    logged = run(tmp_path, a=FINE, b=FINE, c=dies, **{f"d{n}": FINE for n in range(others)})
    assert f" 1 failed, {4 * (others + 3) - 1} passed" in logged[-1], logged
    assert any(line.startswith("FAILED") and f"test_c.py::test_fine[{fatal}]" in line for line in logged), logged


def test_a_process_that_takes_too_much_memory_ends_with_its_stacks(tmp_path: Path) -> None:
    takes = "def test_takes():\n    taken = []\n    while True:\n        taken.append(bytearray(1 << 20))\n"
    logged = run(tmp_path, "-p", "tests.most_memory", "--most-memory", "300", a=FINE, b=takes, c=FINE)
    assert any("at most 300 were expected (--most-memory)" in line for line in logged), logged
    assert any("test_b.py" in line and "in test_takes" in line for line in logged), logged
    assert "1 failed, 8 passed" in logged[-1], logged
