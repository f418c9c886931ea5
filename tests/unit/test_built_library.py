"""Machine code that was built with a package gives what numba's gives, and is run only where it is right."""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from release import decoders
from tests.both_forms import agreeing
from watermark_source.errors import UsageError
from watermark_source.installation import need_compiler
from watermark_source.machine_code import built_library, compiler
from watermark_source.machine_code.built_library import CHOICE, parsed

ROOT = Path(__file__).parents[2]
# Every kind of argument and of result that decoders have, a checksum with its tables, and numbers of variable length.
SOURCE = """
import numpy as np
from pyspark_aligned_kafka.records.record_batches import checksum
from watermark_source.machine_code.native import address_of, compiled, signed_at

@compiled("int64(uint8[::1], int64, int64)")
def summed(data, start, stop):
    return checksum(address_of(data), start, stop)

@compiled("Tuple((int64, boolean))(Array(uint8, 1, 'C', readonly=True), int64[:, ::1], boolean)")
def unpacked(data, found, twice):
    at, count = np.int64(0), np.int64(0)
    while at < data.shape[0] and count < found.shape[0]:
        value, at = signed_at(address_of(data), at, data.shape[0])
        if at < 0:
            return count, False
        found[count, 0], found[count, 1] = value * 2 if twice else value, at
        count += 1
    return count, True

@compiled("void(float64[::1], float32[::1], int32[::1], uint64[::1], boolean[::1])")
def marked(doubles, floats, small, large, chosen):
    for i in range(chosen.shape[0]):
        if chosen[i]:
            doubles[i], floats[i], small[i], large[i] = doubles[i] / 3, doubles[i], -i, large[i] + 1
"""
ALLOCATING = """
import numpy as np
from watermark_source.machine_code.native import compiled

@compiled("int64(int64)")
def allocates(size):
    return np.empty(size, np.int64)[0]
"""


def built(name: str, source: str, where: Path) -> tuple[int, str]:
    """Build the library of a package of one module; return the status of the builder, and what it prints."""
    (where / name).mkdir(exist_ok=True)
    (where / name / "__init__.py").touch()
    (where / name / "reading.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "release.decoders", name], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (where, ROOT, ROOT / "connectors")))}, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def library(where: Path, name: str = "with_code") -> Path:
    (found,) = (where / name).glob("*.elf")
    return found


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    status, logged = built("with_code", SOURCE, folder)
    assert status == 0, logged
    return folder


@pytest.fixture
def package(where: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the package, in this process, with nothing known of libraries."""
    monkeypatch.delenv(CHOICE, raising=False)
    monkeypatch.syspath_prepend(str(where))
    for each in (built_library.digest, built_library._library):
        each.cache_clear()
    return importlib.import_module("with_code.reading")


def both(module: ModuleType, name: str) -> Any:
    of, signature = getattr(module, name).function, getattr(module, name).signature
    code = built_library.function(of, signature)
    assert code is not None
    return agreeing(compiler.dispatcher(of, signature), code, name)


@pytest.mark.parametrize("size", [0, 1, 9, 800, 6_200, 20_000])
def test_checksums_of_both_forms_are_equal(package: ModuleType, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size + 1, np.uint8)
    assert both(package, "summed")(data, 0, size) > 0 or size == 0


def test_rows_and_results_of_both_forms_are_equal(package: ModuleType) -> None:
    chance = np.random.default_rng(3)
    unpacked, marked = both(package, "unpacked"), both(package, "marked")
    outcomes = set()
    for _ in range(300):
        data = chance.integers(0, 256, chance.integers(0, 60), np.uint8)
        data.flags.writeable = False
        outcomes.add(unpacked(data, np.zeros((20, 2), np.int64), bool(chance.integers(2)))[1])
    assert outcomes == {True, False}
    reals = chance.normal(size=500)
    small, large = np.zeros(500, np.int32), np.full(500, 2**64 - 2, np.uint64)
    assert marked(reals, np.zeros(500, np.float32), small, large, reals > 0) is None
    assert small.min() < -400


def test_an_argument_of_another_type_is_refused_and_reaches_no_memory(package: ModuleType) -> None:
    run = built_library.function(package.unpacked.function, package.unpacked.signature)
    assert run is not None
    data, found = np.zeros(4, np.uint8), np.zeros((4, 2), np.int64)
    assert run(data, found, False) == (4, True)
    fixed = found.copy()
    fixed.flags.writeable = False
    wrong: Any
    for wrong in (found[:, :1], found.T, found.astype(np.int32), found.ravel(), fixed, found.tolist(), None):
        with pytest.raises(TypeError, match="expected Parameter"):
            run(data, wrong, False)
    with pytest.raises(ValueError, match="shorter"):
        run(data, found)


def test_a_library_is_not_listed_as_a_module_of_its_package(where: Path) -> None:
    assert library(where).is_file()
    assert [found.name for found in pkgutil.iter_modules([str(where / "with_code")])] == ["reading"]


def test_two_builds_have_the_same_bytes_and_import_names_of_libc_alone(where: Path, tmp_path: Path) -> None:
    status, logged = built("with_code", SOURCE, tmp_path)
    assert status == 0, logged
    assert library(tmp_path).name == library(where).name
    assert library(tmp_path).read_bytes() == library(where).read_bytes()
    assert set(decoders._imported(library(where))) <= decoders.LIBC
    listed = subprocess.run(["readelf", "--dynamic", library(where)], capture_output=True, text=True, check=True)
    assert "(NEEDED)" not in listed.stdout


def test_a_function_that_allocates_is_not_built(tmp_path: Path) -> None:
    status, logged = built("allocating", ALLOCATING, tmp_path)
    assert status == 1
    assert "allocating: expected imports from memcmp, memcpy, memmove, memset alone, not ['NRT_" in logged
    assert not list(tmp_path.rglob("*.elf"))


def test_code_of_other_sources_is_not_run_and_the_log_says_which_is(
    package: ModuleType, where: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert built_library.is_there("with_code")
    assert built_library.is_there("with_code")
    (line,) = caplog.messages
    assert line == f"with_code runs the machine code that was built with it, {library(where).name}"
    caplog.clear()
    changed = where / "with_code" / "another.py"
    try:
        changed.write_text("# a change\n")
        built_library.digest.cache_clear()
        built_library._library.cache_clear()
        assert built_library.function(package.summed.function, package.summed.signature) is None
    finally:
        changed.unlink()
    (line,) = caplog.messages
    assert line.startswith("numba compiles what with_code runs: what was built is of other sources, or for another")


@pytest.mark.parametrize("package", decoders.PACKAGES)
def test_a_library_is_named_where_nothing_is_installed(package: str) -> None:
    """So is what builds the project, by pip: importing a connector there failed for want of pyspark."""
    paths = [str(ROOT), str(ROOT / "connectors")]
    program = f"import sys; sys.path[:0] = {paths}; from watermark_source.machine_code import built_library as b; "
    # Without the packages of this environment.
    command = [sys.executable, "-S", "-c", program + f"print(b.file_name({package!r}))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == built_library.file_name(package), done.stderr


def test_a_processor_without_the_baseline_runs_no_built_code(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_library, "processor_flags", lambda: frozenset({"sse4_1"}))
    monkeypatch.setitem(built_library._NEEDED_FLAGS, platform.machine(), {"sse4_1", "sse4_2"})
    assert built_library._loaded("with_code") == "this processor has no sse4_2"


def test_a_choice_is_kept_or_refused(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "numba")
    assert not built_library.is_there("with_code")
    monkeypatch.setenv(CHOICE, "built")
    with pytest.raises(UsageError, match="release has no machine code: none was built"):
        built_library.is_there("release")
    monkeypatch.setenv(CHOICE, "both")
    with pytest.raises(UsageError, match="is 'both': expected built, numba, or nothing"):
        built_library.is_there("services")


def without_numba(program: str, *path: Path) -> str:
    """Run a program where numba cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None\n{program}"],
        env={**os.environ, CHOICE: "", "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT, ROOT / "connectors")))},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip()


def test_built_code_runs_without_numba_from_a_folder_and_from_an_archive(where: Path, tmp_path: Path) -> None:
    program = "import numpy; from with_code import reading; print(reading.summed(numpy.full(32, 255, 'u1'), 0, 32))"
    assert without_numba(program, where) == str(0x62A8AB43)
    with zipfile.ZipFile(tmp_path / "project.zip", "w") as archive:
        for each in (where / "with_code").glob("*.*"):
            archive.write(each, f"with_code/{each.name}")
    assert without_numba(program, tmp_path / "project.zip") == str(0x62A8AB43)


def test_without_built_code_and_without_numba_both_ways_are_named(where: Path, tmp_path: Path) -> None:
    (tmp_path / "with_code").mkdir()
    for each in (where / "with_code").glob("*.py"):
        (tmp_path / "with_code" / each.name).write_bytes(each.read_bytes())
    program = "import numpy as np; from with_code import reading; reading.summed(np.zeros(8, np.uint8), 0, 8)"
    logged = without_numba(program, tmp_path)
    assert "MissingPackageError: no machine code was built for this processor, and numba, which compiles it" in logged
    assert "install it with: pip install 'numba" in logged


def test_a_source_needs_numba_only_without_built_code(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watermark_source.installation.find_spec", lambda name: None)
    need_compiler("with_code", "aligned-kafka")
    with pytest.raises(UsageError, match=r'format\("aligned-kafka"\) needs the package numba.*pip install .numba'):
        need_compiler("release", "aligned-kafka")


@pytest.mark.long("test_rows_and_results_of_both_forms_are_equal")
def test_all_decoders_have_equal_rows_in_both_forms(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Recorded bytes, the inputs of the fuzz targets, documents by chance, and millions of rows by chance."""
    checkout = tmp_path / "checkout"
    unwanted = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", "*.elf")
    shutil.copytree(ROOT, checkout, ignore=unwanted)
    path = os.pathsep.join(map(str, (checkout, checkout / "connectors")))

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=checkout, env={**os.environ, CHOICE: "", "PYTHONPATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
        return done.stdout

    assert len(run("release.decoders").splitlines()) == 2
    for name in ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm"):
        imported = set(decoders._imported(library(checkout / "connectors", name)))
        assert imported <= decoders.LIBC
    rows = pytestconfig.getoption("--rows-of-both-forms")
    assert run("tests.both_forms", str(rows)).endswith(f"{rows} rows\n")
    # What looks at memory that decoders take is left out: the comparison copies it.
    tests = ("tests/unit/kafka/records", "tests/unit/mysql", "tests/soak/test_fuzz.py", "-k", "not some_megabytes")
    logged = run("pytest", "-q", "-p", "tests.both_forms", "-p", "no:cacheprovider", "--without-services", *tests)
    functions = sum(len(decoders.all_functions(name)) for name in decoders.PACKAGES)
    assert f"both forms of {functions} functions agreed" in logged


@pytest.mark.parametrize("signature", ["int64(float64)", "int64(uint8[::1, :])", "float64(int64)", "int64[::1](int64)"])
def test_what_a_library_cannot_pass_is_refused(signature: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        parsed(signature)
