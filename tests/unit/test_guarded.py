"""Tests of a part that seldom changes run when anything of it has changed, and are left out when nothing has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guarded import GUARDED, RECORD, digest, record, unchanged

ROOT = Path(__file__).parents[2]
PLACES = {"tests/services": ("services/**/*", "lock"), "tests/test_page.py": ("page/*.py",)}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("tests/services/test_a.py", "tests/test_page.py", "services/deep/a.py", "page/html.py", "lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for place, guarded in PLACES.items():
        record(tmp_path, place, digest(tmp_path, place, guarded))
    return tmp_path


def left_out(tree: Path, *named: str) -> list[str]:
    return [each.relative_to(tree).as_posix() for each in unchanged(tree, [tree / name for name in named], PLACES)]


def test_what_has_passed_with_the_same_files_is_left_out(tree: Path) -> None:
    assert left_out(tree, "tests") == list(PLACES)


@pytest.mark.parametrize(
    "changed", ["tests/services/test_a.py", "services/deep/a.py", "lock", "services/new.py", "tests/services/new.py"]
)
def test_a_file_that_is_guarded_or_guards_brings_the_tests_back_when_it_changes(tree: Path, changed: str) -> None:
    (tree / changed).write_text("changed")
    assert left_out(tree, "tests") == ["tests/test_page.py"]


def test_so_does_one_that_is_gone_or_renamed(tree: Path) -> None:
    (tree / "services/deep/a.py").rename(tree / "services/deep/b.py")
    (tree / "page/html.py").unlink()
    assert left_out(tree, "tests") == []


def test_what_python_compiles_changes_nothing(tree: Path) -> None:
    (tree / "services/__pycache__").mkdir()
    (tree / "services/__pycache__/a.pyc").write_bytes(b"compiled")
    assert left_out(tree, "tests") == list(PLACES)


def test_without_a_record_all_run(tree: Path) -> None:
    (tree / RECORD).unlink()
    assert left_out(tree, "tests") == []


@pytest.mark.parametrize("named", ["tests/services", "tests/services/test_a.py"])
def test_a_run_that_names_them_has_them(tree: Path, named: str) -> None:
    assert left_out(tree, named) == ["tests/test_page.py"]


@pytest.mark.parametrize("place", GUARDED)
def test_each_place_and_what_it_guards_is_there(place: str) -> None:
    assert (ROOT / place).exists()
    assert [pattern for pattern in GUARDED[place] if not list(ROOT.glob(pattern))] == []


def test_the_record_is_of_these_places_alone() -> None:
    lines = (ROOT / RECORD).read_text(encoding="utf-8").splitlines()
    assert {line.partition("  ")[2] for line in lines} <= set(GUARDED)
