"""How a Spark that lives shortly starts: its session is up in half the time."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from services.cache import cached, fingerprinted
from services.ivy import pyspark_home
from services.java import QUICK_START, java_command

# Archives of Java's classes (application class-data sharing): a JVM that maps one is up in half the time.


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


LOCAL_CHECKPOINTS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for checkpoints on the local disk: by default Hadoop starts some sixty processes (``readlink``) for each
batch of a query with state."""


_PATIENT = "-Dspark.python.authenticate.socketTimeout=10m"
"""A busy machine takes longer than the 15 seconds Spark gives a Python process to come up."""


def quick_spark() -> str:
    """Java options for a Spark that lives shortly: ``spark.driver.extraJavaOptions``, or ``JDK_JAVA_OPTIONS``.

    Raises:
        ServiceError: there is no Java, or no pyspark.
    """
    return f"{quick_executor()} {_PATIENT}"


@functools.cache
def quick_executor() -> str:
    """Java options for its executors, which must have no setting of Spark among them.

    The first time, a session makes an archive of its classes: a minute, 200 MB.

    Raises:
        ServiceError: there is no Java, or no pyspark.
    """
    jars = (pyspark_home() / "jars").glob("*.jar")
    return " ".join(class_archive("spark", jars, "services.spark_first_run", QUICK_START))
