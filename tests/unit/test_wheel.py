"""The wheel beside a Spark that is there: what it is for, and what pip would fetch with it."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from itertools import chain, islice
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from services.ivy import pyspark_home
from tests.versions import PYTHONS, interpreters

_log = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
CONNECTORS = ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm")
_NAME = "from watermark_source.machine_code.built_library import file_name; import sys; print(file_name(sys.argv[1]))"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a wheel is made of."""
    for name in ("watermark_source", "watermark_source_testing", "connectors", "release"):
        unwanted = shutil.ignore_patterns("__pycache__", "*.elf")
        shutil.copytree(ROOT / name, tmp_path / "checkout" / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, tmp_path / "checkout" / name)
    return tmp_path / "checkout"


def wheel_of(checkout: Path, folder: str = ".", **variables: str) -> Path:
    made = checkout.parent / "made" / folder
    shutil.rmtree(made, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(made)]
    # As in the environment of a build, which has nothing of the project.
    environment = {**os.environ, "PYTHONPATH": "", "GITHUB_REPOSITORY": "", **variables}
    subprocess.run(command, cwd=checkout / folder, env=environment, capture_output=True, check=True, timeout=120)
    (found,) = made.glob("*.whl")
    return found


def with_code(checkout: Path, package: str) -> Path:
    """Put a file where a library of these sources is looked for."""
    path = os.pathsep.join(map(str, (checkout, checkout / "connectors")))
    listed = subprocess.run(
        [sys.executable, "-c", _NAME, package], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    file = checkout / "connectors" / package / listed.stdout.strip()
    file.write_bytes(b"machine code")
    return file


def test_a_wheel_has_the_machine_code_of_its_sources_and_is_for_that_processor_then(checkout: Path) -> None:
    assert wheel_of(checkout).name.endswith("-py3-none-any.whl")
    built = [with_code(checkout, package) for package in CONNECTORS]
    (built[0].parent / "decoders-of-older-sources.elf").write_bytes(b"")
    made = wheel_of(checkout)
    assert made.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    with zipfile.ZipFile(made) as packed:
        libraries = sorted(name for name in packed.namelist() if name.endswith(".elf"))
    assert libraries == sorted(f"{file.parent.name}/{file.name}" for file in built)


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(packed.read(name).decode())


def test_a_wheel_that_a_workflow_builds_has_the_addresses_of_its_repository(checkout: Path) -> None:
    assert metadata_of(wheel_of(checkout)).get_all("Project-URL") is None
    made = wheel_of(checkout, GITHUB_SERVER_URL="https://forge.example", GITHUB_REPOSITORY="team/project")
    urls = dict(each.split(", ") for each in metadata_of(made).get_all("Project-URL", []))
    assert urls["Source"] == "https://forge.example/team/project"
    assert urls["Issues"] == "https://forge.example/team/project/issues"
    for name in ("Documentation", "Changelog"):
        page = urls[name].removeprefix("https://forge.example/team/project/blob/HEAD/")
        assert (ROOT / page).is_file()


PROGRAM = """
import sys, watermark_source
from pyspark_aligned_kafka import DefaultSource as Kafka
from pyspark_mysql_cdc_wm import DefaultSource as MySql
from watermark_source.command_line import main
assert watermark_source.__file__.startswith(sys.argv[1]), watermark_source.__file__
names = Kafka({"kafka.bootstrap.servers": "localhost:1", "subscribe": "a"}).schema().names
sys.exit(0 if {"value", "event_time", "marker"} <= set(names) and MySql.name() == "mysql-cdc-wm" else 1)
"""


def runs_on(python: str, installed: Path, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    """Import an installed wheel beside a Spark that is on the path alone, as a platform's is."""
    spark = sorted((pyspark_home() / "python" / "lib").glob("*.zip"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (installed, *spark)))}
    return subprocess.run(
        [python, "-c", program, str(installed)], cwd=installed.parent, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_an_installed_wheel_runs_beside_a_spark_that_is_on_the_path(checkout: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of(checkout)) as packed:
        packed.extractall(tmp_path / "installed")
    done = runs_on(sys.executable, tmp_path / "installed")
    assert done.returncode == 0, done.stderr


KIT = """
import sys
from watermark_source_testing import ALL_CHECKS, driven_stream
assert driven_stream.__file__.startswith(sys.argv[1]), driven_stream.__file__
sys.exit(0 if ALL_CHECKS else 1)
"""


def test_the_conformance_kit_is_a_wheel_of_its_own_and_no_query_has_it(checkout: Path, tmp_path: Path) -> None:
    product, kit = (zipfile.ZipFile(wheel_of(checkout, folder)) for folder in (".", "watermark_source_testing"))
    with product, kit:
        modules, own = ({n.split("/")[0] for n in each.namelist() if n.endswith(".py")} for each in (product, kit))
        assert modules == {"watermark_source", *CONNECTORS}
        assert own == {"watermark_source_testing"}
        assert "watermark_source_testing/py.typed" in kit.namelist()
        for each in (product, kit):
            each.extractall(tmp_path / "installed")
    done = runs_on(sys.executable, tmp_path / "installed", KIT)
    assert done.returncode == 0, done.stderr


def test_the_kit_is_of_the_version_of_the_project_and_needs_it() -> None:
    project, kit = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (".", "watermark_source_testing")
    )
    assert kit["version"] == project["version"]
    assert kit["dependencies"] == [f"{project['name']}=={project['version']}"]
    assert kit["requires-python"] == project["requires-python"]


@pytest.mark.long("test_an_installed_wheel_runs_beside_a_spark_that_is_on_the_path")
def test_pip_installs_the_wheel_on_each_python_that_can_be_had(checkout: Path, tmp_path: Path) -> None:
    wheel, tried = wheel_of(checkout), []
    for version in PYTHONS:
        candidates = chain([sys.executable], islice(interpreters(version), 1, None))
        python = next((each for each in candidates if is_python(each, version)), None)
        if python is None:
            continue
        installed = tmp_path / version
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(installed)]
        command += ["--python-version", version, "--only-binary", ":all:", f"{wheel}[compiler,kafka,mysql,monitor]"]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        done = runs_on(python, installed)
        assert done.returncode == 0, (version, done.stderr)
        tried.append(version)
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in tried
    _log.info("installed on %s", tried)


def is_python(program: str, version: str) -> bool:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.startswith(f"Python {version}.")


def test_beside_a_platforms_spark_pip_fetches_neither_pyspark_nor_a_compiler(checkout: Path) -> None:
    required = [Requirement(each) for each in metadata_of(wheel_of(checkout)).get_all("Requires-Dist", [])]

    def fetched(*extras: str) -> set[str]:
        chosen = ("", *extras)
        return {
            each.name for each in required
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in chosen)
        }  # fmt: skip

    assert fetched() == {"pyarrow", "numpy"}
    assert fetched("kafka", "mysql", "monitor") & {"pyspark", "numba", "llvmlite"} == set()
    assert "pyspark" in fetched("spark")
    assert fetched("compiler") == {"pyarrow", "numpy", "numba"}
