"""Spark Structured Streaming sources with per-split watermarks, idleness and alignment groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watermark_source.spark.follow import data_rows, follow_watermark, markers

__all__ = ["data_rows", "follow_watermark", "markers"]


def __getattr__(name: str) -> Any:
    # Not imported with the package: the pure packages below it need no pyspark.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from watermark_source.spark import follow  # noqa: PLC0415 - see above

    return getattr(follow, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
