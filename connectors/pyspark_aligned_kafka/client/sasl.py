"""``sasl.jaas.config`` as Kafka's Java clients write it, for the PLAIN and SCRAM mechanisms."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
MECHANISMS = tuple(name for names in _MODULES.values() for name in names)

_ENTRY = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
_OPTION = re.compile(r"""\s+(?P<name>[\w.]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s";]+))""")


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, and the mechanisms they are good for."""

    username: str
    password: str = field(repr=False)
    mechanisms: tuple[str, ...]


def parse_jaas(text: str) -> Login:
    """Parse ``org.apache.kafka...PlainLoginModule required username="u" password="p";`` or the SCRAM one.

    Raises:
        ValueError: it is anything else. The message holds no part of the text, which is a secret.
    """
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise ValueError("not of that form; it must end with a semicolon")
    mechanisms = _MODULES.get(entry["module"])
    if mechanisms is None:
        raise ValueError("the login module is neither PlainLoginModule nor ScramLoginModule")
    options = _options(entry["options"])
    if options.get("tokenauth", "").lower() == "true":
        raise ValueError("delegation tokens are not supported; use a user and a password")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"{' and '.join(missing)} missing")
    return Login(options["username"], options["password"], mechanisms)


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
