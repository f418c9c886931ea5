"""Consumer groups as seen from outside: the command line tool and the client library agree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from services.consumer_groups import (
    Committed,
    Shown,
    alter_offsets,
    committed_offsets,
    coordinator_of,
    describe_group,
    group_member,
)
from services.errors import ServiceError
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions


def test_the_tool_shows_the_offsets_a_group_holds_and_the_lag(
    kafka: Kafka, new_topic: Callable[..., str], topic_name: str
) -> None:
    topic = new_topic(2)
    ten = PartitionRecords(np.arange(10, dtype=np.int64))
    bulk_produce_partitions(kafka.bootstrap, topic, {0: ten, 1: ten})
    alter_offsets(kafka.bootstrap, topic_name, {(topic, 0): 4, (topic, 1): 10})
    assert describe_group(kafka.bootstrap, topic_name) == {(topic, 0): Shown(4, 10, 6), (topic, 1): Shown(10, 10, 0)}
    assert committed_offsets(kafka.bootstrap, topic_name) == {(topic, 0): Committed(4, ""), (topic, 1): (10, "")}
    assert coordinator_of(kafka.bootstrap, topic_name) == 1


def test_a_group_that_does_not_exist_holds_nothing(kafka: Kafka, topic_name: str) -> None:
    assert committed_offsets(kafka.bootstrap, topic_name) == {}
    with pytest.raises(ServiceError, match=f"no group {topic_name}"):
        describe_group(kafka.bootstrap, topic_name)


def test_only_while_it_has_a_member_a_group_takes_no_offsets_from_outside(
    kafka: Kafka, new_topic: Callable[..., str], topic_name: str
) -> None:
    topic = new_topic(1)
    with (
        group_member(kafka.bootstrap, topic_name, topic),
        pytest.raises(ServiceError, match="refused"),
    ):
        alter_offsets(kafka.bootstrap, topic_name, {(topic, 0): 0})
    alter_offsets(kafka.bootstrap, topic_name, {(topic, 0): 0})
