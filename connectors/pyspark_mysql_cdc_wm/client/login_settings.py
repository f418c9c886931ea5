"""How to log in to a server, and with which TLS."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from watermark_source.errors import OptionError

_log = logging.getLogger(__name__)

# TLS to a server: MySQL's modes, and certificates from PEM files that every node has at the same path.


class TlsMode(Enum):
    """What a connection requires, as in MySQL's ``--ssl-mode``."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    """TLS where the server offers it; nothing is verified."""
    REQUIRED = "required"
    """No connection without TLS; nothing is verified."""
    VERIFY_CA = "verify_ca"
    """A trusted authority must have signed the server's certificate."""
    VERIFY_IDENTITY = "verify_identity"
    """As ``VERIFY_CA``, and the certificate must be for the host name of the connection."""

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is verified."""
        return self in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)


@dataclass(frozen=True, slots=True)
class Tls:
    """How to connect with TLS."""

    mode: TlsMode = TlsMode.PREFERRED
    ca: str | None = None
    """File of the trusted authorities; ``None`` for those that the system trusts."""
    certificate: str | None = None
    """File of the client's certificate, with the chain up to the authority."""
    key: str | None = None
    """File of the certificate's private key; ``None`` if it is in the certificate's file."""
    key_password: str | None = field(default=None, repr=False)

    def for_pymysql(self) -> dict[str, Any]:
        """Return PyMySQL's arguments for TLS.

        Raises:
            OptionError: a file cannot be read; the error names the option.
        """
        if self.mode is TlsMode.DISABLED:
            return {"ssl_disabled": True}
        return {} if self.mode is TlsMode.PREFERRED else {"ssl": tls_context(self)}


_last: dict[Tls, ssl.SSLContext] = {}
"""The last context that could be made, by settings."""


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the context that all connections of a process with these settings share, until one of the files changes.

    Files that are renewed one after another may not match each other in between. The previous context is then used.
    Without a previous one it raises as ``Tls.for_pymysql``.
    """
    try:
        context = _context(tls, tuple(map(_file_version, (tls.ca, tls.certificate, tls.key))))
    except OptionError as error:
        if tls not in _last:
            raise
        _log.warning("%s. The previous content is used until the files can be read again", error)
        return _last[tls]
    _last[tls] = context
    return context


def _file_version(path: str | None) -> tuple[int, int] | None:
    """Return a value that changes when the file at a path is renewed; ``None`` if there is no such file."""
    try:
        status = os.stat(path or "")
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ino


@lru_cache(maxsize=8)
def _context(tls: Tls, files: tuple[tuple[int, int] | None, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.mode is TlsMode.VERIFY_IDENTITY
    context.verify_mode = ssl.CERT_REQUIRED if tls.mode.verifies else ssl.CERT_NONE
    try:
        if tls.ca is not None:
            context.load_verify_locations(cafile=tls.ca)
        elif tls.mode.verifies:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise _unreadable("sslCa", tls.ca, error, "/etc/mysql/ca.pem") from error
    if tls.certificate is not None:
        try:
            # An empty password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password or "")
        except (OSError, ValueError) as error:
            seen = tls.certificate if tls.key is None else f"{tls.certificate}, with sslKey {tls.key}"
            raise _unreadable("sslCert", seen, error, "/etc/mysql/client-cert.pem") from error
    return context


def _unreadable(option: str, path: str | None, error: Exception, example: str) -> OptionError:
    return OptionError(
        option,
        path,
        f"cannot be read ({error}); PEM files are needed, at the same path on the driver and every executor",
        example=example,
    )


PATIENCE_SECONDS = 60
"""How long a running query retries while its server cannot be reached: a restart of the server takes less."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """The server's address, the login and the time limits of a connection. No text form of it has the password."""

    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    _: KW_ONLY
    tls: Tls = field(default_factory=Tls)
    connect_seconds: float = 10
    """Limit for opening the TCP connection, to each of the name's addresses in turn."""
    answer_seconds: float = 60
    """Limit for each wait for bytes of the server or until it takes some, TLS and login included, and for new events
    of a dump."""
    patience_seconds: float = 0
    """How long in seconds to retry while the server cannot be reached."""
    server: str | None = None
    """The identity of the only server to connect to; ``None`` for any. A fail-over can move the address."""

    @property
    def where(self) -> str:
        """The server's name in errors and logs."""
        return f"MySQL at {self.hostname}:{self.port}"

    @property
    def patient(self) -> LoginSettings:
        """The same settings with retries, so that a restart of the server does not end a running query."""
        return replace(self, patience_seconds=PATIENCE_SECONDS)

    def for_pymysql(self) -> dict[str, Any]:
        """Return PyMySQL's arguments. Its limit for connecting covers TCP alone, the one for reading all that follows.

        Raises:
            OptionError: a certificate cannot be read.
        """
        return {
            "host": self.hostname,
            "port": self.port,
            "user": self.username,
            # PyMySQL encodes a str as Latin-1, but statements set passwords in UTF-8.
            "password": self.password.encode("utf-8", "surrogateescape"),
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": self.connect_seconds,
            "read_timeout": self.answer_seconds,
            "write_timeout": self.answer_seconds,
            **self.tls.for_pymysql(),
        }
