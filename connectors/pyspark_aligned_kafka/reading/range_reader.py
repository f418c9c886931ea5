"""KafkaRangeReader: reads ranges of offsets into Arrow batches, on the executors."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace

from pyspark import TaskContext

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits, Wanted
from pyspark_aligned_kafka.cluster.metadata import id_bytes
from pyspark_aligned_kafka.reading.connection import BrokerConnection, ConnectionLostError
from pyspark_aligned_kafka.reading.fetch import FetchResponse, Step, decode_response, encode_request, examine
from pyspark_aligned_kafka.reading.kept_sessions import Session, leased
from pyspark_aligned_kafka.reading.range_progress import Patience, Pending, fetch_bytes, learned, next_group, unfinished
from pyspark_aligned_kafka.reading.recovery import Recovery
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice
from pyspark_aligned_kafka.records.payload import PayloadChoice
from pyspark_aligned_kafka.records.record_batches import Bytes
from watermark_source.contract.lineage import ExpectedLogs
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import ResponseTimeoutError, SourceError, UnreachableError
from watermark_source.planning.split import Split, SplitRange

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RangeRead:
    """One read of ranges: for each group of ranges it fetches, sends the next fetch, and decodes."""

    session: Session
    decoder: RecordDecoder
    limits: FetchLimits
    patience: Patience
    recovery: Recovery
    _: KW_ONLY
    client: ClientSettings
    ids: Mapping[str, bytes]
    """Of topics, as requests have them."""
    epochs: Mapping[Split, int]
    """As ``ExpectedLogs`` has them."""

    def run(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        """Yield every row of every range once; see ``KafkaRangeReader.read``."""
        most = self.client.values["max.partition.fetch.bytes"]
        pending = unfinished(Pending(whole, whole.start, self.epochs.get(whole.split)) for whole in ranges)
        while pending:
            nodes = {p.split: node for p in pending if (node := self.session.node_of(p.split)) is not None}
            with_leader = [p for p in pending if p.split in nodes]
            if not with_leader:
                pending = unfinished(self.recovery.find_leaders(pending))
                continue
            group = next_group(with_leader, nodes, self.session.densities, most)
            chosen = set(group)
            rest = [p for p in pending if p not in chosen]
            left = yield from self._drain(nodes[group[0].split], group)
            pending = [*unfinished(left), *rest]

    def _drain(self, node: int, group: list[Pending]) -> Generator[ReadBatch, None, list[Pending]]:
        """Fetch a group from its broker until it is done or needs recovery; return the unfinished ranges."""
        begun = time.monotonic()
        try:
            limit_ms = min(self.patience.left_ms, self.client.millis("socket.connection.setup.timeout.ms"))
            connection = self.session.connection(node, limit_ms)
        except (UnreachableError, ResponseTimeoutError) as problem:
            self.patience.spend(begun)
            return self.recovery.look_elsewhere(node, group, problem)
        self._sit_out_quota(node, connection)
        self._send(connection, group)
        while group:
            try:
                with self._naming(node):
                    data, response = self._receive(connection)
            except ConnectionLostError as problem:
                self.session.drop(node)
                return self.recovery.look_elsewhere(node, group, ResponseTimeoutError(f"broker {node}: {problem}"))
            with self._naming(node):
                step = examine(group, data, response)
            self._learn(step)
            connection.muted_until = time.monotonic() + response.throttle_ms / 1000
            is_usable = connection.is_logged_in and not response.throttle_ms
            if step.left and not step.troubles and is_usable:
                self._send(connection, step.left)
            yield from self._decode(data, step)
            if step.troubles:
                return self.recovery.resolve(node, step)
            if not is_usable:
                return step.left
            if not step.moved and (checked := self.recovery.pause_stalled(group)) is not group:
                return checked
            group = step.left
        return []

    def _send(self, connection: BrokerConnection, group: Sequence[Pending]) -> None:
        wanted = []
        for pending in group:
            leader = self.session.leaders.of(pending.split)
            most = fetch_bytes(pending, self.session.densities, self.client.values["max.partition.fetch.bytes"])
            wanted.append(Wanted(pending.split, None if leader is None else leader.epoch, pending.position, most))
        named = {pending.split.log for pending in group} - self.ids.keys()
        connection.ids = self.ids if connection.knows_ids and not named else None
        correlation = connection.next_correlation()
        request = encode_request(correlation, self.client.values["client.id"], wanted, self.limits, connection.ids)
        connection.send(request, self.client.millis("request.timeout.ms") / 1000)

    def _receive(self, connection: BrokerConnection) -> tuple[Bytes, FetchResponse]:
        begun = time.monotonic()
        try:
            answer_s = self.client.millis("request.timeout.ms") / 1000
            data, size = connection.receive(min(answer_s, self.patience.left_s), self.patience.left_s)
        finally:
            self.patience.spend(begun)
        committed = self.limits.read_committed
        ids = connection.ids
        return data, decode_response(data, size, connection.correlation, read_committed=committed, ids=ids)

    def _sit_out_quota(self, node: int, connection: BrokerConnection) -> None:
        """Wait until the broker's quota allows another fetch. The broker has set the time, so it costs no patience."""
        left_s = connection.muted_until - time.monotonic()
        if left_s <= 0:
            return
        if node not in self.session.throttled_by:
            self.session.throttled_by.add(node)
            _log.warning(
                "broker %d: a quota of this user or client is used up, so reads wait, %.3g s now. "
                "kafka-configs.sh --describe --entity-type clients (or users) shows it (consumer_byte_rate); logged "
                "once",
                node,
                left_s,
            )
        time.sleep(left_s)

    def _decode(self, data: Bytes, step: Step) -> Iterator[ReadBatch]:
        for stretch in step.stretches:
            wanted = stretch.pending.range._replace(start=stretch.pending.position)
            yield from self.decoder.decode(
                wanted, data, stretch.fetched.start, stretch.batches, stretch.fetched.aborted
            )

    def _learn(self, step: Step) -> None:
        if step.moved:
            self.patience.reset()
        for stretch in step.stretches:
            self.session.densities = learned(
                self.session.densities,
                stretch.pending.split.log,
                stretch.fetched.stop - stretch.fetched.start,
                stretch.next_offset - stretch.pending.position,
            )

    @contextmanager
    def _naming(self, node: int) -> Iterator[None]:
        """Name the broker in errors about its response, and drop the connection."""
        try:
            yield
        except SourceError as problem:
            self.session.drop(node)
            raise type(problem)(f"broker {node}: {problem}") from problem


@dataclass(frozen=True, slots=True)
class KafkaRangeReader:
    """``RangeReader`` and ``BatchRangeReader`` for Kafka.

    Memory is bounded by the fetch and batch sizes, not by the ranges.
    """

    client: ClientSettings
    columns: tuple[str, ...]
    """The columns of Spark's Kafka schema to deliver, in this order."""
    fail_on_data_loss: bool
    poll_timeout_ms: int
    decompressed_max_bytes: int = 128 << 20
    """Limit on the bytes of a decompressed batch."""
    event_time: EventTimeChoice | None = None
    """Where event times are; ``None`` for the record's timestamp."""
    marks: EventTimeChoice | None = None
    """Where records carry watermarks; ``None`` if they are not read."""
    payloads: tuple[PayloadChoice, ...] = ()
    """How keys and values are decoded to columns behind the others."""
    expected: ExpectedLogs = field(default_factory=ExpectedLogs)

    def of_logs(self, expected: ExpectedLogs) -> KafkaRangeReader:
        """Return the reader of ranges of these logs alone."""
        return replace(self, expected=expected)

    def log_ranges(self, splits: Set[Split]) -> Mapping[Split, SplitRange]:
        """Return the range of offsets that each log holds now, without partitions of topics that are gone or others."""
        with leased(self.client, fresh=_is_retry()) as session:
            found, ids = session.visible.log_ranges(splits), self.expected.ids
            if ids:
                # Behind the offsets: of a topic that is another one from here on, fetches find it.
                session.refresh({split.log for split in found}, self.client.millis("default.api.timeout.ms"))
            return {s: each for s, each in found.items() if session.other_id(s, ids.get(s.log)) is None}

    def read(self, ranges: Sequence[SplitRange], *, from_beginning: Set[Split] = frozenset()) -> Iterator[ReadBatch]:
        """Yield every row of every range exactly once, each split in offset order.

        For the splits ``from_beginning`` a range begins where its log begins.

        Raises:
            DataLossError: the log no longer holds rows of a range (``fail_on_data_loss``; otherwise they are logged and
                skipped).
            ResponseTimeoutError: no position advanced for ``poll_timeout_ms``.
            EventTimeError: a record has no event time in the user's place, or the user's function failed.
            PayloadError: a value does not fit the user's schema, where that ends the query.
            UnreachableError, RefusedError, UnknownSplitError, CorruptDataError, UnsupportedFormatError
        """
        values = self.client.values
        limits = FetchLimits(
            # At most half of the time limit, so that the default works with a user's shorter limit.
            max_wait_ms=min(values["fetch.max.wait.ms"], max(1, values["request.timeout.ms"] // 2)),
            min_bytes=values["fetch.min.bytes"],
            max_bytes=values["fetch.max.bytes"],
            read_committed=self.client.read_committed,
            rack=values["client.rack"] or "",
        )
        decoder = RecordDecoder(
            self.columns,
            decompressed_limit=self.decompressed_max_bytes,
            check_crcs=bool(values["check.crcs"]),
            event_time=self.event_time,
            marks=self.marks,
            payloads=self.payloads,
        )
        patience = Patience(self.poll_timeout_ms)
        with leased(self.client, fresh=_is_retry()) as session:
            recovery = Recovery(
                session, patience, fail_on_data_loss=self.fail_on_data_loss, from_beginning=from_beginning,
                ids=self.expected.ids,
            )  # fmt: skip
            read = RangeRead(
                session,
                decoder,
                limits,
                patience,
                recovery,
                client=self.client,
                ids={name: id_bytes(id_) for name, id_ in self.expected.ids.items()},
                epochs=self.expected.epochs,
            )
            yield from read.run(ranges)


def _is_retry() -> bool:
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
