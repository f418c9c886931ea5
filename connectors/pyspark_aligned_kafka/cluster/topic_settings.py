"""How topics are set, for example whose clock dates their records: its producers' or the brokers'."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest

TIMESTAMP_TYPE: Final = "message.timestamp.type"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
_TOPIC: Final = 2


def topic_settings_request(topics: Collection[str], names: Collection[str]) -> DescribeConfigsRequest:
    """Ask for settings of topics."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=sorted(names))
        for topic in sorted(topics)
    ]
    return DescribeConfigsRequest(resources=asked, include_synonyms=False, include_documentation=False)


def read_topic_settings(answer: Any) -> Mapping[str, Mapping[str, str]]:
    """Read a ``DescribeConfigsResponse``; topics whose settings may not be read are left out."""
    return {
        topic.resource_name: {each.name: str(each.value) for each in topic.configs}
        for topic in answer.results
        if not topic.error_code
    }
