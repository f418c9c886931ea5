"""The wheel beside a Spark that is there: what it is for, and what pip would fetch with it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
CONNECTORS = ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm")
_NAME = "from watermark_source.machine_code.built_library import file_name; import sys; print(file_name(sys.argv[1]))"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a wheel is made of."""
    for name in ("watermark_source", "connectors", "release"):
        unwanted = shutil.ignore_patterns("__pycache__", "*.elf")
        shutil.copytree(ROOT / name, tmp_path / "checkout" / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, tmp_path / "checkout" / name)
    return tmp_path / "checkout"


def wheel_of(checkout: Path) -> Path:
    made = checkout.parent / "made"
    shutil.rmtree(made, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(made)]
    # As in the environment of a build, which has nothing of the project.
    environment = {**os.environ, "PYTHONPATH": ""}
    subprocess.run(command, cwd=checkout, env=environment, capture_output=True, check=True, timeout=120)
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


def test_beside_a_platforms_spark_pip_fetches_neither_pyspark_nor_a_compiler(checkout: Path) -> None:
    with zipfile.ZipFile(wheel_of(checkout)) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(packed.read(name).decode())
    required = [Requirement(each) for each in metadata.get_all("Requires-Dist", [])]

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
