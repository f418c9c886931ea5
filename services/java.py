"""The Java runtime that runs Ivy and the servers."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from services.errors import ServiceError

OLDEST_JAVA = 17
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For Java that lives shortly or has little to do: up seconds of a core sooner, but at a fraction of the full speed."""
_ADVICE = f"install a JDK or JRE {OLDEST_JAVA} or newer and put it on PATH, or set JAVA_HOME"


def java_command() -> str:
    """Path of a ``java`` of version 17 or newer: ``JAVA_HOME`` first, as Spark does, then ``PATH``.

    Raises:
        ServiceError: there is none, it does not run, or it is too old.
    """
    return _checked(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))


def javac_command() -> str:
    """Path of the compiler beside that ``java``.

    Raises:
        ServiceError: as ``java_command``, or there is a runtime only.
    """
    java = java_command()
    compiler = Path(java).resolve().with_name("javac")
    if not os.access(compiler, os.X_OK):
        raise ServiceError(
            f"{java} has no compiler beside it ({compiler}): it is a JRE. Install a JDK {OLDEST_JAVA} or newer and "
            "put it on PATH, or set JAVA_HOME"
        )
    return str(compiler)


@functools.cache
def _checked(java_home: str | None, path: str | None) -> str:
    if java_home:
        command = str(Path(java_home, "bin", "java"))
        origin = f"JAVA_HOME={java_home}"
    else:
        command = shutil.which("java", path=path) or ""
        origin = "PATH"
    if not command or not os.access(command, os.X_OK):
        raise ServiceError(f"no java found through {origin}; {_ADVICE}")
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise ServiceError(f"{command} (from {origin}) does not run: {failure}; {_ADVICE}") from failure
    version = _major_version(answer.stderr)
    if answer.returncode != 0 or version is None:
        seen = answer.stderr.strip() or f"exit code {answer.returncode}"
        raise ServiceError(f"{command} -version (from {origin}) gave no version: {seen}; {_ADVICE}")
    if version < OLDEST_JAVA:
        raise ServiceError(f"{command} (from {origin}) is Java {version}; {_ADVICE}")
    return command


def _major_version(banner: str) -> int | None:
    """The feature release in a ``java -version`` banner; ``1.8.0`` counts as 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found.group(1)) if found else None


if __name__ == "__main__":
    # For the Makefile, before anything is installed: this module needs the standard library alone.
    try:
        java_command()
    except ServiceError as missing:
        sys.exit(str(missing))
