"""The project in an archive, as ``--py-files`` ships it to nodes that do not have it."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

from tests.integration.cluster_runs import PACKAGES, archive, python_without_the_project

_IMPORT_ALL = """
import importlib, pickle, pkgutil, sys

archive, *packages = sys.argv[1:]
for package in packages:
    found = [importlib.import_module(package)]
    for each in pkgutil.walk_packages(found[0].__path__, package + "."):
        found.append(importlib.import_module(each.name))
    assert all(module.__file__.startswith(archive) for module in found), found
    print(package, len(found))

from pyspark_aligned_kafka import DefaultSource

source = DefaultSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
reader = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
print(sys.modules[type(reader).__module__].__file__)
"""


def test_an_archive_of_the_project_is_all_that_a_python_needs(tmp_path: Path) -> None:
    python, packed = python_without_the_project(tmp_path / "env"), archive(tmp_path)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}

    def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, "-c", code, *arguments],
            env={**inherited, **environment}, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    assert "No module named 'watermark_source'" in run("import watermark_source").stderr
    done = run(_IMPORT_ALL, str(packed), *PACKAGES, PYTHONPATH=str(packed))
    assert done.returncode == 0, done.stderr
    *imported, of_reader = done.stdout.splitlines()
    modules = [file for file in zipfile.ZipFile(packed).namelist() if file.endswith(".py")]
    assert imported == [f"{name} {sum(file.startswith(f'{name}/') for file in modules)}" for name in PACKAGES]
    assert of_reader.startswith(f"{packed}/watermark_source/")
