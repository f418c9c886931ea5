"""The Spark that these sources run on: its version, and names of it that are used and are not public.

pip installs no other, but a platform or a cluster brings its own. It is looked at once a process, when a source is
loaded, for what is used later would fail in Java's words, and where an import fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from watermark_source.errors import UsageError
from watermark_source.installation import lacking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VERSIONS = ("4.2", "4.3")
_NAMES = {
    "pyspark.sql.datasource": ("DataSourceStreamReader", "Filter"),
    "pyspark.sql.streaming.datasource": ("ReadAllAvailable", "ReadMaxRows", "SupportsTriggerAvailableNow"),
    "pyspark.sql.pandas.types": ("to_arrow_schema",),
}


def imported(module: str) -> ModuleType:
    """Import a module; where that fails for a Spark that is not there or of another version, it is an error of ours.

    Raises:
        MissingPackageError, UsageError: as ``need_supported_spark``.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "pyspark":
            need_supported_spark()
        raise


@cache
def need_supported_spark() -> None:
    """Check that the Spark of this process is one that was tried.

    Raises:
        MissingPackageError: there is none.
        UsageError: it is of another version, or lacks a name.
    """
    if find_spec("pyspark") is None:
        raise lacking("watermark_source", "pyspark", "spark")
    if ".".join(_version().split(".")[:2]) not in _VERSIONS:
        raise UsageError(f"{_expected()}, not Spark {_version()}")
    for module, names in _NAMES.items():
        for name in names:
            if find_spec(module) is None or not hasattr(import_module(module), name):
                raise UsageError(f"{_expected()}; this Spark {_version()} has no {module}.{name}")


def analyzed_plan(df: DataFrame) -> Any | None:
    """Return the analyzed plan of a DataFrame of Spark Classic, ``None`` of Spark Connect, which exposes none."""
    java = getattr(df, "_jdf", None)
    return None if java is None else java.queryExecution().analyzed()


def scala_items(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a sequence of Scala, of which Py4J makes no list."""
    return (sequence.apply(i) for i in range(sequence.size()))


@contextmanager
def spark_internals() -> Iterator[None]:
    """Name the Spark that is expected where a method of its classes, which are not public, is not there."""
    try:
        yield
    except Exception as error:
        # Exactly this class: its subclasses are errors of the network, and those that Java's methods raise.
        if (type(error).__module__, type(error).__name__) != ("py4j.protocol", "Py4JError"):
            raise
        missing = str(error).partition("Py4JException: ")[2].partition("\n")[0]
        raise UsageError(f"{_expected()}; this Spark {_version()} has other classes: {missing or error}") from error


def _version() -> str:
    import pyspark  # noqa: PLC0415 - it may not be there

    return str(pyspark.__version__)


def _expected() -> str:
    return f"watermark_source runs on Spark {' and '.join(_VERSIONS)} (docs/versions.md)"
