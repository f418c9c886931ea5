"""The broker that everything else relies on: it answers, it survives what tests do to it, and it goes away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import MessageSizeTooLargeError

from services.errors import ServiceError
from services.kafka import WHERE_VARIABLE, Kafka, Where, kafka_service
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic
from services.kafka_wire import BrokerConnection
from services.wait_until import wait_until
from tests.services.what_is_left import accepts, members

pytestmark = pytest.mark.service


def _write(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=32 * 1024 * 1024)
    for value in values:
        producer.send(topic, value, partition=0).get(timeout=30)
    producer.close()


def _read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=2**25)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[bytes] = []

    def complete() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            found.extend(record.value for record in records)
        return len(found) >= count

    wait_until(complete, 60, f"{count} records of {topic}")
    consumer.close()
    return found


def _port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


def test_what_is_written_is_read_back(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    _write(kafka.bootstrap, topic, b"one", b"two")
    assert _read(kafka.bootstrap, topic, 2) == [b"one", b"two"]


def test_a_broker_survives_what_tests_do_to_it_and_goes_when_the_block_is_left(
    topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with kafka_service(config={"message.max.bytes": "2000"}, jvm=FAST_START, where=Where.LOCAL) as kafka:
        assert isinstance(kafka, LocalKafka)
        before = kafka.bootstrap
        create_topic(before, topic_name)
        with pytest.raises(MessageSizeTooLargeError):
            _write(before, topic_name, os.urandom(5000))
        _write(before, topic_name, b"before the kill")
        kafka.kill()
        assert not accepts(_port(before))
        kafka.start()
        assert kafka.bootstrap == before
        assert _read(before, topic_name, 1) == [b"before the kill"]
        _frozen_accepts_and_does_not_answer(kafka)
        kafka.stop()
        assert not accepts(_port(before))
        kafka.start()
        assert _read(before, topic_name, 1) == [b"before the kill"]
        group = os.getpgid(kafka.pid())
        assert list(tmp_path.iterdir())
    assert not members(group)
    assert not accepts(_port(before))
    assert not list(tmp_path.iterdir())


def _frozen_accepts_and_does_not_answer(kafka: LocalKafka) -> None:
    kafka.pause()
    port = _port(kafka.bootstrap)
    with (
        BrokerConnection("127.0.0.1", port, timeout_seconds=0.5) as frozen,
        pytest.raises(ServiceError, match="no answer"),
    ):
        frozen.cluster()
    kafka.resume()
    with BrokerConnection("127.0.0.1", port) as thawed:
        assert thawed.cluster().brokers.keys() == {1}


_OWNER = """
import signal, sys
from services.kafka_local import FAST_START
from services.kafka import Where, kafka_service
with kafka_service(jvm=FAST_START, where=Where.LOCAL) as kafka:
    print(kafka.pid(), kafka.bootstrap, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long("the same with SIGKILL"))]
)
def test_nothing_is_left_when_the_owner_dies(how: signal.Signals, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, bootstrap = owner.stdout.readline().split()
        group = os.getpgid(int(pid))
        assert accepts(_port(bootstrap))
        owner.send_signal(how)
    wait_until(lambda: not members(group), 60, f"end of process group {group}")
    wait_until(lambda: not accepts(_port(bootstrap)), 60, "closing of the broker's port")
    wait_until(lambda: not list(tmp_path.glob("kafka-*")), 60, "removal of the broker's folder")


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    with (
        closing(LocalKafka(jvm=FAST_START)) as kafka,
        socket.create_server(("127.0.0.1", _port(kafka.bootstrap))),
        pytest.raises(ServiceError, match=r"(?s)Kafka node 1 ended with exit code 1 .*Address already in use"),
    ):
        kafka.start()


def test_a_setting_that_kafka_refuses_is_named() -> None:
    with (
        pytest.raises(ServiceError, match=r"(?s)Kafka node 1 ended with exit code 1 .*log\.retention\.ms"),
        kafka_service(config={"log.retention.ms": "soon"}, where=Where.LOCAL),
    ):
        pass


def test_a_node_that_does_not_exist_is_refused() -> None:
    with closing(LocalKafka()) as kafka, pytest.raises(ServiceError, match=r"node 2 does not exist; .* nodes 1 to 1"):
        kafka.start(2)


def test_where_is_read_from_the_environment_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WHERE_VARIABLE, "elsewhere")
    with (
        pytest.raises(ServiceError, match="=elsewhere: accepted are auto, container, local"),
        kafka_service(),
    ):
        pass


def test_a_service_that_cannot_start_fails_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never skipped: a broken machine must not look like a green run."""
    done = _run_pytest({"JAVA_HOME": "/nowhere", WHERE_VARIABLE: "local"})
    assert done.returncode == 1
    assert "no java found through JAVA_HOME=/nowhere" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_without_services_leaves_these_tests_out_and_says_so() -> None:
    done = _run_pytest({"JAVA_HOME": "/nowhere", WHERE_VARIABLE: "local"}, "--without-services")
    assert "tests that need a real server were left out (--without-services)" in done.stdout
    assert "failed" not in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]


def _run_pytest(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    target = Path(__file__).with_name("test_kafka_topics.py")
    return subprocess.run(
        [sys.executable, "-m", "pytest", str(target), "-p", "no:cacheprovider", *options],
        cwd=Path(__file__).parents[2],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
