"""Spark Structured Streaming sources with per-split watermarks, idleness and alignment groups."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from watermark_source.installation import after_import, name_python
from watermark_source.supported_spark import imported

if TYPE_CHECKING:
    from types import ModuleType

    from watermark_source.monitor.followed_queries import status as status
    from watermark_source.monitor.followed_queries import why as why
    from watermark_source.monitor.followed_queries import why_open as why_open
    from watermark_source.monitor.status_page import StatusPage as StatusPage
    from watermark_source.operators.ordering import order_by_event_time as order_by_event_time
    from watermark_source.operators.temporal_join import temporal_join as temporal_join
    from watermark_source.planning.generator import RowsRead as RowsRead
    from watermark_source.planning.generator import Silence as Silence
    from watermark_source.planning.generator import WatermarkGenerator as WatermarkGenerator
    from watermark_source.publishing.completeness import publish_completeness as publish_completeness
    from watermark_source.publishing.database import publish_in as publish_in
    from watermark_source.publishing.in_batch import completeness_of as completeness_of
    from watermark_source.publishing.places import complete_until as complete_until
    from watermark_source.spark.batch_clock import follow_clock as follow_clock
    from watermark_source.spark.follow import data_rows as data_rows
    from watermark_source.spark.follow import follow_watermark as follow_watermark
    from watermark_source.spark.follow import markers as markers
    from watermark_source.spark.follow import split_late as split_late
    from watermark_source.spark.session_conf import recommended_conf as recommended_conf
    from watermark_source.spark.stopping import stop_between_batches as stop_between_batches

_HOMES = {
    name: module
    for module, names in {
        "monitor.followed_queries": "status why why_open",
        "monitor.status_page": "StatusPage",
        "operators.ordering": "order_by_event_time",
        "operators.temporal_join": "temporal_join",
        "planning.generator": "RowsRead Silence WatermarkGenerator",
        "publishing.completeness": "publish_completeness",
        "publishing.database": "publish_in",
        "publishing.in_batch": "completeness_of",
        "publishing.places": "complete_until",
        "spark.batch_clock": "follow_clock",
        "spark.follow": "data_rows follow_watermark markers split_late",
        "spark.session_conf": "recommended_conf",
        "spark.stopping": "stop_between_batches",
    }.items()
    for name in names.split()
}
"""The module that each public name is defined in."""

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
    if name == "__all__":
        return sorted(_HOMES)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(imported(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
