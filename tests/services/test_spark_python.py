"""Python as the tests' Spark starts it is this Python, with pyspark as pip has installed it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.ivy import pyspark_home
from services.spark_python import quick_python

_SEEN = """
import json, os, sys
import pyspark.util
print(json.dumps({"path": os.environ["PYTHONPATH"], "pyspark": pyspark.util.__file__, "arguments": sys.argv[1:],
                  "python": sys.executable, "process": os.getpid()}))
"""


def seen(path: list[str], *arguments: str) -> dict[str, Any]:
    with subprocess.Popen(
        [quick_python(), "-c", _SEEN, *arguments], env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stdout is not None
        found: dict[str, Any] = json.loads(started.stdout.read())
    assert found["process"] == started.pid
    return found


def test_archives_of_spark_are_left_out_of_the_path_and_nothing_else(tmp_path: Path) -> None:
    home = pyspark_home()
    ours = [str(tmp_path / "a folder"), "*", f"{home}-other"]
    found = seen([f"{home}/python/lib/pyspark.zip", ours[0], f"{home}/jars/spark-core.jar", *ours[1:]], "a b", "", "*")
    assert found["path"] == os.pathsep.join(ours)
    assert found["pyspark"] == str(home / "util.py")
    assert found["arguments"] == ["a b", "", "*"]
    assert found["python"] == sys.executable


@pytest.mark.parametrize("path", [[], [f"{pyspark_home()}/python/lib/pyspark.zip"]])
def test_of_a_path_of_archives_alone_nothing_is_left(path: list[str]) -> None:
    assert seen(path)["path"] == ""
