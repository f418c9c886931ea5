"""Preview of event time: how far it will be when ranges at the end of partitions have been read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Protocol

from pyspark_aligned_kafka.cluster.admin import Newest
from pyspark_aligned_kafka.cluster.record_batch_headers import BatchHeader
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis

_log = logging.getLogger(__name__)


class BatchQueries(Protocol):
    """What is needed of ``KafkaAdmin``; neither call waits long, nor raises for a broker that does not answer."""

    def newest(self, splits: Set[Split]) -> Mapping[Split, Newest]:
        """Return the record with the highest timestamp (KIP-734)."""
        ...

    def batch_headers(self, offsets: Mapping[Split, int]) -> Mapping[Split, BatchHeader]:
        """Return the header of the batch that holds an offset."""
        ...


@contextmanager
def _doing_without() -> Iterator[None]:
    """Continue without a preview after an error: the rows will show their times, and their read any error."""
    try:
        yield
    except SourceError as error:
        _log.info("no look at the newest records: %s", error)


class KafkaPreview:
    """``EventTimePreview`` of ``spark.connector``.

    The broker's answer where the newest record is only locates its batch. What counts is the header of the batch
    there, if all of it is in the range and all of it is delivered: neither the end of a transaction nor, for readers of
    committed data, part of one, which may have been aborted.
    """

    def __init__(self, admin: BatchQueries, *, read_committed: bool) -> None:
        self._admin = admin
        self._read_committed = read_committed
        self._newest: Mapping[Split, Newest] = {}

    def prepare(self, splits: Set[Split]) -> None:
        """Ask where the newest records are."""
        self._newest = {}
        with _doing_without():
            self._newest = self._admin.newest(splits)

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest timestamp of a batch in each range, of the newest one where that is known."""
        asked = {each: self._where(each) for each in ranges}
        return self._max_timestamps({each: offset for each, offset in asked.items() if offset is not None})

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest timestamp of each range that holds the newest record of its partition."""
        self.prepare({each.split for each in ranges})
        known = {each: self._newest[each.split].offset for each in ranges if each.split in self._newest}
        return self._max_timestamps({each: at for each, at in known.items() if each.start <= at < each.end})

    def _max_timestamps(self, offsets: Mapping[SplitRange, int]) -> Mapping[Split, Millis]:
        """Return what the headers at offsets say, of batches that count."""
        headers: Mapping[Split, BatchHeader] = {}
        with _doing_without():
            headers = self._admin.batch_headers({each.split: offset for each, offset in offsets.items()})
        return {
            each.split: header.max_timestamp
            for each in offsets
            if (header := headers.get(each.split)) is not None and self._is_delivered(header, each)
        }

    def _where(self, of: SplitRange) -> int | None:
        newest = self._newest.get(of.split)
        if newest is None:
            return None
        # Appended since the request, or cut off by a limit: the range's last batch shows less, and nothing wrong.
        # One that was read before is the newest still: nothing of this range moves the watermark.
        return None if newest.offset < of.start else min(newest.offset, of.end - 1)

    def _is_delivered(self, header: BatchHeader, of: SplitRange) -> bool:
        inside = of.start <= header.first and header.last < of.end
        hidden = header.is_control or (self._read_committed and header.is_transactional)
        # Two answers that agree: a damaged header is not gone by.
        return inside and not hidden and header.max_timestamp <= self._newest[of.split].timestamp
