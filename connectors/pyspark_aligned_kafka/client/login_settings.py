"""Logins: checks of the settings of each mechanism, and their settings in kafka-python."""

from __future__ import annotations

import logging
import re
import ssl
import urllib.parse
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from pyspark_aligned_kafka.client.token_source import TokenSource
from watermark_source.errors import OptionError
from watermark_source.installation import to_install

_log = logging.getLogger(__name__)

# ``sasl.jaas.config`` as Kafka's Java clients write it: a login module and its options.


_ENTRY = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
_OPTION = re.compile(r"""\s+(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s";]+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Login:
    """A way to log in, as a login module of Kafka's Java clients has it."""

    mechanisms: tuple[str, ...]
    needed: tuple[str, ...] = ()
    """Options of the module that must be there."""
    without_effect: re.Pattern[str] | None = None
    """Options of the module that would have no effect."""
    instead: str = ""
    """What to do in place of these."""
    settings: tuple[str, ...] = ()
    """Settings that belong to these mechanisms alone."""
    package: tuple[str, str] | None = None
    """The package that kafka-python imports for it, and the extra that installs it."""
    hint: str = ""
    """A requirement that only an attempt can check."""


_URL = "sasl.oauthbearer.token.endpoint.url"
_ID = "sasl.oauthbearer.client.credentials.client.id"
_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - the setting's name
_SCOPE = "sasl.oauthbearer.scope"
_ENCODE = "sasl.oauthbearer.header.urlencode"
_SERVICE = "sasl.kerberos.service.name"
_USER = ("username", "password")
_LOGINS: Mapping[str, _Login] = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": _Login(mechanisms=("PLAIN",), needed=_USER),
    "org.apache.kafka.common.security.scram.ScramLoginModule": _Login(
        mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"),
        needed=_USER,
        without_effect=re.compile("tokenauth"),
        instead="delegation tokens are not supported; use a user and a password, without tokenauth",
    ),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": _Login(
        mechanisms=("OAUTHBEARER",),
        without_effect=re.compile("unsecuredLogin.*|ssl\\.(?!truststore\\.(location|type)$).*"),
        instead="tokens come from kafka.sasl.oauthbearer.token.endpoint.url, and the module may say clientId, "
        "clientSecret, scope, extension_NAME and ssl.truststore.location (PEM)",
        settings=(_URL, _ID, _SECRET, _SCOPE, _ENCODE, "sasl.login.callback.handler.class"),
    ),
    "software.amazon.msk.auth.iam.IAMLoginModule": _Login(
        mechanisms=("AWS_MSK_IAM",),
        without_effect=re.compile(".*"),
        instead="credentials and region are looked for as botocore does, such as in AWS_PROFILE and AWS_DEFAULT_REGION "
        "on the driver and the executors; the module takes no options",
        settings=("sasl.client.callback.handler.class",),
        package=("botocore", "msk"),
        hint="botocore must find credentials and a region on the driver and the executors, for example AWS_PROFILE or "
        "AWS_ACCESS_KEY_ID, and AWS_DEFAULT_REGION",
    ),
    "com.sun.security.auth.module.Krb5LoginModule": _Login(
        mechanisms=("GSSAPI",),
        without_effect=re.compile("useKeyTab|keyTab|principal|ticketCache"),
        instead="Kerberos looks for tickets and keys itself: KRB5_CLIENT_KTNAME (a keytab) or KRB5CCNAME (a ticket "
        "cache) on the driver and, by spark.executorEnv, on the executors; the module may say serviceName",
        settings=(_SERVICE,),
        package=("gssapi", "kerberos"),
        hint="Kerberos must find a ticket or a key on the driver and the executors: kinit, or KRB5_CLIENT_KTNAME; and "
        "kafka.sasl.kerberos.service.name must be the first part of the brokers' principals",
    ),
}
"""By the class of the login module."""
MECHANISMS: Mapping[str, _Login] = {name: login for login in _LOGINS.values() for name in login.mechanisms}


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
    login = _LOGINS.get(entry["module"])
    if login is None:
        known = ", ".join(name.rpartition(".")[2] for name in _LOGINS)
        raise ValueError(f"the login module is none of {known}, each with its package")
    options = _options(entry["options"])
    refused = login.without_effect
    if refused and any(refused.fullmatch(name) and text.lower() != "false" for name, text in options.items()):
        raise ValueError(login.instead)
    if missing := [name for name in login.needed if not options.get(name)]:
        raise ValueError(f"{' and '.join(missing)} missing")
    return LoginModule(login.mechanisms, options)


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


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="user" password="secret";'


SASL = ("SASL_SSL", "SASL_PLAINTEXT")


def is_protocol(protocol: str, wanted: tuple[str, ...], family: str, given: Set[str]) -> bool:
    """Return whether the protocol is one of those wanted; raises ``OptionError`` for settings of theirs if not."""
    needless = [] if protocol in wanted else sorted(name for name in given if name.startswith(family))
    if needless:
        why = f"must be {' or '.join(wanted)} because kafka.{needless[0]} is set"
        raise OptionError("kafka.security.protocol", protocol, why, example=wanted[0])
    return protocol in wanted


def check_login(values: Mapping[str, Any], given: Set[str]) -> None:
    """Check that the login's settings, each of which is valid by itself, fit together.

    Raises:
        OptionError: settings contradict each other, one is missing, or the mechanism's package is not installed.
    """
    protocol, mechanism, module = (values[n] for n in ("security.protocol", "sasl.mechanism", "sasl.jaas.config"))
    if not is_protocol(protocol, SASL, "sasl.", given):
        return
    refusal = partial(OptionError, "kafka.sasl.mechanism", mechanism)
    if mechanism is None and module is not None:
        why = f"is needed with kafka.sasl.jaas.config; its module is for {' or '.join(module.mechanisms)}"
        raise refusal(why, example=module.mechanisms[-1])
    if module is None and (mechanism is None or mechanism.startswith(("PLAIN", "SCRAM"))):
        why = f"is needed with kafka.security.protocol {protocol}"
        raise OptionError("kafka.sasl.jaas.config", None, why, example=JAAS)
    if module is not None and mechanism not in module.mechanisms:
        why = f"must be {' or '.join(module.mechanisms)}, which the module in kafka.sasl.jaas.config is for"
        raise refusal(why, example=module.mechanisms[-1])
    for wanted, login in MECHANISMS.items():
        for name in login.settings:
            if name in given and mechanism != wanted:
                raise refusal(f"must be {wanted} because kafka.{name} is set", example=wanted)
    package = MECHANISMS[mechanism].package
    if package is not None and find_spec(package[0]) is None:
        raise refusal(
            f"needs the package {package[0]}, which is not installed where the driver runs (the executors need it "
            f"too); install it with: {to_install(package[1])}"
        )
    if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
        raise OptionError("kafka.security.protocol", protocol, "must be SASL_SSL for AWS_MSK_IAM", example="SASL_SSL")
    if mechanism == "OAUTHBEARER":
        _check_tokens(values)


def login_configs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings of a login that has been checked. Not picklable."""
    mechanism, module = values["sasl.mechanism"], values["sasl.jaas.config"]
    options = {} if module is None else module.options
    if mechanism == "OAUTHBEARER":
        from pyspark_aligned_kafka.client.token_endpoint import tokens_of  # noqa: PLC0415 - brings kafka-python with it

        return {"sasl_oauth_token_provider": tokens_of(_token_source(values))}
    if mechanism == "GSSAPI":
        return {"sasl_kerberos_service_name": values[_SERVICE] or options.get("serviceName") or "kafka"}
    if mechanism == "AWS_MSK_IAM":
        return {}
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _check_tokens(values: Mapping[str, Any]) -> None:
    source = _token_source(values)
    if not source.url:
        raise OptionError(f"kafka.{_URL}", None, "is needed for OAUTHBEARER", example="https://login.example.com/token")
    if source.url.startswith("file:"):
        return
    _check_trusted(source.trusted_file)
    for setting, option, value in (
        (_ID, "clientId", source.client_id),
        (_SECRET, "clientSecret", source.client_secret),
    ):
        if not value:
            raise OptionError(
                f"kafka.{setting}", None, f"is needed for OAUTHBEARER, here or as {option} in kafka.sasl.jaas.config",
                example="checkout",
            )  # fmt: skip
    url = urllib.parse.urlsplit(source.url)
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        _log.warning("kafka.%s is not https: the client's secret goes over the network in the clear", _URL)


def _check_trusted(file: str | None) -> None:
    try:
        if file is not None:
            ssl.create_default_context(cafile=file)
    except OSError as error:
        raise OptionError(
            "kafka.sasl.jaas.config", "***",
            f"its ssl.truststore.location must be a file of certificates in PEM, and cannot be used ({error})",
        ) from None  # fmt: skip


def _token_source(values: Mapping[str, Any]) -> TokenSource:
    module = values["sasl.jaas.config"]
    options: Mapping[str, str] = {} if module is None else module.options
    extensions = {k.removeprefix("extension_"): text for k, text in options.items() if k.startswith("extension_")}
    return TokenSource(
        values[_URL] or "",
        client_id=values[_ID] or options.get("clientId"),
        client_secret=values[_SECRET] or options.get("clientSecret"),
        encodes_login=values[_ENCODE],
        scope=values[_SCOPE] or options.get("scope"),
        extensions=tuple(extensions.items()),
        trusted_file=options.get("ssl.truststore.location"),
        limit_s=values["socket.connection.setup.timeout.ms"] / 1_000,
    )
