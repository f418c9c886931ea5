"""Bytecode for Spark's own archives: ``python -m release.bytecode [SPARK_HOME]``.

Spark puts ``python/lib/pyspark.zip`` before everything on the path of each Python process it starts. The archive holds
source alone, and Python never caches imports from an archive: every process compiles pyspark again, half a second of
a core before a source's first line runs. Bytecode beside the source (PEP 552, unchecked hash) spares that; another
version of Python passes over it and compiles the source, as before.

The archive's directory is read twice in each process: Spark makes Python read its path again before a worker begins.
More than half of the directory lists Spark's own tests, which no program imports, so they are removed from it.
"""

from __future__ import annotations

import argparse
import importlib.util
import marshal
import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path

from watermark_source.errors import UsageError

_UNCHECKED_HASH = (1).to_bytes(4, "little")
_TESTS = "/tests/"


def add_bytecode(archive: Path) -> int:
    """Add the bytecode of every module of an archive that has none yet, for this Python; return how many.

    Tests are removed from the directory. The archive is replaced in one step, and its content keeps its place: a
    running Spark continues with it.

    Raises:
        UsageError: the archive is missing or broken, or its folder cannot be written.
    """
    try:
        with zipfile.ZipFile(archive) as before:
            names = set(before.namelist())
            missing = {
                name: before.read(name)
                for name in sorted(names)
                if name.endswith(".py") and f"{name}c" not in names and _TESTS not in name
            }
        if missing or any(_TESTS in name for name in names):
            _replace(archive, {f"{name}c": _bytecode(source, archive / name) for name, source in missing.items()})
    except (OSError, zipfile.BadZipFile, SyntaxError) as error:
        raise UsageError(f"no bytecode for {archive}: {error}") from error
    return len(missing)


def _bytecode(source: bytes, path: Path) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, str(path), "exec", dont_inherit=True)
    checked = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + checked + marshal.dumps(code)


def _replace(archive: Path, added: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=archive.stem) as beside:
        new = Path(shutil.copy2(archive, beside))
        # Not compressed: each process would unpack it.
        with zipfile.ZipFile(new, "a", zipfile.ZIP_STORED) as opened:
            for name, content in added.items():
                opened.writestr(name, content)
            opened.comment = opened.comment  # so that the directory is written, though nothing may have been added
            opened.filelist = [entry for entry in opened.filelist if _TESTS not in entry.filename]
        os.replace(new, archive)


def _archives(home: Path | None) -> list[Path]:
    """Return the archives of a Spark: the one named, that of ``SPARK_HOME``, or the installed pyspark."""
    if home is None and (named := os.environ.get("SPARK_HOME")):
        home = Path(named)
    if home is None:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise UsageError("there is no pyspark in this Python and no SPARK_HOME; name Spark's folder")
        home = Path(found.origin).parent
    if not home.is_dir():
        raise UsageError(f"there is no folder {home}. Example of a folder of Spark: /opt/spark")
    archives = sorted((home / "python" / "lib").glob("*.zip"))
    if not archives:
        raise UsageError(f"{home} is not a folder of Spark: it has no python/lib/*.zip. Example: /opt/spark")
    return archives


def main(arguments: Sequence[str]) -> None:
    """Add bytecode to all archives of one Spark, and say what was done."""
    parser = argparse.ArgumentParser(
        prog="python -m release.bytecode", description="Add bytecode to pyspark's archives."
    )
    parser.add_argument(
        "home", nargs="?", type=Path, help="Spark's folder (default: SPARK_HOME, else the installed pyspark)"
    )
    for archive in _archives(parser.parse_args(arguments).home):
        added = add_bytecode(archive)
        sys.stdout.write(f"{archive}: {f'bytecode of {added} modules added' if added else 'has bytecode already'}\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        sys.exit(str(error))
