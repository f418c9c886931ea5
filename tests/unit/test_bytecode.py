"""Archives get bytecode, and are imported by it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from release.bytecode import add_bytecode, main
from services.ivy import pyspark_home
from watermark_source.errors import UsageError

_SOURCE = "import warnings\nvalue = 'seen'\nodd = 1 is 1\n"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "python" / "lib" / "some.zip"
    made.parent.mkdir(parents=True)
    with zipfile.ZipFile(made, "w") as opened:
        opened.writestr("some/__init__.py", "")
        opened.writestr("some/module.py", _SOURCE)
        opened.writestr("some/tests/__init__.py", "")
    return made


def _imported(archive: Path, module: str, shown: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import {module} as m; print({shown})"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_modules_are_imported_from_bytecode(archive: Path) -> None:
    assert _imported(archive, "some.module", "m.__file__").endswith(".py")
    assert add_bytecode(archive) == 2
    assert _imported(archive, "some.module", "m.__file__, m.value") == f"{archive}/some/module.pyc seen"
    assert _imported(archive, "some.module", "m.__loader__.get_source('some.module')") == _SOURCE.strip()


def test_an_archive_gets_it_once_and_keeps_where_its_sources_are(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        before = {entry.filename: entry.header_offset for entry in opened.infolist()}
    add_bytecode(archive)
    kept = archive.read_bytes()
    with zipfile.ZipFile(archive) as opened:
        after = {entry.filename: entry.header_offset for entry in opened.infolist()}
    assert before.items() - after.items() == {("some/tests/__init__.py", before["some/tests/__init__.py"])}
    assert add_bytecode(archive) == 0
    assert archive.read_bytes() == kept
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]


def test_another_python_compiles_the_source_as_before(archive: Path) -> None:
    add_bytecode(archive)
    with zipfile.ZipFile(archive) as opened:
        entries = {name: opened.read(name) for name in opened.namelist()}
    with zipfile.ZipFile(archive, "w") as opened:
        for name, content in entries.items():
            opened.writestr(name, b"other" + content[5:] if name.endswith(".pyc") else content)
    assert _imported(archive, "some.module", "m.value") == "seen"


def test_pyspark_itself(tmp_path: Path) -> None:
    archive = Path(shutil.copy(pyspark_home() / "python" / "lib" / "pyspark.zip", tmp_path))
    add_bytecode(archive)
    with zipfile.ZipFile(archive) as opened:
        assert not [name for name in opened.namelist() if "/tests/" in name]
    assert _imported(archive, "pyspark.sql.streaming.python_streaming_source_runner", "m.__file__").endswith(".pyc")


def test_the_command_says_what_it_did(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(archive.parents[2])])
    assert capsys.readouterr().out == f"{archive}: bytecode of 2 modules added\n"
    main([str(archive.parents[2])])
    assert capsys.readouterr().out == f"{archive}: has bytecode already\n"


def test_what_is_no_spark_is_named(tmp_path: Path, archive: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*nothing"):
        main([str(tmp_path / "nothing")])
    with pytest.raises(UsageError, match=r"is not a folder of Spark.*Example: /opt/spark"):
        main([str(archive.parent)])
    archive.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"no bytecode for .*some\.zip: File is not a zip file"):
        add_bytecode(archive)
