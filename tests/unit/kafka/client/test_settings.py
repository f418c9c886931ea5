"""``kafka.*`` options and what they become for kafka-python."""

from __future__ import annotations

import base64
import json
import pickle
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from kafka.errors import KafkaConnectionError

from pyspark_aligned_kafka.client.setting_table import REFUSED, SETTINGS
from pyspark_aligned_kafka.client.settings import ClientSettings, parse_settings
from pyspark_aligned_kafka.client.token_endpoint import Tokens
from pyspark_aligned_kafka.client.token_source import TokenSource
from watermark_source.errors import OptionError, RefusedError, UnknownOptionError
from watermark_source.option_table import Option

SERVERS = {"kafka.bootstrap.servers": "a:9092"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'
LOGIN = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JAAS_CONFIG = "kafka.sasl.jaas.config"
TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = "kafka.sasl.oauthbearer.client.credentials.client"
TOKENS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    TOKEN_URL: "https://login.example.com/token",
    JAAS_CONFIG: f'{OAUTH} required clientId="c" clientSecret="geheim";',
}


def settings(**given: str) -> ClientSettings:
    return parse_settings({**SERVERS, **{f"kafka.{name.replace('_', '.')}": text for name, text in given.items()}})


def refusal(given: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_settings({**SERVERS, **given})
    return caught.value


def test_defaults_are_those_of_javas_clients() -> None:
    configs = settings().client_configs()
    assert configs["security_protocol"] == "PLAINTEXT"
    assert configs["request_timeout_ms"] == 30_000
    assert configs["reconnect_backoff_max_ms"] == 1_000
    assert settings().millis("default.api.timeout.ms") == 60_000
    assert settings().read_committed is False
    assert "sasl_mechanism" not in configs
    assert "ssl_context" not in configs


@pytest.mark.parametrize(("text", "expected"), [
    ("a:1, b:2 ,,", ["a:1", "b:2"]),
    ("PLAINTEXT://a:1", ["a:1"]),
    ("[::1]:9092", ["[::1]:9092"]),
])  # fmt: skip
def test_bootstrap_servers(text: str, expected: list[str]) -> None:
    assert parse_settings({"kafka.bootstrap.servers": text}).client_configs()["bootstrap_servers"] == expected


@pytest.mark.parametrize("text", ["", ",", "a", "a:", "a:x", "a:0", "a:65536", "a:1 b:2", ":9092", "a:1/b"])
def test_bootstrap_servers_that_are_none(text: str) -> None:
    error = refusal({"kafka.bootstrap.servers": text})
    assert str(error).startswith(f'option kafka.bootstrap.servers = "{text}": must be a comma list of host:port')


@pytest.mark.parametrize(("java", "text", "config", "expected"), [
    ("client.id", "checkout", "client_id", "checkout"),
    ("request.timeout.ms", "5", "request_timeout_ms", 5),
    ("connections.max.idle.ms", "7", "connections_max_idle_ms", 7),
    ("reconnect.backoff.ms", "1", "reconnect_backoff_ms", 1),
    ("socket.connection.setup.timeout.ms", "9", "socket_connection_setup_timeout_ms", 9),
])  # fmt: skip
def test_javas_names_become_kafka_pythons(java: str, text: str, config: str, expected: object) -> None:
    assert parse_settings({**SERVERS, f"Kafka.{java.upper()}": text}).client_configs()[config] == expected


def test_buffer_sizes_become_socket_options() -> None:
    configs = settings(receive_buffer_bytes="65536", send_buffer_bytes="-1").client_configs()
    assert (socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536) in configs["socket_options"]
    assert socket.SO_SNDBUF not in {name for _, name, _ in configs["socket_options"]}


def test_isolation_level() -> None:
    assert settings(isolation_level="Read_Committed").read_committed is True


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_with_the_reason(name: str) -> None:
    error = refusal({f"kafka.{name}": "geheim"})
    assert error.option == f"kafka.{name}"
    assert REFUSED[name] in str(error)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.truststore.password",
        "sasl.oauthbearer.client.credentials.client.secrte",
        "sasl.jas.config",
        "sasl.pasword",
        "sasl.plain.pass",
        "ssl.keystore.kye",
    ],
)
def test_a_refused_secret_is_not_shown(name: str) -> None:
    assert "geheim" not in str(refusal({f"kafka.{name}": "geheim"}))


@pytest.mark.parametrize(("name", "instead"), [
    ("ssl.keystore.location", "kafka.ssl.keystore.key"),
    ("ssl.truststore.location", "kafka.ssl.truststore.certificates"),
])  # fmt: skip
def test_a_key_given_where_a_path_belongs_is_refused_without_showing_it(name: str, instead: str) -> None:
    key = "-----BEGIN PRIVATE KEY-----\ngeheim\n-----END PRIVATE KEY-----"
    error = refusal({"kafka.security.protocol": "SSL", f"kafka.{name}": key})
    assert (error.option, error.seen) == (f"kafka.{name}", "(PEM text)")
    assert instead in str(error)


@pytest.mark.parametrize("name", ["sasl.kerberos.kinit.cmd", "sasl.login.class"])
def test_other_logins_are_refused_and_the_possible_ones_named(name: str) -> None:
    assert "PLAIN, SCRAM, OAUTHBEARER" in str(refusal({f"kafka.{name}": "x"}))


def test_a_wait_longer_than_the_answer_may_take_is_refused() -> None:
    error = refusal({"kafka.fetch.max.wait.ms": "30000"})
    assert "must be less than kafka.request.timeout.ms, which is 30000" in str(error)


def test_an_unknown_setting_names_the_nearest_one() -> None:
    with pytest.raises(UnknownOptionError, match=r"option kafka.isolation: .* the nearest is kafka.isolation.level"):
        settings(isolation="read_committed")


@pytest.mark.parametrize(("java", "text", "message"), [
    ("security.protocol", "TLS", "must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
    ("sasl.mechanism", "DIGEST-MD5", "OAUTHBEARER, AWS_MSK_IAM or GSSAPI"),
    ("sasl.login.callback.handler.class", "org.example.Own", "must be the OAuthBearerLoginCallbackHandler"),
    ("isolation.level", "committed", "must be read_uncommitted or read_committed"),
    ("request.timeout.ms", "30 s", "not a whole number"),
    ("request.timeout.ms", "0", "must be at least 1"),
    ("retry.backoff.ms", "-1", "must be at least 0"),
    ("fetch.max.bytes", "0", "must be at least 1"),
    ("fetch.max.bytes", "3000000000", "must be at most 2147483647"),
    ("client.rack", "ü" * 16_384, "is longer than 32767 bytes"),
    ("request.timeout.ms", "2147483648", "must be at most 2147483647"),
    ("receive.buffer.bytes", "-2", "must be at least -1"),
    ("ssl.truststore.type", "JKS", "keytool -list -rfc"),
    ("ssl.keystore.type", "PKCS12", "openssl pkcs12"),
    ("ssl.endpoint.identification.algorithm", "http", "must be https, or empty"),
    ("ssl.truststore.certificates", "MIIB", "no -----BEGIN line"),
    ("check.crcs", "yes", "must be true or false"),
])  # fmt: skip
def test_an_error_says_setting_value_what_is_accepted_and_an_example(java: str, text: str, message: str) -> None:
    error = refusal({f"kafka.{java}": text})
    assert (error.option, error.seen) == (f"kafka.{java}", text)
    assert message in str(error)
    assert error.example is not None


@pytest.mark.parametrize("url", [
    "login.example.com/geheim", "ftp://a/geheim", "https://user:geheim@a/b", "https://user:geheim/geheim@a/b",
    "https://user:geheim#@a/b", "https://user:geheim@[::1/b", "user:geheim@a/b", "https:/user:geheim@a/b",
])  # fmt: skip
def test_a_token_endpoint_that_is_refused_is_not_shown(url: str) -> None:
    error = refusal({TOKEN_URL: url})
    assert "must be the URL of an OAuth 2.0 token endpoint" in str(error)
    assert "geheim" not in str(error)


def test_what_a_token_endpoints_url_holds_beside_its_place_is_shown_nowhere() -> None:
    source = TokenSource("http://127.0.0.1:1/token?code=geheim", "client", "geheim", limit_s=5.0)
    with pytest.raises(KafkaConnectionError, match=r"http://127.0.0.1:1/token does not answer") as caught:
        Tokens(source).token()
    assert "geheim" not in str(caught.value) + repr(source)
    given = {**TOKENS, TOKEN_URL: source.url}
    assert "geheim" not in repr(parse_settings({**SERVERS, **given}))


@contextmanager
def responding(response: bytes) -> Iterator[int]:
    """Send a response to the first request at a port."""

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(response)
            connection.shutdown(socket.SHUT_WR)
            # Closed before all of the request has been read, the connection would be reset.
            while connection.recv(65_536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        server.join()


ENDPOINT_LOGIN = base64.b64encode(b"client:geheim").decode()


@pytest.mark.parametrize(
    ("response", "error", "message"),
    [
        (f"HTTP/1.1 401 not {ENDPOINT_LOGIN}\r\n\r\n", RefusedError, r"refused: 401 not \*\*\*; check"),
        ("HTTP/1.1 500 geheim\r\n\r\n", KafkaConnectionError, r"answered 500 \*\*\*$"),
        (f"you sent Basic {ENDPOINT_LOGIN}\r\n", KafkaConnectionError, r"does not answer: you sent Basic \*\*\*"),
        ("HTTP/1.1 200 OK\r\n\r\n" + "[" * 100_000, RefusedError, "answered no JSON object"),
        ("HTTP/1.1 403 No\r\n\r\n" + "[" * 100_000, RefusedError, "refused: 403 No; check"),
        ('HTTP/1.1 200 OK\r\n\r\n{"expires_in": 1' + "0" * 400 + "}", RefusedError, "is not a token"),
    ],
    ids=["reason", "reason of a fault", "no HTTP", "deep", "deep refusal", "large number"],
)
def test_whatever_a_token_endpoint_sends_is_a_declared_error_without_the_secret(
    response: str, error: type[Exception], message: str
) -> None:
    with responding(response.encode()) as port:
        source = TokenSource(f"http://127.0.0.1:{port}/token", "client", "geheim", limit_s=60.0)
        with pytest.raises(error, match=message) as caught:
            Tokens(source).token()
    assert not any(secret in str(caught.value) for secret in ("geheim", ENDPOINT_LOGIN))


@pytest.mark.parametrize(("claims", "stated"), [({}, ', "expires_in": 360000000'), ({"exp": 1.7e12}, "")])
def test_a_token_is_renewed_within_an_hour_whatever_lifetime_it_is_given(claims: dict[str, float], stated: str) -> None:
    """Milliseconds are the usual mistake: the brokers refuse the token years before its end."""
    token = f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}."
    with responding(f'HTTP/1.1 200 OK\r\n\r\n{{"access_token": "{token}"{stated}}}'.encode()) as port:
        tokens = Tokens(TokenSource(f"http://127.0.0.1:{port}/token", "client", "geheim", limit_s=60.0))
        assert tokens.token() == token
    kept = tokens._kept
    assert kept is not None
    assert kept.renew_at <= time.monotonic() + 3_600
    assert kept.ends_at > time.monotonic() + 3_600


@pytest.mark.parametrize("row", SETTINGS.values(), ids=SETTINGS)
def test_the_example_of_every_setting_is_accepted(row: Option) -> None:
    row.read(row.example)


def test_a_login_becomes_user_and_password() -> None:
    configs = parse_settings({**SERVERS, **LOGIN}).client_configs()
    assert configs["sasl_mechanism"] == "PLAIN"
    assert (configs["sasl_plain_username"], configs["sasl_plain_password"]) == ("u", "geheim")


@pytest.mark.parametrize(("change", "option", "message"), [
    ({"kafka.security.protocol": "PLAINTEXT"}, "kafka.security.protocol", "because kafka.sasl.jaas.config is set"),
    ({"kafka.sasl.jaas.config": None}, "kafka.sasl.jaas.config", "is needed with"),
    ({"kafka.sasl.mechanism": None}, "kafka.sasl.mechanism", "its module is for PLAIN"),
    ({"kafka.sasl.mechanism": "SCRAM-SHA-256"}, "kafka.sasl.mechanism", "must be PLAIN"),
    ({"kafka.sasl.jaas.config": JAAS[:-1]}, "kafka.sasl.jaas.config", "must end with a semicolon"),
])  # fmt: skip
def test_a_login_that_does_not_fit_is_refused_without_showing_it(
    change: dict[str, str | None], option: str, message: str
) -> None:
    error = refusal({name: text for name, text in {**LOGIN, **change}.items() if text is not None})
    assert error.option == option
    assert message in str(error)
    assert "geheim" not in str(error)


@pytest.mark.parametrize(("changes", "option", "message"), [
    ({TOKEN_URL: None}, TOKEN_URL, "is needed for OAUTHBEARER"),
    ({JAAS_CONFIG: f"{OAUTH} required clientId=c;"}, f"{CREDENTIALS}.secret", "or as clientSecret in"),
    ({JAAS_CONFIG: f"{OAUTH} required clientSecret=geheim;"}, f"{CREDENTIALS}.id", "or as clientId in"),
    ({JAAS_CONFIG: None}, f"{CREDENTIALS}.id", "or as clientId in"),
    ({TOKEN_URL: "https://u:geheim@a/token"}, TOKEN_URL, "without a user in it"),
    ({JAAS_CONFIG: f"{OAUTH} required clientId=c clientSecret=s ssl.truststore.location=/not/there;"}, JAAS_CONFIG,
     "ssl.truststore.location must be a file"),
    ({"kafka.sasl.mechanism": "GSSAPI", JAAS_CONFIG: None}, "kafka.sasl.mechanism", "must be OAUTHBEARER because"),
    ({"kafka.sasl.kerberos.service.name": "k"}, "kafka.sasl.mechanism", "must be GSSAPI because"),
    ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism", "must be OAUTHBEARER"),
    ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol", "because kafka.sasl.jaas.config is set"),
])  # fmt: skip
def test_a_login_by_token_that_does_not_fit_is_refused_without_showing_it(
    changes: dict[str, str | None], option: str, message: str
) -> None:
    error = refusal({name: text for name, text in {**TOKENS, **changes}.items() if text is not None})
    assert error.option == option
    assert message in str(error)
    assert "geheim" not in str(error)


def test_a_secret_that_goes_over_the_network_in_the_clear_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    parse_settings({**SERVERS, **TOKENS, TOKEN_URL: "http://127.0.0.1/token"})
    assert not caplog.records
    parse_settings({**SERVERS, **TOKENS, TOKEN_URL: "http://login.example.com/token"})
    assert "in the clear" in caplog.text


def test_aws_logs_in_over_tls_only() -> None:
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "AWS_MSK_IAM"}
    assert "must be SASL_SSL for AWS_MSK_IAM" in str(refusal(given))


@pytest.mark.parametrize(("mechanism", "package"), [("AWS_MSK_IAM", "botocore"), ("GSSAPI", "gssapi")])
def test_a_mechanism_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch, mechanism: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    given = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": mechanism}
    error = str(refusal(given))
    assert f"needs the package {package}" in error
    assert f"pip install '{package}>=" in error


def test_secrets_are_not_shown() -> None:
    shown = repr(parse_settings({**SERVERS, **LOGIN}))
    assert "geheim" not in shown
    assert "'sasl.jaas.config': '***'" in shown


def test_a_setting_for_tls_without_tls_is_refused() -> None:
    error = refusal({"kafka.ssl.truststore.location": "/ca.pem"})
    assert error.option == "kafka.security.protocol"
    assert "must be SSL or SASL_SSL because kafka.ssl.truststore.location is set" in str(error)


@pytest.mark.parametrize(("name", "text"), [("group_id", "g"), ("max_poll_records", "500")])
def test_a_setting_without_effect_says_so(name: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert name not in settings(**{name: text}).client_configs()
    assert f"kafka.{name.replace('_', '.')} has no effect: " in caplog.text


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [("sasl.login.callback.handler.class", "OAUTHBEARER"), ("sasl.client.callback.handler.class", "AWS_MSK_IAM")],
)
def test_a_handler_of_a_login_is_refused_with_another_mechanism(name: str, mechanism: str) -> None:
    error = refusal({**LOGIN, f"kafka.{name}": SETTINGS[name].example})
    assert error.option == "kafka.sasl.mechanism"
    assert f"must be {mechanism} because kafka.{name} is set" in str(error)


def test_settings_are_picklable_with_tls() -> None:
    with_tls = settings(security_protocol="SSL")
    context = pickle.loads(pickle.dumps(with_tls)).client_configs()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert pickle.loads(pickle.dumps(with_tls)) == with_tls


def test_an_empty_endpoint_algorithm_accepts_any_host() -> None:
    given = {**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""}
    context = parse_settings(given).client_configs()["ssl_context"]
    assert context.check_hostname is False
    assert context.verify_mode is ssl.CERT_REQUIRED
