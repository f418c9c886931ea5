"""Look-ups in Kafka's time index: the first record after a time, and the newest record (KIP-734)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_aligned_kafka.cluster.list_offsets import NEWEST
from pyspark_aligned_kafka.lookup.log_bounds import OffsetQueries
from watermark_source.eventtime.watermark import MAX, Millis
from watermark_source.planning.split import Split
from watermark_source.planning.time_index import IndexEntry


class KafkaTimeIndex:
    """``EventTimeIndex`` of ``spark.connector``, for the record timestamp. Exact, also where timestamps are out of
    order.
    """

    def __init__(self, admin: OffsetQueries) -> None:
        self._admin = admin

    def first_after(self, limits: Mapping[Split, Millis]) -> Mapping[Split, IndexEntry | None]:
        """Return the record with the lowest offset whose timestamp is greater than the limit; ``None`` if none is.

        With read_committed what is beyond the last stable offset is not there yet. The record found may be one that
        is not delivered, a transaction's marker or part of an aborted one: then the next row is further on.
        """
        # Kafka's question is "at or after", and its timestamps are never negative: negative numbers mean other things.
        wanted = {split: max(limit + 1, 0) for split, limit in limits.items() if limit < MAX}
        entries: dict[Split, IndexEntry | None] = dict.fromkeys(limits.keys() - wanted.keys())
        for split, answer in self._admin.list_offsets(wanted).items():
            offset, timestamp = answer.offset, answer.timestamp
            entries[split] = None if offset is None or timestamp is None else IndexEntry(offset, timestamp)
        return entries

    def newest(self, splits: Set[Split]) -> Mapping[Split, Millis | None]:
        """Return the highest timestamp in each split; ``None`` if it is empty or the broker cannot tell.

        Brokers before 3.0 cannot; nor can any with read_committed while that record belongs to an open transaction.
        """
        found = self._admin.list_offsets(dict.fromkeys(splits, NEWEST))
        return {split: answer.timestamp for split, answer in found.items()}
