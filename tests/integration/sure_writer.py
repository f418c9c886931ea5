"""A writer that knows the offset of every record it wrote, whatever becomes of the broker meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka import TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError

from services.errors import ServiceError
from services.kafka_bulk import PartitionRecords
from services.kafka_record_batch import encode_batch
from services.kafka_topics import admin_client
from services.kafka_wire import BrokerConnection

_PATIENCE_SECONDS = 180.0
"""For a broker that was killed, or suspended with its machine, on the slowest one."""
_TIMEOUT_MS = 10_000


@dataclass
class SureWriter:
    """The only writer of a topic of a cluster of one broker.

    A batch whose acknowledgement did not come is in the log as a whole or not at all: the log's end shows it, and it
    continues from there.
    """

    bootstrap: str
    topic: str
    ends: dict[int, int]
    """The offset of each partition's next record."""
    doubtful: list[bool] = field(default_factory=list)
    """Of every batch whose acknowledgement did not come, whether it was in the log."""

    def write(self, records: Mapping[int, PartitionRecords]) -> None:
        """Append one batch to each partition; return when each is in the log, once, at the offset expected."""
        left = {p: encode_batch(each.timestamps, each.values) for p, each in records.items() if each.values is not None}
        assert left.keys() == records.keys()
        after = {p: self.ends[p] + len(each.timestamps) for p, each in records.items()}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left:
            self._wait_for_leaders(left, deadline)
            try:
                with BrokerConnection(*self._address) as connection:
                    connection.send_produce(self.topic, left)
                    placed = connection.receive_produce()
            except ServiceError:
                ends = self._log_ends(left, deadline)
                for partition, end in ends.items():
                    assert end in (self.ends[partition], after[partition]), (
                        f"the log of partition {partition} ends at {end}: acknowledged were {self.ends[partition]} "
                        f"records, {after[partition]} with the batch in doubt"
                    )
                self.doubtful += [end == after[p] for p, end in ends.items()]
                left = {p: batch for p, batch in left.items() if ends[p] != after[p]}
            else:
                assert placed == {p: self.ends[p] for p in left}
                left = {}
        self.ends.update(after)

    @property
    def _address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def _wait_for_leaders(self, partitions: Collection[int], deadline: float) -> None:
        while True:
            with contextlib.suppress(ServiceError), BrokerConnection(*self._address) as connection:
                leaders = connection.cluster(self.topic).leaders
                if {each.partition for each in leaders} >= set(partitions):
                    return
            self._pause(deadline)

    def _log_ends(self, partitions: Collection[int], deadline: float) -> dict[int, int]:
        asked = {TopicPartition(self.topic, partition): OffsetSpec.LATEST for partition in partitions}
        while True:
            self._wait_for_leaders(partitions, deadline)
            with contextlib.suppress(KafkaError), admin_client(self.bootstrap) as admin:
                found = admin.list_partition_offsets(asked, timeout_ms=_TIMEOUT_MS)
                return {each.partition: answer.offset for each, answer in found.items()}
            self._pause(deadline)

    def _pause(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise ServiceError(f"the broker at {self.bootstrap} took no record for {_PATIENCE_SECONDS:g} s")
        time.sleep(0.1)
