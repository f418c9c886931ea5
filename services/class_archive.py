"""Archives of Java's classes (application class-data sharing): a JVM that maps one is up in half the time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from services.cache import cached, fingerprinted
from services.java import java_command

_ARCHIVE = "classes.jsa"
# A JVM with another class path goes without the archive; it need not say so.
_SILENT = "-Xlog:disable"
_SECONDS = 300


def class_archive(name: str, jars: Iterable[Path], first_run: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``flags`` and those with which Java maps an archive of the classes that a first run loaded.

    The first run is ``python -m first_run FLAGS FOLDER``, where ``FLAGS`` is one argument and ``FOLDER`` may be filled;
    it is made once for these jars and this Java. Java passes over an archive that is missing or does not fit: these
    options never keep a program from starting.

    Raises:
        ServiceError: there is no Java.
    """
    files = (Path(java_command()).resolve(), *sorted(jars))
    installed = ((str(file), file.stat().st_mtime_ns) for file in files)
    entry = fingerprinted(f"{name}-classes", *flags, *installed)
    archive = cached(entry, partial(_make, first_run, flags)) / _ARCHIVE
    return (*flags, _SILENT, f"-XX:SharedArchiveFile={archive}")


def _make(first_run: str, flags: tuple[str, ...], folder: Path) -> None:
    """Archive what the first run loads. Where that fails, or takes too long, the folder has its log alone."""
    options = " ".join((*flags, _SILENT, f"-XX:ArchiveClassesAtExit={folder / _ARCHIVE}"))
    with tempfile.TemporaryDirectory() as work, (folder / "log").open("w") as log:
        try:
            subprocess.run(
                [sys.executable, "-m", first_run, options, work],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
                stdout=log, stderr=log, timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            log.write(f"{late}\n")
