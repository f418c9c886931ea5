"""Spark's classes in an archive that Java maps (application class-data sharing): a session is up in half the time."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from services.cache import cached
from services.java import QUICK_START, java_command
from services.pyspark_home import pyspark_home

_ARCHIVE = "classes.jsa"
# A JVM with another class path, such as that of Spark's launcher, goes without the archive; it need not say so.
_SILENT = "-Xlog:disable"
_SECONDS = 300


@functools.cache
def quick_spark() -> str:
    """Java options for a Spark that lives shortly: ``spark.driver.extraJavaOptions``, or ``JDK_JAVA_OPTIONS``.

    The archive is made by a first session, once for each installed Spark and Java (a minute, 200 MB). Java passes over
    an archive that does not fit: these options never keep a session from starting.

    Raises:
        ServiceError: there is no Java, or no pyspark.
    """
    files = (Path(java_command()).resolve(), *sorted((pyspark_home() / "jars").glob("*.jar")))
    installed = "\n".join(f"{file} {file.stat().st_mtime_ns}" for file in files)
    name = f"spark-classes-{hashlib.sha256(installed.encode()).hexdigest()[:16]}"
    archive = cached(name, _make) / _ARCHIVE
    return " ".join((*QUICK_START, _SILENT, f"-XX:SharedArchiveFile={archive}"))


def _make(folder: Path) -> None:
    """Archive what a session and a few queries load. Where that fails the folder has its log alone."""
    options = " ".join((*QUICK_START, _SILENT, f"-XX:ArchiveClassesAtExit={folder / _ARCHIVE}"))
    with tempfile.TemporaryDirectory() as work, (folder / "log").open("w") as log:
        subprocess.run(
            [sys.executable, "-m", "services.spark_first_run", options, work],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
            stdout=log, stderr=log, timeout=_SECONDS, check=False,
        )  # fmt: skip
