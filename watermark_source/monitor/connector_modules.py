"""What connectors have for the command line: a module for each command, found by a flag that the package names."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from types import ModuleType

from watermark_source.installation import lacking

_EXTRAS = ("kafka", "mysql")
_PREFIX = "pyspark_"
"""Spark looks for formats in packages with such names; so does this."""


def flags(constant: str) -> dict[str, str]:
    """Return the packages that name a flag in a ``constant``, such as ``DOCTOR_FLAG``, by their flags."""
    names = (found.name for found in pkgutil.iter_modules() if found.name.startswith(_PREFIX))
    found: dict[str, str] = {}
    for name in names:
        # Others of that name are not ours, and may lack what they need.
        with contextlib.suppress(Exception):
            found[getattr(importlib.import_module(name), constant)] = name
    return dict(sorted(found.items()))


def module_of(package: str, name: str) -> ModuleType:
    """Return a module of a connector's package.

    Raises:
        MissingPackageError: something that it needs is not installed.
    """
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as missing:
        # Named as its format: aligned-kafka has the extra kafka.
        extra = next((name for name in _EXTRAS if name in package), "all")
        raise lacking(package, missing.name, extra) from missing
