"""Quotas of a broker: how many bytes a second a client may read."""

from __future__ import annotations

from services.errors import ServiceError
from services.kafka_topics import admin_client


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
