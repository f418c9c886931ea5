"""Functions for ``eventTimeColumn=package.module:function`` that return event times of Avro and Protobuf values.

::

    # shop/times.py, which the driver and every executor can import
    from watermark_source.extractors import avro_event_time

    event_time = avro_event_time("order.created_at", schema_registry="https://registry:8081")

``protobuf_event_time`` is its counterpart for Protobuf.

Imports ``connection_deadline``, ``durations``, ``errors``, ``installation``, ``machine_code``.
"""

from watermark_source.extractors.avro import avro_event_time
from watermark_source.extractors.protobuf import protobuf_event_time

__all__ = ["avro_event_time", "protobuf_event_time"]
