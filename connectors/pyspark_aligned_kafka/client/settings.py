"""``kafka.*`` options: Kafka's Java names, checked and turned into settings of kafka-python."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from pyspark_aligned_kafka.client import setting_table as table
from pyspark_aligned_kafka.client.login_settings import SASL, check_login, is_protocol, login_configs
from watermark_source.errors import OptionError
from watermark_source.option_table import unknown_option

_log = logging.getLogger(__name__)

# TLS from PEM files or PEM texts; files are read again by each process.


_HAS_FILES_IN_MEMORY = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def tls_context(values: Mapping[str, Any]) -> ssl.SSLContext:
    """Build the context: TLS 1.2 or later, certificates always verified; by default the system's are trusted.

    Raises:
        OptionError: a file or a text cannot be read; names the ``kafka.ssl.*`` option.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = values["ssl.endpoint.identification.algorithm"] == "https"
    if (trusted := values["ssl.truststore.location"]) is not None:
        with _naming("kafka.ssl.truststore.location", trusted):
            context.load_verify_locations(cafile=trusted)
    elif (text := values["ssl.truststore.certificates"]) is not None:
        with _naming("kafka.ssl.truststore.certificates", "(PEM text)"):
            context.load_verify_locations(cadata=text)
    else:
        context.load_default_certs()
    # An empty password keeps OpenSSL from asking for one on the terminal.
    password = values["ssl.key.password"] or ""
    if (identity := values["ssl.keystore.location"]) is not None:
        with _naming("kafka.ssl.keystore.location", identity):
            context.load_cert_chain(identity, password=password)
    elif (key := values["ssl.keystore.key"]) is not None:
        with (
            _naming("kafka.ssl.keystore.certificate.chain", "(PEM text)"),
            _as_file(key + "\n" + values["ssl.keystore.certificate.chain"]) as path,
        ):
            context.load_cert_chain(path, password=password)
    return context


@contextlib.contextmanager
def _naming(option: str, seen: str) -> Iterator[None]:
    try:
        yield
    # ssl.SSLError is an OSError; a wrong password or a broken PEM text may also be a ValueError, and a text that is not
    # ASCII a TypeError.
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(
            option,
            seen,
            f"cannot be used on this machine ({error}); must be readable PEM, and an encrypted key needs "
            "kafka.ssl.key.password. A JKS or PKCS12 store is converted with keytool or openssl",
            example="keytool -list -rfc -keystore store.jks > store.pem",
        ) from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    # OpenSSL's Python interface loads an identity from a file only. One in memory leaves nothing on a disk if this
    # process is killed now; mkstemp at least makes one that only this user may read.
    if _HAS_FILES_IN_MEMORY:
        handle = os.memfd_create("identity")
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            yield path
    finally:
        if not _HAS_FILES_IN_MEMORY:
            os.unlink(path)


PREFIX = "kafka."
_TLS = ("SSL", "SASL_SSL")

_HIDDEN = "***"


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """All ``kafka.*`` options after checking. Picklable; its ``repr`` shows no secret."""

    values: Mapping[str, Any]
    """By Java name without the prefix; those not given have their defaults, or ``None``."""

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """``host:port`` of the brokers to connect to first."""
        servers: tuple[str, ...] = self.values["bootstrap.servers"]
        return servers

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions stay invisible."""
        return bool(self.values["isolation.level"] == table.READ_COMMITTED)

    def millis(self, name: str) -> int:
        """Return a time limit in milliseconds by its Java name."""
        return int(self.values[name])

    def client_configs(self) -> dict[str, Any]:
        """Return the settings as kafka-python's clients take them; the caller must not log it."""
        configs: dict[str, Any] = {
            name.replace(".", "_"): value for name in table.PASSED_ON if (value := self.values[name]) is not None
        }
        configs["bootstrap_servers"] = list(self.bootstrap_servers)
        # kafka-python's own default, 1 MB, is less than the metadata of a big cluster takes.
        configs["receive_message_max_bytes"] = 100_000_000
        configs["socket_options"] = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            *(
                (socket.SOL_SOCKET, which, size)
                for name, which in (("receive.buffer.bytes", socket.SO_RCVBUF), ("send.buffer.bytes", socket.SO_SNDBUF))
                if (size := self.values[name]) is not None
            ),
        ]
        if self.uses_sasl:
            configs |= login_configs(self.values)
        if self.values["security.protocol"] in _TLS:
            configs["ssl_context"] = tls_context(self.values)
        return configs

    @property
    def uses_sasl(self) -> bool:
        """Whether the brokers require a login."""
        return self.values["security.protocol"] in SASL

    def __repr__(self) -> str:
        shown = {
            name: _HIDDEN if row.secret else self.values[name]
            for name, row in table.SETTINGS.items()
            if self.values[name] != row.default
        }
        return f"ClientSettings({shown})"


def setting_names() -> tuple[str, ...]:
    """Return the full name of every setting."""
    return tuple(row.name for row in table.SETTINGS.values())


def parse_settings(given: Mapping[str, str]) -> ClientSettings:
    """Check the ``kafka.*`` options among all options of a query; names ignore case.

    Raises:
        OptionError: a value is not accepted, a setting cannot be honoured (with the reason and what to use
            instead), or ``kafka.bootstrap.servers`` is missing.
        UnknownOptionError: no such setting; names the nearest one.
    """
    texts = {
        name.lower().removeprefix(PREFIX): str(text) for name, text in given.items() if name.lower().startswith(PREFIX)
    }
    for name, text in texts.items():
        if (reason := table.refusal(name)) is not None:
            raise OptionError(PREFIX + name, _HIDDEN if table.may_be_secret(name) else text, f"not supported: {reason}")
        if name not in table.SETTINGS:
            raise unknown_option(PREFIX + name, setting_names())
    values = {name: row.default for name, row in table.SETTINGS.items()}
    values.update({name: table.SETTINGS[name].read(text) for name, text in texts.items()})
    if values["bootstrap.servers"] is None:
        raise OptionError("kafka.bootstrap.servers", None, "is needed", example="broker1:9092,broker2:9092")
    for name in sorted(texts.keys() & table.WITHOUT_EFFECT):
        _log.warning("%s%s has no effect: %s", PREFIX, name, table.WITHOUT_EFFECT[name])
    check_login(values, texts.keys())
    if "fetch.max.wait.ms" in texts and values["fetch.max.wait.ms"] >= values["request.timeout.ms"]:
        raise OptionError(
            "kafka.fetch.max.wait.ms", values["fetch.max.wait.ms"],
            f"must be less than kafka.request.timeout.ms, which is {values['request.timeout.ms']}: every answer would "
            "come too late", example="500",
        )  # fmt: skip
    _check_tls(values, texts.keys())
    return ClientSettings(values)


def _check_tls(values: Mapping[str, Any], given: Set[str]) -> None:
    if not is_protocol(values["security.protocol"], _TLS, "ssl.", given):
        return
    _refuse_both(values, "ssl.truststore.location", "ssl.truststore.certificates")
    _refuse_both(values, "ssl.keystore.location", "ssl.keystore.certificate.chain")
    if (values["ssl.keystore.key"] is None) != (values["ssl.keystore.certificate.chain"] is None):
        here, missing = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if values[here] is None:
            here, missing = missing, here
        raise OptionError(PREFIX + missing, None, f"is needed because {PREFIX}{here} is set")
    tls_context(values)


def _refuse_both(values: Mapping[str, Any], first: str, second: str) -> None:
    if values[first] is not None and values[second] is not None:
        raise OptionError(PREFIX + second, "(PEM text)", f"excludes {PREFIX}{first}; give one of the two")
