"""TLS to a server: MySQL's own modes, and certificates from PEM files that every node has at the same path."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from watermark_source.errors import OptionError

_log = logging.getLogger(__name__)


class TlsMode(Enum):
    """What is asked of a connection; words of MySQL's ``--ssl-mode``."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    """TLS where the server offers it; nothing is verified."""
    REQUIRED = "required"
    """No connection without TLS; nothing is verified."""
    VERIFY_CA = "verify_ca"
    """The server's certificate must be signed by one that is trusted."""
    VERIFY_IDENTITY = "verify_identity"
    """And it must be for the host name that is connected to."""

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is looked at."""
        return self in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)


@dataclass(frozen=True, slots=True)
class Tls:
    """How to connect. ``ca`` ``None`` trusts what the system trusts."""

    mode: TlsMode = TlsMode.PREFERRED
    ca: str | None = None
    certificate: str | None = None
    """Of the client, with the chain up to the CA."""
    key: str | None = None
    """The certificate's private key; ``None``: it is in the same file."""
    key_password: str | None = field(default=None, repr=False)

    def for_pymysql(self) -> dict[str, Any]:
        """Return what PyMySQL is called with.

        Raises:
            OptionError: a file that cannot be read; names the option.
        """
        if self.mode is TlsMode.DISABLED:
            return {"ssl_disabled": True}
        return {} if self.mode is TlsMode.PREFERRED else {"ssl": tls_context(self)}


_last: dict[Tls, ssl.SSLContext] = {}
"""What the files held when they could be read last."""


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the one context of all such connections of a process, until one of the files is another.

    While files are renewed one after another they may not fit each other: then it is the one of before. Raises as
    ``Tls.for_pymysql`` where there is none.
    """
    try:
        found = _context(tls, tuple(map(_state, (tls.ca, tls.certificate, tls.key))))
    except OptionError as trouble:
        if tls not in _last:
            raise
        _log.warning("%s. What was read there before is used", trouble)
        return _last[tls]
    _last[tls] = found
    return found


def _state(path: str | None) -> tuple[int, int] | None:
    """Return what changes when a file is renewed at its path; ``None`` where it cannot be told."""
    try:
        found = os.stat(path or "")
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ino


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
        raise _unreadable("sslCa", tls.ca, error) from error
    if tls.certificate is not None:
        try:
            # An empty password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password or "")
        except (OSError, ValueError) as error:
            raise _unreadable("sslCert", tls.certificate, error) from error
    return context


def _unreadable(option: str, path: str | None, error: Exception) -> OptionError:
    return OptionError(
        option,
        path,
        f"cannot be read ({error}); PEM files are needed, at the same path on the driver and every executor",
        example="/etc/mysql/ca.pem",
    )
