"""A process of tests that dies costs its test, and neither the others nor the end of the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, **files: str) -> list[str]:
    """Run so many files of tests in two processes, and return what pytest says at the end."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.whole_files", "-n", "2", "--dist", "loadfile",
         "--no-loadscope-reorder", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()


FINE = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_fine(n): pass\n"


@pytest.mark.parametrize("fatal", [0, 3])
@pytest.mark.parametrize("others", [1, 12])
def test_the_run_goes_on_when_a_process_dies(tmp_path: Path, fatal: int, others: int) -> None:
    dies = FINE.replace("pass", f"n == {fatal} and __import__('os')._exit(9)")
    said = run(tmp_path, a=FINE, b=FINE, c=dies, **{f"d{n}": FINE for n in range(others)})
    assert said[-1].startswith(f"========================= 1 failed, {4 * (others + 3) - 1} passed"), said
    assert any(line.startswith("FAILED") and line.endswith(f"test_c.py::test_fine[{fatal}]") for line in said), said
