"""What every extractor is told: which field, of which column, in which unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from watermark_source.errors import UsageError
from watermark_source.extractors.time_units import UNITS

Extractor: TypeAlias = Callable[[pa.RecordBatch], pa.Array]
"""A batch of records in, a moment for each out, null where there is none."""


def checked_path(function: str, field: str, unit: str, column: str) -> tuple[str, ...]:
    """Return the names of ``field``, from the outermost.

    Raises:
        UsageError: one of the arguments is not accepted by ``function``.
    """
    path = tuple(field.split("."))
    if not all(path):
        raise UsageError(f"{function}: field = {field!r} is no name, nor names with dots between them")
    if unit not in UNITS:
        raise UsageError(f"{function}: unit = {unit!r}; accepted are {', '.join(UNITS)}")
    if column not in ("key", "value"):
        raise UsageError(f"{function}: column = {column!r}; accepted are value and key")
    return path
