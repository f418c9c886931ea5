"""``publish_completeness``: a query states in a folder up to when the table there has every row that is on time."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from watermark_source.errors import UsageError, shortened
from watermark_source.local_path import with_scheme
from watermark_source.publishing.announced_query import AnnouncedQuery, announced_query
from watermark_source.publishing.file_sink import SinkLog, place_of_sink
from watermark_source.publishing.folder import Folder
from watermark_source.publishing.table_target import TableTarget
from watermark_source.spark.operator_watermarks import execution_of


def publish_completeness(
    query: StreamingQuery, to: str | Path, writer: str, hold: str | int | None = None
) -> AnnouncedQuery:
    """State in a table's folder, after each batch of a query, up to when the table has every row that is on time.

        query = counts.writeStream.format("parquet").start("/lake/counts")
        published = publish_completeness(query, to="/lake/counts", writer="hourly-counts")

    The statement is a small file in the folder, which Spark ignores: written after the batch is committed, replaced
    whole, never ahead of the rows, never lower than before. Where the rows are written in ``foreachBatch`` to a
    database or a Delta table, ``completeness_of`` states it in the transaction of the rows.

    Args:
        query: a running query of a Spark Classic session.
        to: the table's folder: a local path, ``file:``, ``s3:``, ``s3a:`` or ``gs:``. As for Spark, a path
            without a scheme is on its default file system (``fs.defaultFS``).
        writer: name of the query, unique among the writers of the table. It keeps it for life.
        hold: by how much earlier the stated time is, as a duration or in milliseconds: where the event time of a row
            is not the end of its window but its start, and for operators that promise nothing about their rows.

    Raises:
        UsageError: an argument is not accepted, the query can have no output watermark, or Spark's file sink passes
            over its batches.
        SourceError: the file system refuses. Later trouble is logged, and disturbs nothing.
    """
    execution = execution_of(query)
    default = str(execution.sparkSession().sessionState().newHadoopConf().get("fs.defaultFS", "file:///"))
    folder = Folder.at(with_scheme(to, default))
    checkpoint, sink_log = str(execution.resolvedCheckpointRoot()), None
    if (place := place_of_sink(str(execution.sink().toString()))) is not None:
        written = with_scheme(place, default)
        if Folder.at(written) != folder:
            raise UsageError(
                f'to = {shortened(to)}: the query writes to another folder; write to="{written}", or the folder as it '
                "is in the query's start()"
            )
        sink_log = SinkLog(folder, _folder_of(checkpoint))
    return announced_query(query, [TableTarget(folder, str(query.runId), checkpoint, sink_log)], writer, hold)


def _folder_of(checkpoint: str) -> Folder:
    try:
        return Folder.at(checkpoint)
    except UsageError:
        raise UsageError(
            f"checkpointLocation {shortened(checkpoint)}: the log of Spark's file sink is compared with the batches "
            "there, so it must be at a local path, file:, s3:, s3a: or gs:. Elsewhere, write the rows in foreachBatch"
        ) from None
