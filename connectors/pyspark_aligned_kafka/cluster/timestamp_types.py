"""Whose clock dates a topic's records: its producers' or the brokers' (``message.timestamp.type``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest

CREATE_TIME: Final = "CreateTime"
_KEY: Final = "message.timestamp.type"
_TOPIC: Final = 2


def timestamp_types_request(names: Collection[str]) -> DescribeConfigsRequest:
    """Ask for the setting of topics."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    topics = [resource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_KEY]) for name in sorted(names)]
    return DescribeConfigsRequest(resources=topics, include_synonyms=False, include_documentation=False)


def read_timestamp_types(answer: Any) -> Mapping[str, str]:
    """Read a ``DescribeConfigsResponse``; topics whose settings may not be read are left out."""
    told = ((topic.resource_name, each) for topic in answer.results if not topic.error_code for each in topic.configs)
    return {name: str(each.value) for name, each in told if each.name == _KEY}
