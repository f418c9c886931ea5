"""The stream reader that Spark calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from watermark_source.contract.stream import SourceDefinition
from watermark_source.errors import InternalError, WatermarkSourceError
from watermark_source.spark.executor.reading import run_task, send_unexamined
from watermark_source.spark.garbage_collector import collect_later
from watermark_source.spark.options import EngineOptions
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.unexamined_query import is_unexamined, warn_of_unexamined
from watermark_source.spark_process import each_with_sentence, hides_own_frames, log_as_spark, query_of_task

if TYPE_CHECKING:
    from watermark_source.spark.driver.group_membership import Membership
    from watermark_source.spark.driver.runner import SourceRunner

_UNLIMITED = 2**63 - 1
"""Rows of the default read limit. ``Trigger.Once`` overrides it with ``ReadAllAvailable``: so the two differ."""


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose first call, whichever it is, raises the reason why the stream cannot start.

    An error while the reader is created would be hidden: Spark 4.3 then stops the reader that it does not have, and
    shows the error of that.
    """

    def __init__(self, reason: WatermarkSourceError) -> None:
        self._reason = reason

    @hides_own_frames
    def _refuse(self, *_: object) -> Any:
        raise self._reason

    initialOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse
    latestOffset = read = _refuse  # type: ignore[assignment]


@dataclass(eq=False, repr=False)
class AlignedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of one source. Picklable: connections are made on first use, in the process that uses them."""

    definition: SourceDefinition
    """The source as the user configured it."""
    options: EngineOptions
    schema: StructType
    max_rows: int | None
    _membership: Membership | None = field(default=None, init=False)
    _runner: SourceRunner | None = field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_membership": None, "_runner": None}

    @property
    def _own_membership(self) -> Membership:
        if self._membership is None:
            # Only one of the processes that load a reader is the source's runner: tasks and Spark's planning are not.
            from watermark_source.spark.driver.group_membership import Membership  # noqa: PLC0415

            self._membership = Membership(self.options)
        return self._membership

    @property
    def _open_runner(self) -> SourceRunner:
        if self._runner is None:
            log_as_spark(self.options.source_name)
            with collect_later():
                from watermark_source.spark.driver.runner import SourceRunner  # noqa: PLC0415 - see _own_membership

                self._runner = SourceRunner(self.definition, self.options, self._own_membership)
        return self._runner

    @hides_own_frames
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which a new query starts."""
        return self._open_runner.initial_offset()

    @hides_own_frames
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the user's row limit, or one that is never reached. The first call to every source of a query."""
        self._own_membership.register()
        return ReadMaxRows(_UNLIMITED if self.max_rows is None else self.max_rows)

    @hides_own_frames
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Mapping[str, Any]:  # type: ignore[override]
        """Return the end of the next batch, or ``start`` if there is none."""
        if not isinstance(limit, ReadMaxRows | ReadAllAvailable):
            raise InternalError(f"Spark requested a read limit that this source did not offer: {limit!r}")
        return self._open_runner.latest_offset(start, limit)

    @hides_own_frames
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the status of the source and its splits, for ``StreamingQueryProgress``."""
        return None if self._runner is None else self._runner.status()

    @hides_own_frames
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the ends of this run."""
        self._open_runner.freeze()

    @hides_own_frames
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two offsets."""
        return self._open_runner.tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task, in a task."""
        if not isinstance(partition, ReadTask):
            raise InternalError(f"not a task of ours: {type(partition).__name__}")
        log_as_spark(self.options.source_name, query_of_task())
        # Once a query: only the first markers come in a batch that begins without a watermark.
        is_first = partition.markers and partition.late_at is None
        if is_first and not self.options.asks_for_markers and is_unexamined():
            source = self.options.source_name
            if not send_unexamined(partition.report_to, source):
                warn_of_unexamined(source)
        return each_with_sentence(run_task(self.definition.range_reader, partition, self.schema))

    def stop(self) -> None:
        """Stop the threads of the source."""
        if self._runner is not None:
            self._runner.close()
