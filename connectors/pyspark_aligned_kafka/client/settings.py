"""``kafka.*`` options: Kafka's Java names, checked and turned into settings of kafka-python."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_aligned_kafka.client import setting_table as table
from pyspark_aligned_kafka.client.login_settings import check_login, login_configs
from pyspark_aligned_kafka.client.tls import Tls, tls_context
from watermark_source.errors import OptionError
from watermark_source.option_table import unknown_option

PREFIX = "kafka."

_log = logging.getLogger(__name__)
_HIDDEN = "***"
_PEM_BLOCK = re.compile(r"(?P<begin>-----BEGIN [^-]+-----)(?P<body>.*?)(?P<end>-----END [^-]+-----)", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """All ``kafka.*`` options after checking. Picklable; its ``repr`` shows no secret."""

    values: Mapping[str, Any]
    """By Java name without the prefix; those not given have their defaults, or ``None``."""
    given: frozenset[str]
    tls: Tls | None = field(default=None)

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
            row.target: self.values[row.java]
            for row in table.SETTINGS
            if row.target is not None and self.values[row.java] is not None
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
        if self.tls is not None:
            configs["ssl_context"] = tls_context(self.tls)
        return configs

    @property
    def uses_sasl(self) -> bool:
        """Whether the brokers require a login."""
        return str(self.values["security.protocol"]).startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return str(self.values["security.protocol"]).endswith("SSL")

    def __repr__(self) -> str:
        shown = {
            row.java: _HIDDEN if row.option.secret else self.values[row.java]
            for row in table.SETTINGS
            if row.java in self.given
        }
        return f"ClientSettings({shown})"


def setting_names() -> tuple[str, ...]:
    """Return the full name of every setting."""
    return tuple(PREFIX + row.java for row in table.SETTINGS)


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
    rows = {row.java: row for row in table.SETTINGS}
    for name, text in texts.items():
        if (reason := table.refusal(name)) is not None:
            raise OptionError(PREFIX + name, _HIDDEN if table.may_be_secret(name) else text, f"not supported: {reason}")
        if name not in rows:
            raise unknown_option(PREFIX + name, setting_names())
    values = {row.java: row.option.default for row in table.SETTINGS}
    values.update({name: rows[name].option.read(text) for name, text in texts.items()})
    if values["bootstrap.servers"] is None:
        raise OptionError("kafka.bootstrap.servers", None, "is needed", example="broker1:9092,broker2:9092")
    if "group.id" in texts:
        _log.warning(
            "kafka.group.id has no effect: the source joins no consumer group; one that shows the query's lag is named "
            "in commitGroupId"
        )
    settings = ClientSettings(values, frozenset(texts))
    check_login(values, settings.given)
    if "fetch.max.wait.ms" in texts and values["fetch.max.wait.ms"] >= values["request.timeout.ms"]:
        raise OptionError(
            "kafka.fetch.max.wait.ms", values["fetch.max.wait.ms"],
            f"must be less than kafka.request.timeout.ms, which is {values['request.timeout.ms']}: every answer would "
            "come too late", example="500",
        )  # fmt: skip
    tls = _tls(settings)
    if tls is not None:
        tls_context(tls)
        settings = ClientSettings(values, frozenset(texts), tls)
    return settings


def _tls(settings: ClientSettings) -> Tls | None:
    values = settings.values
    if not settings.uses_tls:
        for name in sorted(settings.given):
            if name.startswith("ssl."):
                raise OptionError(
                    "kafka.security.protocol",
                    values["security.protocol"],
                    f"must be SSL or SASL_SSL because kafka.{name} is set",
                    example="SSL",
                )
        return None
    _one_of(values, "ssl.truststore.location", "ssl.truststore.certificates")
    _one_of(values, "ssl.keystore.location", "ssl.keystore.certificate.chain")
    if (values["ssl.keystore.key"] is None) != (values["ssl.keystore.certificate.chain"] is None):
        here, missing = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if values[here] is None:
            here, missing = missing, here
        raise OptionError(PREFIX + missing, None, f"is needed because {PREFIX}{here} is set")
    return Tls(
        trusted_file=values["ssl.truststore.location"],
        trusted_text=_pem(values["ssl.truststore.certificates"]),
        identity_file=values["ssl.keystore.location"],
        identity_chain=_pem(values["ssl.keystore.certificate.chain"]),
        identity_key=_pem(values["ssl.keystore.key"]),
        key_password=values["ssl.key.password"],
        check_hostname=values["ssl.endpoint.identification.algorithm"] == "https",
    )


def _one_of(values: Mapping[str, Any], first: str, second: str) -> None:
    if values[first] is not None and values[second] is not None:
        raise OptionError(PREFIX + second, "(PEM text)", f"excludes {PREFIX}{first}; give one of the two")


def _pem(text: str | None) -> str | None:
    return None if text is None else _PEM_BLOCK.sub(_with_line_ends, text)


def _with_line_ends(block: re.Match[str]) -> str:
    # One-line PEM, as property files hold it, has blanks where OpenSSL wants line ends.
    body = block["body"] if "\n" in block["body"] else "\n".join(block["body"].split())
    return f"{block['begin']}\n{body.strip()}\n{block['end']}\n"
