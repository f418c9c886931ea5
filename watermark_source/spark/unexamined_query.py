"""A query whose plan nothing has examined when it started (``started_queries``): a task sees it, the driver warns."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)

EXAMINED = "spark.watermarkSource.examined"
"""A setting of the session of a query that was examined; Spark shows it to the query's tasks."""
_seen: set[str] = set()
"""Runs of queries that this process has reported, or sources that it has warned of."""


def is_unexamined() -> bool:
    """Return, in a task, whether nothing has examined its query's plan; once for each run."""
    from pyspark import TaskContext  # noqa: PLC0415 - a task has imported it

    task = TaskContext.get()
    if task is None or task.getLocalProperty(EXAMINED) is not None:
        return False
    return _is_new(task.getLocalProperty("spark.jobGroup.id") or "")


def _is_new(each: str) -> bool:
    if each in _seen:
        return False
    _seen.add(each)
    return True


def warn_of_unexamined(source: str) -> None:
    """Warn once of the query that reads a source: on the driver, where users look."""
    if not _is_new(f"source {source}"):
        return
    _log.warning(
        "nothing has examined how this query uses %s: it was started by a program that has not imported "
        "watermark_source, or by SQL of a pipeline; or its session takes no settings, as on managed platforms, so that "
        "nothing shows that it was. Marker rows, which carry the watermark and are null in every other column, may be "
        "among the rows of the stream, and a watermark of Spark's own, as by WATERMARK in SQL, may drop rows of slower "
        "partitions without an error. In Python, import watermark_source and write follow_watermark(stream) "
        "for windows, joins and deduplication, or data_rows(stream) for the rows alone; elsewhere the option "
        "includeMarkers=false for the rows alone, or includeMarkers=true where the query filters by marker itself",
        source,
    )
