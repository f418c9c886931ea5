"""The table of ``kafka.*`` settings: accepted values, those that kafka-python takes, and refused ones with reason."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pyspark_aligned_kafka.client import login_settings
from pyspark_aligned_kafka.client.login_settings import JAAS
from watermark_source.errors import OptionError
from watermark_source.option_table import Option, boolean, host_name, integer, non_empty, one_of, positive_integer, word

READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
_LONGEST_NAME = 32_767
"""Bytes of a string in Kafka's protocol."""

_SERVER = re.compile(r"(?:[A-Za-z0-9_]+://)?(?P<address>(?:\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]/]+):(?P<port>\d{1,5}))")
_TEXT = "must be a text that is not empty"
_OAUTH_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_ENDPOINT = "must be the URL of an OAuth 2.0 token endpoint, or file:// and the path of a file that holds a token"
_ENDPOINT_EXAMPLE = "https://login.example.com/oauth2/token"
_PEM_BLOCK = re.compile(r"(?P<begin>-----BEGIN [^-]+-----)(?P<body>.*?)(?P<end>-----END [^-]+-----)", re.DOTALL)
_PEM_ACCEPTED = "must be text in PEM, beginning with -----BEGIN"


def _servers(text: str) -> tuple[str, ...]:
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _SERVER.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ValueError(f'"{part}" is not host:port')
        host_name(match["address"].rpartition(":")[0].strip("[]"))
        found.append(match["address"])
    if not found:
        raise ValueError("names no broker")
    return tuple(found)


def _buffer_size(text: str) -> int | None:
    value = int32(-1)(text)
    return None if value == -1 else value


def _jaas(text: str) -> login_settings.LoginModule:
    try:
        return login_settings.parse_jaas(text)
    except ValueError as error:
        raise OptionError(
            "kafka.sasl.jaas.config", "***", f"must be one login module with its options ({error})", example=JAAS
        ) from None


def _endpoint(text: str) -> str:
    url = urllib.parse.urlsplit(text.strip())
    if url.username is not None or url.password is not None:
        raise OptionError(
            "kafka.sasl.oauthbearer.token.endpoint.url", "***",
            f"{_ENDPOINT}, without a user in it; the client's id and secret go to kafka.sasl.jaas.config",
            example=_ENDPOINT_EXAMPLE,
        )  # fmt: skip
    if not (url.scheme in ("https", "http") and url.hostname) and not (url.scheme == "file" and url.path):
        raise ValueError
    _ = url.port
    return url.geturl()


def _pem(text: str) -> str:
    if "-----BEGIN " not in text:
        raise ValueError("holds no -----BEGIN line")
    return _PEM_BLOCK.sub(_with_line_ends, text)


def _with_line_ends(block: re.Match[str]) -> str:
    # One-line PEM, as property files hold it, has blanks where OpenSSL wants line ends.
    body = block["body"] if "\n" in block["body"] else "\n".join(block["body"].split())
    return f"{block['begin']}\n{body.strip()}\n{block['end']}\n"


def _row(java: str, parse: Callable[[str], Any], accepted: str, example: str, doc: str, **rest: Any) -> Option:
    return Option(name=f"kafka.{java}", parse=parse, accepted=accepted, example=example, doc=doc, **rest)


def _one_of(java: str, choices: Iterable[str], example: str, doc: str, **rest: Any) -> Option:
    return one_of(name=f"kafka.{java}", choices=choices, example=example, doc=doc, **rest)


def protocol_name(text: str) -> str:
    """Parse a name that is not empty and that Kafka's protocol can carry."""
    name = non_empty(text)
    if len(name.encode()) > _LONGEST_NAME:
        raise ValueError(f"is longer than {_LONGEST_NAME} bytes")
    return name


def int32(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of 32 bits."""
    return partial(integer, minimum=minimum, maximum=2**31 - 1)


def _limit(java: str, default: int, doc: str, *, minimum: int = 1) -> Option:
    accepted = f"must be a whole number of milliseconds, at least {minimum}"
    return _row(java, int32(minimum), accepted, str(default), doc, default=default)


def _pause(java: str, default: int, doc: str) -> Option:
    return _limit(java, default, doc, minimum=0)


def _bytes(java: str, default: int, doc: str) -> Option:
    accepted = "must be a whole number of bytes, at least 1"
    return _row(java, int32(1), accepted, "1048576", doc, default=default)


def _pem_file(java: str, example: str, doc: str, *, for_text: str, default_text: str | None = None) -> Option:
    """Return a row for a file; text in its place, which may hold a private key, is refused without being shown."""
    accepted = "must be the path of a PEM file"

    def parse(text: str) -> str:
        if "-----BEGIN " in text:
            raise OptionError(f"kafka.{java}", "(PEM text)", f"{accepted}; text goes to {for_text}", example=example)
        return non_empty(text)

    return _row(java, parse, accepted, example, doc, default_text=default_text)


_ROWS = (
    _row("bootstrap.servers", _servers, "must be a comma list of host:port", "broker1:9092,broker2:9092",
         "Brokers of the first request; they return the addresses of the others.", default_text="needed"),
    _row("client.id", protocol_name, "must be a name that is not empty", "checkout-query",
         "Name of this client in the brokers' logs and quotas.", default="aligned-kafka"),
    _one_of("client.dns.lookup",
         ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), "use_all_dns_ips",
         "How host names become addresses. `use_all_dns_ips`: the addresses of a name are tried one after the other. "
         "`resolve_canonical_bootstrap_servers_only`: the same, and each bootstrap server is addressed by its "
         "canonical name, which its certificate must then contain.", default="use_all_dns_ips"),
    _row("client.rack", protocol_name, "must be a name that is not empty", "eu-west-1a",
         "Rack of the executors, for reading from the nearest replica (KIP-392)."),
    _one_of("security.protocol", ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "SASL_SSL",
         "Whether connections are encrypted and whether they log in.", default="PLAINTEXT"),
    _one_of("sasl.mechanism", login_settings.MECHANISMS,
         "SCRAM-SHA-512", "Login mechanism. `AWS_MSK_IAM` needs the extra `msk`, `GSSAPI` (Kerberos) the extra "
                          "`kerberos`, on the driver and the executors."),
    _row("sasl.jaas.config", _jaas, "must be one login module with its options", JAAS,
         "User and password, or a client's id and secret, as Kafka's Java clients write them. Needed for `PLAIN` and "
         "`SCRAM`.", secret=True),
    _row("sasl.oauthbearer.token.endpoint.url", _endpoint, _ENDPOINT, _ENDPOINT_EXAMPLE,
         "Where `OAUTHBEARER` gets its tokens: from an endpoint, with the client's id and secret, or from a file that "
         "another program keeps current, read at each login. The driver and each executor request their own.",
         secret=True),
    _row("sasl.oauthbearer.client.credentials.client.id", non_empty, _TEXT, "checkout",
         "The client's id; `clientId` of the login module is the same."),
    _row("sasl.oauthbearer.client.credentials.client.secret", non_empty, _TEXT, "secret",
         "The client's secret; `clientSecret` of the login module is the same.", secret=True),
    _row("sasl.oauthbearer.scope", non_empty, _TEXT, "kafka",
         "Scope of the token request; `scope` of the login module is the same."),
    _row("sasl.oauthbearer.header.urlencode", boolean, "must be true or false", "true",
         "Whether the client's id and secret are form-encoded for the endpoint, as RFC 6749 requires. Some endpoints "
         "need it where id or secret contain characters other than letters, digits and `-._~`.",
         default=False, default_text="false"),
    _row("sasl.kerberos.service.name", non_empty, _TEXT, "kafka",
         "First part of the brokers' principals, for `GSSAPI`.", default_text="kafka"),
    _row("sasl.login.callback.handler.class", word(_OAUTH_HANDLERS),
         "must be the OAuthBearerLoginCallbackHandler of Kafka, for OAUTHBEARER", _OAUTH_HANDLERS[0],
         "For `OAUTHBEARER`, which gets its tokens as that class does, with or without this setting."),
    _row("sasl.client.callback.handler.class", word((_IAM_HANDLER,)),
         "must be the IAMClientCallbackHandler of AWS, for AWS_MSK_IAM", _IAM_HANDLER,
         "For `AWS_MSK_IAM`, which signs its logins as that class does, with or without this setting."),
    _row("ssl.truststore.type", word(("PEM",)),
         "must be PEM; convert a JKS or PKCS12 store with keytool -list -rfc -keystore store.jks > store.pem", "PEM",
         "Format of the trusted certificates.", default="PEM"),
    _pem_file("ssl.truststore.location", "/etc/kafka/ca.pem",
              "File of trusted certificates, on the driver and on every executor.",
              default_text="the system's", for_text="kafka.ssl.truststore.certificates"),
    _row("ssl.truststore.certificates", _pem, _PEM_ACCEPTED, "-----BEGIN CERTIFICATE----- ...",
         "Trusted certificates as text.", default_text="the system's"),
    _row("ssl.keystore.type", word(("PEM",)),
         "must be PEM; convert a PKCS12 store with openssl pkcs12 -in store.p12 -out store.pem", "PEM",
         "Format of the client's certificate and key.", default="PEM"),
    _pem_file("ssl.keystore.location", "/etc/kafka/client.pem",
              "File with the client's private key and certificate chain, on the driver and on every executor.",
              for_text="kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain"),
    _row("ssl.keystore.certificate.chain", _pem, _PEM_ACCEPTED, "-----BEGIN CERTIFICATE----- ...",
         "The client's certificate chain as text. Needs `kafka.ssl.keystore.key`."),
    _row("ssl.keystore.key", _pem, _PEM_ACCEPTED, "-----BEGIN PRIVATE KEY----- ...",
         "The client's private key as text.", secret=True),
    _row("ssl.key.password", non_empty, _TEXT, "secret",
         "Password of an encrypted private key.", secret=True),
    _row("ssl.endpoint.identification.algorithm", word(("https", "")),
         "must be https, or empty to accept a certificate for any host", "https",
         "Whether a broker's certificate must name its host.", default="https"),
    _limit("request.timeout.ms", 30_000, "Longest wait for the response to one request."),
    _limit("default.api.timeout.ms", 60_000,
           "Longest wait of the driver for a look-up, connecting and retries included. For this long planning "
           "continues without a broker that does not answer, while others do."),
    _limit("socket.connection.setup.timeout.ms", 10_000,
           "Longest wait for a connection to one broker, after failures too."),
    _limit("connections.max.idle.ms", 540_000,
           "An unused connection is closed after this time."),
    _pause("reconnect.backoff.ms", 50, "Pause before reconnecting to the same broker."),
    _pause("reconnect.backoff.max.ms", 1_000,
           "Longest such pause; it grows with repeated failures."),
    _pause("retry.backoff.ms", 100, "Pause before a look-up is retried."),
    _pause("retry.backoff.max.ms", 1_000,
           "Longest such pause; it grows with repeated failures."),
    _pause("metadata.max.age.ms", 5_000,
           "How often the driver checks for new partitions and topics. Planning does not wait for the check; the "
           "query fails when none has succeeded for 20 times this interval. Rows of a new partition that are behind "
           "the watermark when it is found are late."),
    _one_of("isolation.level", (READ_UNCOMMITTED, READ_COMMITTED), READ_COMMITTED,
         "Whether records of open and aborted transactions are read. End offsets are looked up in the same way. "
         "Change it to `read_committed` once no transaction is open whose records the query has read.",
         default=READ_UNCOMMITTED),
    _bytes("fetch.max.bytes", 16 << 20,
           "Maximum bytes of the response to one fetch; a single larger record batch is always returned (KIP-74)."),
    _bytes("max.partition.fetch.bytes", 8 << 20, "Maximum bytes of one partition in a response, with the same "
                                                 "exception."),
    _limit("fetch.max.wait.ms", 500, "Longest time for which a broker waits for new records before it responds "
                                           "to a fetch."),
    _bytes("fetch.min.bytes", 1, "A broker waits until it has this many bytes, or for `kafka.fetch.max.wait.ms`."),
    _row("check.crcs", boolean, "must be true or false", "true",
         "Whether the checksum of every record batch is verified.", default=True, default_text="true"),
    _row("receive.buffer.bytes", _buffer_size, "must be a whole number of bytes; -1 is the system's", "65536",
         "Size of the socket's receive buffer.", default_text="the system's"),
    _row("send.buffer.bytes", _buffer_size, "must be a whole number of bytes; -1 is the system's", "131072",
         "Size of the socket's send buffer.", default_text="the system's"),
    _row("group.id", non_empty, "must be a name that is not empty", "checkout",
         "No effect, with a warning: the source joins no consumer group. To show a query in Kafka's tools use "
         "`commitGroupId`."),
    _row("max.poll.records", positive_integer, "must be a whole number of at least 1", "500",
         "No effect, with a warning: `maxOffsetsPerTrigger` limits the records of a batch."),
)  # fmt: skip
SETTINGS: Mapping[str, Option] = {row.name.removeprefix("kafka."): row for row in _ROWS}
"""By Java name, without the prefix ``kafka.``."""
WITHOUT_EFFECT: Mapping[str, str] = {
    "group.id": "the source joins no consumer group; one that shows the query's lag is named in commitGroupId",
    "max.poll.records": "records are read in batches of columns; maxOffsetsPerTrigger limits those of a batch",
}
"""Settings that are accepted with a warning, and the reason why they change nothing."""
PASSED_ON = (
    "client.id",
    "client.dns.lookup",
    "security.protocol",
    "sasl.mechanism",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
)
"""Those that kafka-python has under the same name, with underscores."""

_POSITION = "where to begin is startingOffsets, and later the query's checkpoint"
_BINARY = "key and value arrive as binary; decode them in the query with cast, from_json or from_avro"
_NO_GROUP = "it belongs to consumer groups, which this source does not use; leave it out"
_JAVA_CLASS = "it names a Java class, and this source has no Java client; leave it out"
_LOGIN = (
    "the ways to log in are PLAIN, SCRAM, OAUTHBEARER (client credentials), AWS_MSK_IAM and GSSAPI, with "
    "kafka.sasl.mechanism and kafka.sasl.jaas.config"
)
_TLS = "TLS 1.2 or later and the ciphers are chosen by the system's OpenSSL"
_CHECKPOINT = "the position is in the query's checkpoint; to show it in Kafka's tools name a group in commitGroupId"
_PEM_ONLY = (
    "PEM files have no password of their own, the password of an encrypted key is kafka.ssl.key.password; convert a "
    "JKS or PKCS12 store with keytool -list -rfc -keystore store.jks > store.pem"
)

_OF_GROUPS = (
    "partition.assignment.strategy",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
)
_JAVA_TLS = (
    "ssl.provider",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
)
REFUSED: dict[str, str] = {
    "auto.offset.reset": f"{_POSITION}; what happens to lost rows is failOnDataLoss",
    **dict.fromkeys(("key.deserializer", "value.deserializer"), _BINARY),
    **dict.fromkeys(("enable.auto.commit", "auto.commit.interval.ms"), _CHECKPOINT),
    "interceptor.classes": f"{_JAVA_CLASS} and change rows in the query",
    **dict.fromkeys(_OF_GROUPS, _NO_GROUP),
    "socket.connection.setup.timeout.max.ms": (
        "waits for a connection do not grow with failures; how long each may take is "
        "kafka.socket.connection.setup.timeout.ms"
    ),
    "allow.auto.create.topics": "reading never creates a topic; leave it out",
    "exclude.internal.topics": "subscribePattern never matches internal topics; name them in subscribe",
    **dict.fromkeys(("metric.reporters", "security.providers"), _JAVA_CLASS),
    **dict.fromkeys(("ssl.truststore.password", "ssl.keystore.password"), _PEM_ONLY),
    **dict.fromkeys(("ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites"), _TLS),
    **dict.fromkeys(_JAVA_TLS, _JAVA_CLASS),
}
"""Settings of Kafka that are refused, and what to do instead."""

REFUSED_FAMILIES = (("sasl.", _LOGIN), ("metrics.", _JAVA_CLASS))
_SECRET_FAMILIES = ("sasl.", "ssl.")
_SECRET_WORDS = ("password", "secret", "jaas", "token", "key")


def refusal(java: str) -> str | None:
    """Return why a setting is refused, or ``None`` if it is not."""
    if java in REFUSED:
        return REFUSED[java]
    if java in SETTINGS:
        return None
    return next((reason for family, reason in REFUSED_FAMILIES if java.startswith(family)), None)


def may_be_secret(java: str) -> bool:
    """Return whether the value of a setting not in the table must stay out of messages."""
    # A misspelled name of a login setting still holds the login.
    return java.startswith(_SECRET_FAMILIES) or any(secret in java for secret in _SECRET_WORDS)
