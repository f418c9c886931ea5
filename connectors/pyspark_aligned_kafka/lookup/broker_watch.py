"""Whether brokers answer while a batch is read: asked beside planning, on connections of its own."""

from __future__ import annotations

from collections.abc import Set

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import LATEST
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split
from watermark_source.spark.connector.stream import Ends


class KafkaWatch:
    """``CurrentEnds`` of ``spark.connector``. Each look begins anew: no question stays open, and no connection that
    failed.

    Questions that stay open, and connections that are tried again, go on only while something is asked; looks are
    seconds apart. And a client that found nobody there tries later and later.
    """

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends that brokers tell within a few seconds.

        Raises:
            SourceError: none can be reached, or one refuses.
        """
        try:
            answers = self._admin.list_offsets_in_time(dict.fromkeys(splits, LATEST))
        except SourceError:
            self._admin.close()
            raise
        if answers.unknown:
            self._admin.close()
        found = {split: answer.offset for split, answer in answers.found.items() if answer.offset is not None}
        return Ends(found, dict.fromkeys(answers.unknown))
