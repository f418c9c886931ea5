"""The profile of a topic on a real broker, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from kafka import KafkaProducer

from pyspark_aligned_kafka import profile as kafka_profile
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from tests.spark.queries import START
from watermark_source.command_line import main
from watermark_source.monitor.profile import profile_of
from watermark_source.planning.split import Split

pytestmark = pytest.mark.service
ROWS = 200_000


def test_percentiles_of_a_known_disorder_are_right_within_two_percent(
    kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    topic, chance = new_topic(2), np.random.default_rng(5)
    in_order = START + np.arange(ROWS, dtype=np.int64)
    # The highest time so far is that of a row in order.
    late = np.where(np.arange(ROWS) % 2 == 1, chance.exponential(20_000, ROWS).astype(np.int64), 0)
    bulk_produce_partitions(
        kafka.bootstrap, topic, {0: PartitionRecords(in_order - late), 1: PartitionRecords(in_order)}
    )
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    made = profile_of(kafka_profile.event_times(given, None))
    one, other = made.splits[Split(topic, 0)], made.splits[Split(topic, 1)]
    assert (one.rows, other.rows, other.longest) == (ROWS, ROWS, 0)
    exact = np.maximum.accumulate(in_order - late) - (in_order - late)
    for share in (0.5, 0.1, 0.05, 0.01, 0.001):
        assert one.bound_for(share) == pytest.approx(np.quantile(exact, 1 - share), rel=0.02, abs=1)
    newest = profile_of(kafka_profile.event_times(given, 1_000))
    assert [each.rows for each in newest.splits.values()] == [1_000, 1_000]


def test_the_command_shows_what_to_set(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for partition, begin in ((0, 0), (1, 7_200)):
        for second in (0, 40, 10, 50):
            producer.send(topic, json.dumps({"at": START + (begin + second) * 1_000}).encode(), partition=partition)
    producer.send(topic, b"{", partition=0)
    producer.flush(30)
    producer.close()
    command = [sys.executable, "-m", "watermark_source", "profile", "--kafka", "--rows", "all"]
    options = ["--kafka.bootstrap.servers", kafka.bootstrap, "--subscribe", topic, "--eventTimeColumn", "value:$.at"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "maxOutOfOrderness = 30 s         for no late row" in done.stdout
    assert f"{topic}-0 is 2 h behind {topic}-1 in event time" in done.stdout
    assert "1 rows without an event time" in done.stdout
    wrong = subprocess.run([*command, "--subscribe"], capture_output=True, text=True, timeout=300, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "--subscribe needs a value: --subscribe …\n")


def test_a_wrong_event_time_column_ends_the_command_with_what_was_found(
    kafka: Kafka, new_topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(1)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    producer.send(topic, json.dumps({"at": START}).encode()).get(30)
    producer.close()
    options = ["--kafka.bootstrap.servers", kafka.bootstrap, "--subscribe", topic, "--eventTimeColumn", "value:$.made"]
    assert main(["profile", "--kafka", *options]) == 1
    reported = capsys.readouterr().out
    assert reported.startswith("no record has an event time: ")
    assert "no event time at value:$.made" in reported
