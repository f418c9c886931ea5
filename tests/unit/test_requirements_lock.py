"""requirements.lock names one version of each package that an installation takes, and is current."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OWN = "watermark-source"
# The line that installs it is in the workflow of a release.
HASHED = "release/requirements.lock"


def lines_of(lock: str = "requirements.lock") -> list[str]:
    """The packages of a file, each with the hashes of its files if it has any."""
    return (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", "").splitlines()


def pinned(lock: str = "requirements.lock") -> dict[str, str]:
    """Versions by name, of the lines that are for this interpreter and system."""
    requirements = [Requirement(line.partition("--hash")[0]) for line in lines_of(lock)]
    here = [each for each in requirements if each.marker is None or each.marker.evaluate()]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in here}


def declared() -> dict[str, Requirement]:
    """What pyproject.toml requires for development: the project, ``[all]``, and the group ``dev``."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    texts = [*project["project"]["dependencies"], *group_texts(groups, "dev")]
    extra = Requirement(extras["all"][0]).extras
    waiting = sorted(extra)
    for name in waiting:
        for text in extras[name]:
            if Requirement(text).name == OWN:
                waiting += sorted(Requirement(text).extras)
            else:
                texts.append(text)
    each = {text: Requirement(text) for text in texts}
    return {text: of for text, of in each.items() if of.marker is None or of.marker.evaluate()}


def group_texts(groups: dict[str, Any], name: str) -> Iterator[str]:
    for each in groups[name]:
        if isinstance(each, str):
            yield each
        else:
            yield from group_texts(groups, each["include-group"])


def needed(names: dict[str, str]) -> Iterator[tuple[str, Requirement]]:
    """What the pinned packages that are installed here require in turn."""
    for name in names:
        try:
            texts = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, texts):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield name, requirement


@pytest.mark.parametrize("text", declared())
def test_what_the_project_requires_is_pinned_within_its_bounds(text: str) -> None:
    requirement = declared()[text]
    version = pinned().get(canonicalize_name(requirement.name))
    assert version is not None, f"{text} is not in requirements.lock: make lock"
    assert version in requirement.specifier, f"requirements.lock has {version}, which {text} excludes: make lock"


def test_what_pinned_packages_require_is_pinned_as_well() -> None:
    versions = pinned()
    wrong = [
        f"{name} needs {requirement}"
        for name, requirement in needed(versions)
        if versions.get(canonicalize_name(requirement.name), "") not in requirement.specifier
        or canonicalize_name(requirement.name) not in versions
    ]
    assert wrong == []


@pytest.mark.parametrize("lock", ["requirements.lock", HASHED])
def test_no_line_names_a_place_from_which_packages_come(lock: str) -> None:
    assert "://" not in (ROOT / lock).read_text(encoding="utf-8")


def test_what_a_release_is_made_with_is_pinned_by_its_hashes_to_the_versions_of_the_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    texts = [*project["project"]["dependencies"], *project["dependency-groups"]["release"]]
    texts += (text for extra in ("spark", "compiler", "kafka", "mysql") for text in extras[extra])
    versions = pinned(HASHED)
    assert [each for each in map(Requirement, texts) if versions[each.name] not in each.specifier] == []
    assert [line for line in lines_of(HASHED) if "--hash=sha256:" not in line] == []
    assert {name: version for name, version in versions.items() if pinned().get(name, version) != version} == {}
