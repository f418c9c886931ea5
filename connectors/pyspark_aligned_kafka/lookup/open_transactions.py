"""Rows behind the last stable offset: they are there, and readers of committed data do not see them yet."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_aligned_kafka.cluster.list_offsets import LATEST
from pyspark_aligned_kafka.lookup.log_bounds import OffsetQueries
from watermark_source.planning.split import Split


class KafkaTransactions:
    """``OpenTransactions`` of ``spark.connector``; ``admin`` asks as readers of uncommitted data do."""

    def __init__(self, admin: OffsetQueries) -> None:
        self._admin = admin

    def behind(self, ends: Mapping[Split, int]) -> Set[Split]:
        """Return the splits whose high watermark is beyond the end, or is not told in time."""
        answers = self._admin.list_offsets_in_time(dict.fromkeys(ends, LATEST))
        further = {s for s, answer in answers.found.items() if answer.offset is not None and answer.offset > ends[s]}
        return further | answers.unknown.keys()
