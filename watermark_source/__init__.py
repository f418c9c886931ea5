"""Spark Structured Streaming sources with per-split watermarks, idleness and alignment groups."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from watermark_source.installation import after_import, name_python
from watermark_source.supported_spark import imported

if TYPE_CHECKING:
    from types import ModuleType

    from watermark_source.monitor.followed_queries import status, why, why_open
    from watermark_source.monitor.status_page import StatusPage
    from watermark_source.operators.ordering import order_by_event_time
    from watermark_source.operators.temporal_join import temporal_join
    from watermark_source.planning.generator import RowsRead, Silence, WatermarkGenerator
    from watermark_source.publishing.completeness import publish_completeness
    from watermark_source.publishing.database import publish_in
    from watermark_source.publishing.in_batch import completeness_of
    from watermark_source.publishing.places import complete_until
    from watermark_source.spark.batch_clock import follow_clock
    from watermark_source.spark.follow import data_rows, follow_watermark, markers, split_late
    from watermark_source.spark.session_conf import recommended_conf
    from watermark_source.spark.stopping import stop_between_batches

__all__ = [
    "RowsRead",
    "Silence",
    "StatusPage",
    "WatermarkGenerator",
    "complete_until",
    "completeness_of",
    "data_rows",
    "follow_clock",
    "follow_watermark",
    "markers",
    "order_by_event_time",
    "publish_completeness",
    "publish_in",
    "recommended_conf",
    "split_late",
    "status",
    "stop_between_batches",
    "temporal_join",
    "why",
    "why_open",
]

_HOMES = {
    "RowsRead": "planning.generator",
    "Silence": "planning.generator",
    "StatusPage": "monitor.status_page",
    "WatermarkGenerator": "planning.generator",
    "complete_until": "publishing.places",
    "completeness_of": "publishing.in_batch",
    "data_rows": "spark.follow",
    "follow_clock": "spark.batch_clock",
    "follow_watermark": "spark.follow",
    "markers": "spark.follow",
    "order_by_event_time": "operators.ordering",
    "publish_completeness": "publishing.completeness",
    "publish_in": "publishing.database",
    "recommended_conf": "spark.session_conf",
    "split_late": "spark.follow",
    "status": "monitor.followed_queries",
    "stop_between_batches": "spark.stopping",
    "temporal_join": "operators.temporal_join",
    "why": "monitor.followed_queries",
    "why_open": "monitor.followed_queries",
}

name_python(os.environ, sys.executable)


def _check_starts(module: ModuleType) -> None:
    from watermark_source.spark.started_queries import check_starts  # noqa: PLC0415 - needed beside Spark

    check_starts(module)


after_import(
    (
        "pyspark.sql.streaming.readwriter",
        "pyspark.sql.connect.streaming.readwriter",
        "pyspark.pipelines.spark_connect_graph_element_registry",
    ),
    _check_starts,
)


def __getattr__(name: str) -> Any:
    # Not imported with the package: the pure packages below it need no pyspark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(imported(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
