"""The driver side of a query: look-ups that share their connections, except those that planning does not wait for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from functools import partial

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.group_commits import ConsumerGroup, GroupCommits
from pyspark_aligned_kafka.cluster.metadata import CREATE_TIME, TIMESTAMP_TYPE, Leaders
from pyspark_aligned_kafka.cluster.record_batch_headers import BatchHeader
from pyspark_aligned_kafka.lookup.announcements import COLUMNS, KafkaAnnouncements
from pyspark_aligned_kafka.lookup.batch_ranges import BatchBounds, narrowed
from pyspark_aligned_kafka.lookup.discovery import KafkaDiscovery
from pyspark_aligned_kafka.lookup.epochs import KafkaLineage
from pyspark_aligned_kafka.lookup.offsets import (
    KafkaLogBounds,
    KafkaStartPositions,
    KafkaTimeIndex,
    KafkaTransactions,
    KafkaWatch,
)
from pyspark_aligned_kafka.lookup.pushed_filters import Wanted
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.options.positions import start_of_stream
from watermark_source.contract.stream import Connector
from watermark_source.durations import format_duration
from watermark_source.errors import SourceError, listed
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.split import IndexEntry, Split, SplitRange
from watermark_source.planning.watermark import Millis

_log = logging.getLogger(__name__)

# Preview of event time: how far it will be when ranges at the end of partitions have been read.


@contextmanager
def _doing_without() -> Iterator[None]:
    """Continue without a preview after an error: the rows will show their times, and their read any error."""
    try:
        yield
    except SourceError as error:
        _log.info("no look at the newest records: %s", error)


class KafkaPreview:
    """Implements ``EventTimePreview``.

    The broker's answer where the newest record is only locates its batch. What counts is the header of the batch
    there, if all of it is in the range and all of it is delivered: neither the end of a transaction nor, for readers of
    committed data, part of one, which may have been aborted.
    """

    def __init__(self, admin: KafkaAdmin, *, read_committed: bool) -> None:
        self._admin = admin
        self._read_committed = read_committed
        self._newest: Mapping[Split, IndexEntry] = {}

    def prepare(self, splits: Set[Split]) -> None:
        """Ask where the newest records are."""
        self._newest = {}
        with _doing_without():
            self._newest = self._admin.newest(splits)

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest timestamp of a batch in each range, of the newest one where that is known."""
        # Appended since the request, or cut off by a limit: the range's last batch shows less, and nothing wrong.
        # One that was read before is the newest still: nothing of this range moves the watermark.
        newest = self._newest_in(ranges)
        return self._max_timestamps({each: min(at, each.end - 1) for each, at in newest.items() if each.start <= at})

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest timestamp of each range that holds the newest record of its partition."""
        self.prepare({each.split for each in ranges})
        newest = self._newest_in(ranges)
        return self._max_timestamps({each: at for each, at in newest.items() if each.start <= at < each.end})

    def _newest_in(self, ranges: Sequence[SplitRange]) -> Mapping[SplitRange, int]:
        """Return where the newest record of each range's partition is, if that is known."""
        return {each: self._newest[each.split].position for each in ranges if each.split in self._newest}

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

    def _is_delivered(self, header: BatchHeader, of: SplitRange) -> bool:
        inside = of.start <= header.first and header.last < of.end
        hidden = header.is_control or (self._read_committed and header.is_transactional)
        # Two answers that agree: a damaged header is not gone by.
        return inside and not hidden and header.max_timestamp <= self._newest[of.split].event_time


def open_connector(options: KafkaOptions) -> Connector:
    """Return the connector for the engine; it connects on first use, and again to list partitions beside planning."""
    cluster, leaders = Cluster(options.client), Leaders()
    admin = KafkaAdmin(options.client, cluster, leaders)
    bounds = KafkaLogBounds(admin, options.offset_retries)
    beside = KafkaAdmin(options.client, leaders=leaders)
    uncommitted = KafkaAdmin(options.client, cluster, leaders, read_committed=False)
    committed, group = options.client.read_committed, options.commit_group
    # By the records' own timestamps brokers look up offsets.
    by_timestamps = options.event_time is None and options.marks is None
    return Connector(
        discovery=KafkaDiscovery(
            admin,
            beside,
            options.subscription,
            max_age_ms=_max_age_ms(options),
            on_listed=admin.note_listed,
            on_new_topics=partial(_warn_of_producer_times, admin, options),
        ),
        starts=KafkaStartPositions(admin, start_of_stream(options.start, options.end)),
        bounds=bounds,
        lineage=KafkaLineage(admin, bounds.epochs),
        watched=KafkaWatch(KafkaAdmin(options.client, leaders=leaders)),
        time_index=KafkaTimeIndex(admin) if by_timestamps else None,
        progress=GroupCommits(ConsumerGroup(options.client, group, options.engine.source_name)) if group else None,
        preview=KafkaPreview(admin, read_committed=committed) if by_timestamps else None,
        transactions=KafkaTransactions(uncommitted) if committed else None,
        announcements=None if options.announced is None else _announcements(options, options.announced),
    )


def look_up_batch(options: KafkaOptions, bounds: BatchBounds, wanted: Wanted) -> Sequence[OpenRange]:
    """Return the ranges that a batch reads, as of now, without unwanted rows; the connection is closed again.

    Raises:
        OptionError: the bounds do not fit the partitions.
        UnknownSplitError: a subscribed topic, or every assigned partition, does not exist.
    """
    with closing(KafkaAdmin(options.client)) as admin:
        lookup = KafkaLogBounds(admin)
        discovery = KafkaDiscovery(admin, admin, options.subscription, max_age_ms=_max_age_ms(options))
        ranges = narrowed(bounds.late_ranges(discovery.discover(), lookup), wanted, lookup)
        ids = discovery.ids()
        return [each._replace(log_id=ids.get(each.range.split.log)) for each in ranges]


def _max_age_ms(options: KafkaOptions) -> int:
    return options.client.millis("metadata.max.age.ms")


def _warn_of_producer_times(admin: KafkaAdmin, options: KafkaOptions, topics: Set[str]) -> None:
    """Log what the ingestion strategy assumes of topics whose producers date the records."""
    lag = options.engine.policy.strategy.write_delay
    if lag is None or options.event_time is not None:
        return
    try:
        settings = admin.topic_settings(topics, [TIMESTAMP_TYPE])
    except SourceError as error:
        _log.info("the timestamp type of %s is not known: %s", listed(topics), error)
        return
    dated = sorted(name for name, each in settings.items() if each.get(TIMESTAMP_TYPE) == CREATE_TIME)
    if dated:
        _log.warning(
            "%s: producers date the records (message.timestamp.type is CreateTime). With watermarkStrategy ingestion a "
            "record that is written more than %s after its own timestamp may be late: set maxWatermarkLag to what the "
            "slowest producer needs, or the topic to LogAppendTime",
            listed(dated), format_duration(lag),
        )  # fmt: skip


def _announcements(options: KafkaOptions, topic: str) -> KafkaAnnouncements:
    # It imports numba, which only this strategy needs on the driver.
    from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader  # noqa: PLC0415

    reader = KafkaRangeReader(
        client=options.client,
        columns=COLUMNS,
        fail_on_data_loss=True,
        poll_timeout_ms=options.client.millis("default.api.timeout.ms"),
    )
    return KafkaAnnouncements(KafkaAdmin(options.client), lambda wanted: reader.read([wanted]), topic)
