"""``sasl.jaas.config`` as Kafka's Java clients write it: a login module and its options."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SHORT = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
    "software.amazon.msk.auth.iam.IAMLoginModule": "AWS_MSK_IAM",
    "com.sun.security.auth.module.Krb5LoginModule": "GSSAPI",
}
_MECHANISMS = {
    "PLAIN": ("PLAIN",),
    "SCRAM": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAUTHBEARER": ("OAUTHBEARER",),
    "AWS_MSK_IAM": ("AWS_MSK_IAM",),
    "GSSAPI": ("GSSAPI",),
}
MECHANISMS = tuple(name for names in _MECHANISMS.values() for name in names)
_WITH_PASSWORD = ("PLAIN", "SCRAM")

_ENTRY = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
_OPTION = re.compile(r"""\s+(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s";]+))""")

_REFUSED: Mapping[str, tuple[re.Pattern[str], str]] = {
    "SCRAM": (
        re.compile("tokenauth"),
        "delegation tokens are not supported; use a user and a password, without tokenauth",
    ),
    "OAUTHBEARER": (
        re.compile("unsecuredLogin.*|ssl\\.(?!truststore\\.(location|type)$).*"),
        (
            "tokens come from kafka.sasl.oauthbearer.token.endpoint.url, and the module may say clientId, "
            "clientSecret, scope, extension_NAME and ssl.truststore.location (PEM)"
        ),
    ),
    "AWS_MSK_IAM": (
        re.compile(".*"),
        (
            "credentials and region are looked for as botocore does, such as in AWS_PROFILE and AWS_DEFAULT_REGION on "
            "the driver and the executors; the module takes no options"
        ),
    ),
    "GSSAPI": (
        re.compile("useKeyTab|keyTab|principal|ticketCache"),
        (
            "Kerberos looks for tickets and keys itself: KRB5_CLIENT_KTNAME (a keytab) or KRB5CCNAME (a ticket cache) "
            "on the driver and, by spark.executorEnv, on the executors; the module may say serviceName"
        ),
    ),
}
"""By module: options that would have no effect, and what to do instead."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: the mechanisms it is for, and its options, which may be secret."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Parse ``org.apache.kafka...PlainLoginModule required username="u" password="p";`` or another module's.

    Raises:
        ValueError: it is anything else. The message holds no part of the text, which is a secret.
    """
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise ValueError("not of that form; it must end with a semicolon")
    module = _SHORT.get(entry["module"])
    if module is None:
        known = ", ".join(name.rpartition(".")[2] for name in _SHORT)
        raise ValueError(f"the login module is none of {known}, each with its package")
    options = _options(entry["options"])
    if module in _REFUSED:
        pattern, instead = _REFUSED[module]
        if any(pattern.fullmatch(name) and text.lower() != "false" for name, text in options.items()):
            raise ValueError(instead)
    if module in _WITH_PASSWORD:
        missing = [name for name in ("username", "password") if not options.get(name)]
        if missing:
            raise ValueError(f"{' and '.join(missing)} missing")
    return LoginModule(_MECHANISMS[module], options)


def _options(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        match = _OPTION.match(text, position)
        if match is None:
            raise ValueError('options must be written name="value"')
        quoted = match["quoted"]
        found[match["name"]] = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = match.end()
    return found


def hide_wire_logs() -> None:
    """Keep the bytes of logins out of kafka-python's debug log, which shows every request as it is sent.

    Call it in each process before it logs in.
    """
    for name in ("kafka.net.connection", "kafka.protocol.parser"):
        logging.getLogger(name).addFilter(_above_debug)


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
