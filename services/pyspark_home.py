"""Where the installed pyspark lies: a complete Spark, with the Ivy that fetches jars."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from services.errors import ServiceError


def pyspark_home() -> Path:
    """Folder of the installed pyspark: ``SPARK_HOME``.

    Raises:
        ServiceError: it is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServiceError("pyspark is not installed, and its jars are needed; run: pip install pyspark")
    return Path(found.origin).parent
