"""Any options at all: checked options, or a declared error; a secret is in neither.

An input: pairs of an option's name, often a real one, and a text, often one that is nearly right.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from pyspark_aligned_kafka.client import setting_table
from pyspark_aligned_kafka.options.kafka_option_table import OPTION_TABLE
from pyspark_aligned_kafka.options.kafka_options import parse
from tests.soak.fuzz.bits import Bits
from watermark_source.errors import OptionError

_ROWS = (*OPTION_TABLE.options, *setting_table.SETTINGS.values())
_SECRETS = (
    *(row.name for row in _ROWS if row.secret),
    "kafka.ssl.keystore.password", "kafka.sasl.password", "kafka.sasl.jaas.confg", "kafka.ssl.key.pasword",
)  # fmt: skip
"""Real names, refused ones and misspelled ones."""
_NAMES = (*(row.name for row in _ROWS), *_SECRETS, "path")
_MARK = "p4ssw0rd"
_PEM = Path(__file__).parents[2] / "certificates"
_BASES: tuple[dict[str, str], ...] = (
    {},
    {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"},
    {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "a,b", "kafka.security.protocol": "SASL_PLAINTEXT"},
    {"kafka.bootstrap.servers": "a:1", "assign": '{"a":[0]}', "kafka.security.protocol": "SSL"},
)
_TEXTS = (
    *dict.fromkeys(row.example for row in _ROWS),
    '{"a":{"0":1}}', '{"a":[0]}', "-1", "9" * 5_000, "a{99999999999}", "(" * 500, "[[:alpha:]--a]", "1e5 days",
    "99999999999999999999999 days", "PLAIN", str(_PEM / "client.pem"), (_PEM / "client.pem").read_text(), "é", "\ud800",
    "\0", " ", "true", "none", "x,x", "localhost:0", "[::1]:9092",
)  # fmt: skip
_LONGEST_MESSAGE = 3_000


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()


# The system's certificates take a tenth of a second.
ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
_heard = _Heard()
_logger = logging.getLogger("pyspark_aligned_kafka")
_logger.addHandler(_heard)
_logger.propagate = False


def check(data: bytes) -> str:
    """Parse an input; return what it means."""
    bits = Bits(data)
    given = dict(bits.one_of(_BASES))
    while bits:
        name = bits.one_of((*_NAMES, None, None))
        if name is None:
            name = bits.text()
        given[name] = _text(name, bits)
    _heard.text = ""
    try:
        reported = repr(parse(given))
    except OptionError as error:
        reported = f"{type(error).__name__}: {error}"
        assert len(reported) < _LONGEST_MESSAGE
    assert _MARK not in reported, "a secret is shown"
    assert _MARK not in _heard.text, "a secret is logged"
    return reported


def _text(name: str, bits: Bits) -> str:
    """Return a text for an option; one that holds the secret for those that may be secret, and only for them."""
    kind = bits.byte() % 4
    if kind == 0:
        text = bits.text()
    else:
        text = bits.one_of(_TEXTS)
        if kind > 1:
            cut = bits.byte() % (len(text) + 1)
            text = text[:cut] + bits.text() + text[cut + bits.byte() % 3 :]
    text = text.replace(_MARK, "")
    if name in _SECRETS:
        middle = bits.byte() % (len(text) + 1)
        text = text[:middle] + _MARK + text[middle:]
    return text
