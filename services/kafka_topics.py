"""Topics: create, delete, widen, and shift their beginning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from services.errors import ServiceError
from services.wait_until import wait_until

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


_TIMEOUT_MS = 30_000
_LEADERS_SECONDS = 90.0
"""Longer than a request that gets no answer, which is asked again."""


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, *, replicas: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic and return when every partition can be written and read."""
    create_topics(bootstrap, [name], partitions, replicas=replicas, config=config)


def create_topics(
    bootstrap: str,
    names: Collection[str],
    partitions: int = 1,
    *,
    replicas: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create topics that are alike, at once, and return when every partition can be written and read."""
    from kafka.errors import TopicAlreadyExistsError

    wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(config or {})}
    with admin_client(bootstrap) as admin:

        def created() -> bool:
            try:
                admin.create_topics(dict.fromkeys(names, wanted), timeout_ms=_TIMEOUT_MS, wait_for_metadata=True)
            except TopicAlreadyExistsError as error:
                # A broker with ZooKeeper lists a deleted topic no more before its name is free again.
                if "marked for deletion" not in str(error):
                    raise
                return False
            return True

        wait_until(created, _LEADERS_SECONDS, f"the names {', '.join(names)}")
        _wait_for_leaders(lambda: nullcontext(admin), names, partitions)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic and return when the broker lists it no more: it accepts the deletion before it applies it (KRaft).

    Until then the old topic would take what is written to a new one of the same name.
    """
    with admin_client(bootstrap) as admin:
        admin.delete_topics([name], timeout_ms=_TIMEOUT_MS)
        wait_until(lambda: name not in admin.list_topics(), _LEADERS_SECONDS, f"the deletion of topic {name}")


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Widen a topic to ``total`` partitions and return when every one of them can be written and read."""
    with admin_client(bootstrap) as admin:
        admin.create_partitions({name: total}, timeout_ms=_TIMEOUT_MS)
        admin.wait_for_topics([name])
        _wait_for_leaders(lambda: nullcontext(admin), [name], total)


def delete_records(bootstrap: str, name: str, before: Mapping[int, int]) -> None:
    """Move the beginning offset of partitions, as retention does: partition -> first offset that stays."""
    from kafka import TopicPartition

    with admin_client(bootstrap) as admin:
        admin.delete_records(
            {TopicPartition(name, partition): offset for partition, offset in before.items()}, timeout_ms=_TIMEOUT_MS
        )


def wait_for_leaders(bootstrap: str, names: Collection[str], partitions: int) -> None:
    """Return when every partition of topics that exist can be written and read, as after a broker's restart.

    Raises:
        ServiceError: they cannot within ``_LEADERS_SECONDS``.
    """
    # A new client each time: one that could not connect to a broker waits longer and longer to try again.
    _wait_for_leaders(lambda: admin_client(bootstrap), names, partitions)


def _wait_for_leaders(
    client: Callable[[], AbstractContextManager[KafkaAdminClient]], names: Collection[str], partitions: int
) -> None:
    """Until every leader acts as one: the metadata names it a moment before it takes requests (KRaft)."""
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec
    from kafka.errors import RetriableError, UnknownBrokerIdError

    latest = {TopicPartition(name, n): OffsetSpec.LATEST for name in names for n in range(partitions)}
    why = "no broker was asked"

    def answered() -> bool:
        nonlocal why
        try:
            with client() as admin:
                admin.list_partition_offsets(latest, timeout_ms=_TIMEOUT_MS)
        except (RetriableError, UnknownBrokerIdError) as error:
            # A broker may not know yet what another one has made, or that one has come back.
            why = repr(error)
            return False
        return True

    try:
        wait_until(answered, _LEADERS_SECONDS, f"every leader of {', '.join(names)}")
    except ServiceError as late:
        raise ServiceError(f"{late}; the last answer: {why}") from late


@contextmanager
def admin_client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    """kafka-python's administration client, closed at the end of the block."""
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def records_refused(bootstrap: str, name: str) -> Iterator[None]:
    """Have the broker refuse every record for a topic in the block, from a moment after its begin."""
    from kafka.admin import ConfigResource, ConfigResourceType

    limit = {"max.message.bytes": "1"}
    with admin_client(bootstrap) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, limit)])
        try:
            yield
        finally:
            admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, limit)])


# Quotas of a broker: how many bytes a second a client may read.


def limit_reading(bootstrap: str, client_id: str, bytes_per_second: float | None) -> None:
    """Set ``consumer_byte_rate`` of a client, or take it away with ``None``.

    Raises:
        ServiceError: the broker refused it.
    """
    from kafka.protocol.admin import AlterClientQuotasRequest

    limit = {"key": "consumer_byte_rate", "value": bytes_per_second or 0.0, "remove": bytes_per_second is None}
    entry = AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntryData.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[AlterClientQuotasRequest.EntryData.OpData(**limit)],
    )
    with admin_client(bootstrap) as admin:
        # kafka-python has the request, and no method for it.
        answer = admin._manager.run(  # noqa: SLF001
            admin._send_request_to_controller,  # noqa: SLF001
            AlterClientQuotasRequest(entries=[entry], validate_only=False),
        )
    if answer.entries[0].error_code:
        raise ServiceError(f"quota of client {client_id} was refused: {answer.entries[0].error_message}")
