"""Logins and TLS on a real broker: what is right gets in, what is wrong is refused at once and shows no secret."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient

from pyspark_aligned_kafka.cluster.metadata import metadata_request
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.reading.connection import ResponseMemory
from pyspark_aligned_kafka.reading.kept_sessions import Brokers
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka import kafka_cluster
from services.kafka_local import FAST_START
from services.kafka_topics import create_topic
from services.local_server import free_ports
from services.wait_until import wait_until
from watermark_source.errors import RefusedError
from watermark_source.planning.split import Split

pytestmark = pytest.mark.service
PEM = Path(__file__).parents[1] / "certificates"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "correct-horse"
WRONG = "battery-staple"


@dataclass(frozen=True)
class Ports:
    """Where one broker listens with which security."""

    sasl: int
    tls: int
    both: int


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    controller, sasl, tls, both = free_ports(4)
    listeners = f"PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},BOTH://127.0.0.1:{both}"
    logins = {
        f"listener.name.{listener}.plain.sasl.jaas.config": f'{PLAIN} required user_u="{SECRET}";'
        for listener in ("sasl", "both")
    } | {
        f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;"
        for listener in ("sasl", "both")
    }
    config = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,BOTH:SASL_SSL"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(PEM / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(PEM / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        **logins,
    }
    with kafka_cluster(1, config=config, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "t")
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
            admin.alter_user_scram_credentials([_scram("s")])
        # The broker accepts a user before it lets it in (KRaft).
        wait_until(lambda: gets_in(sasl, login(SCRAM, "s", SECRET)), 60, "user s")
        yield Ports(sasl, tls, both)


def _scram(user: str) -> object:
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

    return UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, SECRET, iterations=4096)


def login(module: str, user: str, password: str) -> dict[str, str]:
    return {
        "kafka.sasl.mechanism": "PLAIN" if module == PLAIN else "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def discovered(port: int, protocol: str, given: dict[str, str], host: str = "127.0.0.1") -> set[Split]:
    source = KafkaSource(kafka_options.parse({
        "kafka.bootstrap.servers": f"{host}:{port}",
        "subscribe": "t",
        "kafka.security.protocol": protocol,
        "kafka.default.api.timeout.ms": "60000",
        **given,
    }))  # fmt: skip
    return set(source.open().discovery.discover())


def gets_in(port: int, who: dict[str, str]) -> bool:
    try:
        return discovered(port, "SASL_PLAINTEXT", who) == {Split("t", 0)}
    except RefusedError:
        return False


def refused(port: int, protocol: str, given: dict[str, str]) -> str:
    begun = time.monotonic()
    with pytest.raises(RefusedError) as caught:
        discovered(port, protocol, given)
    assert time.monotonic() - begun < 30
    return str(caught.value)


CA = {"kafka.ssl.truststore.location": str(PEM / "ca.pem")}
CLIENT = {"kafka.ssl.keystore.location": str(PEM / "client.pem")}


@pytest.mark.parametrize("who", [login(PLAIN, "u", SECRET), login(SCRAM, "s", SECRET)], ids=["plain", "scram"])
def test_a_right_login_gets_in(ports: Ports, who: dict[str, str]) -> None:
    assert discovered(ports.sasl, "SASL_PLAINTEXT", who) == {Split("t", 0)}
    assert discovered(ports.both, "SASL_SSL", {**who, **CA}) == {Split("t", 0)}


def test_the_worked_example_of_the_page_logs_in(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", SECRET)
    page = (Path(__file__).parents[2] / "docs" / "logins.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    reader = Options()
    exec(example, {"spark": SimpleNamespace(readStream=SimpleNamespace(format=lambda _: reader))})
    given = reader.given
    assert given["kafka.ssl.truststore.location"] == "/etc/kafka/ca.pem"
    here = {"kafka.bootstrap.servers": f"127.0.0.1:{ports.both}", "subscribe": "t", **CA}
    given |= here
    given["kafka.sasl.jaas.config"] = given["kafka.sasl.jaas.config"].replace('"orders-reader"', '"s"')
    source = KafkaSource(kafka_options.parse(given))
    assert set(source.open().discovery.discover()) == {Split("t", 0)}


class Options:
    """Keeps the options that an example sets."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def option(self, name: str, value: str) -> Options:
        self.given[name] = value
        return self

    def load(self) -> None:
        """Nothing is read."""


@pytest.mark.parametrize("who", [login(PLAIN, "u", WRONG), login(SCRAM, "s", WRONG)], ids=["plain", "scram"])
def test_a_wrong_login_is_refused_and_neither_error_nor_debug_log_shows_it(
    ports: Ports, who: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    message = refused(ports.sasl, "SASL_PLAINTEXT", who)
    assert f"the Kafka broker 127.0.0.1:{ports.sasl} refused: SaslAuthenticationFailedError" in message
    assert "kafka.sasl.jaas.config" in message
    assert WRONG not in message + caplog.text


def test_who_refuses_a_login_is_named_wherever_it_is_asked(ports: Ports) -> None:
    bootstrap = f"127.0.0.1:{free_ports(1)[0]},127.0.0.1:{ports.sasl}"
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t", "kafka.security.protocol": "SASL_PLAINTEXT"}
    right, wrong = (Brokers(parse({**given, **login(PLAIN, "u", password)}).client) for password in (SECRET, WRONG))
    with contextlib.closing(right), contextlib.closing(wrong):
        for asked in (right, wrong):
            asked.learn_brokers(
                right.run(lambda deadline: right.request_any(lambda: metadata_request(["t"]), deadline))
            )
        with pytest.raises(RefusedError, match=f"the Kafka broker 127.0.0.1:{ports.sasl} refused"):
            wrong.connection_to(1, 5_000, ResponseMemory())
        # The client library remembers a refusal, and connects no more.
        request = metadata_request(["t"])
        with pytest.raises(RefusedError, match=f"the Kafka broker 127.0.0.1:{ports.sasl} refused"):
            wrong.run(lambda deadline: wrong.request(1, request, deadline))


def test_a_login_at_a_port_that_wants_none_is_refused(ports: Ports) -> None:
    assert "kafka.security.protocol" in refused(ports.tls, "SASL_SSL", {**login(PLAIN, "u", SECRET), **CA, **CLIENT})


@pytest.mark.parametrize("key", ["client.pem", "client-encrypted.pem"])
def test_a_client_certificate_gets_in(ports: Ports, key: str) -> None:
    identity = {"kafka.ssl.keystore.location": str(PEM / key), "kafka.ssl.key.password": "opensesame"}
    assert discovered(ports.tls, "SSL", {**CA, **identity}) == {Split("t", 0)}


def test_a_broker_that_cannot_prove_who_it_is_is_refused(ports: Ports) -> None:
    unknown = {"kafka.ssl.truststore.location": str(PEM / "unknown-ca.pem")}
    message = refused(ports.both, "SASL_SSL", {**login(PLAIN, "u", SECRET), **unknown})
    assert f"the Kafka broker 127.0.0.1:{ports.both} refused" in message
    assert "certificate verify failed" in message
