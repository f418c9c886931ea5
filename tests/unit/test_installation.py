"""Which Python Spark starts, and how what is not installed is named."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from watermark_source.errors import MissingPackageError
from watermark_source.installation import after_import, lacking, name_python, to_install

OWN = "/job/.venv/bin/python"
ELSEWHERE = {"PATH": "/nowhere"}


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here depends on whether another test of this process has started Spark."""
    monkeypatch.delitem(sys.modules, "pyspark.core.context", raising=False)


@pytest.fixture
def python3(tmp_path: Path) -> Path:
    """A ``python3`` on the path."""
    found = tmp_path / "bin" / "python3"
    found.parent.mkdir()
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    return found


def named(environment: dict[str, str], executable: str = OWN) -> str | None:
    name_python(environment, executable)
    return environment.get("PYSPARK_PYTHON")


def test_a_python_that_spark_would_not_find_is_named(python3: Path) -> None:
    assert named({**ELSEWHERE}) == OWN
    assert named({"PATH": str(python3.parent)}) == OWN


def test_an_activated_environment_is_left_as_it_is(python3: Path) -> None:
    assert named({"PATH": str(python3.parent)}, str(python3.parent / "python")) is None


@pytest.mark.parametrize(
    "chosen",
    [
        {"PYSPARK_DRIVER_PYTHON": "/opt/python"},
        {"PYSPARK_SUBMIT_ARGS": "--conf spark.pyspark.python=/opt/python pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "-c spark.executorEnv.PYSPARK_PYTHON=/opt/python pyspark-shell"},
        {"PYSPARK_GATEWAY_PORT": "4711"},
        {"SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"},
    ],
)
def test_a_python_that_is_chosen_elsewhere_is_kept(chosen: dict[str, str]) -> None:
    assert named({**ELSEWHERE, **chosen}) is None
    assert named({**ELSEWHERE, **chosen, "PYSPARK_PYTHON": "/opt/other"}) == "/opt/other"


@pytest.mark.parametrize(
    "remote",
    [
        {"MASTER": "yarn"},
        {"SPARK_REMOTE": "sc://spark:15002"},
        {"PYSPARK_SUBMIT_ARGS": "--master k8s://https://k8s:6443 pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--master=spark://one:7077 pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--conf=spark.master=yarn pyspark-shell", "MASTER": "local[2]"},
        {"PYSPARK_SUBMIT_ARGS": "--remote sc://spark pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--conf 'spark.app.name=no end"},
    ],
)
def test_no_python_is_named_where_executors_may_be_on_other_machines(remote: dict[str, str]) -> None:
    assert named({**ELSEWHERE, **remote}) is None


@pytest.mark.parametrize(
    "local",
    [
        {"MASTER": "local[2]"},
        {"MASTER": "yarn", "PYSPARK_SUBMIT_ARGS": "--master local-cluster[2,1,1024] pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--master local[*] --conf spark.master=yarn pyspark-shell"},
        {"PYSPARK_SUBMIT_ARGS": "--name yarn pyspark-shell", "SPARK_REMOTE": ""},
    ],
)
def test_a_local_master_starts_this_python(local: dict[str, str]) -> None:
    assert named({**ELSEWHERE, **local}) == OWN


@pytest.mark.parametrize(
    "line",
    [
        "spark.master yarn", "spark.master=spark://one:7077", "spark.master : yarn", "spark.remote sc://spark",
        "spark.executorEnv.PYSPARK_PYTHON /opt/python",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["SPARK_CONF_DIR", "SPARK_HOME", "--properties-file"])
def test_the_master_of_sparks_settings_counts(tmp_path: Path, line: str, place: str) -> None:
    file = tmp_path / ("conf" if place == "SPARK_HOME" else "") / "spark-defaults.conf"
    file.parent.mkdir(exist_ok=True)
    submit = {"PYSPARK_SUBMIT_ARGS": f"--properties-file {file} pyspark-shell"}
    environment = {**ELSEWHERE, **(submit if place == "--properties-file" else {place: str(tmp_path)})}
    file.write_text(f"# of the cluster\n{line}\n")
    assert named({**environment}) is None
    file.write_text(f"# {line}\n")
    assert named({**environment}) == OWN


@pytest.mark.parametrize("line", ["spark.pyspark.python /opt/python", "  spark.pyspark.python=/opt/python"])
def test_the_python_of_sparks_settings_is_kept(tmp_path: Path, line: str) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.master local[2]\n{line}\n")
    assert named({**ELSEWHERE, "SPARK_CONF_DIR": str(tmp_path)}) is None
    (tmp_path / "spark-defaults.conf").write_text(f"spark.master local[2]\n# {line}\n")
    assert named({**ELSEWHERE, "SPARK_CONF_DIR": str(tmp_path)}) == OWN


def test_a_session_that_is_older_than_the_import_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    class SparkContext:
        _gateway = object()

    context = type(sys)("pyspark.core.context")
    context.SparkContext = SparkContext  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.core.context", context)
    with pytest.warns(UserWarning, match=f"import watermark_source before .* or set PYSPARK_PYTHON={OWN}"):
        assert named({**ELSEWHERE}) == OWN


def test_what_is_not_installed_is_named_with_a_command_that_any_index_serves() -> None:
    command = to_install("kafka")
    assert command.startswith("pip install ")
    assert "'kafka-python" in command
    assert "watermark-source" not in command
    error = lacking("LiveStatus", "rich", "monitor")
    assert isinstance(error, ModuleNotFoundError)
    assert str(error).startswith("LiveStatus needs the package rich, which is not installed")
    assert "pip install 'prometheus-client" in str(error)


def test_without_a_distribution_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watermark_source.installation._DISTRIBUTION", "there-is-no-such-distribution")
    assert to_install("kafka") == "pip install '.[kafka]' in a checkout of the project"


@pytest.mark.parametrize(("module", "package"), [("terminal", "rich"), ("prometheus", "prometheus_client")])
def test_a_view_without_its_package_names_it(monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    import importlib

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"watermark_source.monitor.{module}", raising=False)
    with pytest.raises(MissingPackageError, match=f"needs the package {package}.*pip install 'prometheus-client"):
        importlib.import_module(f"watermark_source.monitor.{module}")


def test_a_module_is_passed_on_as_soon_as_it_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "comes_later_here.py").write_text("MADE = 1")
    called: list[tuple[str, int]] = []
    after_import(["comes_later_here"], lambda module: called.append((module.__name__, module.MADE)))
    assert called == []
    module = importlib.import_module("comes_later_here")
    after_import(["comes_later_here"], lambda module: called.append((module.__name__, 0)))
    assert called == [("comes_later_here", 1), ("comes_later_here", 0)]
    assert module.__spec__ is not None
    assert module.__loader__ is module.__spec__.loader
    assert type(module.__loader__).__module__.startswith("_frozen_importlib")


@pytest.mark.parametrize(
    "imports",
    [
        "watermark_source, pyspark.sql.streaming.readwriter as made",
        "pyspark.sql.streaming.readwriter as made, watermark_source",
        "watermark_source, pyspark.sql.connect.streaming.readwriter as made",
    ],
)
def test_queries_are_checked_when_they_start_whatever_is_imported_first(imports: str) -> None:
    code = f"import {imports}; print(hasattr(made.DataStreamWriter.toTable, '_checked_by_watermark_source'))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "True\n"
