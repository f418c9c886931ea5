"""``doctor --kafka`` on real brokers: what a query needs, and what its user should know, each with what mends it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from kafka import KafkaProducer

from pyspark_aligned_kafka import doctor
from services.kafka import Kafka
from services.local_server import free_ports
from tests.integration.examined import Examined, examined

__all__ = ["examined"]

pytestmark = pytest.mark.service
BY_BROKERS = {"message.timestamp.type": "LogAppendTime"}
INGESTION = {"watermarkStrategy": "ingestion", "maxWatermarkLag": "3 seconds"}


@pytest.fixture
def our_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock that the doctor compares with, so many seconds ahead."""

    def put(seconds: float) -> None:
        shifted = SimpleNamespace(
            time_ns=lambda: time.time_ns() + round(seconds * 1e9), monotonic=time.monotonic, sleep=time.sleep
        )
        monkeypatch.setattr(doctor, "time", shifted)

    return put


def send(kafka: Kafka, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    producer.send(topic, b"x", partition=0).get(30)
    producer.close()


def test_a_topic_that_is_fine(kafka: Kafka, new_topic: Callable[..., str], examined: Examined) -> None:
    topic = new_topic(2, config={**BY_BROKERS, "retention.ms": "604800000"})
    send(kafka, topic)
    found = examined(kafka.bootstrap, subscribe=topic, startingOffsets="earliest", probeTopic=topic, **INGESTION)
    assert found["topics"] == ("ok", f"{topic}: 2 partitions")
    assert found["idleTimeout"][0] == "ok"
    assert found["READ"] == ("ok", "end offsets of all partitions are known; records there, at most: 1")
    assert found["startingOffsets"] == ("ok", f"a new query begins at {topic}-0: 0, {topic}-1: 0")
    assert found["record format"] == ("ok", "message format v2, in all of 1 partitions that have records")
    assert found["message.timestamp.type"] == ("ok", f"LogAppendTime: {topic}")
    verdict, text = found["brokers' clocks"]
    assert (verdict, text.partition(" from ours (broker ")[0][:10]) == ("ok", "less than ")
    assert text.endswith("maxWatermarkLag, 3 s, covers it")
    assert found["retention"] == ("ok", f"7 d at least ({topic})")
    assert found["unclean leader election"] == ("ok", "off")
    # The broker of the tests is one.
    assert found["replicas"][0] == "warning"
    assert {verdict for verdict, _ in found.values()} == {"ok", "warning"}


def test_a_topic_that_loses_what_it_should_keep(
    kafka: Kafka, new_topic: Callable[..., str], examined: Examined
) -> None:
    topic = new_topic(1, config={"retention.ms": "600000", "unclean.leader.election.enable": "true"})
    other = new_topic(1, config={"cleanup.policy": "compact", "retention.bytes": "1000000"})
    found = examined(kafka.bootstrap, subscribe=f"{topic},{other}", **INGESTION)
    assert [found[name][0] for name in ("retention", "cleanup.policy", "unclean leader election")] == ["warning"] * 3
    assert f"10 min at least ({topic}); {other} is limited by size too" in found["retention"][1]
    assert found["cleanup.policy"][1].startswith(f"{other} is compacted")
    assert found["unclean leader election"][1].startswith(f"{topic} has unclean.leader.election.enable = true")
    verdict, text = found["message.timestamp.type"]
    assert verdict == "warning"
    assert "more than 3 s after its own timestamp may be late" in text
    assert found["brokers' clocks"] == (
        "warning",
        (
            "not known: no record was written to a topic with message.timestamp.type LogAppendTime just now. Name one "
            "to which a record may be written: --probeTopic NAME"
        ),
    )
    assert examined(kafka.bootstrap, 1, subscribe=topic, probeTopic=topic)["brokers' clocks"][0] == "FAILED"


@pytest.mark.parametrize("probes", [True, False])
@pytest.mark.parametrize(
    ("ours", "lag", "verdict", "text"),
    [
        # An answer that takes long, on a busy machine, makes it less for certain.
        (
            -55,
            "10 minutes",
            "warning",
            r"at least [45]\d(\.\d+)? s ahead of ours .*, 10 min, covers it\. Set the clocks",
        ),
        (55, "10 minutes", "warning", r"at least [45]\d(\.\d+)? s behind ours"),
        (
            55,
            "1 second",
            "FAILED",
            r"option maxWatermarkLag = \"1 s\": must be more than clocks differ by: at least [45]\d",
        ),
    ],
)
def test_clocks_that_differ(
    kafka: Kafka, new_topic: Callable[..., str], examined: Examined, our_clock: Callable[[float], None],
    probes: bool, ours: float, lag: str, verdict: str, text: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(doctor, "_WATCHED_SECONDS", 60.0)
    topic = new_topic(1, config=BY_BROKERS)
    send(kafka, topic)
    our_clock(ours)
    done = threading.Event()

    def write() -> None:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
        while not done.wait(0.2):
            producer.send(topic, b"x", partition=0).get(30)
        producer.close()

    writer = threading.Thread(target=write, daemon=True)
    probe = {"probeTopic": topic} if probes else {}
    if not probes:
        writer.start()
    options = {"watermarkStrategy": "ingestion", "maxWatermarkLag": lag, **probe}
    found = examined(kafka.bootstrap, int(verdict == "FAILED"), subscribe=topic, **options)["brokers' clocks"]
    done.set()
    assert found[0] == verdict
    assert re.search(text, found[1]), found[1]


def test_a_topic_that_does_not_exist_and_a_broker_that_is_not_there(kafka: Kafka, examined: Examined) -> None:
    found = examined(kafka.bootstrap, 1, subscribe="not-there")
    assert found["topics"][0] == "FAILED"
    assert found["topics"][1].startswith("not-there does not exist, or may not be described")
    assert {verdict for name, (verdict, _) in found.items() if name != "topics"} == {"skipped"}
    (port,) = free_ports(1)
    limit = {"kafka.default.api.timeout.ms": 2_000, "kafka.request.timeout.ms": 1_000}
    found = examined(f"127.0.0.1:{port}", 1, subscribe="t", **limit)
    assert found["topics"][0] == "FAILED"
    assert f"127.0.0.1:{port}" in found["topics"][1]


def test_the_command_itself(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    command = [sys.executable, "-m", "watermark_source", "doctor", "--kafka"]
    options = ["--kafka.bootstrap.servers", kafka.bootstrap, "--subscribe", new_topic(1)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wrong = subprocess.run([*command, "--subscribe", "t"], capture_output=True, text=True, timeout=300, check=False)
    assert wrong.returncode == 2
    assert "kafka.bootstrap.servers" in wrong.stderr


def test_a_wrong_event_time_column_is_found_before_a_query_starts(
    kafka: Kafka, new_topic: Callable[..., str], examined: Examined
) -> None:
    topic, empty = new_topic(2), new_topic(1)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    producer.send(topic, b'{"at": %d}' % (time.time_ns() // 1_000_000), partition=1).get(30)
    producer.close()

    def of(topic: str, expected: int = 0, **options: str) -> tuple[str, str]:
        return examined(kafka.bootstrap, expected, subscribe=topic, **options)["eventTimeColumn"]

    verdict, text = of(topic, 1, eventTimeColumn="value:$.created")
    assert verdict == "FAILED"
    assert "no event time at value:$.created" in text
    verdict, text = of(topic, eventTimeColumn="value:$.at")
    assert (verdict, text[:42]) == ("ok", "found in the newest record of 1 partitions")
    verdict, text = of(topic, eventTimeColumn="value:$.at", eventTimeFormat="micros")
    assert verdict == "warning"
    assert "the format may be another (--eventTimeFormat, for numbers seconds, millis, " in text
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    # An hour ahead, as wall-clock times without their zone are, and written 13 minutes ago.
    producer.send(topic, b'{"at": %d}' % (time.time_ns() // 1_000_000 + 47 * 60_000), partition=0).get(30)
    producer.close()
    verdict, text = of(topic, eventTimeColumn="value:$.at")
    assert verdict == "warning"
    assert re.search("The last one is 4[67] min .* in the future. Are these times without a zone", text)
    assert of(empty, eventTimeColumn="value:$.at") == ("ok", "no partition has a record")
    assert of(topic) == ("ok", "not given: event time is the record's own timestamp")


def test_values_that_a_query_would_deliver_as_nulls_and_partitions_that_it_would_wait_for_are_named(
    kafka: Kafka, new_topic: Callable[..., str], examined: Examined
) -> None:
    topic = new_topic(3)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    producer.send(topic, b'{"trip":{"driver":3}}', partition=1).get(30)
    producer.close()

    def of(schema: str, expected: int = 0, **options: str) -> dict[str, tuple[str, str]]:
        given = {"subscribe": topic, "valueFormat": "json", "valueSchema": schema, **options}
        return examined(kafka.bootstrap, expected, **given)

    found = of("driver INT")
    assert found["idleTimeout"][0] == "warning"
    assert found["idleTimeout"][1].startswith(f"there is no record in {topic}-0, {topic}-2 (2 of 2 never had one)")
    assert '.option("idleTimeout", "30 seconds")' in found["idleTimeout"][1]
    assert found["valueSchema"][0] == "warning"
    assert f"{topic} partition 1 offset 0" in found["valueSchema"][1]
    assert "Write trip STRUCT<driver INT>" in found["valueSchema"][1]
    found = of("trip STRUCT<driver: INT>", idleTimeout="10 seconds")
    assert found["idleTimeout"] == ("ok", f"{topic}-0, {topic}-2 without a record is left out after 10 s")
    assert found["valueSchema"] == ("ok", "the newest 1 values fit")
    assert of("trip INT")["valueSchema"][0] == "warning"
    assert "trip: " in of("trip INT", 1, valueMode="FAILFAST")["valueSchema"][1]
    assert of("trip STRUCT<driver: INT>", watermarkStrategy="none")["idleTimeout"][0] == "ok"
