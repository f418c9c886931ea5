"""``completeness_of``: up to when a table is complete with the rows that a ``foreachBatch`` function is about to write.

Which watermark a batch applies is known before it is executed. So a function that writes the rows and what this returns
in one transaction states it with the rows, and not after them.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from watermark_source.errors import UsageError
from watermark_source.planning.watermark import Millis
from watermark_source.publishing.announced_query import FOR_GOOD, advice, hold_of, to_announce
from watermark_source.publishing.mark import Mark
from watermark_source.publishing.target import need_name
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    OutputWatermark,
    batch_watermarks,
    output_after,
    sources_of,
)

_QUERY_ID: Final = "sql.streaming.queryId"
"""The local property that Spark sets in the thread of a query (``StreamExecution.QUERY_ID_KEY``)."""


def completeness_of(batch: DataFrame, writer: str, hold: str | int | None = None) -> Mark:
    """Return up to when a table is complete once the rows of a batch are in it: for a ``foreachBatch`` function.

        def write(batch, number):
            mark = completeness_of(batch, "hourly-counts")
            batch.write.format("delta").mode("append").option("userMetadata", str(mark)).save("/lake/counts")

    Write it in the transaction of the rows: as ``userMetadata`` of a Delta table's commit, with ``publish_in`` to a
    database, or as ``until``, a ``datetime`` or ``None``, wherever else a transaction takes a value.

    Args:
        batch: what the function was called with, in a Spark Classic session.
        writer: name of the query, unique among the writers of the table. It keeps it for life.
        hold: as for ``publish_completeness``.

    Raises:
        UsageError: the call is not in a ``foreachBatch`` function, an argument is not accepted, or the query can have
            no output watermark.
    """
    need_name(writer)
    held = hold_of(hold)
    execution = _execution(batch)
    found: OutputWatermark | BatchWatermarks = batch_watermarks(execution.lastExecution())
    if isinstance(found, BatchWatermarks):
        sources = sources_of(execution) if found.depends_on_sources else ()
        found = output_after(found, found.batch, sources, is_bounded=held is not None)
    if isinstance(found, NoWatermark) and found.why in FOR_GOOD:
        raise UsageError(f"completeness_of: {found}. {advice(found)}")
    return Mark(
        writer=writer,
        query=str(execution.id().toString()),
        batch=int(execution.lastExecution().currentBatchId()),
        watermark=None if isinstance(found, NoWatermark) else to_announce(Millis(found), held or 0, None),
        checkpoint=str(execution.resolvedCheckpointRoot()),
    )


def _execution(batch: DataFrame) -> Any:
    session = getattr(batch.sparkSession, "_jsparkSession", None)
    if session is None:
        raise UsageError(
            "completeness_of: a query of Spark Connect shows its functions no plan, so its operators cannot be asked "
            "for their watermarks; run the query in a Spark Classic session"
        )
    query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    for execution in session.sharedState().activeStreamingQueries().values():
        if str(execution.id().toString()) == query:
            return execution
    raise UsageError(
        "completeness_of: expected to be called in the function of foreachBatch, in the thread in which Spark calls "
        "it, with the batch that it was given"
    )
