"""The executor side: ranges of offsets of Kafka partitions to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from pyspark import TaskContext

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.reading.fetch import FetchLimits
from pyspark_aligned_kafka.reading.fetch_loop import RangeRead
from pyspark_aligned_kafka.reading.kept_sessions import leased
from pyspark_aligned_kafka.reading.progress_timeout import Patience
from pyspark_aligned_kafka.reading.recovery import Recovery
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, MarkChoice
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.connector.read_batch import ReadBatch


@dataclass(frozen=True, slots=True)
class KafkaRangeReader:
    """``RangeReader`` and ``BatchRangeReader`` for Kafka.

    Memory is bounded by the fetch and batch sizes, not by the ranges.
    """

    client: ClientSettings
    columns: tuple[str, ...]
    """Which of Spark's Kafka columns to deliver, in this order."""
    fail_on_data_loss: bool
    poll_timeout_ms: int
    batch_rows: int = 10_000
    batch_bytes: int = 16 << 20
    decompressed_max_bytes: int = 128 << 20
    """Most bytes a compressed batch may become."""
    event_time: EventTimeChoice | None = None
    """Where event times are; ``None``: the record's timestamp."""
    marks: MarkChoice | None = None
    """Where records carry watermarks; ``None``: nobody asks."""

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return what each partition's log holds now; those that do not exist are left out."""
        with leased(self.client, fresh=_is_retry()) as session:
            return session.log_ranges(splits)

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split] = frozenset()) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in offset order.

        Of the splits ``from_beginning`` a range begins wherever its log does.

        Raises:
            DataLossError: rows of a range are gone (``fail_on_data_loss``; otherwise logged and left out).
            ResponseTimeoutError: no position moved for ``poll_timeout_ms``.
            EventTimeError: a record has no event time where the user chose, or a function of theirs failed.
            UnreachableError, RefusedError, UnknownSplitError, CorruptDataError, UnsupportedFormatError
        """
        values = self.client.values
        limits = FetchLimits(
            # Half: the default is not to be the reason when a user chooses a short time limit.
            max_wait_ms=min(values["fetch.max.wait.ms"], max(1, values["request.timeout.ms"] // 2)),
            min_bytes=values["fetch.min.bytes"],
            max_bytes=values["fetch.max.bytes"],
            read_committed=self.client.read_committed,
            rack=values["client.rack"] or "",
        )
        decoder = RecordDecoder(
            self.columns,
            batch_rows=self.batch_rows,
            batch_bytes=self.batch_bytes,
            decompressed_limit=self.decompressed_max_bytes,
            check_crcs=bool(values["check.crcs"]),
            event_time=self.event_time,
            marks=self.marks,
        )
        patience = Patience(self.poll_timeout_ms)
        with leased(self.client, fresh=_is_retry()) as session:
            recovery = Recovery(
                session, patience, fail_on_data_loss=self.fail_on_data_loss, from_beginning=from_beginning
            )
            read = RangeRead(
                session,
                decoder,
                limits,
                patience,
                recovery,
                client_id=values["client.id"],
                partition_bytes=values["max.partition.fetch.bytes"],
                connect_ms=self.client.millis("socket.connection.setup.timeout.ms"),
                answer_ms=self.client.millis("request.timeout.ms"),
            )
            yield from read.run(ranges)


def _is_retry() -> bool:
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
