"""What ``make`` installs: for who tries the project what a demo needs, and over what is installed no other copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMOS = sorted(set(re.findall(r"^    make (play|demo\S*|broker) ", README, re.MULTILINE)))
JOINS = {"demo-join", "demo-rate"}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what ``make`` reads before it installs."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def installs(clone: Path, target: str) -> list[str]:
    """What pip would install for a target."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return [line.partition(" install ")[2] for line in done.stdout.splitlines() if " -m pip " in line]


def have(clone: Path, stamp: str) -> None:
    (clone / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    (clone / ".venv" / "bin" / "python").touch()
    (clone / ".venv" / stamp).touch()


def test_the_readme_has_the_demos() -> None:
    assert {"play", "demo", "demo-json", "demo-join", "broker"} <= set(DEMOS)


@pytest.mark.parametrize("target", DEMOS)
def test_a_demo_installs_no_tests_and_linters(clone: Path, target: str) -> None:
    extras = "spark,compiler,kafka,mysql,monitor" + (",operators" if target in JOINS else "")
    installed = f"--editable '.[{extras}]' --constraint requirements.lock"
    assert installs(clone, target)[1:] == [f"--no-compile --no-cache-dir {installed}"]


@pytest.mark.parametrize("target", ["lint", "test", "prepared"])
def test_tests_and_linters_are_installed_in_one_go(clone: Path, target: str) -> None:
    whole = ["--editable '.[all]' --group dev --constraint requirements.lock"]
    assert installs(clone, target)[1:] == whole
    have(clone, ".installed-to-run")
    assert installs(clone, target)[1:] == whole


@pytest.mark.parametrize("target", ["demo", "broker"])
def test_where_tests_are_installed_a_demo_installs_nothing(clone: Path, target: str) -> None:
    have(clone, ".installed")
    assert installs(clone, target) == []


@pytest.mark.parametrize("target", ["demo", "broker"])
def test_a_copy_that_a_user_installed_is_added_to_and_not_replaced(clone: Path, target: str) -> None:
    (clone / ".venv" / "lib" / "python3.13" / "site-packages" / "watermark_source").mkdir(parents=True)
    added = "'watermark-source[spark,compiler,kafka,mysql,monitor]'"
    assert installs(clone, target)[1:] == [f"--no-compile --no-cache-dir {added}"]


def test_a_long_installation_says_that_it_is_at_work_and_its_failure_is_one(clone: Path) -> None:
    makefile = (clone / "Makefile").read_text(encoding="utf-8")
    makefile = makefile.replace("sleep 5", "sleep 0.01").replace("s + 5", "s + 1")
    (clone / "Makefile").write_text(f"{makefile}\nslow:\n\t$(WITH_CLOCK) sh -c 'sleep 0.5; exit 3'\n", encoding="utf-8")
    done = subprocess.run(["make", "slow"], cwd=clone, capture_output=True, text=True, timeout=60, check=False)
    assert "  1 s: pip is at work\n  2 s: pip is at work\n" in done.stdout
    assert done.returncode == 2
    assert "Error 3" in done.stderr
