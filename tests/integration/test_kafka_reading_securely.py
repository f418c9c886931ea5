"""Reading and announcing over TLS with a login, and without the right to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pyspark_aligned_kafka import WatermarkAnnouncer
from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.reading import kept_sessions as sessions
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from services.kafka import kafka_cluster
from services.kafka_bulk import bulk_produce
from services.kafka_local import FAST_START
from services.kafka_topics import create_topic
from services.local_server import free_ports
from services.wait_until import wait_until
from watermark_source.errors import RefusedError
from watermark_source.planning.split import Split, SplitRange

pytestmark = pytest.mark.service
PEM = Path(__file__).parents[1] / "certificates"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "correct-horse"
COUNT = 300_000


class Secure(NamedTuple):
    """A broker that asks for a login over TLS."""

    bootstrap: str
    """Without a login, for the superuser."""
    port: int


@pytest.fixture(scope="module")
def secure() -> Iterator[Secure]:
    """User u may read topic open, and only look at topic closed."""
    controller, port = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{{port}},BOTH://127.0.0.1:{port}"
    config = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(PEM / "broker.pem"),
        "listener.name.both.plain.sasl.jaas.config": f'{PLAIN} required user_u="{SECRET}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.retention.ms": "86400000",
    }
    with kafka_cluster(1, config=config, jvm=FAST_START) as cluster:
        for topic in ("open", "closed"):
            create_topic(cluster.bootstrap, topic, config={"retention.ms": "-1"})
            bulk_produce(cluster.bootstrap, topic, 0, np.arange(COUNT, dtype=np.int64))
        allow(cluster.bootstrap, "open", "READ")
        allow(cluster.bootstrap, "closed", "DESCRIBE")
        yield Secure(cluster.bootstrap, port)
        sessions.close_kept()


def allow(bootstrap: str, topic: str, operation: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    right = ACL(
        "User:u", "*", ACLOperation[operation], ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, topic)
    )
    admin.create_acls([right])
    # The broker accepts a right before it grants it (KRaft).
    wait_until(lambda: bool(admin.describe_acls(right)[0]), 60, f"the right to {operation} {topic}")
    admin.close()


def login(port: int) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} required username="u" password="{SECRET}";',
        "kafka.ssl.truststore.location": str(PEM / "ca.pem"),
    }


def reader(port: int) -> KafkaRangeReader:
    settings = parse_settings(login(port))
    return KafkaRangeReader(settings, ("offset",), fail_on_data_loss=True, poll_timeout_ms=120_000)


def test_a_logged_in_reader_over_tls_reads_every_row_again_and_again(secure: Secure) -> None:
    wanted = [SplitRange(Split("open", 0), 0, COUNT)]
    for _ in range(2):
        seen = [offset for batch in reader(secure.port).read(wanted) for offset in batch.columns[0].to_pylist()]
        assert seen == list(range(COUNT))


def test_no_right_to_read_is_refused_naming_the_topic(secure: Secure) -> None:
    with pytest.raises(RefusedError, match=r"topic closed partition 0 offset 0: .*needs the READ right"):
        list(reader(secure.port).read([SplitRange(Split("closed", 0), 0, COUNT)]))


def test_settings_that_an_announcer_may_not_read_are_warned_of_once_with_the_lines_to_write(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic of announcements had the brokers' retention in silence, and not that of the data."""
    topic, side, servers = "unset", "unset.watermarks", f"--bootstrap-server 127.0.0.1:{secure.port}"
    create_topic(secure.bootstrap, topic, config={"retention.ms": "-1"})
    allow(secure.bootstrap, topic, "DESCRIBE")
    for operation in ("CREATE", "WRITE", "READ"):
        allow(secure.bootstrap, side, operation)

    def warned() -> list[str]:
        caplog.clear()
        with WatermarkAnnouncer(topic, login(secure.port), "a") as writer:
            writer.announce(1)
            # After trouble both topics are looked at again.
            writer._topic.close()
            writer.announce(2)
        return [text for text in caplog.messages if text.startswith(f"topic {side}: ")]

    (created,) = warned()
    assert f"created with the brokers' own retention.ms and min.insync.replicas, not with those of {topic}" in created
    assert "the watermark of a reader with a backlog stands" in created
    right = f"kafka-acls.sh {servers} --add --allow-principal User:NAME --operation DescribeConfigs --topic"
    assert f"{right} {topic}; and set them: kafka-configs.sh {servers} --alter --topic {side} --add-config" in created
    (unknown,) = warned()
    assert f"as long as {topic} keeps rows, and without compaction, is not known" in unknown
    assert f"{right} {topic} --topic {side}; and" in unknown
    for each in (topic, side):
        allow(secure.bootstrap, each, "DESCRIBE_CONFIGS")
    (shorter,) = warned()
    assert f"retention.ms=86400000 is shorter than that of {topic}, -1" in shorter
    line = f"Set it: kafka-configs.sh {servers} --alter --topic {side} --add-config retention.ms=-1"
    assert shorter.endswith(line)
