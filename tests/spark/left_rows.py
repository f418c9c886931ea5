"""What leaves a query, batch by batch and in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tests.spark.queries import Streams


@dataclass
class Left:
    """Rows in the order in which a query's tasks wrote them; a batch that is repeated takes its own place."""

    columns: Sequence[str]
    by_batch: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.by_batch[number] = [tuple(row) for row in batch.selectExpr(*self.columns).collect()]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All of them, in the order of the batches."""
        return [row for number in sorted(self.by_batch) for row in self.by_batch[number]]

    def run(self, streams: Streams, frame: DataFrame, name: str) -> StreamingQuery:
        """Run a query with what exists now, until it ends by itself."""
        writer = frame.writeStream.foreachBatch(self).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(streams.checkpoint(name))).start()
        streams.started.append(query)
        query.awaitTermination(240)
        assert not query.isActive, "the run did not end"
        return query
