"""OAUTHBEARER on a real broker: tokens from an endpoint over TLS, kept, renewed, and logins that end."""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kafka.net.sasl import SASL_MECHANISMS
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from pyspark.sql import SparkSession

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.client.token_endpoint import tokens_of
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.reading import kept_sessions as sessions
from pyspark_aligned_kafka.reading.kept_sessions import Brokers
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from pyspark_aligned_kafka.reading.recovery import Recovery
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka import kafka_cluster
from services.kafka_bulk import bulk_produce
from services.kafka_local import FAST_START
from services.kafka_topics import create_topic
from services.local_server import free_ports
from tests.integration.kafka_streams import wait_for
from tests.integration.token_endpoint import PEM, TokenEndpoint, token_endpoint, unsecured_token
from watermark_source.errors import RefusedError, ResponseTimeoutError, UnreachableError
from watermark_source.planning.split import Split, SplitRange

pytestmark = pytest.mark.service
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "correct-horse"
WRONG = "battery-staple"
COUNT = 100_000
LIFETIME_MS = 2_000


@dataclass(frozen=True)
class Ports:
    """A listener whose logins last, and one whose logins end after two seconds."""

    lasting: int
    ending: int
    bootstrap: str
    """Without a login."""


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    controller, lasting, ending = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{{port}},LASTING://127.0.0.1:{lasting},ENDING://127.0.0.1:{ending}"
    config = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LASTING:SASL_SSL,ENDING:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(PEM / "broker.pem"),
        "listener.name.lasting.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
        "listener.name.ending.oauthbearer.sasl.jaas.config": f"{OAUTH} required;",
        "listener.name.ending.oauthbearer.connections.max.reauth.ms": str(LIFETIME_MS),
    }
    with kafka_cluster(1, config=config, jvm=FAST_START) as cluster:
        for topic in ("t", "streamed"):
            create_topic(cluster.bootstrap, topic)
        bulk_produce(cluster.bootstrap, "t", 0, np.arange(COUNT, dtype=np.int64))
        yield Ports(lasting, ending, cluster.bootstrap)
        sessions._kept.clear()


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint("checkout", SECRET) as served:
        yield served
    tokens_of.cache_clear()


def login(endpoint: TokenEndpoint, secret: str = SECRET, ca: str = "ca.pem") -> dict[str, str]:
    return {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "kafka.sasl.jaas.config": (
            f'{OAUTH} required clientId="checkout" clientSecret="{secret}" scope="read write" '
            f'extension_cluster="c" ssl.truststore.location="{PEM / ca}";'
        ),
    }


def on(port: int, ports: Ports, given: dict[str, str]) -> dict[str, str]:
    tls = {"kafka.ssl.truststore.location": str(PEM / "ca.pem")} if port == ports.lasting else {}
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "kafka.security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "kafka.default.api.timeout.ms": "60000",
        **tls,
        **given,
    }


@contextlib.contextmanager
def cut_off(endpoint: TokenEndpoint, sent: bytes) -> Iterator[list[bytes]]:
    """Have another endpoint asked, which sends this and hangs up; shows what it was asked."""
    asked: list[bytes] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM / "broker.pem")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with context.wrap_socket(self.request, server_side=True) as connection:
                question = b""
                # What is sent is lost if the connection is closed before all that has come was read.
                while not question.endswith(b"&scope=read+write") and (piece := connection.recv(65_536)):
                    question += piece
                asked.append(question)
                connection.sendall(sent)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.url = f"https://127.0.0.1:{server.server_address[1]}/token"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


def discovered(options: dict[str, str]) -> set[Split]:
    return set(KafkaSource(kafka_options.parse({"subscribe": "t", **options})).open().discovery.discover())


def given_up(options: dict[str, str], asked: Sequence[object] | None = None) -> str:
    """Return why a login was given up when its time was over, and in which of ``asked`` more than one was made.

    Three seconds are enough for that, but on a busy machine.
    """
    for limit_ms in (3_000, 12_000, 48_000):
        before = 0 if asked is None else len(asked)
        with pytest.raises((UnreachableError, ResponseTimeoutError)) as caught:
            discovered({**options, "kafka.default.api.timeout.ms": str(limit_ms)})
        if "token" in str(caught.value) and (asked is None or len(asked) > before + 1):
            return str(caught.value)
    raise AssertionError(f"not asked again within {limit_ms} ms: {caught.value}")


def test_a_client_gets_one_token_for_all_its_connections(ports: Ports, endpoint: TokenEndpoint) -> None:
    for _ in range(2):
        assert discovered(on(ports.lasting, ports, login(endpoint))) == {Split("t", 0)}
    assert endpoint.asked == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]


def test_the_settings_of_newer_java_clients_say_the_same(
    ports: Ports, endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM / "ca.pem"))
    given = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "kafka.sasl.oauthbearer.client.credentials.client.id": "checkout",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "kafka.sasl.oauthbearer.scope": "kafka",
    }
    assert discovered(on(ports.lasting, ports, given)) == {Split("t", 0)}
    assert endpoint.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


def test_id_and_secret_are_form_encoded_where_the_endpoint_wants_it(ports: Ports) -> None:
    options = {"kafka.sasl.oauthbearer.header.urlencode": "true"}
    with token_endpoint("check+out", "%2Bhorse%25+%C3%A9") as strict, token_endpoint("check out", "+horse% é") as lax:
        for endpoint, chosen in ((strict, options), (lax, {})):
            given = {
                "kafka.sasl.oauthbearer.client.credentials.client.id": "check out",
                "kafka.sasl.oauthbearer.client.credentials.client.secret": "+horse% é",
            }
            assert discovered(on(ports.lasting, ports, {**login(endpoint), **given, **chosen})) == {Split("t", 0)}


def test_a_token_may_lie_in_a_file_that_is_read_at_each_login(ports: Ports, tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    options = on(ports.lasting, ports, given)
    assert re.search("token file .* cannot be read", given_up(options))
    file.write_text("two words")
    with pytest.raises(RefusedError, match="is not a token"):
        discovered(options)
    file.write_text(unsecured_token("u", 3_600) + "\n")
    assert discovered(options) == {Split("t", 0)}


def test_a_wrong_secret_is_refused_and_neither_error_nor_debug_log_shows_it(
    ports: Ports, endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=r"token endpoint .* refused: 401 .*invalid_client") as caught:
        discovered(on(ports.lasting, ports, login(endpoint, WRONG)))
    assert time.monotonic() - begun < 30
    shown = str(caught.value) + caplog.text
    assert WRONG not in shown
    sent = base64.b64encode(f"checkout:{WRONG}".encode()).decode()
    assert sent not in shown


def test_a_token_is_in_no_debug_log(ports: Ports, endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert discovered(on(ports.lasting, ports, login(endpoint)))
    assert endpoint.given
    assert not [token for token in endpoint.given if token in caplog.text]


@pytest.mark.parametrize("returns_lifetime", [True, False])
def test_a_token_that_the_broker_refuses(ports: Ports, endpoint: TokenEndpoint, returns_lifetime: bool) -> None:
    endpoint.lifetime, endpoint.returns_lifetime = -60, returns_lifetime
    with pytest.raises(RefusedError, match=f"the Kafka broker 127.0.0.1:{ports.lasting} refused: Sasl"):
        discovered(on(ports.lasting, ports, login(endpoint)))


def test_an_endpoint_that_cannot_prove_who_it_is(ports: Ports, endpoint: TokenEndpoint) -> None:
    with pytest.raises(RefusedError, match=r"is not trusted: .*certificate verify failed"):
        discovered(on(ports.lasting, ports, login(endpoint, ca="unknown-ca.pem")))
    assert not endpoint.asked


def test_an_endpoint_that_is_overrun_is_asked_again_until_the_time_is_over(
    ports: Ports, endpoint: TokenEndpoint
) -> None:
    endpoint.status = 503
    assert re.search(
        "token endpoint .* answered 503", given_up(on(ports.lasting, ports, login(endpoint)), endpoint.asked)
    )


@pytest.mark.parametrize(("sent", "message"), [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "does not answer: IncompleteRead"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", "does not answer: IncompleteRead"),
    (b"nonsense\r\n", "does not answer: nonsense"),
    (b"HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\n{", "answered 503 Busy"),
    (b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", "answered 503 Busy"),
])  # fmt: skip
def test_an_answer_that_is_cut_off_is_asked_for_again(
    ports: Ports, endpoint: TokenEndpoint, sent: bytes, message: str
) -> None:
    with cut_off(endpoint, sent) as asked:
        assert re.search(f"token endpoint .* {message}", given_up(on(ports.lasting, ports, login(endpoint)), asked))


def test_a_refusal_that_is_cut_off_is_one(ports: Ports, endpoint: TokenEndpoint) -> None:
    sent = b"HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"
    refused = pytest.raises(RefusedError, match=r"token endpoint .* refused: 401 Unauthorized; check")
    with cut_off(endpoint, sent), refused:
        discovered(on(ports.lasting, ports, login(endpoint)))


def test_an_endpoint_that_is_not_there(ports: Ports, endpoint: TokenEndpoint) -> None:
    endpoint.url = f"https://127.0.0.1:{free_ports(1)[0]}/token"
    assert re.search(
        "token endpoint .* does not answer: .*refused", given_up(on(ports.lasting, ports, login(endpoint)))
    )


@pytest.mark.parametrize(("answer", "message"), [
    (b"<html>", "answered no JSON object"), (b"[]", "answered no JSON object"), (b"{}", "is not a token"),
    (b'{"access_token": "a\\u0001b"}', "is not a token"),
])  # fmt: skip
def test_an_endpoint_that_answers_no_token(ports: Ports, endpoint: TokenEndpoint, answer: bytes, message: str) -> None:
    endpoint.answer = answer
    with pytest.raises(RefusedError, match=message):
        discovered(on(ports.lasting, ports, login(endpoint)))


def test_the_secret_is_not_taken_to_where_an_answer_says(ports: Ports, endpoint: TokenEndpoint) -> None:
    with token_endpoint("checkout", SECRET) as other:
        endpoint.status, endpoint.location = 302, other.url
        with pytest.raises(RefusedError, match="302"):
            discovered(on(ports.lasting, ports, login(endpoint)))
        assert not other.asked


def test_what_the_broker_has_not_is_refused(ports: Ports) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    given = {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="u" password="{SECRET}";',
    }
    with pytest.raises(RefusedError, match="UnsupportedSaslMechanism"):
        discovered(on(ports.lasting, ports, given))


def test_what_a_mechanism_lacks_on_this_machine_is_reported_as_a_login_that_cannot_be_made(
    ports: Ports, endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The broker has accepted the mechanism's name; then Kerberos has no ticket here, or is not there at all."""
    monkeypatch.setitem(SASL_MECHANISMS, "OAUTHBEARER", SaslMechanismGSSAPI)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'no-tickets'}")
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=rf"the login by OAUTHBEARER at 127.0.0.1:{ports.lasting} cannot be made: "):
        discovered(on(ports.lasting, ports, login(endpoint)))
    assert time.monotonic() - begun < 30


def test_a_read_outlives_its_logins(ports: Ports, endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker hangs up on anyone who uses a login that is over: none is, so no fetch is lost."""
    endpoint.lifetime = 4.0
    lost: list[object] = []
    look_elsewhere = Recovery.look_elsewhere
    monkeypatch.setattr(
        Recovery,
        "look_elsewhere",
        lambda *given: lost.append(given[-1]) or look_elsewhere(*given),
    )
    small = {"kafka.max.partition.fetch.bytes": "20000"}
    settings = parse_settings(on(ports.ending, ports, {**login(endpoint), **small}))
    reader = KafkaRangeReader(settings, ("offset",), fail_on_data_loss=True, poll_timeout_ms=20_000)
    seen: list[int] = []
    begun = time.monotonic()
    for batch in reader.read([SplitRange(Split("t", 0), 0, COUNT)]):
        seen += batch.columns[0].to_pylist()
        time.sleep(0.06)
    assert seen == list(range(COUNT))
    logins = (time.monotonic() - begun) / (LIFETIME_MS / 1_000)
    assert logins > 3
    # Each would lose one. A busy machine may stand still for the last 0.3 s of some of them.
    assert len(lost) <= logins / 2
    assert len(endpoint.given) > 1


@pytest.mark.parametrize("pause", [0.5, pytest.param(3.0, marks=pytest.mark.long("often"))], ids=["often", "seldom"])
def test_planning_outlives_its_logins(
    ports: Ports, endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture, pause: float
) -> None:
    """kafka-python logs in again on the same connection: when it is due, or first thing when it is overdue."""
    options = on(ports.ending, ports, login(endpoint))
    bounds = KafkaSource(kafka_options.parse({"subscribe": "t", **options})).open().bounds
    brokers = Brokers(parse_settings(options))
    caplog.set_level(logging.INFO, "kafka.net")
    begun = time.monotonic()
    while time.monotonic() - begun < 7:
        assert brokers.metadata({"t"}, 60_000).topics.keys() == {"t"}
        assert bounds.end_positions({Split("t", 0)}) == {Split("t", 0): COUNT}
        time.sleep(pause)
    brokers.close()
    logins, connections = (caplog.text.count(each) for each in ("Authenticated via SASL", "Initializing connection"))
    assert logins > connections > 0
    # Not those of clients that other tests have left behind, whose brokers are gone.
    ours = [record for record in caplog.records if record.thread == threading.get_ident()]
    warnings = {record.getMessage() for record in ours if record.levelno >= logging.WARNING}
    # While a connection is made the library may find none to refresh its metadata by, and tries again.
    assert warnings <= {"No node available for metadata refresh - backoff/retry"}


def test_who_refuses_to_renew_a_login_is_named(ports: Ports, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(unsecured_token("u", 3_600))
    given = {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    with contextlib.closing(Brokers(parse_settings(on(ports.ending, ports, given)))) as brokers:
        for _ in ("by a bootstrap server", "by a broker that it named"):
            brokers.metadata({"t"}, 60_000)
        file.write_text(unsecured_token("u", -60))
        time.sleep(LIFETIME_MS / 1_000)
        with pytest.raises(RefusedError, match=f"the Kafka broker 127.0.0.1:{ports.ending} refused: Sasl"):
            brokers.metadata({"t"}, 60_000)


@pytest.mark.spark
@pytest.mark.long("test_planning_outlives_its_logins")
def test_a_stream_outlives_its_logins_and_tokens(ports: Ports, endpoint: TokenEndpoint, spark: SparkSession) -> None:
    """Driver and workers each have a token of their own, and both end while it runs."""
    endpoint.lifetime = 3.0
    reader = spark.readStream.format("aligned-kafka").option("startingOffsets", "earliest")
    for name, text in {"subscribe": "streamed", **on(ports.ending, ports, login(endpoint))}.items():
        reader = reader.option(name, text)
    # Not in one batch after the other: it is time that has to pass.
    query = reader.load().writeStream.format("memory").queryName("streamed").trigger(processingTime="1 second").start()
    written, begun = 0, None

    def offsets() -> list[int]:
        return sorted(row.offset for row in spark.table("streamed").collect() if row.offset is not None)

    def all_are_there() -> bool:
        return len(offsets()) == written

    try:
        while begun is None or time.monotonic() - begun < 12:
            bulk_produce(ports.bootstrap, "streamed", 0, np.arange(written, written + 100, dtype=np.int64))
            written += 100
            wait_for(all_are_there, query, seconds=120)
            # The first batch takes as long as Spark's processes need to come up.
            begun = begun or time.monotonic()
            time.sleep(0.3)
        found = offsets()
    finally:
        query.stop()
    assert found == list(range(written))
    assert len(endpoint.given) > 4, "tokens"
