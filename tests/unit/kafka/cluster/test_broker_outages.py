"""What the log states of brokers that do not answer."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.cluster.connections import BrokerOutages


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_outage_of_two_minutes_is_four_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outages = BrokerOutages(clock)
    outages.note_answer("a:9092")
    for tenth in range(1_300):
        clock.now = tenth / 10
        outages.note_failure("a:9092", "111 ECONNREFUSED")
    outages.note_answer("a:9092")
    outages.note_answer("a:9092")
    assert [record.getMessage() for record in caplog.records] == [
        "Kafka broker a:9092 does not answer: 111 ECONNREFUSED; it is tried again",
        "Kafka broker a:9092 has not answered for 1 min: 111 ECONNREFUSED",
        "Kafka broker a:9092 has not answered for 2 min: 111 ECONNREFUSED",
        "Kafka broker a:9092 answers again, after 2 min 09 s",
    ]


def test_only_a_broker_that_never_answered_may_have_a_wrong_address(caplog: pytest.LogCaptureFixture) -> None:
    BrokerOutages().note_failure("a:9092", "111 ECONNREFUSED")
    assert "tried again, until kafka.default.api.timeout.ms is over (60 s by default); check kafka.boot" in caplog.text


def test_brokers_are_distinguished(caplog: pytest.LogCaptureFixture) -> None:
    outages = BrokerOutages()
    for address in ("a:9092", "b:9092"):
        outages.note_failure(address, "gone")
    outages.note_answer("b:9092")
    assert [record.getMessage().split()[2] for record in caplog.records] == ["a:9092", "b:9092", "b:9092"]
